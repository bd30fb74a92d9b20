//! What was found out about a host, a directory and the leases in it. Plain data, as far as it could be had.

use serde::Serialize;

use crate::facts::Observer;
use crate::fs::Space;
use crate::identity::Weakness;
use crate::mount::{LockReach, Mount};
use crate::verdict::Verdict;

/// Everything that findings rest on.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Facts {
    /// This host.
    pub host: HostFacts,
    /// The directory; absent when not even that much was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The records in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leases: Option<LeaseFacts>,
    /// The call that had not returned when it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hangs: Option<Hang>,
}

/// A call that does not return.
#[derive(Clone, Debug, Serialize)]
pub struct Hang {
    /// Which.
    pub operation: String,
    /// For how long it had not.
    pub seconds: f64,
}

/// This host, and this process's place on it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostFacts {
    /// What verdicts compare.
    #[serde(flatten)]
    pub observer: Observer,
    /// From where the operator id comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id_source: Option<String>,
    /// Why records of this host are weaker than they could be.
    pub weaknesses: Vec<Weakness>,
    /// The type of the filesystem that the machine id is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id_on: Option<String>,
    /// The name in `/etc/hostname`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_name: Option<String>,
    /// Whether pidfds have inodes of their own.
    pub pidfs: bool,
    /// Whether the processes of other users are hidden.
    pub others_hidden: bool,
}

/// The directory and its filesystem.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Place {
    /// Why it cannot be used at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// The mount that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<Mount>,
    /// How far locks reach, by type and options.
    pub locks: LockReach,
    /// Its permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// What is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
    /// The clock that stamps files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// What was tried, and what came of it.
    pub trials: Vec<(Trial, Tried)>,
}

/// The clock that stamps files, compared with this host's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Clock {
    /// Seconds that it is ahead.
    pub offset: f64,
    /// By how much that may be wrong.
    pub uncertainty: f64,
    /// The smallest step of its stamps that was seen, in seconds.
    pub step: f64,
}

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// O_EXCL.
    Create,
    /// Write, sync, read back.
    Write,
    /// link(2), exclusive.
    Link,
    /// Both names of a link are one file.
    LinkCount,
    /// rename(2) onto a file that is open.
    Rename,
    /// The name is never missing while that happens.
    AtomicRename,
    /// A file keeps its inode number when it is renamed.
    Inode,
    /// What a descriptor overwrites is read by name.
    Beat,
    /// futimens(2).
    Futimens,
    /// flock(2) by two open descriptions.
    Flock,
    /// F_OFD_SETLK by two open descriptions.
    FcntlLock,
    /// F_OFD_GETLK tells of such a lock.
    Getlk,
    /// A name as long as the filesystem allows.
    LongName,
}

impl Trial {
    /// The word for it.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Link => "link",
            Self::LinkCount => "link-count",
            Self::Rename => "rename",
            Self::AtomicRename => "atomic-rename",
            Self::Inode => "inode",
            Self::Beat => "beat",
            Self::Futimens => "futimens",
            Self::Flock => "flock",
            Self::FcntlLock => "fcntl-lock",
            Self::Getlk => "getlk",
            Self::LongName => "long-name",
        }
    }
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result", content = "detail")]
pub enum Tried {
    /// As it should.
    Works,
    /// This filesystem does not have the call.
    Missing(String),
    /// The call returned, and did something else.
    Wrong(String),
    /// It failed.
    Failed(String),
}

/// The records in the directory, and what stands beside them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LeaseFacts {
    /// How many there are of each verdict.
    pub counts: Vec<(Verdict, usize)>,
    /// Records of a format that is newer than this version.
    pub newer: usize,
    /// Records that are torn, malformed or empty.
    pub broken: usize,
    /// Records with an action in doubt.
    pub in_doubt: usize,
    /// Other names under which hosts with this machine id wrote, of other boots.
    pub twins: Vec<String>,
    /// Hosts that wrote with this boot id and another machine id.
    pub boot_twins: Vec<String>,
    /// Other names that this host had in this boot.
    pub former_names: Vec<String>,
    /// Files of changes under way, or of crashed ones.
    pub temp_files: usize,
    /// Ballots and second names of records, likewise.
    pub ballots: usize,
    /// Records that operators broke, kept.
    pub kept: usize,
    /// Files of earlier doctors that were removed.
    pub swept: usize,
    /// What could not be read.
    pub failures: Vec<String>,
}
