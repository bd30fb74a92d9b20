//! The verdict rules: from facts to a judgement. Pure and total: no I/O, no clock, an answer for any facts.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::facts::{Facts, LegacyFacts, Observer, ProcessFacts, RecordFacts, RecordState};
use crate::owner::Pid;

/// Inode of the initial pid namespace, the same on every Linux kernel (`PROC_PID_INIT_INO`, linux/proc_ns.h).
pub const INITIAL_PIDNS: u64 = 4_026_531_836;

/// Start ticks in a second: USER_HZ, sysconf(_SC_CLK_TCK), 100 on the architectures that Linux runs on today.
const TICKS: f64 = 100.0;

/// How far CLOCK_BOOTTIME may lie below a recorded start before the record must be of an earlier boot, in seconds.
const START_SLACK: f64 = 2.0;

/// One of five answers to: who holds this, and can I tell from here?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The recorded process, or its keeper, is verified to be running: here, or by its own host or the file server.
    Held,
    /// It is verified, on evidence from its own host, that it is not.
    Dead,
    /// It cannot be told from here; the reason says why. Never to be treated as dead.
    Undetermined,
    /// There is no record, or the claim was ended.
    Free,
    /// The owner's own terms ran out, by our observation. Whether it lives is unknown.
    Lapsed,
}

impl Verdict {
    /// The word for it, as it is printed.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Undetermined => "undetermined",
            Self::Free => "free",
            Self::Lapsed => "lapsed",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal: $verdict:ident, $sentence:literal;)*) => {
        /// Why a verdict is what it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// The word for it, as it is printed.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The verdict that this reason stands for.
            pub const fn verdict(self) -> Verdict {
                match self { $(Self::$name => Verdict::$verdict,)* }
            }

            /// One plain sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

reasons! {
    /// The recorded process runs on this host.
    ProcessRunning = "process-running": Held, "the recorded process is running on this host";
    /// The owner is gone; its recorded supervisor still runs and is ending what it left.
    KeeperRunning = "keeper-running": Held, "the owner is gone, but its recorded supervisor is still running";
    /// The file server still holds the lock of the owner's side.
    ServerAttested = "server-attested": Held, "the file server still holds the lock that the owner's side took on the record";

    /// The owner's host was asked, and says that it runs.
    AskedHeld = "asked": Held, "its own host was asked, and says that it is held";

    /// The owner's host was asked, and says that it does not run.
    AskedDead = "asked": Dead, "its own host was asked, and says that it is dead";
    /// ESRCH from the record's own host, boot and pid namespace.
    NoSuchProcess = "no-such-process": Dead, "there is no such process on its own host";
    /// The number is a thread of another process.
    NotAProcess = "not-a-process": Dead, "the number is now a thread of another process";
    /// Another process has the number.
    PidReused = "pid-reused": Dead, "another process has its number now";
    /// Exited; nothing but the entry for its parent is left.
    Zombie = "zombie": Dead, "the process has exited and only waits to be reaped";
    /// The host has booted since.
    HostRebooted = "host-rebooted": Dead, "its host has booted since";

    /// Nothing at the path, as this host sees it.
    NoRecord = "no-record": Free, "there is no record";
    /// It was ended: by its owner, or by a settlement, a stop or a break.
    Ended = "ended": Free, "the claim was ended";

    /// No renewal for longer than the owner's own ttl.
    NotRenewed = "not-renewed": Lapsed, "the owner did not renew it within its own ttl; whether it still runs is unknown";

    /// The file could not be read.
    Unreadable = "unreadable": Undetermined, "the record cannot be read";
    /// No bytes.
    Empty = "empty": Undetermined, "the file is empty: it may be about to be written";
    /// Cut short.
    Torn = "torn": Undetermined, "the record is cut short";
    /// Not a record.
    Malformed = "malformed": Undetermined, "the file is not a valid record";
    /// A symbolic link.
    Symlink = "symlink": Undetermined, "the path is a symbolic link, which is not followed";
    /// Not a regular file.
    NotAFile = "not-a-file": Undetermined, "the path is not a regular file";
    /// Too large.
    TooLarge = "too-large": Undetermined, "the file is larger than any record";
    /// A later format.
    NewerFormat = "newer-format": Undetermined, "the record is of a later format version";
    /// The record names no host.
    NoHost = "no-host": Undetermined, "the record names no host, so its pid may be of any host";
    /// The record, or this host, has no boot id.
    NoBoot = "no-boot": Undetermined, "without a boot id on both sides its pid cannot be placed";
    /// The bound pid file names somebody else.
    PayloadMismatch = "payload-mismatch": Undetermined, "the pid file that the record is bound to does not name its owner";
    /// Another host's record.
    ForeignHost = "foreign-host": Undetermined, "it belongs to another host, and only that host can tell";
    /// Another pid namespace of this boot.
    OtherPidNamespace = "other-pid-namespace": Undetermined, "its pid belongs to another pid namespace (a container)";
    /// The record does not name its pid namespace.
    NoPidNamespace = "no-pid-namespace": Undetermined, "the record does not say to which pid namespace its pid belongs";
    /// Another time namespace.
    OtherTimeNamespace = "other-time-namespace": Undetermined, "its start time was read in another time namespace";
    /// Two hosts look like one.
    IdentityConflict = "identity-conflict": Undetermined, "two live hosts seem to have the same identity";
    /// The process exists, but its start time cannot be compared.
    StartUnreadable = "start-unreadable": Undetermined, "whether the process is the recorded one cannot be read here";
    /// The record has no start time.
    NoStartTime = "no-start-time": Undetermined, "a process has this number, but the record has no start time to compare";
}

impl Reason {
    /// Whether waiting will not change it: somebody has to act on the path.
    pub(crate) const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Symlink | Self::NotAFile | Self::TooLarge | Self::NewerFormat | Self::Malformed
        )
    }
}

impl Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Is there a process?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Liveness {
    /// It runs (stopped and frozen count).
    Running,
    /// It does not.
    Gone,
    /// The file server says that some descriptor of the owner's side still holds the lock.
    Attested,
    /// Not known.
    Unknown,
}

/// Is it the recorded one?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Host, boot, namespaces and start time agree.
    Same,
    /// The number belongs to something else now.
    Other,
    /// Not known, or nothing to compare.
    Unknown,
}

/// Did the recorded action happen?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// No intent was noted.
    Unrecorded,
    /// The outcome was noted: done.
    Completed,
    /// The outcome was noted: given up.
    Failed,
    /// An intent is noted, no outcome yet, and the owner holds the lease.
    UnderWay,
    /// An intent is noted, no outcome, and the owner does not hold the lease: it may have happened.
    InDoubt,
}

/// May the lease still be used, and by whom?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authority {
    /// By whoever carries the record's token; nobody else.
    Owner,
    /// By nobody; a claim may take it.
    Vacant,
    /// By nobody that runs; a claim may take it, under a new epoch. That is no permission to repeat what was under way.
    Successor,
    /// Its own terms ended it; a claim that says so (`--take-lapsed`) may take it.
    Expired,
    /// Not known. The owner may still use it.
    Unknown,
}

/// One comparison that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What was compared.
    pub what: &'static str,
    /// The recorded value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// The value found here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// A judged record. Liveness, identity, effect and authority are four answers; none follows from another.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judgement {
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// One plain sentence.
    pub sentence: String,
    /// Is there a process?
    pub liveness: Liveness,
    /// Is it the recorded one?
    pub identity: Identity,
    /// Did the recorded action happen?
    pub effect: Effect,
    /// May the lease still be used?
    pub authority: Authority,
    /// The record.
    pub owner: RecordFacts,
    /// Who looked.
    pub observer: Observer,
    /// What was compared.
    pub evidence: Vec<Evidence>,
}

impl Judgement {
    /// Whether the owner counts as dead only because its boot is over.
    pub(crate) fn rests_on_a_reboot(&self) -> bool {
        self.reason == Reason::HostRebooted && self.owner.boot != self.observer.boot
    }
}

/// What the rules need to know before they can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// [`Facts::process`] about the owner.
    Process {
        /// Its pid.
        pid: Pid,
        /// Its pidfs inode is wanted, too.
        pidfd: bool,
    },
    /// [`ProcessFacts::keeper`] about this pid.
    Keeper(Pid),
}

/// Judges facts as they are. What is not known stays unknown.
pub fn judge(facts: &Facts) -> Judgement {
    let (reason, note) = match rule(facts) {
        Ok(found) => found,
        Err(_) => (Reason::StartUnreadable, Some("the process table was not asked".into())),
    };
    conclude(facts, reason, note)
}

/// What the owner's host may have said, and been believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Held,
    Dead,
}

/// The judgement that rests on what the owner's host said, in its own reason word.
pub(crate) fn asked(facts: &Facts, told: Asked, reason: &str) -> Judgement {
    let asked = match told {
        Asked::Held => Reason::AskedHeld,
        Asked::Dead => Reason::AskedDead,
    };
    conclude(facts, asked, Some(reason.to_owned()))
}

/// Judges, or says what has to be found out first. No pid may be asked about before this asks for it.
///
/// # Errors
/// The question, if there is one: answer it in the facts, and ask again. [`resolve`](crate::resolve) does that.
pub fn examine(facts: &Facts) -> Result<Judgement, Question> {
    rule(facts).map(|(reason, note)| conclude(facts, reason, note))
}

/// How long a lease with this ttl, in seconds, must have been seen unchanged to count as lapsed: the ttl, 2 s for a kill on
/// the way, and 2 % for clocks that run at different speeds.
pub fn lapse_after(ttl: u64) -> Duration {
    Duration::from_millis(ttl.saturating_mul(1020).saturating_add(2000))
}

type Finding = (Reason, Option<String>);

fn rule(facts: &Facts) -> Result<Finding, Question> {
    let mut finding = owner(facts)?;
    let (record, lease) = (&facts.record, &facts.lease);
    if finding.0.verdict() == Verdict::Dead && lease.renewal_seen == Some(true) {
        let note = format!("it looked {} here, and was renewed meanwhile", finding.0);
        finding = (Reason::IdentityConflict, Some(note));
    }
    if about_owner(finding.0)
        && let (Some(ttl), Some(unchanged)) = (record.ttl, lease.unchanged_for)
        && known(&record.host).is_some()
        && unchanged > lapse_after(ttl).as_secs_f64()
    {
        finding = (
            Reason::NotRenewed,
            Some(format!(
                "ttl {ttl} s, unchanged for {unchanged:.1} s; before: {}",
                finding.0
            )),
        );
    }
    let lock = &facts.lock;
    if finding.0 == Reason::ForeignHost
        && record.lock.is_some()
        && lock.asked == Some(true)
        && lock.held == Some(true)
        && lock.reaches_server == Some(true)
        && lock.protocol.as_deref() == Some("nfs4")
    {
        finding = (Reason::ServerAttested, None);
    }
    Ok(finding)
}

/// Whether a reason leaves open only how the owner fares, so that the owner's own terms may end the lease.
fn about_owner(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ForeignHost
            | Reason::OtherPidNamespace
            | Reason::NoPidNamespace
            | Reason::OtherTimeNamespace
            | Reason::IdentityConflict
            | Reason::StartUnreadable
            | Reason::NoStartTime
            | Reason::NoBoot
    )
}

fn owner(facts: &Facts) -> Result<Finding, Question> {
    let record = &facts.record;
    let flaw = |reason| Ok((reason, record.detail.clone()));
    match record.state {
        RecordState::Present => {}
        RecordState::Absent => return flaw(Reason::NoRecord),
        RecordState::Ended => return flaw(Reason::Ended),
        RecordState::Empty => return flaw(Reason::Empty),
        RecordState::Unreadable => return flaw(Reason::Unreadable),
        RecordState::Torn => return flaw(Reason::Torn),
        RecordState::Malformed => return flaw(Reason::Malformed),
        RecordState::Symlink => return flaw(Reason::Symlink),
        RecordState::NotAFile => return flaw(Reason::NotAFile),
        RecordState::TooLarge => return flaw(Reason::TooLarge),
        RecordState::NewerFormat => return flaw(Reason::NewerFormat),
    }
    let Some(pid) = record.valid_pid() else {
        return Ok((
            Reason::Malformed,
            Some("the pid is not an integer from 1 to 2147483647".into()),
        ));
    };
    if let Some(legacy) = &record.legacy {
        return stranger(facts, pid, &legacy.family);
    }
    if known(&record.host).is_none() {
        return Ok((Reason::NoHost, None));
    }
    let found = place(facts, pid)?;
    Ok(match payload_mismatch(facts, pid, found.0) {
        Some(note) => (Reason::PayloadMismatch, Some(note)),
        None => found,
    })
}

/// Whether a bound pid file contradicts the record: it names another process, or the owner is held to run and the file
/// does not say so. A dead owner whose file is gone contradicts nothing.
fn payload_mismatch(facts: &Facts, pid: Pid, reason: Reason) -> Option<String> {
    let file = facts.record.binds.as_ref()?;
    let Some(payload) = &facts.payload else {
        return Some(format!("{file} was not looked at"));
    };
    match (payload.exists, payload.pid) {
        (Some(true), Some(named)) if named == i64::from(pid.get()) => None,
        (Some(true), Some(named)) => Some(format!("{file} names {named}, the record {pid}")),
        (Some(true), None) => Some(format!("{file} names no pid, the record {pid}")),
        (Some(false), _) if reason.verdict() == Verdict::Dead => None,
        (Some(false), _) => Some(format!("{file} is gone, the record names {pid}")),
        (None, _) => Some(format!("{file} cannot be read, the record names {pid}")),
    }
}

/// Rules 2 to 4: where the record's process lives, before anything is asked about its pid.
fn place(facts: &Facts, pid: Pid) -> Result<Finding, Question> {
    let (record, observer) = (&facts.record, &facts.observer);
    let Some(boot) = known(&record.boot) else {
        return Ok((Reason::NoBoot, Some("the record has none".into())));
    };
    let Some(here) = known(&observer.boot) else {
        return Ok((Reason::NoBoot, Some("this host's boot id cannot be read".into())));
    };
    let machine = agree(&record.machine, &observer.machine);
    let host_id = agree(&record.host_id, &observer.host_id);
    let name = agree(&record.host, &observer.host);
    if boot == here {
        // Random boot ids do not repeat, but boards that boot without entropy repeat theirs.
        if machine == Some(false) || host_id == Some(false) {
            let note = "the boot id is this host's, the machine or operator id is not";
            return Ok((Reason::IdentityConflict, Some(note.into())));
        }
        if name != Some(true) && machine != Some(true) && host_id != Some(true) {
            let note = "the boot id is this host's, the name is not, and no machine id tells whether it was renamed";
            return Ok((Reason::IdentityConflict, Some(note.into())));
        }
        return same_boot(facts, pid);
    }
    let initial = |pidns| pidns == Some(INITIAL_PIDNS);
    let proven = match host_id {
        Some(same) => same,
        None => {
            name == Some(true)
                && names_a_host(record)
                && machine == Some(true)
                && initial(record.pidns)
                && initial(observer.pidns)
        }
    };
    if !proven {
        return Ok((
            Reason::ForeignHost,
            lookalike(name, machine, host_id).map(str::to_owned),
        ));
    }
    if facts.lease.changed_since_boot == Some(true) {
        let note = "the record is of an earlier boot of this host, and was changed since this boot";
        return Ok((Reason::IdentityConflict, Some(note.into())));
    }
    Ok((Reason::HostRebooted, None))
}

/// A file of another program. Its boot id, if it is this host's, places it here; so would a machine or operator id. A
/// name never does, and nothing is held or dead by it: what can be seen is said.
fn stranger(facts: &Facts, pid: Pid, family: &str) -> Result<Finding, Question> {
    let (record, observer) = (&facts.record, &facts.observer);
    let process = || facts.process.as_ref().ok_or(Question::Process { pid, pidfd: false });
    let note = |reason, note: &str| Ok((reason, Some(format!("{family}: {note}"))));
    // Another namespace's pid is not to be looked for in this one.
    let elsewhere = record.pidns.is_some() && record.pidns != observer.pidns;
    let blind = observer.proc_is_own == Some(false);
    let boot = agree(&record.boot, &observer.boot);
    if boot == Some(true) {
        if blind {
            return note(Reason::StartUnreadable, "/proc here shows another pid namespace");
        }
        if elsewhere {
            return Ok((Reason::OtherPidNamespace, None));
        }
        let found = compare(process()?, record.start, None);
        return match found.verdict() {
            // Pid and start ticks agree: that is it. That they do not proves nothing about a process of a container.
            Verdict::Dead if record.pidns.is_none() => note(Reason::NoPidNamespace, &format!("in this one: {found}")),
            _ => Ok((found, Some(family.to_owned()))),
        };
    }
    if known(&record.host).is_none() {
        return note(
            Reason::NoHost,
            match boot {
                Some(_) => "its boot id is not this host's: another host, or an earlier boot of this one",
                None => "it names a pid and no host",
            },
        );
    }
    if boot == Some(false) {
        return note(Reason::ForeignHost, "its boot id is not this host's");
    }
    if agree(&record.host, &observer.host) != Some(true) {
        return note(Reason::NoBoot, "the name is not this host's");
    }
    if elsewhere || blind {
        return note(
            Reason::NoBoot,
            "the name is this host's, the pid belongs to another pid namespace",
        );
    }
    let initial = record.pidns == Some(INITIAL_PIDNS) && observer.pidns == Some(INITIAL_PIDNS);
    let proven = agree(&record.host_id, &observer.host_id)
        .unwrap_or(agree(&record.machine, &observer.machine) == Some(true) && initial && names_a_host(record));
    let process = process()?;
    let differs = matches!((record.start, process.start), (Some(recorded), Some(found)) if recorded != found);
    match process.exists {
        Some(false) if proven => note(Reason::NoSuchProcess, "name and machine are this host's"),
        Some(false) => note(
            Reason::NoBoot,
            &format!("the name is this host's, which proves nothing; there is no process {pid} here"),
        ),
        Some(true) if differs => note(
            Reason::NoBoot,
            &format!("the name is this host's, which proves nothing; the process {pid} here has another start time"),
        ),
        Some(true) => note(
            Reason::NoBoot,
            &format!("the name is this host's; a process {pid} is here, and may be another one"),
        ),
        None => note(
            Reason::NoBoot,
            "the name is this host's, and its processes cannot be seen",
        ),
    }
}

/// Whether the recorded name is more than a default that any host may have.
fn names_a_host(record: &RecordFacts) -> bool {
    known(&record.host).is_some_and(|name| name != "localhost" && !name.starts_with("localhost."))
}

/// What to say where another host's record looks like this host's.
fn lookalike(name: Option<bool>, machine: Option<bool>, host_id: Option<bool>) -> Option<&'static str> {
    match (name, machine, host_id) {
        (_, _, Some(false)) if name == Some(true) => Some("the name is this host's, the operator id is not"),
        (Some(true), Some(false), _) => {
            Some("the name is this host's, the machine id is not: a default or reused name")
        }
        (Some(false), Some(true), _) => {
            Some("the machine id is this host's, the name is not: a cloned image or a diskless node")
        }
        (Some(true), Some(true), _) => {
            Some("name and machine id are this host's, but prove nothing for this name or in a container")
        }
        (Some(true), None, _) => Some("the name is this host's, which proves nothing without a machine id"),
        _ => None,
    }
}

/// Rule 3: the record was written in this boot.
fn same_boot(facts: &Facts, pid: Pid) -> Result<Finding, Question> {
    let (record, observer) = (&facts.record, &facts.observer);
    let Some(pidns) = record.pidns else {
        return Ok((Reason::NoPidNamespace, None));
    };
    if observer.pidns != Some(pidns) {
        return Ok((Reason::OtherPidNamespace, None));
    }
    if record.timens != observer.timens {
        return Ok((Reason::OtherTimeNamespace, None));
    }
    if observer.proc_is_own == Some(false) {
        return Ok((
            Reason::StartUnreadable,
            Some("/proc here shows another pid namespace".into()),
        ));
    }
    let beyond = matches!((record.start, observer.uptime), (Some(start), Some(uptime))
        if uptime + START_SLACK < start as f64 / TICKS);
    let rebooted = "the boot id repeats: the recorded start lies beyond this boot's age";
    let process = match &facts.process {
        Some(process) => process,
        None if beyond && record.pidfd.is_none() => return Ok((Reason::HostRebooted, Some(rebooted.into()))),
        None => {
            return Err(Question::Process {
                pid,
                pidfd: record.pidfd.is_some(),
            });
        }
    };
    match is_same_pidfd(process, record.pidfd) {
        false if beyond => return Ok((Reason::HostRebooted, Some(rebooted.into()))),
        // The kernel gives the inode of a time namespace to another one once it is gone.
        true if beyond && !has_exited(process) => {
            let why = "the pidfs inode is the recorded one";
            return Ok((Reason::OtherTimeNamespace, Some(why.into())));
        }
        _ => {}
    }
    let found = compare(process, record.start, record.pidfd);
    let Some(keeper) = record.keeper.as_ref().filter(|_| found.verdict() == Verdict::Dead) else {
        return Ok((found, None));
    };
    let Some(probe) = &process.keeper else {
        return Err(Question::Keeper(keeper.pid));
    };
    let keeper = compare(probe, keeper.start, None);
    Ok(match keeper.verdict() {
        Verdict::Dead => (found, None),
        Verdict::Held => (Reason::KeeperRunning, None),
        _ => (keeper, Some(format!("the owner is {found}; this is about its keeper"))),
    })
}

/// Whether the process has the recorded pidfs inode, which is never given out again within a boot.
fn is_same_pidfd(process: &ProcessFacts, pidfd: Option<u64>) -> bool {
    pidfd.is_some() && pidfd == process.pidfd && process.exists != Some(false)
}

/// Whether all of it has exited, and it only waits to be reaped.
fn has_exited(process: &ProcessFacts) -> bool {
    matches!(process.state.as_deref(), Some("Z" | "X")) && process.threads_alive == Some(false)
}

/// Whether the process under the number is the recorded one.
fn compare(process: &ProcessFacts, start: Option<u64>, pidfd: Option<u64>) -> Reason {
    let differs = |recorded: Option<u64>, found: Option<u64>| matches!((recorded, found), (Some(r), Some(f)) if r != f);
    let same_pidfd = is_same_pidfd(process, pidfd);
    let found_start = process.start.filter(|_| process.start_readable != Some(false));
    let exited = has_exited(process);
    match process.exists {
        Some(false) => Reason::NoSuchProcess,
        None => Reason::StartUnreadable,
        // A thread has no pidfs inode of a process: with an equal one the two findings contradict each other.
        Some(true) if process.leader == Some(false) && !same_pidfd => Reason::NotAProcess,
        // Whatever the clocks say, this inode is that of the recorded process alone.
        Some(true) if exited && same_pidfd => Reason::Zombie,
        // The inode of a time namespace is given out again: the clocks differ, not the processes.
        Some(true) if differs(start, found_start) && same_pidfd => Reason::OtherTimeNamespace,
        Some(true) if differs(start, found_start) => Reason::PidReused,
        Some(true) if differs(pidfd, process.pidfd) => Reason::PidReused,
        Some(true) if exited => Reason::Zombie,
        Some(true) if found_start.is_none() && !same_pidfd => Reason::StartUnreadable,
        Some(true) if start.is_none() => Reason::NoStartTime,
        Some(true) => Reason::ProcessRunning,
    }
}

fn conclude(facts: &Facts, reason: Reason, note: Option<String>) -> Judgement {
    let verdict = reason.verdict();
    let sentence = match note {
        Some(note) => format!("{} ({note})", reason.sentence()),
        None => reason.sentence().to_owned(),
    };
    Judgement {
        verdict,
        reason,
        sentence,
        liveness: match reason {
            Reason::ServerAttested => Liveness::Attested,
            _ => match verdict {
                Verdict::Held => Liveness::Running,
                Verdict::Dead => Liveness::Gone,
                _ => Liveness::Unknown,
            },
        },
        identity: match reason {
            Reason::ProcessRunning | Reason::KeeperRunning => Identity::Same,
            Reason::Zombie if is_recognised(facts) => Identity::Same,
            Reason::PidReused | Reason::NotAProcess => Identity::Other,
            _ => Identity::Unknown,
        },
        effect: effect(&facts.record, verdict),
        authority: match verdict {
            Verdict::Held => Authority::Owner,
            Verdict::Dead => Authority::Successor,
            Verdict::Free => Authority::Vacant,
            Verdict::Lapsed => Authority::Expired,
            Verdict::Undetermined => Authority::Unknown,
        },
        owner: facts.record.clone(),
        observer: facts.observer.clone(),
        evidence: evidence(facts),
    }
}

/// Whether anything that tells processes apart was compared and agrees. What has exited is dead without it.
fn is_recognised(facts: &Facts) -> bool {
    let record = &facts.record;
    facts.process.as_ref().is_some_and(|process| {
        let start = process.start.filter(|_| process.start_readable != Some(false));
        (record.start.is_some() && record.start == start) || (record.pidfd.is_some() && record.pidfd == process.pidfd)
    })
}

/// Whether the recorded action happened, so far as the record tells.
pub(crate) fn effect(record: &RecordFacts, verdict: Verdict) -> Effect {
    match (record.intent.is_some(), record.outcome.as_deref()) {
        (_, Some("completed")) => Effect::Completed,
        (_, Some("failed")) => Effect::Failed,
        (true, _) if verdict == Verdict::Held => Effect::UnderWay,
        (true, _) => Effect::InDoubt,
        (false, _) => Effect::Unrecorded,
    }
}

fn evidence(facts: &Facts) -> Vec<Evidence> {
    fn text<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(T::to_string)
    }
    let (record, observer, process) = (&facts.record, &facts.observer, facts.process.as_ref());
    let legacy = record.legacy.as_ref();
    let row = |what, recorded, found| Evidence { what, recorded, found };
    let mut rows = vec![
        row("host", text(&record.host), text(&observer.host)),
        row("machine", text(&record.machine), text(&observer.machine)),
        row("operator id", text(&record.host_id), text(&observer.host_id)),
        row("boot id", text(&record.boot), text(&observer.boot)),
        row("pid namespace", text(&record.pidns), text(&observer.pidns)),
        row("time namespace", text(&record.timens), text(&observer.timens)),
        row(
            "start ticks",
            text(&record.start),
            process.and_then(|process| text(&process.start)),
        ),
        row(
            "pidfs inode",
            text(&record.pidfd),
            process.and_then(|process| text(&process.pidfd)),
        ),
        row(
            "start (wall clock)",
            legacy.and_then(|l| reading(l.started)),
            legacy.and_then(|l| reading(l.born)),
        ),
        row("born after its record by (s)", None, legacy.and_then(contradiction)),
        row("process state", None, process.and_then(state)),
        row(
            "keeper",
            record.keeper.as_ref().map(|keeper| keeper.pid.to_string()),
            process.and_then(|p| state(p.keeper.as_deref()?)),
        ),
        row(
            "pid file",
            text(&record.binds),
            facts.payload.as_ref().and_then(|payload| text(&payload.pid)),
        ),
        row(
            "unchanged for (s)",
            text(&record.ttl).map(|ttl| format!("ttl {ttl}")),
            facts.lease.unchanged_for.map(|s| format!("{s:.1}")),
        ),
        row("renewal seen", None, text(&facts.lease.renewal_seen)),
        row("changed since boot", None, text(&facts.lease.changed_since_boot)),
        row("lock at the server", text(&record.lock), lock(facts)),
    ];
    // A record that cannot be read has nothing to compare with.
    if record.host.is_none() && record.boot.is_none() {
        rows.retain(|row| row.recorded.is_some());
    }
    rows.retain(|row| row.recorded.is_some() || row.found.is_some());
    rows
}

/// Beyond this a process is clearly younger than the record that names it, in seconds.
const BORN_SLACK: i64 = 60;

/// By how much the process that has the pid now is younger than the record says: a contradiction, and no more than that.
/// Wall clocks are stepped, and zones differ.
fn contradiction(legacy: &LegacyFacts) -> Option<String> {
    let later = legacy.born?.checked_sub(legacy.started?)?;
    (later > BORN_SLACK).then(|| later.to_string())
}

/// A reading of a wall clock, of which nobody knows the zone.
fn reading(seconds: Option<i64>) -> Option<String> {
    // Years that can be printed.
    let seconds = u64::try_from(seconds?)
        .ok()
        .filter(|seconds| *seconds < 253_402_300_800)?;
    let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    Some(text.trim_end_matches('Z').replace('T', " "))
}

fn state(process: &ProcessFacts) -> Option<String> {
    match process.exists? {
        false => Some("none".into()),
        true => Some(process.state.clone().unwrap_or_else(|| "exists".into())),
    }
}

fn lock(facts: &Facts) -> Option<String> {
    let lock = &facts.lock;
    let held = match (lock.asked?, lock.held) {
        (false, _) => "not asked",
        (true, Some(true)) => "held",
        (true, Some(false)) => "not held",
        (true, None) => "no answer",
    };
    Some(match &lock.protocol {
        Some(protocol) => format!("{held} ({protocol})"),
        None => held.to_owned(),
    })
}

/// A value that is there and not empty.
fn known(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|text| !text.is_empty())
}

/// Whether two values agree; `None` when either is unknown.
fn agree(recorded: &Option<String>, found: &Option<String>) -> Option<bool> {
    Some(known(recorded)? == known(found)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim may wait for the rest to change by itself.
    #[test]
    fn what_no_waiting_changes() {
        let found: Vec<&str> = Reason::ALL.iter().filter(|r| r.is_final()).map(|r| r.word()).collect();
        let mut wanted = ["symlink", "not-a-file", "too-large", "newer-format", "malformed"];
        wanted.sort_by_key(|word| found.iter().position(|found| found == word));
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_rests_on_a_reboot_alone() {
        let judged = |boot, start, process| {
            let facts = serde_json::json!({
                "record": {"state": "present", "host": "login-a", "host_id": "front", "boot": boot, "pid": 4242,
                    "start": start, "pidns": 7},
                "observer": {"host": "login-a", "host_id": "front", "boot": "this", "pidns": 7, "uptime": 900},
                "process": process,
            });
            let judgement = judge(&serde_json::from_value(facts).expect("facts"));
            (judgement.reason.word(), judgement.rests_on_a_reboot())
        };
        let gone = serde_json::json!({"exists": false});
        assert_eq!(judged("earlier", 500, gone.clone()), ("host-rebooted", true));
        // The start time says it, not the boot id.
        assert_eq!(judged("this", 99_000_000, gone.clone()), ("host-rebooted", false));
        assert_eq!(judged("this", 500, gone), ("no-such-process", false));
        // Another boot, and no verdict from it.
        assert_eq!(judged("", 500, serde_json::json!({})), ("no-boot", false));
    }
}
