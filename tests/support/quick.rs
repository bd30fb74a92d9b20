//! A clock of the tests.

use std::sync::Mutex;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};

/// A clock that does not wait: it jumps.
#[derive(Debug, Default)]
pub struct Quick(Mutex<Duration>);

impl Clock for Quick {
    fn now(&self) -> Duration {
        BootClock.now() + *self.0.lock().expect("no panic while it is held")
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock().expect("no panic while it is held") += time;
    }
}
