//! A directory, the contenders for the record `F` in it, and what can go wrong between them.
//!
//! Contenders drive the library's own [`Ballot`]. Each step is one call on the directory: it is made at once, or its
//! reply is lost and it is made again, or it fails before, after or instead of being made, or it is made once more by a
//! late duplicate. Between any two steps a contender may crash.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

#[path = "keeper.rs"]
mod keeper;

use keeper::Kept;
pub use keeper::LAPSED;
use leasehold::Token;
use leasehold::ballot::{Action, Ballot, Kind, Outcome, Reply, Stamp};
use leasehold::lapse::Watch;
use leasehold::names::TempId;
use stateright::{Model, Property};

/// A fault that is put into the model on purpose: the checker has to find what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Rivals that were passed over keep their temp files.
    NoDisarm,
    /// `F` is not read again after the ballot was taken.
    NoRecheck,
    /// `F` is read again, from a cache.
    StaleRecheck,
    /// A ballot is removed as soon as it names no temp file, although `F` has not reached its number.
    EarlyRemoval,
    /// A release looks at `F` and deletes it.
    DeleteVerb,
    /// A record that is about to be replaced gets no second name.
    NoSecondName,
    /// The record's ballot is removed although a rival that was disarmed may still be at work.
    NoLastingBallot,
    /// Rivals are disarmed by removing their temp files: nothing says that these were not published.
    NoVoid,
    /// A process that has ended is taken for one whose calls have.
    EndedIsOver,
    /// A rename that failed is taken for one that will not be made.
    FailedIsOver,
    /// A holder knows its record by token and number alone.
    OwnByNumber,
    /// An empty `F` is refused even where a ballot beside it says that a contender crashed while it created the record.
    EmptyStays,
    /// A heartbeat goes to whatever has the name `F`.
    BeatByPath,
    /// A heartbeat counts although nobody asked whether the open file still has a name.
    NoStat,
    /// … or as long as it has any.
    AnyName,
    /// A heartbeat counts although its last call returned after the deadline.
    LateBeat,
    /// A claim counts however late it is told that it was won.
    LateClaim,
    /// Who watches a lease looks at the beat alone, and not at when it was written.
    BeatAlone,
    /// A break looks at `F` and renames a vacant record onto it.
    NaiveBreak,
}

/// What came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Nothing,
    /// The first contender has won the lease, alone.
    Held,
    /// … and has been paused ever since, and the others have watched for so long that they may take it.
    Lapsed,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Contenders, each on a host of its own, and the temp files that each may write: its tries.
    pub tries: Vec<u8>,
    /// Calls that go wrong, in all.
    pub mishaps: u8,
    /// The filesystem has hard links.
    pub links: bool,
    /// A rename takes two steps: the name `F` is gone after the first, and after a crash between them.
    pub torn: bool,
    /// The first may be made after its process was killed, or told that it failed.
    pub trailing: bool,
    /// Contenders crash, between any two calls.
    pub crashes: bool,
    /// First looks may see the version before the last.
    pub stale: bool,
    /// Living holders' leases may lapse at any time; what that leads to is excused.
    pub lapses: bool,
    /// Leases have a ttl, and are kept by heartbeats: time goes on by so many ticks. A lease is taken once it was seen to
    /// lapse, and in no other way: of no owner it is known whether it lives.
    pub ticks: u8,
    /// Heartbeats, in all.
    pub beats: u8,
    /// How often a supervisor is paused.
    pub naps: u8,
    /// How often an operator breaks a lease.
    pub breaks: u8,
    /// A contender that is gone may have crashed at any point before.
    pub leftovers: bool,
    /// Holders renew.
    pub changes: bool,
    /// Holders hand over.
    pub hand_over: bool,
    /// Other processes make changes with a holder's token too.
    pub children: bool,
    /// Claims of dead owners may be settled by anybody.
    pub settle: bool,
    /// Claims may give way.
    pub give_way: bool,
    /// Leftovers are swept up at any time.
    pub sweep: bool,
    /// How often an operator deletes `F`, while nobody but its holder is at work on it.
    pub deletions: u8,
    /// … or while others are.
    pub careless: bool,
    pub start: Start,
    pub fault: Option<Fault>,
}

impl Setup {
    /// Claims and releases, all files, every call answered.
    pub fn of(contenders: usize, tries: u8) -> Self {
        Self {
            tries: vec![tries; contenders],
            mishaps: 0,
            crashes: true,
            links: true,
            torn: false,
            trailing: false,
            stale: true,
            lapses: false,
            ticks: 0,
            beats: 0,
            naps: 0,
            breaks: 0,
            leftovers: false,
            changes: false,
            hand_over: false,
            children: false,
            settle: false,
            give_way: false,
            sweep: false,
            deletions: 0,
            careless: false,
            start: Start::Nothing,
            fault: None,
        }
    }
}

/// A process: a contender's slot, and how many ran there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    slot: u8,
    run: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    token: Token,
    seq: u64,
    epoch: u64,
    owner: Process,
    ended: bool,
    beat: u8,
    /// How often it was written to: its stamp.
    written: u8,
    /// Not on disk: the holder that the writer was allowed to replace although it may live, since its lease had lapsed or
    /// was to be broken.
    over: Option<Token>,
}

impl Record {
    fn stamp(&self) -> Stamp {
        Stamp {
            token: self.token,
            seq: self.seq,
            beat: self.beat.into(),
        }
    }
}

/// What the name `F` stands for. Temp files are told apart by their names, so these serve as inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    Absent,
    Empty,
    Record { inode: TempId, record: Record },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// The second name of a temp file, or of the record that it became.
    Second(TempId, Record),
    /// Where there are no hard links: names its temp file.
    Signed(TempId),
    /// … created by this process, not signed yet.
    Blank(Process),
}

/// The calls that change the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    Take {
        number: u64,
        temp: TempId,
    },
    CreateBallot {
        number: u64,
        slot: u8,
        run: u8,
    },
    Sign {
        number: u64,
        temp: TempId,
        slot: u8,
        run: u8,
    },
    Unlink(TempId),
    Disarm(TempId),
    Retire(TempId),
    DisarmAllBut(TempId),
    UnlinkBallot(u64),
    Discard(TempId),
    Keep(u64),
    Forget(u64),
    Link(TempId),
    Create,
    /// The first step of a rename that takes two.
    Aside,
    Rename(TempId),
    /// A heartbeat of this claim, into the file that is open.
    Beat {
        token: Token,
        inode: TempId,
        beat: u8,
    },
}

/// What a process is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    Claim,
    Renew,
    /// A claim's that was won too slowly: the lease may have lapsed since.
    Confirm,
    /// Ends the claim of an owner that is dead.
    Settle {
        token: Token,
        epoch: u64,
    },
    /// A holder's change by a process that is not the holder and has its token, as its child has.
    Note {
        token: Token,
        epoch: u64,
    },
    HandOver(Process),
    Release,
    /// Ends the claim of somebody else, dead or alive.
    Break(Token),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    job: Job,
    token: Token,
    ballot: Ballot,
    action: Action,
    /// When the look begins that the next record rests on.
    began: Duration,
    /// A heartbeat's: the lease is being won anew.
    kept: Option<Box<Kept>>,
    /// The epoch of the claim; for a new one, above any that was seen.
    epoch: u64,
    /// The record as the next one is made from.
    next: Option<Record>,
    /// The file that was written last.
    temp: Option<TempId>,
    /// The file that the last second read found.
    sight: Option<TempId>,
    /// The lapsed claim of a living process that may be replaced.
    over: Option<Token>,
    /// `F` has been this change's record, of this epoch.
    published: Option<u64>,
    /// … and it was put where there was nothing.
    onto_nothing: bool,
    /// The first step of its rename is over, and the second is not.
    aside: bool,
    excused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    Busy(Box<Change>),
    /// Believes that it holds the lease. `excused`: its lease has lapsed and was taken, or an operator broke or deleted it.
    Holding {
        token: Token,
        epoch: u64,
        excused: bool,
        kept: Option<Box<Kept>>,
    },
    /// Has stopped its work, and could not say so in the record.
    Stopped {
        token: Token,
        epoch: u64,
    },
    /// About to delete `F` by name (only where that fault is asked for).
    Deleting,
    /// About to put this record in place of `F` (only where that fault is asked for).
    Replacing(Record),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contender {
    run: u8,
    written: u8,
    /// Files were written by this run: its number must not be used again.
    wrote: bool,
    /// What a waiting claim has seen of `F`.
    watch: Watch,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    file: File,
    /// The version before the last, for stale reads.
    before: Option<File>,
    temps: BTreeMap<TempId, Record>,
    /// Temp files that were disarmed, or given up by their writers.
    voids: BTreeSet<TempId>,
    withdrawn: BTreeSet<TempId>,
    ballots: BTreeMap<u64, Slip>,
    /// Second names of records that are being replaced.
    kept: BTreeMap<u64, (TempId, Record)>,
    contenders: Vec<Contender>,
    /// Calls under way that nobody waits for any more.
    late: Vec<Call>,
    now: u8,
    mishaps: u8,
    beats: u8,
    naps: u8,
    breaks: u8,
    deletions: u8,
    /// The highest that `F` has been; nothing once an operator has deleted it.
    top: Option<(u64, u64)>,
    deleted: bool,
    /// Temp files that were disarmed and are still there: by a fault.
    disarmed: BTreeSet<TempId>,
    /// The first rule that was broken.
    pub broken: Option<&'static str>,
}

/// How a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    Plain,
    /// A read sees the version before the last.
    Stale,
    /// The call is made and its reply lost; it will be made again.
    Resend,
    /// … and its reply comes, but a duplicate is under way.
    Duplicate,
    /// The call is made and reported as failed.
    FailsDone,
    FailsUndone,
    /// The call is reported as failed and is made later.
    FailsLate,
    /// The first step of a rename: the name is gone.
    Aside,
    /// … which is reported as failed and is made later. There is no second.
    AsideLate,
}

const HOWS: [How; 9] = [
    How::Plain,
    How::Stale,
    How::Resend,
    How::Duplicate,
    How::FailsDone,
    How::FailsUndone,
    How::FailsLate,
    How::Aside,
    How::AsideLate,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Begin {
        slot: usize,
        job: Job,
        give_way: bool,
    },
    Step {
        slot: usize,
        how: How,
    },
    Crash {
        slot: usize,
    },
    SweepBallot(u64),
    SweepTemp(TempId),
    SweepKept(u64),
    OperatorDeletes,
    Late(usize),
    Tick,
    /// A call of a heartbeat.
    Heart {
        slot: usize,
        how: How,
    },
    /// A supervisor hears that its lease is confirmed.
    Hear {
        slot: usize,
    },
    Sleep {
        slot: usize,
    },
    Wake {
        slot: usize,
    },
}

pub const ONE_HOLDER: &str = "one holder at a time, unless its lease lapsed";
pub const IN_TIME: &str = "a holder that stops by its deadline never overlaps the next";
pub const LOSES: &str = "a holder whose record was taken from it stops within its ttl";
pub const FORWARD: &str = "seq and epoch of the record only grow, and each claim has an epoch of its own";
pub const TOLD_TRUE: &str = "who believes to hold an epoch had its record of that epoch in place";
pub const DISARMED: &str = "what was disarmed is never published";
pub const NO_TWIN: &str = "no replaced record keeps another name";
pub const NO_ORPHAN: &str = "a claim that was not won leaves no record of its own in place";
pub const NO_RETURN: &str = "a holder never puts a record back that was deleted, and goes on";
pub const OWN_BEAT: &str = "no heartbeat reaches the record of another claim";
pub const NAMED: &str = "a break ends the claim that it names, and no other";
pub const NO_STALL: &str = "when everybody finishes what it is about, a new claim succeeds";
pub const NO_WEDGE: &str = "when everybody has crashed, a new claim succeeds alone";

const RULES: [&str; 8] = [
    FORWARD, TOLD_TRUE, DISARMED, NO_TWIN, NO_ORPHAN, NO_RETURN, OWN_BEAT, NAMED,
];

pub struct Protocol {
    pub setup: Setup,
    /// The rules that are asked for; all, if there are none.
    asked: Vec<&'static str>,
    /// Directories from which a lone claim is known to succeed, and worlds that are known to end well.
    ways_out: Mutex<HashSet<u64>>,
}

impl Protocol {
    pub fn new(mut setup: Setup) -> Self {
        if setup.leftovers {
            setup.tries.push(0);
            setup.leftovers = true;
        }
        Self {
            setup,
            asked: Vec::new(),
            ways_out: Mutex::default(),
        }
    }

    /// The same, for whoever wants to know of these rules alone.
    pub fn about(setup: Setup, rules: &[&'static str]) -> Self {
        Self {
            asked: rules.to_owned(),
            ..Self::new(setup)
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.setup.fault == Some(fault)
    }

    fn tries(&self, slot: usize) -> u8 {
        self.setup.tries.get(slot).copied().unwrap_or(u8::MAX)
    }

    fn begin(&self, world: &mut World, slot: usize, job: Job, give_way: bool) -> Option<()> {
        if matches!(job, Job::Release | Job::HandOver(_)) {
            world.leave_heart(slot);
        }
        let contender = &mut world.contenders[slot];
        let (token, epoch, excused) = match (&contender.phase, job) {
            (Phase::Idle, Job::Claim | Job::Break(_)) => {
                let bits = (slot as u128) << 8 | u128::from(contender.written + 1);
                (Token::from_bits(bits), 1, false)
            }
            (
                Phase::Holding {
                    token, epoch, excused, ..
                },
                Job::Renew | Job::HandOver(_) | Job::Release,
            ) => (*token, *epoch, *excused),
            (Phase::Idle, Job::Note { token, epoch } | Job::Settle { token, epoch }) => (token, epoch, false),
            (Phase::Stopped { token, epoch }, Job::Release | Job::Confirm) => (*token, *epoch, job == Job::Release),
            _ => return None,
        };
        let kind = match job {
            Job::Claim | Job::Break(_) => Kind::Claim,
            Job::Settle { .. } => Kind::Settle,
            _ => Kind::Holder,
        };
        let ballot = Ballot::new(kind, token, give_way);
        contender.phase = Phase::Busy(Box::new(Change {
            job,
            token,
            action: ballot.start(),
            ballot,
            began: keeper::at(world.now),
            kept: None,
            epoch,
            next: None,
            temp: None,
            sight: None,
            over: None,
            published: None,
            onto_nothing: false,
            aside: false,
            excused,
        }));
        Some(())
    }

    fn fresh_temp(&self, contender: &mut Contender, own: Process) -> TempId {
        contender.written += 1;
        contender.wrote = true;
        let pid = u32::from(own.slot) << 8 | u32::from(own.run);
        TempId::new(1, pid, contender.written.into())
    }

    /// One call of a contender, if it can go that way.
    fn step(&self, world: &mut World, slot: usize, how: How) -> Option<()> {
        let own = world.process(slot);
        let run = own.run;
        if world.contenders[slot].phase == Phase::Deleting {
            (how == How::Plain).then(|| world.delete())?;
            world.contenders[slot].phase = Phase::Idle;
            return Some(());
        }
        if let Phase::Replacing(record) = world.contenders[slot].phase {
            let contender = &mut world.contenders[slot];
            if how != How::Plain || contender.written >= self.tries(slot) {
                return None;
            }
            contender.phase = Phase::Idle;
            let temp = self.fresh_temp(contender, own);
            world.publish(world.sight(), temp, record);
            return Some(());
        }
        let Phase::Busy(change) = world.contenders[slot].phase.clone() else {
            return None;
        };
        let mut change = *change;
        let call = match change.action {
            Action::Take { number, temp } => Call::Take { number, temp },
            Action::TakeFile { number } => Call::CreateBallot {
                number,
                slot: own.slot,
                run,
            },
            Action::Sign { number, temp } => Call::Sign {
                number,
                temp,
                slot: own.slot,
                run,
            },
            Action::Disarm { temp } if self.has(Fault::NoVoid) => Call::Unlink(temp),
            Action::Disarm { temp } if self.has(Fault::FailedIsOver) && Some(temp) == change.temp => Call::Retire(temp),
            Action::Disarm { temp } => Call::Disarm(temp),
            Action::Retire { temp } => Call::Retire(temp),
            Action::Withdraw { temp } => Call::Unlink(temp),
            Action::DisarmAll { but } => Call::DisarmAllBut(but),
            Action::Remove { number } => Call::UnlinkBallot(number),
            Action::Discard { temp } => Call::Discard(temp),
            Action::Keep { number } => Call::Keep(number),
            Action::Forget { number } => Call::Forget(number),
            Action::Link { temp } => Call::Link(temp),
            Action::Create => Call::Create,
            Action::Rename { temp } => Call::Rename(temp),
            _ => {
                let reply = match how {
                    How::Plain if change.action == Action::Ask => Reply::Done,
                    How::Plain | How::Stale => self.read(world, &mut change, own, how == How::Stale)?,
                    How::FailsUndone if !matches!(change.action, Action::Pause { .. } | Action::Ask) => {
                        world.mishaps = world.mishaps.checked_sub(1)?;
                        Reply::Failed
                    }
                    _ => return None,
                };
                self.deliver(world, slot, change, reply);
                return Some(());
            }
        };
        if matches!(change.action, Action::Disarm { .. } | Action::DisarmAll { .. }) && self.has(Fault::NoDisarm) {
            if how != How::Plain {
                return None;
            }
            match change.action {
                Action::Disarm { temp } => world.disarmed.extend(world.temps.contains_key(&temp).then_some(temp)),
                Action::DisarmAll { but } => world.disarmed.extend(world.temps.keys().filter(|temp| **temp != but)),
                _ => unreachable!("matched above"),
            }
            self.deliver(world, slot, change, Reply::Done);
            return Some(());
        }
        if how == How::Aside {
            let Call::Rename(temp) = call else { return None };
            let other = matches!(world.file, File::Record { inode, .. } if inode != temp);
            (self.setup.torn && other && !change.aside).then(|| self.execute(world, Call::Aside))?;
            change.aside = true;
            world.contenders[slot].phase = Phase::Busy(Box::new(change));
            return Some(());
        }
        if how != How::Plain {
            world.mishaps = world.mishaps.checked_sub(1)?;
        }
        let reply = match how {
            How::Plain => self.execute(world, call),
            How::Stale | How::Aside => return None,
            How::AsideLate => {
                let first = self.setup.trailing && matches!(call, Call::Rename(_)) && !change.aside;
                first.then(|| world.later(Call::Aside))?;
                Reply::Failed
            }
            How::Resend => {
                // Made twice, an unlink is one.
                let twice = matches!(
                    call,
                    Call::Take { .. } | Call::CreateBallot { .. } | Call::Link(_) | Call::Create | Call::Rename(_)
                );
                (twice && self.execute(world, call) == Reply::Done).then_some(())?;
                // Of a rename, the second step is: the first was answered before.
                if let (Call::Rename(_), Phase::Busy(change)) = (call, &mut world.contenders[slot].phase) {
                    change.aside = self.setup.torn;
                }
                return Some(());
            }
            How::Duplicate => {
                let reply = self.execute(world, call);
                world.later((reply == Reply::Done).then_some(call)?);
                reply
            }
            How::FailsDone => {
                if self.execute(world, call) != Reply::Done {
                    return None;
                }
                Reply::Failed
            }
            How::FailsUndone => Reply::Failed,
            How::FailsLate => {
                world.later(call);
                Reply::Failed
            }
        };
        // The call may have marked this contender's change as published.
        if let Phase::Busy(now) = &world.contenders[slot].phase {
            (change.published, change.onto_nothing, change.excused) = (now.published, now.onto_nothing, now.excused);
        }
        self.deliver(world, slot, change, reply);
        Some(())
    }

    /// The version before the last, where a cache may show it.
    fn stale_sight(&self, world: &World, slot: usize) -> Option<File> {
        // Who made the last change has seen it.
        let coherent = matches!(world.file, File::Record { inode, .. } if usize::from(process(inode).slot) == slot);
        world.before.filter(|before| !coherent && *before != world.file)
    }

    /// The steps that change nothing that others see.
    fn read(&self, world: &mut World, change: &mut Change, own: Process, stale: bool) -> Option<Reply> {
        let file = if stale {
            let reads = matches!(change.action, Action::Look | Action::Pause { .. });
            let cached = change.action == Action::Recheck && self.has(Fault::StaleRecheck);
            if !(cached || reads) {
                return None;
            }
            self.stale_sight(world, own.slot.into())?
        } else {
            world.sight()
        };
        let seen = match file {
            File::Absent => Reply::Seen {
                stamp: None,
                twin: false,
                own: false,
            },
            // What a crash between creating and renaming leaves: as good as none, while its ballot is there.
            File::Empty if !world.ballots.is_empty() && !self.has(Fault::EmptyStays) => Reply::Seen {
                stamp: None,
                twin: false,
                own: false,
            },
            File::Empty => Reply::Odd,
            File::Record { inode, record } => Reply::Seen {
                stamp: Some(record.stamp()),
                twin: world.names(inode) > 1,
                own: change.temp == Some(inode) || self.has(Fault::OwnByNumber),
            },
        };
        Some(match change.action {
            Action::Look => match self.consider(world, change, file) {
                Ok(()) => seen,
                Err(refusal) => refusal,
            },
            Action::Write { seq } => {
                let contender = &mut world.contenders[usize::from(own.slot)];
                if contender.written >= self.tries(own.slot.into()) {
                    return None;
                }
                let temp = self.fresh_temp(contender, own);
                change.temp = Some(temp);
                let next = change.next.expect("a look allowed the change");
                world.temps.insert(
                    temp,
                    Record {
                        seq,
                        written: 0,
                        over: change.over,
                        ..next
                    },
                );
                Reply::Written(temp)
            }
            Action::Inspect { number } => match world.ballots.get(&number) {
                None => Reply::Missing,
                Some(Slip::Blank(_)) => Reply::Rival {
                    temp: None,
                    gone: false,
                    ended: false,
                },
                Some(Slip::Signed(temp) | Slip::Second(temp, _)) => Reply::Rival {
                    temp: Some(*temp),
                    gone: !world.temps.contains_key(temp) || !world.runs(process(*temp)),
                    ended: self.is_over(world, *temp) || world.withdrawn.contains(temp),
                },
            },
            Action::Untwin => {
                let inode = change.sight.expect("a twin was seen");
                world.temps.remove(&inode);
                world.voids.remove(&inode);
                world.withdrawn.remove(&inode);
                let seq = change.ballot.seen().map_or(0, |seen| seen.seq);
                world.kept.retain(|number, _| *number >= seq);
                world.ballots.retain(|number, _| *number >= seq);
                let voids = world.voids.iter().copied();
                let (over, left): (Vec<TempId>, Vec<TempId>) = voids.partition(|rival| self.is_over(world, *rival));
                for rival in over.into_iter().chain(world.withdrawn.clone()) {
                    world.discard_unnamed(rival);
                }
                match left.is_empty() {
                    true => Reply::Done,
                    false => Reply::Exists,
                }
            }
            // A living rival may be passed over at any time.
            Action::Pause { .. } => {
                let now = match file {
                    File::Record { record, .. } => Some(record.stamp()),
                    _ => None,
                };
                let odd = file == File::Empty && (world.ballots.is_empty() || self.has(Fault::EmptyStays));
                if !odd && now == change.ballot.seen() {
                    Reply::Expired
                } else {
                    Reply::Changed
                }
            }
            Action::Recheck => {
                if self.has(Fault::NoRecheck) && change.published.is_none() {
                    return Some(Reply::Seen {
                        stamp: change.ballot.seen(),
                        twin: false,
                        own: false,
                    });
                }
                change.sight = match file {
                    File::Record { inode, .. } => Some(inode),
                    _ => None,
                };
                if file == File::Absent { Reply::Missing } else { seen }
            }
            _ => unreachable!("the other actions are calls"),
        })
    }

    /// The judge's part of a look: whether the change is allowed, and from which record the next one is made.
    fn consider(&self, world: &mut World, change: &mut Change, file: File) -> Result<(), Reply> {
        let found = match file {
            File::Absent => None,
            File::Empty if !world.ballots.is_empty() && !self.has(Fault::EmptyStays) => None,
            File::Empty => return Err(Reply::Refused),
            File::Record { record, .. } => Some(record),
        };
        let owner = change.next.map(|next| next.owner);
        if let Job::Break(token) = change.job {
            let record = found.filter(|record| record.token == token && !record.ended);
            let record = record.ok_or(Reply::Refused)?;
            change.epoch = record.epoch + 1;
            change.next = Some(Record {
                token: change.token,
                epoch: change.epoch,
                ended: true,
                over: Some(token),
                ..record
            });
            change.over = Some(token);
            return Ok(());
        }
        if change.job != Job::Claim {
            let dead = |record: &Record| !matches!(change.job, Job::Settle { .. }) || !world.runs(record.owner);
            let current = found.filter(|record| record.token == change.token && !record.ended && dead(record));
            let record = current.ok_or(Reply::Refused)?;
            change.next = Some(Record {
                owner: match change.job {
                    Job::HandOver(to) => to,
                    _ => record.owner,
                },
                ended: matches!(change.job, Job::Release | Job::Settle { .. }),
                beat: record.beat + u8::from(change.job == Job::Confirm || change.kept.is_some()),
                ..record
            });
            return Ok(());
        }
        change.over = None;
        let unchanged = self.observe(world, change, found);
        if let Some(record) = found {
            change.epoch = change.epoch.max(record.epoch + 1);
            if !record.ended && self.is_timed() {
                if !keeper::has_lapsed(unchanged) {
                    return Err(Reply::Refused);
                }
            } else if !record.ended && world.runs(record.owner) {
                if !self.setup.lapses {
                    return Err(Reply::Refused);
                }
                change.over = Some(record.token);
            }
        }
        change.next = Some(Record {
            token: change.token,
            seq: 0,
            epoch: change.epoch,
            owner: owner.unwrap_or_else(|| world.claimant(change.token)),
            ended: false,
            beat: 0,
            written: 0,
            over: None,
        });
        Ok(())
    }

    /// Makes a call on the directory.
    fn execute(&self, world: &mut World, call: Call) -> Reply {
        match call {
            Call::Take { .. } if !self.setup.links => Reply::Unsupported,
            Call::Take { number, temp } => match world.temps.get(&temp) {
                Some(record) => world.slip(number, Slip::Second(temp, *record)),
                None => Reply::Missing,
            },
            Call::CreateBallot { number, slot, run } => world.slip(number, Slip::Blank(Process { slot, run })),
            Call::Sign {
                number,
                temp,
                slot,
                run,
            } => {
                // Through the descriptor: a ballot that was removed or is another's now is not touched.
                if world.ballots.get(&number) == Some(&Slip::Blank(Process { slot, run })) {
                    world.ballots.insert(number, Slip::Signed(temp));
                }
                Reply::Done
            }
            Call::Unlink(temp) => {
                world.temps.remove(&temp);
                Reply::Done
            }
            Call::Disarm(temp) => {
                world.disarm(temp);
                Reply::Done
            }
            Call::Retire(temp) => {
                if world.temps.remove(&temp).is_some() {
                    world.withdrawn.insert(temp);
                }
                Reply::Done
            }
            Call::DisarmAllBut(but) => {
                let others: Vec<TempId> = world.temps.keys().copied().filter(|temp| *temp != but).collect();
                others.into_iter().for_each(|temp| world.disarm(temp));
                Reply::Done
            }
            Call::Discard(temp) => {
                world.voids.remove(&temp);
                world.withdrawn.remove(&temp);
                Reply::Done
            }
            Call::Keep(_) if !self.setup.links || self.has(Fault::NoSecondName) => Reply::Unsupported,
            Call::Keep(number) => match world.file {
                File::Record { inode, record } => match world.kept.insert(number, (inode, record)) {
                    Some(before) => {
                        world.kept.insert(number, before);
                        Reply::Exists
                    }
                    None => Reply::Done,
                },
                _ => Reply::Missing,
            },
            Call::Forget(number) => {
                world.kept.remove(&number);
                Reply::Done
            }
            Call::UnlinkBallot(number) => {
                world.ballots.remove(&number);
                Reply::Done
            }
            Call::Link(_) if !self.setup.links => Reply::Unsupported,
            // The look before it needs no step of its own: who publishes between the two has disarmed this temp file.
            Call::Link(temp) => match (world.temps.get(&temp).copied(), world.sight()) {
                (None, _) => Reply::Missing,
                (Some(_), File::Record { .. } | File::Empty) => Reply::Exists,
                (Some(record), File::Absent) => {
                    world.publish(File::Absent, temp, record);
                    Reply::Done
                }
            },
            Call::Create if world.file == File::Absent => {
                world.become_file(File::Empty);
                Reply::Done
            }
            Call::Create => Reply::Exists,
            Call::Aside => {
                world.become_file(File::Absent);
                Reply::Done
            }
            Call::Beat { token, inode, beat } => {
                world.write_beat(token, inode, beat, self.has(Fault::BeatByPath));
                Reply::Done
            }
            Call::Rename(temp) => match (world.temps.get(&temp).copied(), world.file) {
                (None, _) => Reply::Missing,
                // Two names of one file: rename(2) does nothing, and says so.
                (Some(_), File::Record { inode, .. }) if inode == temp => Reply::Done,
                (Some(record), _) => {
                    let before = world.sight();
                    world.temps.remove(&temp);
                    world.publish(before, temp, record);
                    Reply::Done
                }
            },
        }
    }

    fn deliver(&self, world: &mut World, slot: usize, mut change: Change, reply: Reply) {
        change.action = change.ballot.advance(reply);
        change.aside = false;
        match change.action {
            Action::Finish(outcome) => self.conclude(world, slot, &change, outcome),
            _ => world.contenders[slot].phase = Phase::Busy(Box::new(change)),
        }
    }

    /// What a caller makes of the end of a change.
    fn conclude(&self, world: &mut World, slot: usize, change: &Change, outcome: Outcome) {
        let Change {
            token, epoch, excused, ..
        } = *change;
        if matches!(outcome, Outcome::Committed { .. }) && change.published != Some(epoch) {
            world.breaks(TOLD_TRUE);
        }
        if let Outcome::Committed { seq, .. } = outcome
            && self.has(Fault::NoLastingBallot)
        {
            world.ballots.remove(&seq);
        }
        if let Some(kept) = &change.kept {
            return self.won_again(world, slot, change, kept, outcome);
        }
        let kept = match outcome {
            Outcome::Committed { .. } if self.is_timed() => Some(Box::new(Kept::new(world, change))),
            _ => None,
        };
        let is_over = kept.as_ref().is_some_and(|kept| kept.is_over(world.now)) && !self.has(Fault::LateClaim);
        if is_over && matches!(change.job, Job::Claim | Job::Confirm) {
            world.contenders[slot].phase = Phase::Stopped { token, epoch };
            self.begin(world, slot, Job::Confirm, false)
                .expect("who has won may confirm it");
            return;
        }
        let holding = Phase::Holding {
            token,
            epoch,
            excused,
            kept,
        };
        let stopped = Phase::Stopped { token, epoch };
        let phase = match (change.job, outcome) {
            (Job::Claim, Outcome::Committed { .. }) => {
                world.contenders[slot].watch = Watch::default();
                holding
            }
            (Job::Break(_), Outcome::Committed { .. }) => Phase::Idle,
            (Job::Claim | Job::Break(_), outcome) => {
                let own = matches!(world.sight(), File::Record { record, .. } if record.token == token);
                if own && outcome != Outcome::Unknown {
                    world.breaks(NO_ORPHAN);
                }
                match change.job {
                    Job::Claim if outcome == Outcome::Unknown => stopped,
                    _ => Phase::Idle,
                }
            }
            (job, Outcome::Committed { .. }) => {
                if change.onto_nothing {
                    world.breaks(NO_RETURN);
                }
                match job {
                    Job::Renew | Job::Confirm => holding,
                    Job::HandOver(to) => {
                        let target = &mut world.contenders[usize::from(to.slot)];
                        if target.run == to.run && target.phase == Phase::Idle {
                            target.phase = if is_over { stopped } else { holding };
                            target.watch = Watch::default();
                        }
                        Phase::Idle
                    }
                    _ => Phase::Idle,
                }
            }
            (_, Outcome::Refused) => Phase::Idle,
            (Job::Note { .. } | Job::Settle { .. }, _) => Phase::Idle,
            (Job::Renew, Outcome::Failed | Outcome::Contended) => holding,
            _ => stopped,
        };
        world.contenders[slot].phase = phase;
    }

    /// Whether the writer of a temp file has ended, and its calls as well: those of a rename in two steps need not have.
    fn is_over(&self, world: &World, temp: TempId) -> bool {
        !world.runs(process(temp)) && (!self.setup.torn || self.has(Fault::EndedIsOver))
    }

    fn crash(&self, world: &mut World, slot: usize) -> Option<()> {
        world.leave_heart(slot);
        if let Phase::Busy(change) = &world.contenders[slot].phase
            && self.setup.trailing
            && let (Action::Rename { .. }, false) = (&change.action, change.aside)
        {
            world.later(Call::Aside);
        }
        let own = world.process(slot);
        let named = matches!(world.file, File::Record { record, .. } if record.owner == own);
        let contender = &mut world.contenders[slot];
        if contender.phase == Phase::Idle && !named {
            return None;
        }
        contender.phase = Phase::Idle;
        contender.watch = Watch::default();
        if contender.wrote || named {
            contender.run += 1;
            contender.wrote = false;
        }
        Some(())
    }

    /// Whether a new contender takes the lease, alone, once all others have crashed.
    fn has_way_out(&self, world: &World) -> bool {
        let key = world.directory();
        if self.knows(key) {
            return true;
        }
        let mut alone = world.clone();
        for slot in 0..alone.contenders.len() {
            let _ = self.crash(&mut alone, slot);
            alone.contenders[slot].run = u8::MAX;
        }
        alone.contenders.push(Contender::default());
        let slot = alone.contenders.len() - 1;
        let patient = self.patient();
        for _ in 0..200 {
            match alone.contenders[slot].phase {
                Phase::Busy(_) => patient
                    .step(&mut alone, slot, How::Plain)
                    .expect("a plain step can be made"),
                Phase::Holding { .. } => {
                    self.learn([key]);
                    return true;
                }
                // Refused: what has not lapsed yet will have.
                _ => {
                    alone.now += u8::from(self.is_timed());
                    patient
                        .begin(&mut alone, slot, Job::Claim, false)
                        .expect("an idle contender may claim");
                }
            }
        }
        false
    }

    /// Whether a new contender takes the lease once all others, who are well, have finished what they are about. One
    /// order of their steps is enough: each of them can be made from here.
    fn has_happy_end(&self, world: &World) -> bool {
        let mut key = digest(world);
        if world.broken.is_some() || self.knows(key) {
            return true;
        }
        let (patient, mut now, mut trail) = (self.patient(), world.clone(), Vec::new());
        for _ in 0..500 {
            trail.push(key);
            let find = |test: fn(&Phase) -> bool| now.contenders.iter().position(|contender| test(&contender.phase));
            let busy = |phase: &Phase| matches!(phase, Phase::Busy(_) | Phase::Deleting | Phase::Replacing(_));
            let holds = |phase: &Phase| matches!(phase, Phase::Holding { .. } | Phase::Stopped { .. });
            if let Some(slot) = find(busy) {
                patient
                    .step(&mut now, slot, How::Plain)
                    .expect("a plain step can be made");
            } else if let Some(slot) = find(holds) {
                patient
                    .begin(&mut now, slot, Job::Release, false)
                    .expect("a holder may release");
            } else if let Some(call) = now.late.pop() {
                self.execute(&mut now, call);
            } else if self.has_way_out(&now) {
                self.learn(trail);
                return true;
            } else {
                return false;
            }
            key = digest(&now);
            if self.knows(key) {
                self.learn(trail);
                return true;
            }
        }
        false
    }

    fn nothing_yet(&self) -> World {
        World {
            file: File::Absent,
            before: None,
            temps: BTreeMap::new(),
            voids: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            ballots: BTreeMap::new(),
            kept: BTreeMap::new(),
            contenders: vec![Contender::default(); self.setup.tries.len()],
            late: Vec::new(),
            now: 0,
            mishaps: self.setup.mishaps,
            beats: self.setup.beats,
            naps: self.setup.naps,
            breaks: self.setup.breaks,
            deletions: self.setup.deletions,
            top: None,
            deleted: false,
            disarmed: BTreeSet::new(),
            broken: None,
        }
    }

    /// Whatever a contender leaves that crashes at any point of its claims, changes and releases. Its slot is the last.
    fn crashed_before(&self) -> Vec<World> {
        let slot = self.setup.tries.len() - 1;
        let mut tries = vec![0; slot];
        tries.push(3);
        let lone = Self::new(Setup {
            tries,
            changes: true,
            links: self.setup.links,
            torn: self.setup.torn,
            ..Setup::of(0, 0)
        });
        let mut open = vec![lone.nothing_yet()];
        let (mut seen, mut left) = (HashSet::new(), HashSet::new());
        let mut worlds = Vec::new();
        while let Some(world) = open.pop() {
            if !seen.insert(digest(&world)) {
                continue;
            }
            if left.insert(world.directory()) {
                let mut crashed = World {
                    file: world.file,
                    temps: world.temps.clone(),
                    voids: world.voids.clone(),
                    withdrawn: world.withdrawn.clone(),
                    ballots: world.ballots.clone(),
                    kept: world.kept.clone(),
                    top: world.top,
                    ..self.nothing_yet()
                };
                crashed.contenders[slot].run = u8::MAX;
                worlds.push(crashed);
            }
            let mut events = Vec::new();
            lone.actions(&world, &mut events);
            open.extend(events.into_iter().filter_map(|event| lone.next_state(&world, event)));
        }
        worlds
    }

    /// A claim that nobody disturbs.
    fn attempt(&self, world: &mut World, slot: usize) {
        self.begin(world, slot, Job::Claim, false)
            .expect("an idle contender may claim");
        while let Phase::Busy(_) = world.contenders[slot].phase {
            self.step(world, slot, How::Plain).expect("a plain step can be made");
        }
    }

    /// The same with no end of tries.
    fn patient(&self) -> Self {
        Self::new(Setup {
            tries: Vec::new(),
            leftovers: false,
            ..self.setup.clone()
        })
    }

    fn knows(&self, key: u64) -> bool {
        self.ways_out.lock().expect("no panic while it is held").contains(&key)
    }

    fn learn(&self, keys: impl IntoIterator<Item = u64>) {
        self.ways_out.lock().expect("no panic while it is held").extend(keys);
    }
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Which process wrote a temp file.
fn process(temp: TempId) -> Process {
    Process {
        slot: (temp.pid() >> 8) as u8,
        run: temp.pid() as u8,
    }
}

impl Default for Contender {
    fn default() -> Self {
        Self {
            run: 0,
            written: 0,
            wrote: false,
            watch: Watch::default(),
            phase: Phase::Idle,
        }
    }
}

impl World {
    fn runs(&self, process: Process) -> bool {
        self.contenders[usize::from(process.slot)].run == process.run
    }

    fn process(&self, slot: usize) -> Process {
        Process {
            slot: slot as u8,
            run: self.contenders[slot].run,
        }
    }

    /// A claim's token says in which slot it was made.
    fn claimant(&self, token: Token) -> Process {
        self.process((token.bits() >> 8) as usize)
    }

    fn breaks(&mut self, rule: &'static str) {
        self.broken.get_or_insert(rule);
    }

    fn later(&mut self, call: Call) {
        self.late.push(call);
        self.late.sort();
    }

    fn slip(&mut self, number: u64, slip: Slip) -> Reply {
        if self.ballots.contains_key(&number) {
            return Reply::Exists;
        }
        self.ballots.insert(number, slip);
        Reply::Done
    }

    /// The record as a look finds it: by a second name where its own is not there.
    fn sight(&self) -> File {
        if self.file != File::Absent {
            return self.file;
        }
        let published = self.ballots.values().filter_map(|slip| match slip {
            Slip::Second(temp, record) if !self.temps.contains_key(temp) && !self.is_given_up(*temp) => {
                Some((*temp, *record))
            }
            _ => None,
        });
        let seconds = published.chain(self.kept.values().copied());
        let newest = seconds.max_by_key(|(_, record)| record.seq);
        newest.map_or(File::Absent, |(inode, record)| File::Record { inode, record })
    }

    fn is_given_up(&self, temp: TempId) -> bool {
        self.voids.contains(&temp) || self.withdrawn.contains(&temp)
    }

    /// How many names a file has.
    fn names(&self, inode: TempId) -> usize {
        let own = matches!(self.file, File::Record { inode: now, .. } if now == inode);
        let ballots = self.ballots.values();
        let ballots = ballots.filter(|slip| matches!(slip, Slip::Second(temp, _) if *temp == inode));
        let temps = [self.temps.contains_key(&inode), self.is_given_up(inode), own];
        let kept = self.kept.values().filter(|(kept, _)| *kept == inode);
        ballots.count() + kept.count() + temps.into_iter().filter(|is| *is).count()
    }

    fn disarm(&mut self, temp: TempId) {
        if self.temps.remove(&temp).is_some() {
            self.voids.insert(temp);
        }
    }

    fn discard_unnamed(&mut self, temp: TempId) {
        if self.names(temp) == 1 {
            self.voids.remove(&temp);
            self.withdrawn.remove(&temp);
        }
    }

    fn directory(&self) -> u64 {
        digest(&(
            self.file,
            (&self.temps, &self.voids, &self.withdrawn),
            &self.ballots,
            &self.kept,
        ))
    }

    fn become_file(&mut self, file: File) {
        self.before = Some(self.file);
        self.file = file;
    }

    fn publish(&mut self, before: File, temp: TempId, record: Record) {
        if self.disarmed.contains(&temp) {
            self.breaks(DISARMED);
        }
        if let File::Record { inode, record: old } = before {
            if self.temps.contains_key(&inode) {
                self.breaks(NO_TWIN);
            }
            if record.ended && record.over.is_some_and(|named| named != old.token) {
                self.breaks(NAMED);
            }
            if record.over == Some(old.token) {
                self.excuse(old.token);
            }
            if record.token != old.token {
                self.take_from(old.token);
            }
        }
        if let Some((seq, epoch)) = self.top {
            let same = matches!(before, File::Record { record: old, .. } if old.token == record.token);
            let forward = if same {
                record.epoch == epoch
            } else {
                record.epoch > epoch
            };
            let forward = forward && record.seq > seq;
            if !self.deleted && !forward {
                self.breaks(FORWARD);
            }
        }
        if !self.deleted {
            self.top = Some((record.seq, record.epoch));
        }
        self.become_file(File::Record { inode: temp, record });
        let writer = process(temp);
        if self.runs(writer)
            && let Phase::Busy(change) = &mut self.contenders[usize::from(writer.slot)].phase
            && change.token == record.token
        {
            change.published = Some(record.epoch);
            change.onto_nothing = before == File::Absent;
        }
    }

    /// From now on this holder is not to be counted on: its lease lapsed and was taken, or its record was deleted.
    fn excuse(&mut self, lapsed: Token) {
        for contender in &mut self.contenders {
            match &mut contender.phase {
                Phase::Holding { token, excused, .. } if *token == lapsed => *excused = true,
                Phase::Busy(change) if change.token == lapsed => change.excused = true,
                _ => {}
            }
        }
    }

    fn delete(&mut self) {
        if let File::Record { .. } | File::Empty = self.file {
            self.become_file(File::Absent);
        }
    }

    /// Nobody but the holder of `F` is at work, and it has not asked about `F` for the last time.
    fn is_left_to_its_holder(&self) -> bool {
        let File::Record { inode, record } = self.file else {
            return false;
        };
        // With another name it would not be gone.
        if self.names(inode) > 1 {
            return false;
        }
        let at_rest = |contender: &Contender| match &contender.phase {
            Phase::Idle => true,
            Phase::Holding { token, .. } => *token == record.token,
            Phase::Busy(change) => {
                let asked = matches!(
                    change.action,
                    Action::Recheck | Action::Untwin | Action::Keep { .. } | Action::Rename { .. }
                );
                change.token == record.token && !asked
            }
            Phase::Stopped { .. } | Phase::Deleting | Phase::Replacing(_) => false,
        };
        self.late.is_empty() && self.contenders.iter().all(at_rest)
    }

    fn holders(&self) -> usize {
        let holds = |contender: &&Contender| match &contender.phase {
            Phase::Holding { excused, kept, .. } => {
                !excused && kept.as_ref().is_none_or(|kept| kept.is_to_be_counted_on(self.now))
            }
            Phase::Busy(change) => {
                let works = |kept: &Kept| kept.is_to_be_counted_on(self.now);
                change.job == Job::Renew && !change.excused && change.kept.as_deref().is_none_or(works)
            }
            _ => false,
        };
        self.contenders.iter().filter(holds).count()
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        if self.setup.leftovers {
            return self.crashed_before();
        }
        let mut world = self.nothing_yet();
        if self.setup.start != Start::Nothing {
            self.attempt(&mut world, 0);
        }
        if self.setup.start == Start::Lapsed {
            (1..world.contenders.len()).for_each(|slot| self.attempt(&mut world, slot));
            world.kept(0).expect("it has won").asleep = true;
            (0..LAPSED).for_each(|_| world.tick());
        }
        vec![world]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        let begin = |events: &mut Vec<Event>, slot, job| {
            events.push(Event::Begin {
                slot,
                job,
                give_way: false,
            });
        };
        for (slot, contender) in world.contenders.iter().enumerate() {
            match &contender.phase {
                Phase::Idle if contender.written < self.tries(slot) => {
                    begin(events, slot, Job::Claim);
                    if self.setup.children {
                        for other in &world.contenders {
                            if let Phase::Holding { token, epoch, .. } = other.phase {
                                begin(events, slot, Job::Note { token, epoch });
                            }
                        }
                    }
                    if let File::Record { record, .. } = world.file
                        && self.setup.settle
                        && !record.ended
                        && !world.runs(record.owner)
                    {
                        let (token, epoch) = (record.token, record.epoch);
                        begin(events, slot, Job::Settle { token, epoch });
                    }
                    if let File::Record { record, .. } = world.file
                        && world.breaks > 0
                        && !record.ended
                    {
                        begin(events, slot, Job::Break(record.token));
                    }
                    if self.setup.give_way {
                        events.push(Event::Begin {
                            slot,
                            job: Job::Claim,
                            give_way: true,
                        });
                    }
                }
                Phase::Idle => {}
                Phase::Holding { kept, .. } => {
                    if let Some(kept) = kept {
                        keeper::events(world, slot, kept, events);
                    }
                    if contender.written < self.tries(slot) {
                        begin(events, slot, Job::Release);
                        // A kept lease is renewed by its heartbeats.
                        if self.setup.changes && kept.is_none() {
                            begin(events, slot, Job::Renew);
                        }
                        if self.setup.hand_over {
                            for (other, target) in world.contenders.iter().enumerate() {
                                if other != slot && target.phase == Phase::Idle {
                                    begin(events, slot, Job::HandOver(world.process(other)));
                                }
                            }
                        }
                    }
                }
                Phase::Stopped { .. } if contender.written < self.tries(slot) => begin(events, slot, Job::Release),
                Phase::Stopped { .. } => {}
                Phase::Busy(_) | Phase::Deleting | Phase::Replacing(_) => {
                    events.push(Event::Step { slot, how: How::Plain });
                    for how in &HOWS[1..] {
                        if matches!(how, How::Stale | How::Aside) || world.mishaps > 0 {
                            events.push(Event::Step { slot, how: *how });
                        }
                    }
                    if let Phase::Busy(change) = &contender.phase
                        && let Some(kept) = &change.kept
                    {
                        keeper::pauses(world, slot, kept, events);
                    }
                }
            }
            if self.setup.crashes {
                events.push(Event::Crash { slot });
            }
        }
        if self.setup.sweep {
            let reached = match (world.top, world.sight()) {
                (Some((seq, _)), _) => seq,
                (None, File::Record { record, .. }) => record.seq,
                _ => 0,
            };
            let early = |slip: &Slip| {
                let named = match slip {
                    Slip::Signed(temp) | Slip::Second(temp, _) => Some(temp),
                    Slip::Blank(_) => None,
                };
                self.has(Fault::EarlyRemoval) && named.is_some_and(|temp| !world.temps.contains_key(temp))
            };
            let spent = world
                .ballots
                .iter()
                .filter(|(number, slip)| **number < reached || early(slip));
            events.extend(spent.map(|(number, _)| Event::SweepBallot(*number)));
            let gone = |temp: &&TempId| !world.runs(process(**temp));
            // After an hour no call is late.
            let over = |temp: &&TempId| world.late.is_empty() || self.is_over(world, **temp);
            let left = world.temps.keys().chain(world.voids.iter().filter(over));
            events.extend(
                left.filter(gone)
                    .chain(&world.withdrawn)
                    .map(|temp| Event::SweepTemp(*temp)),
            );
            let kept = world.kept.keys().filter(|number| **number < reached);
            events.extend(kept.map(|number| Event::SweepKept(*number)));
        }
        if world.deletions > 0 && (self.setup.careless || world.is_left_to_its_holder()) {
            events.push(Event::OperatorDeletes);
        }
        events.extend((0..world.late.len()).map(Event::Late));
        // While nobody has a lease, no time needs to pass.
        let vacant = !matches!(world.sight(), File::Record { record, .. } if !record.ended);
        let idle = |contender: &Contender| match &contender.phase {
            Phase::Idle => true,
            Phase::Busy(change) => change.kept.is_none(),
            _ => false,
        };
        if world.now < self.setup.ticks && !(vacant && world.contenders.iter().all(idle)) {
            events.push(Event::Tick);
        }
    }

    fn next_state(&self, before: &World, event: Event) -> Option<World> {
        if before.broken.is_some() {
            return None;
        }
        let mut world = before.clone();
        match event {
            Event::Begin { slot, job, give_way } => {
                if let Job::Break(_) = job {
                    world.breaks -= 1;
                }
                if job == Job::Release && self.has(Fault::DeleteVerb) {
                    let Phase::Holding { token, .. } = world.contenders[slot].phase else {
                        return None;
                    };
                    let own = matches!(world.file, File::Record { record, .. } if record.token == token);
                    world.contenders[slot].phase = if own { Phase::Deleting } else { Phase::Idle };
                } else if let Job::Break(token) = job
                    && self.has(Fault::NaiveBreak)
                {
                    let File::Record { record, .. } = world.file else {
                        return None;
                    };
                    world.contenders[slot].phase = Phase::Replacing(Record {
                        token: Token::from_bits((slot as u128) << 8 | u128::from(world.contenders[slot].written + 1)),
                        seq: record.seq + 1,
                        epoch: record.epoch + 1,
                        ended: true,
                        over: Some(token),
                        ..record
                    });
                } else {
                    self.begin(&mut world, slot, job, give_way)?;
                }
            }
            Event::Step { slot, how } => self.step(&mut world, slot, how)?,
            Event::Crash { slot } => self.crash(&mut world, slot)?,
            Event::SweepBallot(number) => {
                world.ballots.remove(&number);
            }
            Event::SweepTemp(temp) => {
                world.disarm(temp);
                world.discard_unnamed(temp);
            }
            Event::SweepKept(number) => {
                world.kept.remove(&number);
            }
            Event::OperatorDeletes => {
                world.deletions -= 1;
                world.deleted = true;
                world.top = None;
                if let File::Record { record, .. } = world.file {
                    world.excuse(record.token);
                }
                world.delete();
            }
            Event::Late(at) => {
                let call = world.late.remove(at);
                self.execute(&mut world, call);
            }
            Event::Tick => world.tick(),
            Event::Heart { slot, how } => self.heart(&mut world, slot, how)?,
            Event::Hear { slot } => world.hear(slot)?,
            Event::Sleep { slot } => {
                world.naps -= 1;
                world.kept(slot)?.asleep = true;
            }
            Event::Wake { slot } => world.wake(slot)?,
        }
        if !self.setup.stale && !self.has(Fault::StaleRecheck) {
            world.before = None;
        }
        world.disarmed.retain(|temp| world.temps.contains_key(temp));
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                if self.is_timed() { IN_TIME } else { ONE_HOLDER },
                |_, world: &World| world.holders() <= 1,
            ),
            Property::always(LOSES, |_, world: &World| !world.outstays()),
            Property::always(NO_WEDGE, |protocol: &Self, world: &World| protocol.has_way_out(world)),
            Property::always(NO_STALL, |protocol: &Self, world: &World| protocol.has_happy_end(world)),
        ];
        macro_rules! rules {
            ($($at:literal),*) => { $(
                properties.push(Property::always(RULES[$at], |_, world: &World| world.broken != Some(RULES[$at])));
            )* };
        }
        rules!(0, 1, 2, 3, 4, 5, 6, 7);
        // That the properties above are about something.
        properties.push(Property::sometimes("a successor holds", |_, world: &World| {
            let next = |contender: &Contender| matches!(contender.phase, Phase::Holding { epoch: 2.., .. });
            world.contenders.iter().any(next)
        }));
        if self.setup.torn && self.setup.beats > 0 {
            properties.push(Property::sometimes(
                "a heartbeat gives its record a name again",
                |_, world: &World| world.contenders.iter().any(keeper::gives_name),
            ));
        }
        if self.setup.hand_over {
            properties.push(Property::sometimes(
                "another holds what was handed over",
                |_, world: &World| {
                    let other = |(slot, contender): (usize, &Contender)| match &contender.phase {
                        Phase::Holding { token, .. } => usize::from(world.claimant(*token).slot) != slot,
                        _ => false,
                    };
                    world.contenders.iter().enumerate().any(other)
                },
            ));
        }
        properties.retain(|property| self.asked.is_empty() || self.asked.contains(&property.name));
        properties
    }
}

/// What an event was, for people.
pub fn tell(world: &World, event: &Event) -> String {
    match event {
        Event::Step { slot, how } => match &world.contenders[*slot].phase {
            Phase::Busy(change) => format!("{slot}: {:?} {how:?} for {:?}", change.action, change.job),
            phase => format!("{slot}: {phase:?} {how:?}"),
        },
        Event::Late(at) => format!("late: {:?}", world.late[*at]),
        event => format!("{event:?}"),
    }
}
