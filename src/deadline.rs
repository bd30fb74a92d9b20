//! Until when a holder may act: the time rules of a kept lease. Pure; all times are of one clock that counts suspend.
//!
//! A lease lapses for others when they have not seen it change for its ttl and a margin. The holder counts from before
//! its last heartbeat that counted, so it is always the first to know. Its work ends before that: SIGTERM first, and
//! SIGKILL in any case before the deadline.

use std::time::Duration;

/// The terms of one kept lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    ttl: Duration,
    grace: Duration,
}

/// What came of a heartbeat: three calls, each of which must have succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pulse {
    /// When it began.
    pub began: Duration,
    /// When its last call had returned.
    pub ended: Duration,
    /// The beat was written through the holder's own descriptor.
    pub written: bool,
    /// It was synced: a write that the client only keeps in memory renews nothing.
    pub synced: bool,
    /// The record's name still stands for the file, as the file server says. Writing to, syncing and touching a file that
    /// another host has replaced all succeed over NFSv4; only this tells.
    pub linked: bool,
}

impl Pulse {
    /// A heartbeat that begins now: nothing is done yet.
    pub fn begun(now: Duration) -> Self {
        Self {
            began: now,
            ended: now,
            written: false,
            synced: false,
            linked: false,
        }
    }
}

/// What is to be done at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Due {
    /// The lease is good.
    Nothing,
    /// Ask the work to end.
    Terminate,
    /// End it.
    Kill,
    /// The deadline has passed: whatever still runs must stop at once, and goes on only if the lease is won anew.
    Stop,
}

impl Terms {
    /// Terms of a ttl, with this time between SIGTERM and SIGKILL. At most half of the ttl is used for that.
    pub fn new(ttl: Duration, grace: Duration) -> Self {
        Self {
            ttl,
            grace: grace.min(ttl / 2),
        }
    }

    /// The usual grace for a ttl: a quarter of it, at most 10 s.
    pub fn usual_grace(ttl: Duration) -> Duration {
        (ttl / 4).min(Duration::from_secs(10))
    }

    /// The ttl.
    pub fn ttl(self) -> Duration {
        self.ttl
    }

    /// From SIGTERM to SIGKILL.
    pub fn grace(self) -> Duration {
        self.grace
    }

    /// How long SIGKILL is sent before the deadline: a twentieth of the ttl, at most 2 s.
    fn lead(self) -> Duration {
        (self.ttl / 20).min(Duration::from_secs(2))
    }

    /// From one heartbeat to the next.
    pub fn interval(self) -> Duration {
        self.ttl / 3
    }

    /// From a heartbeat that did not count to the next try.
    pub fn retry(self) -> Duration {
        self.ttl / 12
    }
}

/// When the lease runs out for its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline {
    terms: Terms,
    /// The beginning of the last renewal that counted.
    counted: Duration,
}

impl Deadline {
    /// A lease that was won, or renewed by a ballot, that began at `began`.
    pub fn new(terms: Terms, began: Duration) -> Self {
        Self { terms, counted: began }
    }

    /// From here on the lease is not the holder's any more.
    pub fn at(&self) -> Duration {
        self.counted + self.terms.ttl
    }

    /// When SIGKILL is sent at the latest.
    pub fn kill_at(&self) -> Duration {
        self.at().saturating_sub(self.terms.lead())
    }

    /// When SIGTERM is sent.
    pub fn terminate_at(&self) -> Duration {
        self.kill_at().saturating_sub(self.terms.grace)
    }

    /// Takes in a heartbeat, and tells whether it counted. One that returns after the deadline is no renewal: others
    /// may have taken the lease by then.
    pub fn beat(&mut self, pulse: Pulse) -> bool {
        let counts = pulse.written && pulse.synced && pulse.linked && pulse.ended < self.at();
        if counts {
            self.counted = self.counted.max(pulse.began);
        }
        counts
    }

    /// What is due at a moment.
    pub fn due(&self, now: Duration) -> Due {
        if now >= self.at() {
            Due::Stop
        } else if now >= self.kill_at() {
            Due::Kill
        } else if now >= self.terminate_at() {
            Due::Terminate
        } else {
            Due::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn good(began: u64, ended: u64) -> Pulse {
        Pulse {
            began: s(began),
            ended: s(ended),
            written: true,
            synced: true,
            linked: true,
        }
    }

    #[test]
    fn a_ttl_says_when_to_act() {
        let terms = Terms::new(s(60), s(7));
        assert_eq!((terms.ttl(), terms.grace()), (s(60), s(7)));
        assert_eq!((terms.interval(), terms.retry()), (s(20), s(5)));
        assert_eq!(Terms::new(s(60), s(70)).grace(), s(30), "at most half of the ttl");
        assert_eq!((Terms::usual_grace(s(20)), Terms::usual_grace(s(60))), (s(5), s(10)));
    }

    #[test]
    fn counts_from_before_the_heartbeat_that_counted() {
        let mut deadline = Deadline::new(Terms::new(s(60), s(10)), s(100));
        assert_eq!(
            (deadline.terminate_at(), deadline.kill_at(), deadline.at()),
            (s(148), s(158), s(160))
        );
        assert!(deadline.beat(good(120, 150)));
        assert_eq!(deadline.at(), s(180), "from 120, not from 150");
        let steps = [
            (167, Due::Nothing),
            (168, Due::Terminate),
            (178, Due::Kill),
            (180, Due::Stop),
            (9999, Due::Stop),
        ];
        for (now, due) in steps {
            assert_eq!(deadline.due(s(now)), due, "at {now}");
        }
    }

    #[test]
    fn what_does_not_count_moves_nothing() {
        let fresh = Deadline::new(Terms::new(s(60), s(10)), s(0));
        let late = good(59, 60);
        let unwritten = Pulse {
            written: false,
            ..good(20, 21)
        };
        let unsynced = Pulse {
            synced: false,
            ..good(20, 21)
        };
        let replaced = Pulse {
            linked: false,
            ..good(20, 21)
        };
        for pulse in [late, unwritten, unsynced, replaced] {
            let mut deadline = fresh;
            assert!(!deadline.beat(pulse), "{pulse:?}");
            assert_eq!(deadline, fresh);
        }
    }

    #[test]
    fn a_heartbeat_that_fails_is_tried_again_in_time() {
        for ttl in [5, 6, 60, 3600] {
            let terms = Terms::new(s(ttl), Terms::usual_grace(s(ttl)));
            let deadline = Deadline::new(terms, s(0));
            assert!(
                terms.interval() + 3 * terms.retry() < deadline.terminate_at(),
                "ttl {ttl}"
            );
            // With the longest grace there is still one in time.
            let hasty = Deadline::new(Terms::new(s(ttl), s(ttl)), s(0));
            assert!(terms.interval() < hasty.terminate_at(), "ttl {ttl}");
        }
    }

    #[test]
    fn an_older_heartbeat_moves_nothing_back() {
        let mut deadline = Deadline::new(Terms::new(s(60), s(10)), s(100));
        assert!(deadline.beat(good(90, 101)));
        assert_eq!(deadline.at(), s(160));
        // Begun long ago and only now back: it counts from when it began.
        assert!(deadline.beat(good(110, 159)));
        assert_eq!(deadline.at(), s(170));
    }

    #[test]
    fn the_kill_always_comes_before_the_deadline() {
        for ttl in [5, 6, 60, 3600] {
            for grace in [0, 1, 30, 10_000] {
                let deadline = Deadline::new(Terms::new(s(ttl), s(grace)), s(7));
                assert!(deadline.terminate_at() > s(7), "ttl {ttl}, grace {grace}");
                assert!(deadline.terminate_at() <= deadline.kill_at() && deadline.kill_at() < deadline.at());
            }
        }
    }
}
