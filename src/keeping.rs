//! Keeping a lease by heartbeats: which call comes next, and which renewal counts. Steps only, no I/O.
//!
//! [`Keeping`] says which one call to make next and is told what came of it and when. The supervisor's thread drives it
//! over files (`supervise.rs`); a model checker drives the same code over states.

use std::time::Duration;

use crate::deadline::{Deadline, Due, Pulse, Terms};

/// One call to make. Each may hang for as long as the file server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Wait so long, or until the lease has to be confirmed: [`Reply::Rested`].
    Rest(Duration),
    /// Overwrite the beat through the holder's own descriptor: `Done`, `Failed`.
    Write,
    /// Sync it: `Done`, `Failed`.
    Sync,
    /// Ask the file server whether the record's name still stands for the open file: `Done`, `Failed` when not or nobody says.
    Ask,
    /// Look at the record by its name, and open it where somebody with our token has replaced it: `Done` when it is the
    /// file that was open, `Moved`, `Lost`, `Failed`.
    Look,
    /// Win the lease anew by a ballot: `Done`, `Lost`, `Failed`.
    WinAgain,
    /// Tell whoever asked that the lease is ours: `Done`.
    Confirm,
    /// The lease is not ours any more.
    Stop,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The time is over, or the lease has to be confirmed at once.
    Rested {
        /// Somebody wants to know whether the lease is good.
        confirm: bool,
    },
    /// It was done.
    Done,
    /// It was not, or nobody can tell.
    Failed,
    /// The name stood for another file, with our token: that is open now. Or it was gone, and stands for a new record of ours.
    Moved,
    /// The record is gone, or carries another token, or is ended.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Resting,
    Writing(Pulse),
    Syncing(Pulse),
    Asking(Pulse),
    Looking(Pulse),
    Winning { began: Duration },
    Confirming,
    Stopped,
}

/// The heartbeats of one kept lease, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keeping {
    terms: Terms,
    deadline: Deadline,
    state: State,
    /// When the record's name was last known to stand for the open file.
    looked: Duration,
    /// The name has been looked at during this heartbeat.
    followed: bool,
    /// The lease has to be confirmed, and is not yet: what cannot be told now is tried again.
    confirm: bool,
}

impl Keeping {
    /// A lease that was won by a claim that began at `won`, kept from `now` on.
    pub fn new(terms: Terms, won: Duration, now: Duration) -> Self {
        Self {
            terms,
            deadline: Deadline::new(terms, won),
            state: State::Resting,
            looked: now,
            followed: false,
            confirm: false,
        }
    }

    /// The first call.
    pub fn start(&self) -> Action {
        Action::Rest(self.terms.interval())
    }

    /// Until when the lease is ours.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Takes the reply to the last action, which came at `now`, and says what to do next.
    ///
    /// # Panics
    /// When the reply does not belong to the action: an error in the driver.
    pub fn advance(&mut self, reply: Reply, now: Duration) -> Action {
        match (self.state, reply) {
            (State::Resting, Reply::Rested { confirm }) => {
                self.confirm |= confirm;
                if self.deadline.due(now) != Due::Stop {
                    return self.write(now);
                }
                // Others may have it by now: only a ballot can tell, and only when nothing runs meanwhile.
                if self.confirm {
                    self.state = State::Winning { began: now };
                    return Action::WinAgain;
                }
                self.rest(self.terms.retry())
            }

            (State::Writing(pulse), Reply::Done) => {
                self.state = State::Syncing(Pulse { written: true, ..pulse });
                Action::Sync
            }
            (State::Syncing(pulse), Reply::Done) => {
                self.state = State::Asking(Pulse { synced: true, ..pulse });
                Action::Ask
            }
            (State::Asking(pulse), Reply::Done) => self.ended(Pulse { linked: true, ..pulse }, now),
            (State::Writing(pulse) | State::Syncing(pulse) | State::Asking(pulse), Reply::Failed) => {
                self.ended(pulse, now)
            }

            (State::Looking(pulse), Reply::Done) => {
                self.looked = pulse.ended;
                self.settle(pulse, true)
            }
            (State::Looking(pulse), Reply::Moved) => {
                self.looked = pulse.ended;
                self.followed = true;
                self.write(now)
            }
            (State::Looking(pulse), Reply::Failed) => self.settle(pulse, false),

            (State::Winning { began }, Reply::Done) => {
                self.deadline = Deadline::new(self.terms, began);
                self.confirmed()
            }
            (State::Winning { .. }, Reply::Failed) => self.rest(self.terms.retry()),
            (State::Looking(_) | State::Winning { .. }, Reply::Lost) => {
                self.state = State::Stopped;
                Action::Stop
            }

            (State::Confirming, Reply::Done) => self.rest(self.terms.interval()),
            (state, reply) => panic!("{reply:?} does not answer {state:?}"),
        }
    }

    fn rest(&mut self, pause: Duration) -> Action {
        (self.state, self.followed) = (State::Resting, false);
        Action::Rest(pause)
    }

    fn write(&mut self, now: Duration) -> Action {
        self.state = State::Writing(Pulse::begun(now));
        Action::Write
    }

    /// The calls of a heartbeat have returned. The name is looked at where the heartbeat gave cause to, and once a ttl.
    fn ended(&mut self, pulse: Pulse, now: Duration) -> Action {
        let pulse = Pulse { ended: now, ..pulse };
        let due = now.saturating_sub(self.looked) >= self.terms.ttl();
        if !self.followed && (self.confirm || !pulse.linked || due) {
            self.state = State::Looking(pulse);
            return Action::Look;
        }
        self.settle(pulse, true)
    }

    /// `told`: the record's name is not in doubt.
    fn settle(&mut self, pulse: Pulse, told: bool) -> Action {
        if !self.deadline.beat(pulse) {
            self.rest(self.terms.retry())
        } else if self.confirm && told {
            self.confirmed()
        } else {
            self.rest(self.terms.interval())
        }
    }

    fn confirmed(&mut self) -> Action {
        self.confirm = false;
        self.state = State::Confirming;
        Action::Confirm
    }
}
