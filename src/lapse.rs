//! Whether a lease has lapsed, as others see it: for how long its record has stood still. Pure; all times are of one
//! clock of the observer's that counts suspend.

use std::time::Duration;

use crate::ballot::Stamp;
use crate::facts::LeaseFacts;

/// A record watched over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watch {
    seen: Option<Stamp>,
    /// When the look that first saw it had ended.
    since: Duration,
    renewal: Option<bool>,
}

impl Watch {
    /// Takes in a look that was made between two moments of one clock. Unchanged counts from the end of the first look
    /// to the beginning of this one: what lies inside a look is not known.
    pub fn saw(&mut self, stamp: Option<Stamp>, began: Duration, ended: Duration) -> LeaseFacts {
        let Some(now) = stamp else {
            *self = Self::default();
            return LeaseFacts::default();
        };
        match self.seen {
            Some(seen) if seen == now => self.renewal = Some(self.renewal == Some(true)),
            // Another token is another claim, seen for the first time.
            seen => {
                let renewal = seen.is_some_and(|seen| seen.token == now.token).then_some(true);
                *self = Self {
                    seen: stamp,
                    since: ended,
                    renewal,
                };
            }
        }
        LeaseFacts {
            unchanged_for: Some(began.saturating_sub(self.since).as_secs_f64()),
            renewal_seen: self.renewal,
            changed_since_boot: None,
        }
    }
}
