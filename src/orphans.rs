//! Processes that outlived their record: they carry a claim's token in their environment, and the claim is over.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::error::{Error, Result};
use crate::facts::RecordState;
use crate::observe::{Judge, look};
use crate::owner::Pid;
use crate::platform;
use crate::token::Token;

/// Why a process is an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// There is no record at the path any more.
    RecordGone,
    /// The claim was ended.
    RecordEnded,
    /// The record names another claim.
    AnotherClaim,
    /// The record cannot be read, or is none: not known to be an orphan.
    Unknown,
}

impl Standing {
    /// The word for it, as it is printed.
    pub const fn word(self) -> &'static str {
        match self {
            Self::RecordGone => "record-gone",
            Self::RecordEnded => "record-ended",
            Self::AnotherClaim => "another-claim",
            Self::Unknown => "unknown",
        }
    }
}

/// A process of this host whose environment names a claim that is not current.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Orphan {
    /// The process.
    pub pid: Pid,
    /// What is wrong with its record.
    pub standing: Standing,
    /// The claim, as LEASEHOLD_TOKEN names it.
    pub token: Token,
    /// The record, as LEASEHOLD_PATH names it; a relative path is taken from the working directory of the process.
    #[serde(skip)]
    pub path: PathBuf,
    /// Its command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
}

impl Judge {
    /// Finds the processes of this host that carry LEASEHOLD_TOKEN and LEASEHOLD_PATH in their environment and whose claim
    /// is over, or whose record cannot be read. Nothing is done to them.
    ///
    /// Only processes whose environment may be read are seen: one's own, or all for root. Processes that see other
    /// mounts are passed over, since the path may mean another file to them. What a process has put into its
    /// environment after it was started does not show.
    ///
    /// # Errors
    /// [`Error::Io`] when the process table cannot be read.
    pub fn orphans(&self) -> Result<Vec<Orphan>> {
        if !sysinfo::IS_SUPPORTED_SYSTEM {
            let unsupported = std::io::ErrorKind::Unsupported.into();
            return Err(Error::io("read", Path::new("the process table"))(unsupported));
        }
        let mut system = System::new();
        let wanted = ProcessRefreshKind::nothing()
            .with_environ(UpdateKind::Always)
            .with_cwd(UpdateKind::Always)
            .without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::All, false, wanted);
        let mut orphans: Vec<Orphan> = system
            .processes()
            .iter()
            .filter(|(pid, _)| pid.as_u32() != std::process::id())
            .filter_map(|(pid, process)| {
                let pid = Pid::new(pid.as_u32().into())?;
                let token: Token = variable(process.environ(), "LEASEHOLD_TOKEN")?
                    .into_string()
                    .ok()?
                    .parse()
                    .ok()?;
                let named = PathBuf::from(variable(process.environ(), "LEASEHOLD_PATH")?);
                let path = if named.is_absolute() {
                    named
                } else {
                    process.cwd()?.join(named)
                };
                platform::shares_mounts(pid).filter(|same| *same)?;
                let standing = self.standing(&path, token)?;
                // It may have ended its claim and then itself.
                let found = self.table.probe(pid, false);
                let alive = found.exists == Some(true) && found.threads_alive != Some(false);
                alive.then(|| Orphan {
                    pid,
                    standing,
                    token,
                    path,
                    cmd: platform::command_line(pid),
                })
            })
            .collect();
        orphans.sort_by_key(|orphan| orphan.pid);
        Ok(orphans)
    }

    /// What is wrong with a claim; `None` where it is current.
    fn standing(&self, path: &Path, token: Token) -> Option<Standing> {
        match look(&*self.fs, path).content {
            Ok(record) if record.owner.token != token => Some(Standing::AnotherClaim),
            Ok(record) => record.owner.ended.is_some().then_some(Standing::RecordEnded),
            Err(facts) if facts.state == RecordState::Absent => Some(Standing::RecordGone),
            Err(_) => Some(Standing::Unknown),
        }
    }
}

fn variable(environment: &[OsString], name: &str) -> Option<OsString> {
    environment.iter().find_map(|entry| {
        let rest = entry.as_encoded_bytes().strip_prefix(name.as_bytes())?;
        Some(platform::os_string(rest.strip_prefix(b"=")?))
    })
}
