//! The owner line: the first line of a record, which says who holds the lease and on what terms.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::names::TempId;
use crate::token::Token;

/// The format version that this library writes and understands.
pub const FORMAT: u64 = 1;

/// The shortest ttl that a record may carry, in seconds.
pub const SHORTEST_TTL: u64 = 5;

/// The keys of the owner line, in their order.
pub(crate) const KEYS: [&str; 24] = [
    "leasehold",
    "token",
    "epoch",
    "seq",
    "change",
    "host",
    "machine",
    "host_id",
    "boot",
    "pid",
    "start",
    "pidns",
    "timens",
    "pidfd",
    "uid",
    "keeper",
    "since",
    "ttl",
    "lock",
    "cmd",
    "binds",
    "adopted",
    "policy",
    "ended",
];

/// The kind of lock that a holder keeps on its record: flock(2).
pub(crate) const LOCK: &str = "flock";

/// A process id that may be passed to a system call: `1..=i32::MAX`.
///
/// `kill(2)` gives 0 and negative numbers meanings of their own (process groups, everybody), so they are refused where
/// a record is read and never reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(i32);

impl Pid {
    /// The pid, if the number can be one.
    pub fn new(number: i64) -> Option<Self> {
        i32::try_from(number).ok().filter(|pid| *pid > 0).map(Self)
    }

    /// The number, for a system call.
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Pid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(self.0)
    }
}

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        Self::new(number).ok_or_else(|| de::Error::custom(format_args!("{number} is no process id")))
    }
}

/// A supervisor that ends with or after the owner. While it runs, a record of a dead owner is still held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    /// Its pid, in the pid namespace of the record.
    pub pid: Pid,
    /// Its raw start time, as [`OwnerLine::start`].
    pub start: u64,
    /// Keys that this version does not know, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Who holds a lease, and on what terms. What is unknown is absent and is never filled in later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerLine {
    /// Format version, [`FORMAT`].
    pub leasehold: u64,
    /// Names this claim.
    pub token: Token,
    /// The fencing number: grows by 1 at each claim.
    pub epoch: u64,
    /// Grows at each replacement of the file: the number of the ballot that won.
    pub seq: u64,
    /// Names the temp file that this record was written to, so that whoever finds its ballot can tell whether it was
    /// published: `docs/protocol.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<TempId>,
    /// Host name, as gethostname(2) gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Digest of the machine id under an application key (machine-id(5) asks not to publish the raw one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Operator-set id of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Boot id: `/proc/sys/kernel/random/boot_id` on Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// The owner's process id, in the pid namespace `pidns`. A locator, never an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Raw start time in clock ticks since boot: field 22 of `/proc/PID/stat`, proc_pid_stat(5). Never wall-clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Inode of the writer's pid namespace, pid_namespaces(7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pidns: Option<u64>,
    /// Inode of the writer's time namespace, time_namespaces(7); it shifts start ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timens: Option<u64>,
    /// The owner's inode in pidfs, where the kernel has it (Linux 6.9): never reused within a boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pidfd: Option<u64>,
    /// User id of the writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// A supervisor that ends with or after the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Keeper>,
    /// When the claim was made, RFC 3339; for people only, nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The owner's own terms in seconds, at least [`SHORTEST_TTL`]; absent: the lease never lapses.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "ttl")]
    pub ttl: Option<u64>,
    /// The kind of kernel lock that is kept on this inode; written only by a process that keeps the descriptor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The owner's command line; for people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// A pid file that other programs read: the record holds only while that file names the owner's pid. Relative to
    /// the record's directory unless absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binds: Option<String>,
    /// The owner had been running before it was claimed for; whoever claimed vouched for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<bool>,
    /// Under which policy of its deployment the claim was made, such as `sole-writer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Present: vacant. When the claim was ended, RFC 3339, for people only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Keys that this version does not know, kept at every change.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn ttl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let ttl = Option::<u64>::deserialize(deserializer)?;
    match ttl {
        Some(seconds) if seconds < SHORTEST_TTL => Err(de::Error::custom(format_args!(
            "a ttl of {seconds} s is below {SHORTEST_TTL} s"
        ))),
        ttl => Ok(ttl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed() {
        let text = || Some("x".to_owned());
        let pid = Pid::new(1).expect("a pid");
        let line = OwnerLine {
            leasehold: FORMAT,
            token: Token::from_bits(1),
            epoch: 1,
            seq: 1,
            change: Some(TempId::new(1, 1, 1)),
            host: text(),
            machine: text(),
            host_id: text(),
            boot: text(),
            pid: Some(pid),
            start: Some(1),
            pidns: Some(1),
            timens: Some(1),
            pidfd: Some(1),
            uid: Some(1),
            keeper: Some(Keeper {
                pid,
                start: 1,
                extra: Map::new(),
            }),
            since: text(),
            ttl: Some(SHORTEST_TTL),
            lock: text(),
            cmd: text(),
            binds: text(),
            adopted: Some(true),
            policy: text(),
            ended: text(),
            extra: Map::new(),
        };
        let json = serde_json::to_value(line).expect("JSON");
        let keys: Vec<_> = json.as_object().expect("an object").keys().collect();
        assert_eq!(keys, KEYS);
    }
}
