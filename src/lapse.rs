//! Whether a lease has lapsed, as others see it: for how long its record has stood still. Pure; all times are of one
//! clock of the observer's that counts suspend.

use std::time::Duration;

use crate::ballot::Stamp;
use crate::facts::LeaseFacts;

/// What a look sees of a record that every later write to it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The record.
    pub stamp: Stamp,
    /// When its file was written last, by the clock of whoever stores it. A heartbeat that is late, or comes twice, puts
    /// an older beat back: then only this tells that there was another one.
    pub written: Duration,
}

/// A record watched over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watch {
    seen: Option<Mark>,
    /// When the look that first saw it had ended.
    since: Duration,
    renewal: Option<bool>,
}

impl Watch {
    /// Takes in a look that was made between two moments of one clock. Unchanged counts from the end of the first look
    /// to the beginning of this one: what lies inside a look is not known.
    pub fn saw(&mut self, mark: Option<Mark>, began: Duration, ended: Duration) -> LeaseFacts {
        let Some(now) = mark else {
            *self = Self::default();
            return LeaseFacts::default();
        };
        match self.seen {
            Some(seen) if seen == now => self.renewal = Some(self.renewal == Some(true)),
            // Another token is another claim, seen for the first time. The same stamp, written again, says nothing new.
            seen => {
                let claim = seen.filter(|seen| seen.stamp.token == now.stamp.token);
                let renewed = |seen: Mark| self.renewal == Some(true) || seen.stamp != now.stamp;
                *self = Self {
                    renewal: claim.map(renewed),
                    seen: mark,
                    since: ended,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn mark(token: u128, beat: u64, written: u64) -> Option<Mark> {
        let token = Token::from_bits(token);
        Some(Mark {
            stamp: Stamp { token, seq: 1, beat },
            written: s(written),
        })
    }

    /// Looks that each take a second; for how long the record stood still at the last one, and whether a renewal was seen.
    fn watch(looks: &[(u64, Option<Mark>)]) -> (Option<f64>, Option<bool>) {
        let mut watch = Watch::default();
        let mut lease = LeaseFacts::default();
        for (began, mark) in looks {
            lease = watch.saw(*mark, s(*began), s(began + 1));
        }
        (lease.unchanged_for, lease.renewal_seen)
    }

    #[test]
    fn stands_still_from_the_end_of_one_look_to_the_beginning_of_another() {
        assert_eq!(watch(&[(10, mark(1, 1, 1))]), (Some(0.0), None));
        assert_eq!(
            watch(&[(10, mark(1, 1, 1)), (30, mark(1, 1, 1)), (70, mark(1, 1, 1))]),
            (Some(59.0), Some(false))
        );
    }

    #[test]
    fn a_renewal_starts_the_count_anew_and_is_remembered() {
        assert_eq!(
            watch(&[(10, mark(1, 1, 1)), (30, mark(1, 2, 2)), (50, mark(1, 2, 2))]),
            (Some(19.0), Some(true))
        );
    }

    #[test]
    fn another_claim_is_seen_for_the_first_time() {
        assert_eq!(
            watch(&[(10, mark(1, 1, 1)), (30, mark(1, 2, 2)), (50, mark(2, 2, 3))]),
            (Some(0.0), None)
        );
        assert_eq!(watch(&[(10, mark(1, 1, 1)), (30, None)]), (None, None));
    }

    /// A duplicate of an older heartbeat came after newer ones that nobody saw.
    #[test]
    fn an_older_beat_that_comes_back_is_no_standing_still() {
        assert_eq!(
            watch(&[(10, mark(1, 1, 1)), (70, mark(1, 1, 60)), (80, mark(1, 1, 60))]),
            (Some(9.0), Some(false))
        );
    }
}
