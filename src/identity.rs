//! Who we are: what this host and a process of it would write into an owner line.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::facts::Observer;
use crate::owner::Pid;
use crate::platform;
use crate::verdict::INITIAL_PIDNS;

/// The environment variable that names the host where its own identity is weak.
pub const HOST_ID_VARIABLE: &str = "LEASEHOLD_HOST_ID";

/// The file that does the same; it must be the host's own.
pub const HOST_ID_FILE: &str = "/etc/leasehold/host-id";

/// The application id under which machine ids are digested.
const APPLICATION: [u8; 16] = *b"\x7c\x1e\x0a\x94\x35\x5d\x4b\x1f\xa6\x02\xd1\x88\xe3\x4f\x69\xb7";

/// The identity of this host, and from where its operator id comes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Everything that verdicts compare.
    #[serde(flatten)]
    pub observer: Observer,
    /// `environment`, `file`, or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id_source: Option<&'static str>,
}

/// Why records that a host writes are weaker than they could be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Weakness {
    /// A word for it that stays the same.
    pub id: &'static str,
    /// What it is.
    pub what: String,
    /// What comes of it.
    pub why: &'static str,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.remedy)
    }
}

impl Host {
    /// The host on which this process runs. What is missing is absent: a degraded mode, not an error.
    pub fn here() -> Self {
        let (host_id, host_id_source) = operator_id();
        let name = platform::host_name().to_string_lossy().into_owned();
        Self {
            observer: Observer {
                host: Some(name).filter(|name| !name.is_empty()),
                machine: platform::machine_id().and_then(|id| digest_machine_id(&id)),
                host_id,
                boot: platform::boot_id().filter(|id| !id.is_empty()),
                pidns: platform::pid_namespace(),
                timens: platform::time_namespace(),
                uptime: Some(platform::since_boot().as_secs_f64()),
                proc_is_own: platform::proc_is_own(),
            },
            host_id_source,
        }
    }

    /// Why records that this host writes are weaker than they could be, each with the remedy.
    pub fn weaknesses(&self) -> Vec<Weakness> {
        let host = &self.observer;
        let operator = host.host_id.is_some();
        let mut found = Vec::new();
        let mut add = |id, what: String, why, remedy: String| found.push(Weakness { id, what, why, remedy });
        let name = host.host.as_deref().unwrap_or_default();
        if (name.is_empty() || name == "localhost" || name.starts_with("localhost.")) && !operator {
            add(
                "host-name",
                format!("the host name `{name}` names no host"),
                "after a reboot this host is not known again, and nobody can tell whom to ask",
                format!("set it, or {HOST_ID_VARIABLE}"),
            );
        }
        if host.machine.is_none() && !operator {
            add(
                "machine-id",
                "no machine id".into(),
                "after a reboot this host is not known again",
                format!("see machine-id(5), or set {HOST_ID_VARIABLE}"),
            );
        }
        if host.boot.is_none() {
            add(
                "boot-id",
                "no boot id".into(),
                "no record can be placed in a boot, and every verdict is undetermined",
                "mount /proc; see random(4)".into(),
            );
        }
        if host.pidns.is_some_and(|pidns| pidns != INITIAL_PIDNS) && !operator {
            add(
                "container",
                "a pid namespace of its own (a container)".into(),
                "name and machine id prove nothing here",
                format!("set {HOST_ID_VARIABLE} to something that stays with this container's place"),
            );
        }
        if host.proc_is_own == Some(false) {
            add(
                "foreign-proc",
                "/proc here shows another pid namespace".into(),
                "no process can be named from here, so nothing can be claimed",
                "mount this namespace's own /proc".into(),
            );
        }
        if self.host_id_source == Some("file") && platform::is_on_network(Path::new(HOST_ID_FILE)) {
            add(
                "shared-host-id",
                format!("{HOST_ID_FILE} is on a network filesystem"),
                "other hosts may read the same id, and would be taken for this one",
                "keep it on this host's own disk".into(),
            );
        }
        found
    }

    /// A digest of boot and pid namespace; 0 where either is unknown.
    pub(crate) fn scope(&self) -> u64 {
        let (Some(boot), Some(pidns)) = (&self.observer.boot, self.observer.pidns) else {
            return 0;
        };
        let digest = Sha256::digest(format!("{boot} {pidns}"));
        u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 digest has 32 bytes"))
    }
}

fn operator_id() -> (Option<String>, Option<&'static str>) {
    let given = std::env::var_os(HOST_ID_VARIABLE)
        .map(OsString::into_string)
        .and_then(|id| id.ok());
    if let Some(id) = given.as_deref().and_then(clean) {
        return (Some(id), Some("environment"));
    }
    match std::fs::read_to_string(HOST_ID_FILE).ok().as_deref().and_then(clean) {
        Some(id) => (Some(id), Some("file")),
        None => (None, None),
    }
}

fn clean(id: &str) -> Option<String> {
    let id = id.trim();
    (!id.is_empty() && id.len() <= 255 && !id.contains(char::is_control)).then(|| id.to_owned())
}

/// The digest of a machine id, or nothing where the id is missing in one of the ways that machine-id(5) knows.
///
/// The same as `systemd-id128 machine-id --app-specific=7c1e0a94355d4b1fa602d188e34f69b7`
/// (sd_id128_get_machine_app_specific(3)): HMAC-SHA256 of the application id, keyed by the machine id, cut to 128 bits
/// and marked as a version 4 UUID.
pub fn digest_machine_id(id: &str) -> Option<String> {
    let id = id.trim();
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let bits = u128::from_str_radix(id, 16).ok().filter(|bits| *bits != 0)?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&bits.to_be_bytes()).expect("HMAC takes keys of any length");
    mac.update(&APPLICATION);
    let mut digest: [u8; 16] = mac.finalize().into_bytes()[..16]
        .try_into()
        .expect("SHA-256 gives 32 bytes");
    digest[6] = digest[6] & 0x0f | 0x40;
    digest[8] = digest[8] & 0x3f | 0x80;
    Some(format!("{:032x}", u128::from_be_bytes(digest)))
}

/// The identity of a running process of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Where to find it, in this pid namespace.
    pub pid: Pid,
    /// Raw start ticks.
    pub start: u64,
    /// Inode in pidfs, where the kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pidfd: Option<u64>,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// As [`Process::of`]: its start time cannot be read.
    pub fn current() -> Result<Self> {
        Self::of(Pid::new(std::process::id().into()).expect("the kernel gives pids above 0"))
    }

    /// A running process, by its pid.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none, when the number is a thread, when it has exited, or when its start time
    /// cannot be read: a record must not name what cannot be recognised later.
    pub fn of(pid: Pid) -> Result<Self> {
        let refuse = |what: &str| Err(Error::invalid(Path::new(&format!("process {pid}")), what));
        if platform::proc_is_own() == Some(false) {
            return refuse(FOREIGN_PROC);
        }
        let found = platform::probe(pid, true);
        match (found.exists, found.leader, found.threads_alive, found.start) {
            (Some(false), ..) => refuse("there is no such process on this host; name one that runs, as --owner $$"),
            (_, Some(false), ..) => refuse("this is a thread, not a process; name its process"),
            (_, _, Some(false), _) => refuse("it has exited and only waits to be reaped; name one that runs"),
            (Some(true), _, _, Some(start)) => Ok(Self {
                pid,
                start,
                pidfd: found.pidfd,
            }),
            _ => refuse(
                "its start time cannot be read, so it could not be recognised later (is /proc mounted with hidepid?)",
            ),
        }
    }
}

/// Why nothing is written from a pid namespace without its own `/proc`.
pub(crate) const FOREIGN_PROC: &str =
    "/proc here shows another pid namespace, so no process can be named from here; mount this namespace's own /proc";

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is what `systemd-id128 machine-id --app-specific=…` computes for that machine id.
    #[test]
    fn machine_ids_are_digested_as_systemd_does() {
        for missing in [
            "",
            "uninitialized",
            "00000000000000000000000000000000",
            "3d1219c7",
            "zd1219c7c4c5404aaa1f6d2a48adfda4",
        ] {
            assert_eq!(digest_machine_id(missing), None, "{missing:?}");
        }
        let digest = digest_machine_id("0123456789abcdef0123456789abcdef\n");
        assert_eq!(digest.as_deref(), Some("b8314ca970404444802a34789b9fcaa2"));
    }
}
