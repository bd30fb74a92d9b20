//! Time: one clock that counts suspend, and waiting.

use std::fmt;
use std::time::Duration;

use crate::platform;

/// A clock for deadlines and lapses. It must go on while the machine is suspended and must not follow clock steps.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since some fixed moment of this boot.
    fn now(&self) -> Duration;
    /// Waits.
    fn sleep(&self, time: Duration);
}

/// CLOCK_BOOTTIME, clock_gettime(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Duration {
        platform::since_boot()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
