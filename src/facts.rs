//! What was found out before a judgement: about the record, about this host, about the process, the lease and the lock.
//!
//! Facts are plain data. They can be saved as JSON on the machine where a verdict surprised somebody and judged again
//! anywhere. A field that is not there is unknown; nothing is filled in.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::owner::Pid;
use crate::record::{Flaw, Record};

/// Everything that a judgement rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// What stands in the file.
    pub record: RecordFacts,
    /// Who looks.
    pub observer: Observer,
    /// What the process table says; absent: it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessFacts>,
    /// What was seen of the lease over time.
    #[serde(skip_serializing_if = "is_default")]
    pub lease: LeaseFacts,
    /// What the file server says about the owner's lock.
    #[serde(skip_serializing_if = "is_default")]
    pub lock: LockFacts,
    /// The bound pid file, where the record has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadFacts>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What kind of thing was found at the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    /// A complete record.
    Present,
    /// Nothing there.
    Absent,
    /// A file of no bytes.
    Empty,
    /// It could not be read; `detail` says why.
    #[default]
    Unreadable,
    /// Cut short.
    Torn,
    /// Not a record.
    Malformed,
    /// A symbolic link; it is not followed.
    Symlink,
    /// A directory, FIFO, socket or device.
    NotAFile,
    /// Over 64 KiB.
    TooLarge,
    /// A later format version.
    NewerFormat,
    /// A complete record of a claim that was ended: vacant.
    Ended,
}

/// The record, as far as verdicts depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordFacts {
    /// What was found.
    pub state: RecordState,
    /// What exactly is wrong with it, where something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// See [`crate::OwnerLine::host`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// See [`crate::OwnerLine::machine`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// See [`crate::OwnerLine::host_id`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// See [`crate::OwnerLine::boot`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// See [`crate::OwnerLine::pid`]; whatever stands there, since facts may also tell of a pid that is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<Value>,
    /// See [`crate::OwnerLine::start`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// See [`crate::OwnerLine::pidns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidns: Option<u64>,
    /// See [`crate::OwnerLine::timens`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timens: Option<u64>,
    /// See [`crate::OwnerLine::pidfd`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidfd: Option<u64>,
    /// See [`crate::OwnerLine::uid`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// See [`crate::OwnerLine::token`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// See [`crate::OwnerLine::epoch`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// See [`crate::OwnerLine::seq`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// See [`crate::OwnerLine::since`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// See [`crate::OwnerLine::ttl`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// See [`crate::OwnerLine::lock`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// See [`crate::OwnerLine::cmd`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// See [`crate::OwnerLine::binds`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binds: Option<String>,
    /// See [`crate::OwnerLine::keeper`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeper: Option<KeeperFacts>,
    /// See [`crate::RunState::intent`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// See [`crate::RunState::outcome`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Present: no record of ours, but a file in which another program names an owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legacy: Option<LegacyFacts>,
}

/// What is peculiar to files of other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegacyFacts {
    /// Which kind of file: the name of a [`crate::legacy::Family`].
    pub family: String,
    /// The recorded start of the process as a reading of a wall clock: the seconds since 1970 that it would be in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<i64>,
    /// The same reading, of this host's clock in this host's zone, for the process that has the pid now. Only found out
    /// where the same host is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub born: Option<i64>,
}

/// The recorded supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperFacts {
    /// Its pid.
    pub pid: Pid,
    /// Its raw start ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
}

impl RecordFacts {
    /// The facts of something that is no complete record.
    pub fn flawed(state: RecordState, detail: impl fmt::Display) -> Self {
        Self {
            state,
            detail: Some(detail.to_string()),
            ..Self::default()
        }
    }

    /// The pid, if it is one that may reach a system call.
    pub fn valid_pid(&self) -> Option<Pid> {
        self.pid.as_ref()?.as_i64().and_then(Pid::new)
    }
}

impl From<&Record> for RecordFacts {
    fn from(record: &Record) -> Self {
        let owner = &record.owner;
        Self {
            state: if owner.ended.is_some() {
                RecordState::Ended
            } else {
                RecordState::Present
            },
            detail: None,
            host: owner.host.clone(),
            machine: owner.machine.clone(),
            host_id: owner.host_id.clone(),
            boot: owner.boot.clone(),
            pid: owner.pid.map(|pid| Value::from(pid.get())),
            start: owner.start,
            pidns: owner.pidns,
            timens: owner.timens,
            pidfd: owner.pidfd,
            uid: owner.uid,
            token: Some(owner.token.to_string()),
            epoch: Some(owner.epoch),
            seq: Some(owner.seq),
            since: owner.since.clone(),
            ttl: owner.ttl,
            lock: owner.lock.clone(),
            cmd: owner.cmd.clone(),
            binds: owner.binds.clone(),
            keeper: owner.keeper.as_ref().map(|keeper| KeeperFacts {
                pid: keeper.pid,
                start: Some(keeper.start),
            }),
            intent: record.state.intent().map(Cow::into_owned),
            outcome: record.state.outcome().map(|outcome| outcome.to_string()),
            legacy: None,
        }
    }
}

impl From<&Flaw> for RecordFacts {
    fn from(flaw: &Flaw) -> Self {
        let state = match flaw {
            Flaw::Empty => RecordState::Empty,
            Flaw::Torn => RecordState::Torn,
            Flaw::Malformed(_) => RecordState::Malformed,
            Flaw::NewerFormat(_) => RecordState::NewerFormat,
            Flaw::BarePid(pid) => {
                return Self {
                    state: RecordState::Present,
                    pid: Some(pid.get().into()),
                    legacy: Some(LegacyFacts {
                        family: "bare-pid".into(),
                        ..LegacyFacts::default()
                    }),
                    ..Self::default()
                };
            }
        };
        Self::flawed(state, flaw)
    }
}

/// The host and namespaces from which a record is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observer {
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Digest of the machine id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Operator-set id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Boot id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Inode of the pid namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidns: Option<u64>,
    /// Inode of the time namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timens: Option<u64>,
    /// CLOCK_BOOTTIME in seconds: never `/proc/uptime` or sysinfo(2), which lxcfs virtualises while start ticks stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime: Option<f64>,
    /// Whether `/proc` shows the pid namespace that the observer lives in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proc_is_own: Option<bool>,
}

/// What the process table says about one pid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFacts {
    /// `Some(false)` only for ESRCH; EPERM means that it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    /// Whether the number names a process and not a mere thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<bool>,
    /// Raw start ticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Inode in pidfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidfd: Option<u64>,
    /// The state letter of `/proc/PID/stat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Whether any thread is left that has not exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads_alive: Option<bool>,
    /// Whether the start time could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_readable: Option<bool>,
    /// The same about the keeper's pid; absent: not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Box<ProcessFacts>>,
}

/// What was seen of a lease over time, by the observer's own clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaseFacts {
    /// Seconds for which token, seq, beat and mtime stayed the same, on a clock that counts suspend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchanged_for: Option<f64>,
    /// A change of token, seq or beat was seen while looking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal_seen: Option<bool>,
    /// The record was changed after this host booted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_since_boot: Option<bool>,
}

/// What the file server says about the lock that the owner keeps on its record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockFacts {
    /// Whether it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<bool>,
    /// Whether the lock is held by somebody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Whether locks of this mount reach the server at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reaches_server: Option<bool>,
    /// `nfs4`, `nfs3`, `local`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// The pid file to which a record is bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PayloadFacts {
    /// Whether there is anything at its path; absent: it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    /// The pid that it names, where it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
}
