//! Numbered ballots: how a record is replaced without locks. Steps only, no I/O.
//!
//! Compare-and-swap on a directory. To replace record `F`, whose number (`seq`) is n, a contender writes the finished
//! new record to a temp file `T`, takes ballot n+1 (an exclusive second name of `T`), makes sure that `F` is still
//! what it was, and renames `T` onto `F`. Who finds the ballot taken outlasts its owner for a moment, goes on to the
//! next number, and *disarms* the rival by giving its `T` another name: from then on the rival cannot commit, whether it
//! lives or not. So no judgement about a rival is ever needed, and no crash blocks anybody.
//!
//! A rename may take the name `F` away before it gives it to the next record, or although there is none any more (an NFS
//! client's does). So a record has a second name while it is being replaced, and for as long as a rival may still try.
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
    /// `link(T, ballot)`: [`Reply::Done`], `Exists`, `Missing` (T is gone), `Unsupported`.
    Take {
        /// The ballot's.
        number: u64,
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Where hard links are unsupported, create the ballot exclusively as an empty file: `Done`, `Exists`.
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
    /// Give the temp file of a rival that was passed over another name, `rename(T, V)`: `Done` (also when it was gone). One's
    /// own too, where the rename that was to publish it failed.
    Disarm {
        /// Which.
        temp: TempId,
    },
    /// Give up one's own temp file, which a ballot may name: `rename(T, W)`: `Done` (also when it was gone).
    Retire {
        /// One's own.
        temp: TempId,
    },
    /// Disarm every temp file of `F` but this one: a rival was passed over whose ballot names none.
    DisarmAll {
        /// One's own temp file, which stays.
        but: TempId,
    },
    /// Where `F` was seen, have the file server asked about that name, whatever it answers: `Done`.
    Ask,
    /// Where `F` was absent, and no ballot says that it is not, `link(T, F)`: `Done`, `Exists`, `Missing` (T is gone),
    /// `Unsupported`.
    Link {
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Where hard links are unsupported and `F` was absent, create `F` exclusively and empty: `Done`, `Exists`.
    Create,
    /// Read `F` again: `Seen`, `Odd`, or `Missing` where there is nothing at all.
    Recheck,
    /// `F` has a second name: its ballot, or the temp file that a crash between link and unlink left. Remove the latter, and
    /// see whether rivals that were disarmed may still be at work: `Exists` if so, `Done` if not.
    Untwin,
    /// `link(F, K)`: `Done`, `Exists`, `Missing` (`F` has only its second name), `Changed` (it was replaced), `Unsupported`.
    Keep {
        /// That of the record that is about to be replaced.
        number: u64,
    },
    /// `rename(T, F)`: `Done`, `Missing`.
    Rename {
        /// One's own temp file, T.
        temp: TempId,
    },
    /// Remove one's own temp file, which no ballot names or which is `F` as well: `Done` (also when it was gone).
    Withdraw {
        /// One's own.
        temp: TempId,
    },
    /// Remove a ballot whose number `F` has passed: `Done` (also when it was gone).
    Remove {
        /// The ballot's.
        number: u64,
    },
    /// … and then the temp file that it named, V or W: `Done` (also when there is none).
    Discard {
        /// The temp file.
        temp: TempId,
    },
    /// Remove the second name of a record that was replaced: `Done` (also when it was gone).
    Forget {
        /// That of the record.
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
        /// It names the temp file that this change wrote last.
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
        /// It is not worth waiting for: its temp file is not there any more, or its process has ended.
        gone: bool,
        /// … and nothing that it did can come late: it has given up that file, or its process has ended where calls end with
        /// their process.
        ended: bool,
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
    Asking,
    Linking,
    Creating,
    Rechecking,
    /// Looking at who else may be at work; then `F` is renamed at once where it is `kept` by its second name alone.
    Untwinning {
        kept: bool,
    },
    Keeping,
    Renaming,
    /// The temp file is being given up after a call of unknown effect; then `F` tells.
    Doubting,
    /// `F` is being read: after a link or rename that did not find the temp file (`missing`), or after one of unknown effect.
    Confirming {
        missing: bool,
    },
    /// … and is ours: its ballot must not say that it was given up.
    Discarding,
    /// Giving up the temp file before another round.
    Restarting,
    /// Withdrawing the temp file after a link.
    Unlinking,
    /// Removing ballots; then the end.
    Clearing(Outcome),
    /// Giving up the temp file; then clearing.
    Abandoning(Outcome),
    Finished,
}

/// A rival that was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Passed {
    number: u64,
    temp: Option<TempId>,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Spent {
    /// A ballot, with the temp file that it names, unless that stays to say that its writer may be at work.
    Ballot(u64, Option<TempId>),
    /// The second name of a record.
    Kept(u64),
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
    /// A ballot may name it.
    named: bool,
    /// Ballots are files of their own here, and not second names of records.
    linkless: bool,
    /// Rivals that were disarmed may still be at work: the record keeps its ballot.
    contested: bool,
    /// Rivals passed over in this round.
    passed: Vec<Passed>,
    /// One's own temp files of earlier tries.
    former: Vec<TempId>,
    /// To be removed once `F` has passed them.
    spent: Vec<Spent>,
    /// What the ballot named that is being removed.
    left: Option<TempId>,
    /// `F` is ours, and needs no second name.
    alone: bool,
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
            named: false,
            linkless: false,
            contested: false,
            passed: Vec::new(),
            former: Vec::new(),
            spent: Vec::new(),
            left: None,
            alone: false,
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
                self.contested = false;
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
                (self.temp, self.named) = (Some(temp), false);
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
                self.linkless = true;
                self.state = State::TakingFile;
                Action::TakeFile { number: self.number }
            }
            // A rival disarmed whatever it found.
            (State::Taking, Reply::Missing) => self.restart(),
            (State::TakingFile, Reply::Done) => {
                self.named = true;
                self.state = State::Signing;
                Action::Sign {
                    number: self.number,
                    temp: self.temp(),
                }
            }
            (State::Taking | State::TakingFile, Reply::Exists) => {
                // It may be our own.
                self.named = true;
                self.state = State::Inspecting;
                Action::Inspect { number: self.number }
            }
            (State::Taking | State::TakingFile | State::Signing, Reply::Failed | Reply::Missing) => {
                self.named = true;
                self.abandon(Outcome::Failed)
            }

            // Our own name: the call had been done, and its reply was lost.
            (State::Inspecting, Reply::Rival { temp: Some(temp), .. }) if temp == self.temp() => self.taken(),
            (State::Inspecting, Reply::Rival { temp, gone, ended }) => {
                let former = temp.is_some_and(|temp| self.former.contains(&temp));
                self.named = false;
                self.passed.push(Passed {
                    number: self.number,
                    temp,
                    ended: ended || former,
                });
                if gone || former {
                    return self.pass_over();
                }
                self.state = State::Pausing;
                Action::Pause { rival: temp }
            }
            // Whoever removed it has seen F reach the number.
            (State::Inspecting, Reply::Missing) => self.restart(),
            (State::Inspecting, Reply::Failed) => self.abandon(Outcome::Failed),

            (State::Pausing, Reply::Still) => Action::Pause {
                rival: self.passed.last().and_then(|passed| passed.temp),
            },
            (State::Pausing, Reply::Changed) if self.give_way => self.abandon(Outcome::GaveWay),
            (State::Pausing, Reply::Changed) => self.restart(),
            (State::Pausing, Reply::Expired) => self.pass_over(),
            (State::Pausing, Reply::Failed) => self.abandon(Outcome::Failed),
            (State::PassingOver, Reply::Done | Reply::Failed) => self.write(),

            (State::Disarming(at), Reply::Done) => self.disarm(at + 1),
            (State::Disarming(_), Reply::Failed) => self.abandon(Outcome::Failed),

            (State::Asking, Reply::Done) => self.recheck(),
            (State::Linking, Reply::Done) => self.unlink(),
            (State::Linking | State::Creating, Reply::Exists) => self.recheck(),
            (State::Linking, Reply::Unsupported) => {
                self.state = State::Creating;
                Action::Create
            }
            // A rival disarmed us: before the link, or after one whose reply was lost.
            (State::Linking, Reply::Missing) => self.confirm(true),
            (State::Creating, Reply::Done) => self.rename(),
            (State::Linking | State::Creating, Reply::Failed) => {
                self.state = State::Doubting;
                Action::Retire { temp: self.temp() }
            }
            (State::Unlinking | State::Discarding, Reply::Done | Reply::Failed) => self.committed(),

            (State::Rechecking, Reply::Seen { stamp, twin, own }) => {
                if self.is_ours(stamp, own) {
                    return self.unlink();
                }
                if !self.is_as_seen(stamp) {
                    return self.restart_at(stamp);
                }
                match twin {
                    true => self.untwin(false),
                    false => self.keep(),
                }
            }
            // Missing: the server has just said that it exists, or it was seen. What a cache says now replaces nothing.
            (State::Rechecking, Reply::Odd | Reply::Missing) => self.restart(),
            // Where nothing was, what is there now and cannot be read may be ours, by a link whose reply was lost.
            (State::Rechecking, Reply::Failed) if self.seen.is_none() => self.abandon(Outcome::Unknown),
            (State::Rechecking, Reply::Failed) => self.abandon(Outcome::Failed),
            (State::Untwinning { kept }, Reply::Done | Reply::Exists) => {
                self.contested |= reply == Reply::Exists;
                self.spent.extend(self.seen.map(|seen| Spent::Ballot(seen.seq, None)));
                match kept {
                    true => self.rename(),
                    false => self.keep(),
                }
            }
            (State::Keeping, Reply::Done | Reply::Exists) => {
                self.spend_kept();
                self.rename()
            }
            (State::Keeping, Reply::Missing) => {
                self.spend_kept();
                self.untwin(true)
            }
            (State::Keeping, Reply::Changed) => self.restart(),
            (State::Keeping, Reply::Unsupported) => self.rename(),
            (State::Untwinning { .. } | State::Keeping, Reply::Failed) => self.abandon(Outcome::Failed),

            (State::Renaming, Reply::Done) => self.committed(),
            (State::Renaming, Reply::Missing) => self.confirm(true),
            // Its first step may come late: the temp file does not get the name that says it cannot.
            (State::Renaming, Reply::Failed | Reply::Unsupported | Reply::Exists) => {
                self.state = State::Doubting;
                Action::Disarm { temp: self.temp() }
            }
            (State::Doubting, Reply::Done) => self.confirm(false),
            (State::Doubting, Reply::Failed) => self.clear(Outcome::Unknown),
            (State::Confirming { .. }, Reply::Seen { stamp, own, .. }) if self.is_ours(stamp, own) => {
                self.state = State::Discarding;
                Action::Discard { temp: self.temp() }
            }
            // Not ours, and the temp file is gone for good: a rival disarmed us, or the call that failed came to nothing.
            (State::Confirming { missing: true }, Reply::Seen { stamp, .. }) => self.restart_at(stamp),
            (State::Confirming { missing: true }, Reply::Odd | Reply::Missing) => self.restart(),
            (State::Confirming { missing: false }, Reply::Seen { .. } | Reply::Odd | Reply::Missing) => {
                self.clear(Outcome::Failed)
            }
            (State::Confirming { .. }, Reply::Failed) => self.clear(Outcome::Unknown),

            (State::Restarting, Reply::Done | Reply::Failed) => {
                self.state = State::Looking;
                Action::Look
            }
            (State::Abandoning(outcome), Reply::Done | Reply::Failed) => self.clear(outcome),
            (State::Clearing(outcome), Reply::Done | Reply::Failed) => match self.left.take() {
                Some(temp) => Action::Discard { temp },
                None => self.clear(outcome),
            },
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

    /// Goes on to the next number, past the rival that was pushed last.
    fn pass_over(&mut self) -> Action {
        let (Some(next), true) = (self.number.checked_add(1), self.passed.len() <= BOUND) else {
            return self.abandon(Outcome::Contended);
        };
        let temp = self.temp();
        self.former.push(temp);
        self.number = next;
        self.state = State::PassingOver;
        Action::Withdraw { temp }
    }

    fn taken(&mut self) -> Action {
        self.named = true;
        self.spent.push(Spent::Ballot(self.number, self.temp));
        self.contested = self.passed.iter().any(|rival| !rival.ended);
        self.disarm(0)
    }

    /// Our own number is taken: make sure that nobody whom we passed over can still commit.
    fn disarm(&mut self, from: usize) -> Action {
        let own = self.temp();
        let is_former = |temp| self.former.contains(&temp);
        let next = (from..self.passed.len()).find(|&at| !self.passed[at].temp.is_some_and(is_former));
        match next {
            Some(at) => {
                self.state = State::Disarming(at);
                match self.passed[at].temp {
                    Some(temp) => Action::Disarm { temp },
                    None => Action::DisarmAll { but: own },
                }
            }
            None if self.seen.is_some() => {
                self.state = State::Asking;
                Action::Ask
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

    fn untwin(&mut self, kept: bool) -> Action {
        self.state = State::Untwinning { kept };
        Action::Untwin
    }

    fn spend_kept(&mut self) {
        self.spent.extend(self.seen.map(|seen| Spent::Kept(seen.seq)));
    }

    fn keep(&mut self) -> Action {
        match self.seen {
            Some(seen) if !self.linkless => {
                self.state = State::Keeping;
                Action::Keep { number: seen.seq }
            }
            _ => self.rename(),
        }
    }

    fn rename(&mut self) -> Action {
        self.state = State::Renaming;
        Action::Rename { temp: self.temp() }
    }

    fn unlink(&mut self) -> Action {
        self.state = State::Unlinking;
        Action::Withdraw { temp: self.temp() }
    }

    fn confirm(&mut self, missing: bool) -> Action {
        self.state = State::Confirming { missing };
        Action::Recheck
    }

    /// Whether the record is this very change. A claim's token is of this try alone. A holder's may be at work in several
    /// processes, one of which may have won our number before we came to take its ballot: there only the temp file that the
    /// record names tells.
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
        self.former.push(self.temp());
        self.state = State::Restarting;
        self.give_up()
    }

    fn abandon(&mut self, outcome: Outcome) -> Action {
        self.state = State::Abandoning(outcome);
        self.give_up()
    }

    /// A ballot that stands and names a temp file that is gone says that it was published.
    fn give_up(&self) -> Action {
        let temp = self.temp();
        match self.named {
            true => Action::Retire { temp },
            false => Action::Withdraw { temp },
        }
    }

    fn committed(&mut self) -> Action {
        let rivals = self.passed.drain(..);
        self.spent
            .extend(rivals.map(|rival| Spent::Ballot(rival.number, rival.temp.filter(|_| rival.ended))));
        if let Some(before) = self.seen.filter(|_| self.linkless) {
            self.spent.push(Spent::Ballot(before.seq, None));
        }
        self.alone = !self.contested || self.linkless;
        if self.alone {
            self.spent
                .retain(|spent| !matches!(spent, Spent::Ballot(number, _) if *number == self.number));
            self.spent.push(Spent::Ballot(self.number, None));
        }
        self.seen = Some(Stamp {
            token: self.token,
            seq: self.number,
            beat: 0,
        });
        self.clear(Outcome::Committed {
            seq: self.number,
            temp: self.temp(),
        })
    }

    /// Removes what is spent: only ballots whose number `F` has passed. A fresh rival on a freed higher number would not see
    /// that the number was used, and `seq` would run backwards. One's own comes last: until then the record has two names.
    fn clear(&mut self, outcome: Outcome) -> Action {
        let reached = self.seen.map_or(0, |seen| seen.seq);
        self.spent.retain(|spent| match *spent {
            Spent::Ballot(number, _) | Spent::Kept(number) => number < reached || self.alone && number == reached,
        });
        self.spent.sort_by_key(|spent| match *spent {
            Spent::Ballot(number, _) => std::cmp::Reverse(number),
            Spent::Kept(_) => std::cmp::Reverse(0),
        });
        self.state = State::Clearing(outcome);
        match self.spent.pop() {
            Some(Spent::Ballot(number, temp)) => {
                self.left = temp;
                Action::Remove { number }
            }
            Some(Spent::Kept(number)) => Action::Forget { number },
            None => {
                self.state = State::Finished;
                Action::Finish(outcome)
            }
        }
    }
}
