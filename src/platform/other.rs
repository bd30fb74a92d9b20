//! Every system but Linux: what the standard library can do. `--cfg leasehold_portable` builds it on Linux. Boot ids, namespaces and start times are not read here yet,
//! so records of such a host are `undetermined/no-boot` everywhere, and a process cannot be named as an owner.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::facts::ProcessFacts;
use crate::fs::{Kind, Space, Stat};
use crate::mount::{LockReach, Mount};
use crate::owner::Pid;

pub(super) fn machine_id() -> Option<String> {
    None
}

pub(super) fn boot_id() -> Option<String> {
    None
}

pub(super) fn namespace(_kind: &str) -> Option<u64> {
    None
}

pub(super) fn proc_is_own() -> Option<bool> {
    None
}

/// Counts from the first call: enough for waits of one process, and never compared with another's.
pub(super) fn since_boot() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

pub(super) fn is_on_network(_path: &Path) -> bool {
    false
}

pub(super) fn lock_reach(_dir: &Path) -> LockReach {
    LockReach::Unknown
}

pub(super) fn uid() -> Option<u32> {
    None
}

pub(super) fn end_by_signal(_signal: i32) {}

pub(super) fn process_user(_pid: Pid) -> Option<(u32, u32)> {
    None
}

pub(super) fn probe(_pid: Pid, _pidfd: bool) -> ProcessFacts {
    ProcessFacts::default()
}

pub(super) fn command_line(_pid: Pid) -> Option<String> {
    None
}

pub(super) fn process_name(_pid: Pid) -> Option<String> {
    None
}

pub(super) fn born(_start: u64) -> Option<i64> {
    None
}

pub(super) fn has_local_lock(_stat: &Stat) -> Option<bool> {
    None
}

pub(super) fn shares_mounts(_pid: Pid) -> Option<bool> {
    None
}

pub(super) fn os_string(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

pub(super) fn signal_number(_name: &str) -> Option<i32> {
    None
}

pub(super) fn signal_name(_number: i32) -> Option<&'static str> {
    None
}

/// Nothing to watch here; a waiter polls.
#[derive(Debug)]
pub(crate) enum ExitWatch {}

impl ExitWatch {
    pub(crate) fn open(_pid: Pid) -> Option<Self> {
        None
    }

    pub(crate) fn signal(&self, _number: i32) -> io::Result<bool> {
        match *self {}
    }

    pub(crate) fn wait(&self, _at_most: Duration) -> bool {
        match *self {}
    }
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    // The caller has looked at the kind of file just before.
    OpenOptions::new().read(true).open(path)
}

pub(super) fn reopen(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

pub(super) fn create(path: &Path, _like: Option<&Stat>) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

pub(super) fn stat(path: &Path) -> io::Result<Stat> {
    std::fs::symlink_metadata(path).map(|found| describe(&found))
}

pub(super) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (stat_file(file)?, stat(path)?);
    Ok(open.file() == named.file())
}

pub(super) fn stat_file(file: &File) -> io::Result<Stat> {
    file.metadata().map(|found| describe(&found))
}

fn describe(found: &Metadata) -> Stat {
    Stat {
        kind: if found.is_file() {
            Kind::File
        } else if found.is_symlink() {
            Kind::Symlink
        } else if found.is_dir() {
            Kind::Directory
        } else {
            Kind::Other
        },
        device: 0,
        inode: 0,
        links: 1,
        mode: 0,
        uid: 0,
        gid: 0,
        size: found.len(),
        changed: found
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .unwrap_or_default(),
    }
}

pub(super) fn read_at(mut file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek(SeekFrom::Start(offset))?;
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

pub(super) fn write_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// Ballots are files where links need a privilege.
pub(super) fn is_locked(_file: &File) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn lock_range(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn touch(file: &File) -> io::Result<()> {
    file.set_modified(std::time::SystemTime::now())
}

pub(super) fn space(_dir: &Path) -> io::Result<Space> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn mount_of(_path: &Path) -> Option<Mount> {
    None
}

pub(super) fn static_host_name() -> Option<String> {
    None
}

/// Signals are not held back here: what is left behind is removed by the next run.
#[derive(Debug)]
pub(crate) enum Interrupts {}

impl Interrupts {
    pub(crate) fn hold() -> Option<Self> {
        None
    }

    pub(crate) fn take(&self) -> Option<i32> {
        match *self {}
    }
}

pub(super) fn is_single_threaded() -> bool {
    true
}

/// In this very process.
pub(super) unsafe fn apart(work: impl FnOnce() -> u8) -> io::Result<Result<u8, i32>> {
    Ok(Ok(work()))
}

pub(super) fn is_unsupported(_code: i32) -> bool {
    false
}

pub(super) fn is_symlink_refusal(_code: i32) -> bool {
    false
}
