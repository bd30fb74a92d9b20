//! Numbered ballots: how a record is replaced without locks. Steps only, no I/O.
//!
//! Compare-and-swap on a directory. To replace record `F`, whose number (`seq`) is n, a contender writes the finished
//! new record to a temp file `T`, takes ballot n+1 (an exclusive symlink that names `T`), makes sure that `F` is still
//! what it was, and renames `T` onto `F`. Who finds the ballot taken outlasts its owner for a moment, goes on to the
//! next number, and *disarms* the rival by removing its `T`: from then on the rival cannot commit, whether it lives or
//! not. So no judgement about a rival is ever needed, and no crash blocks anybody.
//!
//! [`Ballot`] says which one call to make next and is told what came of it. The library drives it over files
//! (`change.rs`); a model checker drives the same code over states. The protocol and why it is right: `docs/protocol.md`.

use crate::names::TempId;
use crate::token::Token;

/// Rivals that are passed over in one go, and rounds that are started over, before a change is given up.
const BOUND: usize = 256;

/// Whose change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A new owner. What is taken over must stand still: its heartbeat must not move either.
    Claim,
    /// The owner of the current claim: renew, note, release, hand over.
    Holder,
    /// Somebody on the host of a dead owner, who ends its claim: under the same token, as a holder does, and only while
    /// the heartbeat does not move.
    Settle,
}

/// What makes one state of a record: any change changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The claim.
    pub token: Token,
    /// The replacement.
    pub seq: u64,
    /// The heartbeat.
    pub beat: u64,
}

/// One call to make. Each is at most one change of the directory, so that a crash between any two is a crash between
/// two calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read `F` by a fresh open and decide whether the change is allowed: [`Reply::Seen`], `Refused`.
    Look,
    /// Write the finished record with this `seq` to a new temp file and sync it: [`Reply::Written`], `Refused`.
    Write {
        /// The record's number: that of the ballot that is about to be taken.
        seq: u64,
    },
    /// `symlink(T, ballot)`: [`Reply::Done`], `Exists`, `Unsupported`.
    Take {
        /// The ballot's.
        number: u64,
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Where symlinks are unsupported, create the ballot exclusively as an empty file: `Done`, `Exists`.
    TakeFile {
        /// The ballot's.
        number: u64,
    },
    /// … and write the name of `T` into it: `Done`.
    Sign {
        /// The ballot's.
        number: u64,
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Read whom a taken ballot names: [`Reply::Rival`], `Missing`.
    Inspect {
        /// The ballot's.
        number: u64,
    },
    /// Wait a little and look at `F`: [`Reply::Still`], `Expired`, `Changed`.
    Pause {
        /// Whom the ballot in the way names.
        rival: Option<TempId>,
    },
    /// Remove the temp file of a rival that was passed over: `Done` (also when it was gone).
    Disarm {
        /// The rival's.
        temp: TempId,
    },
    /// Remove every temp file of `F` but this one: a rival was passed over whose ballot names none.
    DisarmAll {
        /// One's own temp file, which stays.
        but: TempId,
    },
    /// `link(T, F)`: `Done`, `Exists`, `Missing` (T is gone), `Unsupported`.
    Link {
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Where hard links are unsupported and `F` was absent, create `F` exclusively and empty: `Done`, `Exists`.
    Create,
    /// Read `F` again: `Seen`, `Odd`, or `Missing` where there is nothing at all.
    Recheck,
    /// `F` has a second name, left by a crash between link and unlink: remove that temp file: `Done`.
    Untwin,
    /// `rename(T, F)`: `Done`, `Missing`.
    Rename {
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Remove one's own temp file: `Done` (also when it was gone).
    Withdraw {
        /// One's own.
        temp: TempId,
    },
    /// Remove a ballot whose number `F` has reached: `Done` (also when it was gone).
    Remove {
        /// The ballot's.
        number: u64,
    },
    /// Nothing more to do.
    Finish(Outcome),
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It was done.
    Done,
    /// The name exists already.
    Exists,
    /// The named file is not there.
    Missing,
    /// The filesystem does not have such a call.
    Unsupported,
    /// It failed in another way, and may have been done all the same.
    Failed,
    /// `F` as it stands.
    Seen {
        /// Its state; `None` when it is absent.
        stamp: Option<Stamp>,
        /// The file has a second name.
        twin: bool,
        /// It is the very file that this change wrote last.
        own: bool,
    },
    /// `F` stands and is no record that a change may replace. (One that cannot be read is `Failed`.)
    Odd,
    /// The change is not allowed.
    Refused,
    /// The temp file was written.
    Written(TempId),
    /// Whom a ballot names.
    Rival {
        /// Its temp file; `None` for an empty ballot.
        temp: Option<TempId>,
        /// It is known to be gone: its process ended, or its temp file is not there.
        gone: bool,
    },
    /// `F` is unchanged, and the rival may still need a moment.
    Still,
    /// `F` is unchanged, and the rival had its time, or is gone.
    Expired,
    /// `F` is not what it was.
    Changed,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `F` is the new record.
    Committed {
        /// Its number.
        seq: u64,
        /// The temp file that became it.
        temp: TempId,
    },
    /// The change is not allowed.
    Refused,
    /// A holder found `F` gone and put its record back by asking: the caller must vacate it, and has lost. (What a
    /// settlement puts back is vacant already.)
    Resurrected,
    /// Another contender is at work, and the caller does not want to wait.
    GaveWay,
    /// Given up after too many rounds.
    Contended,
    /// A call failed; `F` is not ours.
    Failed,
    /// A call failed, and `F` could not be read afterwards: the change may have been made.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Looking,
    Writing,
    Taking,
    TakingFile,
    Signing,
    Inspecting,
    Pausing,
    /// Withdrawing one's temp file before going on to the next number.
    PassingOver,
    /// Disarming the passed-over rival of this index.
    Disarming(usize),
    Linking,
    Creating,
    Rechecking,
    Untwinning,
    Renaming,
    /// The temp file is being withdrawn after a call of unknown effect; then `F` tells.
    Doubting {
        linked: bool,
    },
    /// `F` is being read: after a link (`linked`) or rename that did not find the temp file (`missing`), or after one of
    /// unknown effect.
    Confirming {
        missing: bool,
        linked: bool,
    },
    /// Withdrawing the temp file before another round.
    Restarting,
    /// Withdrawing the temp file after a link.
    Unlinking,
    /// Removing ballots; then the end.
    Clearing(Outcome),
    /// Withdrawing the temp file; then clearing.
    Abandoning(Outcome),
    Finished,
}

/// A change of one record, step by step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballot {
    kind: Kind,
    give_way: bool,
    token: Token,
    state: State,
    /// What the last look saw.
    seen: Option<Stamp>,
    /// The number that is being fought for.
    number: u64,
    temp: Option<TempId>,
    /// Rivals passed over in this round.
    passed: Vec<(u64, Option<TempId>)>,
    /// One's own temp files of earlier tries.
    former: Vec<TempId>,
    /// Ballots that `F` has reached, or will have on success: to be removed.
    spent: Vec<u64>,
    rounds: usize,
}

impl Ballot {
    /// A change under `token`: for a claim the new one, for a holder or a settlement the current one. With `give_way` a
    /// rival that gets its change done meanwhile ends it ([`Outcome::GaveWay`]). One that does not is outlasted in any
    /// case: it may have crashed.
    pub fn new(kind: Kind, token: Token, give_way: bool) -> Self {
        Self {
            kind,
            give_way,
            token,
            state: State::Looking,
            seen: None,
            number: 0,
            temp: None,
            passed: Vec::new(),
            former: Vec::new(),
            spent: Vec::new(),
            rounds: 0,
        }
    }

    /// The first call.
    pub fn start(&self) -> Action {
        Action::Look
    }

    /// The record that the last look saw.
    pub fn seen(&self) -> Option<Stamp> {
        self.seen
    }

    /// Takes the reply to the last action and says what to do next.
    ///
    /// # Panics
    /// When the reply does not belong to the action: an error in the driver.
    pub fn advance(&mut self, reply: Reply) -> Action {
        match (self.state, reply) {
            (State::Looking, Reply::Seen { stamp, .. }) => {
                self.seen = stamp;
                self.passed.clear();
                // No count gets that far; a record may say that one did.
                let Some(number) = stamp.map_or(0, |stamp| stamp.seq).checked_add(1) else {
                    return self.clear(Outcome::Contended);
                };
                self.number = number;
                self.write()
            }
            (State::Looking, Reply::Refused | Reply::Odd) => self.clear(Outcome::Refused),
            (State::Looking, Reply::Failed) => self.clear(Outcome::Failed),

            (State::Writing, Reply::Written(temp)) => {
                self.temp = Some(temp);
                self.state = State::Taking;
                Action::Take {
                    number: self.number,
                    temp,
                }
            }
            (State::Writing, Reply::Failed) => self.clear(Outcome::Failed),
            (State::Writing, Reply::Refused) => self.clear(Outcome::Refused),

            (State::Taking, Reply::Done) | (State::Signing, Reply::Done) => self.taken(),
            (State::Taking, Reply::Unsupported) => {
                self.state = State::TakingFile;
                Action::TakeFile { number: self.number }
            }
            (State::TakingFile, Reply::Done) => {
                self.state = State::Signing;
                Action::Sign {
                    number: self.number,
                    temp: self.temp(),
                }
            }
            (State::Taking | State::TakingFile, Reply::Exists) => {
                self.state = State::Inspecting;
                Action::Inspect { number: self.number }
            }
            (State::Taking | State::TakingFile | State::Signing, Reply::Failed | Reply::Missing) => {
                self.abandon(Outcome::Failed)
            }

            // Our own name: the call had been done, and its reply was lost.
            (State::Inspecting, Reply::Rival { temp: Some(temp), .. }) if temp == self.temp() => self.taken(),
            (State::Inspecting, Reply::Rival { temp, gone }) => {
                let former = temp.is_some_and(|temp| self.former.contains(&temp));
                if gone || former {
                    return self.pass_over(temp);
                }
                self.state = State::Pausing;
                self.passed.push((self.number, temp));
                Action::Pause { rival: temp }
            }
            // Whoever removed it has seen F reach the number.
            (State::Inspecting, Reply::Missing) => self.restart(),
            (State::Inspecting, Reply::Failed) => self.abandon(Outcome::Failed),

            (State::Pausing, Reply::Still) => Action::Pause {
                rival: self.passed.last().and_then(|(_, rival)| *rival),
            },
            (State::Pausing, Reply::Changed) if self.give_way => self.abandon(Outcome::GaveWay),
            (State::Pausing, Reply::Changed) => self.restart(),
            (State::Pausing, Reply::Expired) => {
                let (_, rival) = self
                    .passed
                    .pop()
                    .expect("the rival that is waited for was pushed before the pause");
                self.pass_over(rival)
            }
            (State::Pausing, Reply::Failed) => self.abandon(Outcome::Failed),
            (State::PassingOver, Reply::Done | Reply::Failed) => self.write(),

            (State::Disarming(at), Reply::Done) => self.disarm(at + 1),
            (State::Disarming(_), Reply::Failed) => self.abandon(Outcome::Failed),

            (State::Linking, Reply::Done) => {
                self.state = State::Unlinking;
                Action::Withdraw { temp: self.temp() }
            }
            (State::Linking, Reply::Exists) | (State::Creating, Reply::Exists) => self.recheck(),
            (State::Linking, Reply::Unsupported) if self.seen.is_none() => {
                self.state = State::Creating;
                Action::Create
            }
            (State::Linking, Reply::Unsupported) => self.recheck(),
            // A rival disarmed us: before the link, or after one whose reply was lost.
            (State::Linking, Reply::Missing) => {
                self.state = State::Confirming {
                    missing: true,
                    linked: true,
                };
                Action::Recheck
            }
            (State::Creating, Reply::Done) => self.rename(),
            (State::Linking | State::Creating, Reply::Failed) => self.doubt(true),
            (State::Unlinking, Reply::Done | Reply::Failed) => self.committed(true),

            (State::Rechecking, Reply::Seen { stamp, twin, own }) => {
                if self.is_ours(stamp, own) {
                    self.state = State::Unlinking;
                    return Action::Withdraw { temp: self.temp() };
                }
                if !self.is_as_seen(stamp) {
                    return self.restart_at(stamp);
                }
                if twin {
                    self.state = State::Untwinning;
                    return Action::Untwin;
                }
                self.rename()
            }
            // Missing: the server has just said that it exists, or it was seen. What a cache says now replaces nothing.
            (State::Rechecking, Reply::Odd | Reply::Missing) => self.restart(),
            // Where nothing was, what is there now and cannot be read may be ours, by a link whose reply was lost.
            (State::Rechecking, Reply::Failed) if self.seen.is_none() => self.abandon(Outcome::Unknown),
            (State::Rechecking, Reply::Failed) => self.abandon(Outcome::Failed),
            (State::Untwinning, Reply::Done) => self.rename(),
            (State::Untwinning, Reply::Failed) => self.abandon(Outcome::Failed),

            (State::Renaming, Reply::Done) => self.committed(false),
            (State::Renaming, Reply::Missing) => {
                self.state = State::Confirming {
                    missing: true,
                    linked: false,
                };
                Action::Recheck
            }
            (State::Renaming, Reply::Failed | Reply::Unsupported | Reply::Exists) => self.doubt(false),
            (State::Doubting { linked }, Reply::Done) => {
                self.state = State::Confirming { missing: false, linked };
                Action::Recheck
            }
            (State::Doubting { .. }, Reply::Failed) => self.clear(Outcome::Unknown),
            (State::Confirming { linked, .. }, Reply::Seen { stamp, own, .. }) if self.is_ours(stamp, own) => {
                self.committed(linked)
            }
            // Not ours, and the temp file is gone for good: a rival disarmed us, or the call that failed came to nothing.
            (State::Confirming { missing: true, .. }, Reply::Seen { stamp, .. }) => self.restart_at(stamp),
            (State::Confirming { missing: true, .. }, Reply::Odd | Reply::Missing) => self.restart(),
            (State::Confirming { missing: false, .. }, Reply::Seen { .. } | Reply::Odd | Reply::Missing) => {
                self.clear(Outcome::Failed)
            }
            (State::Confirming { .. }, Reply::Failed) => self.clear(Outcome::Unknown),

            (State::Restarting, Reply::Done | Reply::Failed) => {
                self.state = State::Looking;
                Action::Look
            }
            (State::Abandoning(outcome), Reply::Done | Reply::Failed) => self.clear(outcome),
            (State::Clearing(outcome), Reply::Done | Reply::Failed) => self.clear(outcome),
            (state, reply) => panic!("{reply:?} does not answer {state:?}"),
        }
    }

    fn temp(&self) -> TempId {
        self.temp.expect("a temp file was written before a ballot is taken")
    }

    fn write(&mut self) -> Action {
        self.state = State::Writing;
        Action::Write { seq: self.number }
    }

    fn pass_over(&mut self, rival: Option<TempId>) -> Action {
        let (Some(next), true) = (self.number.checked_add(1), self.passed.len() < BOUND) else {
            return self.abandon(Outcome::Contended);
        };
        let temp = self.temp();
        self.former.push(temp);
        self.passed.push((self.number, rival));
        self.number = next;
        self.state = State::PassingOver;
        Action::Withdraw { temp }
    }

    fn taken(&mut self) -> Action {
        self.spent.push(self.number);
        self.disarm(0)
    }

    /// Our own number is taken: make sure that nobody whom we passed over can still commit.
    fn disarm(&mut self, from: usize) -> Action {
        let own = self.temp();
        let next =
            (from..self.passed.len()).find(|&at| self.passed[at].1.is_none_or(|temp| !self.former.contains(&temp)));
        match next {
            Some(at) => {
                self.state = State::Disarming(at);
                match self.passed[at].1 {
                    Some(temp) => Action::Disarm { temp },
                    None => Action::DisarmAll { but: own },
                }
            }
            None => {
                self.state = State::Linking;
                Action::Link { temp: own }
            }
        }
    }

    fn recheck(&mut self) -> Action {
        self.state = State::Rechecking;
        Action::Recheck
    }

    fn rename(&mut self) -> Action {
        self.state = State::Renaming;
        Action::Rename { temp: self.temp() }
    }

    fn doubt(&mut self, linked: bool) -> Action {
        self.state = State::Doubting { linked };
        Action::Withdraw { temp: self.temp() }
    }

    /// Whether the record is this very change. A claim's token is of this try alone. A holder's may be at work in several
    /// processes, one of which may have won our number before we came to take its ballot: there only the file tells.
    fn is_ours(&self, stamp: Option<Stamp>, own: bool) -> bool {
        let named = stamp.is_some_and(|stamp| stamp.token == self.token && stamp.seq == self.number);
        named && (own || self.kind == Kind::Claim)
    }

    fn is_as_seen(&self, stamp: Option<Stamp>) -> bool {
        match (self.seen, stamp) {
            (Some(seen), Some(now)) => {
                let still = self.kind == Kind::Holder || seen.beat == now.beat;
                seen.token == now.token && seen.seq == now.seq && still
            }
            (None, None) => true,
            _ => false,
        }
    }

    fn restart_at(&mut self, stamp: Option<Stamp>) -> Action {
        self.seen = stamp.or(self.seen);
        self.restart()
    }

    fn restart(&mut self) -> Action {
        self.rounds += 1;
        if self.rounds >= BOUND {
            return self.abandon(Outcome::Contended);
        }
        let temp = self.temp();
        self.former.push(temp);
        self.state = State::Restarting;
        Action::Withdraw { temp }
    }

    fn abandon(&mut self, outcome: Outcome) -> Action {
        self.state = State::Abandoning(outcome);
        Action::Withdraw { temp: self.temp() }
    }

    /// `F` is our record, by a rename or because it was `linked`: to a holder that says that `F` was gone.
    fn committed(&mut self, linked: bool) -> Action {
        let outcome = match self.kind {
            Kind::Holder | Kind::Settle if linked => Outcome::Resurrected,
            _ => Outcome::Committed {
                seq: self.number,
                temp: self.temp(),
            },
        };
        self.spent.extend(self.passed.drain(..).map(|(number, _)| number));
        if let Some(before) = self.seen {
            self.spent.push(before.seq);
        }
        self.seen = Some(Stamp {
            token: self.token,
            seq: self.number,
            beat: 0,
        });
        self.clear(outcome)
    }

    /// Removes what is spent: only numbers that `F` has reached. A fresh rival on a freed higher number would not see
    /// that the number was used, and `seq` would run backwards.
    fn clear(&mut self, outcome: Outcome) -> Action {
        let reached = self.seen.map_or(0, |seen| seen.seq);
        self.spent.retain(|&number| number <= reached);
        match self.spent.pop() {
            Some(number) => {
                self.state = State::Clearing(outcome);
                Action::Remove { number }
            }
            None => {
                self.state = State::Finished;
                Action::Finish(outcome)
            }
        }
    }
}
