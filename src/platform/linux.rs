//! Linux.

#[path = "cgroup.rs"]
pub(crate) mod cgroup;
#[path = "child.rs"]
pub(crate) mod child;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::PidfdFlags;
use rustix::time::{ClockId, clock_gettime};

use crate::facts::ProcessFacts;
use crate::fs::{Kind, Space, Stat};
use crate::mount::{self, LockReach, Mount};
use crate::owner::Pid;

/// statfs(2) type of pidfs, where a pidfd has an inode that is never reused within a boot (Linux 6.9).
const PIDFS_MAGIC: i64 = 0x5049_4446;

/// statfs(2) type of procfs.
const PROC_MAGIC: i64 = 0x9fa0;

/// statfs(2) types of filesystems that hosts share: NFS, CIFS, SMB2, Lustre, GPFS, Ceph, OpenAFS, kAFS, 9p, FUSE (sshfs,
/// virtiofs), BeeGFS, OrangeFS, PanFS, Coda.
const NETWORK_MAGIC: [u32; 14] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
    0x6b41_4653,
    0x1983_0326,
    0x2003_0528,
    0xaad7_aaea,
    0x7375_7245,
];

/// statfs(2) types of filesystems of one host: ext2 to 4, XFS, Btrfs, tmpfs, ramfs, overlay, F2FS, ZFS, bcachefs. Of these
/// nothing more has to be found out.
const LOCAL_MAGIC: [u32; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

pub(super) fn is_on_network(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| NETWORK_MAGIC.contains(&(found.f_type as u32)))
}

pub(super) fn lock_reach(dir: &Path) -> LockReach {
    if rustix::fs::statfs(dir).is_ok_and(|found| LOCAL_MAGIC.contains(&(found.f_type as u32))) {
        return LockReach::Local;
    }
    let (Ok(stat), Ok(mountinfo)) = (rustix::fs::stat(dir), std::fs::read_to_string("/proc/self/mountinfo")) else {
        return LockReach::Unknown;
    };
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    mount::lock_reach(&mountinfo, device)
}

pub(super) fn machine_id() -> Option<String> {
    read_small("/etc/machine-id")
}

pub(super) fn boot_id() -> Option<String> {
    read_small("/proc/sys/kernel/random/boot_id")
}

/// A small file as text, in one read: these are asked on every judgement.
fn read_small(path: &str) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok()?;
    let mut buffer = [0; 256];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer)).ok()?;
    Some(std::str::from_utf8(&buffer[..length]).ok()?.trim_end().to_owned())
}

/// The inode in the text `pid:[4026531836]` of the namespace link, namespaces(7).
pub(super) fn namespace(kind: &str) -> Option<u64> {
    let link = rustix::fs::readlink(format!("/proc/self/ns/{kind}"), Vec::new()).ok()?;
    let text = link.to_str().ok()?;
    text.strip_prefix(kind)?
        .strip_prefix(":[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

pub(super) fn proc_is_own() -> Option<bool> {
    match rustix::fs::readlink("/proc/self", Vec::new()) {
        Ok(link) => Some(link.to_str().ok()?.parse() == Ok(std::process::id())),
        // It has no number for us: the /proc of a namespace inside this one, or beside it.
        Err(Errno::NOENT) if rustix::fs::statfs("/proc").is_ok_and(|found| found.f_type == PROC_MAGIC) => Some(false),
        Err(_) => None,
    }
}

pub(super) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

pub(super) fn uid() -> Option<u32> {
    Some(rustix::process::getuid().as_raw())
}

pub(super) fn end_by_signal(signal: i32) {
    use nix::sys::{resource, signal as signals};
    // A core is the command's to dump.
    let _ = resource::setrlimit(resource::Resource::RLIMIT_CORE, 0, 0);
    if let Ok(signal) = signals::Signal::try_from(signal) {
        let _ = signals::raise(signal);
    }
}

pub(super) fn process_user(pid: Pid) -> Option<(u32, u32)> {
    let found = std::fs::metadata(format!("/proc/{pid}")).ok()?;
    Some((found.uid(), found.gid()))
}

pub(super) fn probe(pid: Pid, want_pidfd: bool) -> ProcessFacts {
    let none = ProcessFacts {
        exists: Some(false),
        ..ProcessFacts::default()
    };
    let pidfd = pidfd_open(pid);
    let leader = match &pidfd {
        // There is a process, and the number is not merely a thread's.
        Ok(_) => Some(true),
        Err(Errno::SRCH) => return none,
        // A thread (EINVAL; ENOENT since Linux 6.13), a number that only a process group still has, no such call (before
        // Linux 5.3), or a filter refuses it. ESRCH alone says that there is none; EPERM says that there is one.
        Err(_) => match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.get()), None) {
            Err(nix::errno::Errno::ESRCH) => return none,
            Ok(()) | Err(nix::errno::Errno::EPERM) => leader_by_status(pid),
            Err(_) => return ProcessFacts::default(),
        },
    };
    let mut found = ProcessFacts {
        exists: Some(true),
        leader,
        start_readable: Some(false),
        ..ProcessFacts::default()
    };
    if let Some(stat) = read_stat(pid) {
        found.start = Some(stat.start);
        found.start_readable = Some(true);
        found.threads_alive = Some(stat.state != 'Z' && stat.state != 'X' || stat.threads > 1);
        found.state = Some(stat.state.to_string());
    } else if let Ok(pidfd) = &pidfd
        && has_exited(pidfd)
    {
        // Hidden by hidepid; a pidfd is readable once every thread has exited.
        found.state = Some("Z".into());
        found.threads_alive = Some(false);
    }
    if want_pidfd && let Ok(pidfd) = &pidfd {
        found.pidfd = pidfs_inode(pidfd);
    }
    found
}

fn pidfd_open(pid: Pid) -> Result<OwnedFd, Errno> {
    let pid = rustix::process::Pid::from_raw(pid.get()).ok_or(Errno::INVAL)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
}

fn pidfs_inode(pidfd: &OwnedFd) -> Option<u64> {
    let on_pidfs = rustix::fs::fstatfs(pidfd).ok()?.f_type == PIDFS_MAGIC;
    on_pidfs
        .then(|| rustix::fs::fstat(pidfd).ok().map(|stat| stat.st_ino))
        .flatten()
}

fn has_exited(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)) == Ok(1)
}

/// Whether the pid is its own thread group's, by `Tgid:` of `/proc/PID/status`.
fn leader_by_status(pid: Pid) -> Option<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Some(tgid.trim().parse() == Ok(pid.get()))
}

/// The fields of `/proc/PID/stat` that say what a process is.
#[derive(Debug, PartialEq, Eq)]
struct ProcStat {
    state: char,
    parent: i32,
    group: i32,
    threads: u64,
    start: u64,
}

fn read_stat(pid: Pid) -> Option<ProcStat> {
    let path = format!("/proc/{pid}/stat");
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Fifty numbers and a command name of at most 64 bytes.
    let mut buffer = [0; 2048];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer)).ok()?;
    parse_stat(&buffer[..length])
}

/// proc_pid_stat(5): the second field is the command name in parentheses, which may itself hold `) R 1 (`, so fields
/// are counted from after the last `)`.
fn parse_stat(bytes: &[u8]) -> Option<ProcStat> {
    let end = bytes.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&bytes[end + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads = fields.nth(14)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some(ProcStat {
        state,
        parent,
        group,
        threads,
        start,
    })
}

/// What a line of /proc/PID/stat says: state, parent, group, threads and start.
#[cfg(fuzzing)]
pub fn stat_fields(bytes: &[u8]) -> Option<(char, i32, i32, u64, u64)> {
    let stat = parse_stat(bytes)?;
    Some((stat.state, stat.parent, stat.group, stat.threads, stat.start))
}

pub(super) fn command_line(pid: Pid) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.split('\0').filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

pub(super) fn process_name(pid: Pid) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

pub(super) fn born(start: u64) -> Option<i64> {
    let age = since_boot().checked_sub(Duration::from_millis(start.checked_mul(10)?))?;
    let birth = std::time::SystemTime::now().checked_sub(age)?;
    let seconds = birth.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    let seconds = libc::time_t::try_from(seconds).ok()?;
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are to live values of the right type, and localtime_r(3) fills the second unless it fails.
    let zone = unsafe {
        (!libc::localtime_r(&seconds, broken_down.as_mut_ptr()).is_null()).then(|| broken_down.assume_init().tm_gmtoff)
    };
    seconds.checked_add(zone?)
}

/// proc_locks(5): `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`, the device in hex; a `->` marks one that waits.
pub(super) fn has_local_lock(stat: &Stat) -> Option<bool> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let file = format!(
        "{:02x}:{:02x}:{}",
        stat.device >> 32,
        stat.device & 0xffff_ffff,
        stat.inode
    );
    Some(
        locks
            .lines()
            .any(|line| line.split_ascii_whitespace().nth(5) == Some(&file)),
    )
}

pub(super) fn shares_mounts(pid: Pid) -> Option<bool> {
    let of = |process: &str| rustix::fs::readlink(format!("/proc/{process}/ns/mnt"), Vec::new()).ok();
    Some(of(&pid.to_string())? == of("self")?)
}

pub(super) fn os_string(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

pub(super) fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return nix::sys::signal::Signal::try_from(number)
            .ok()
            .map(|signal| signal as i32);
    }
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") {
        upper
    } else {
        format!("SIG{upper}")
    };
    full.parse::<nix::sys::signal::Signal>()
        .ok()
        .map(|signal| signal as i32)
}

pub(super) fn signal_name(number: i32) -> Option<&'static str> {
    nix::sys::signal::Signal::try_from(number)
        .ok()
        .map(|signal| signal.as_str())
}

/// Tells when a process of this host has ended, without polling its number.
#[derive(Debug)]
pub(crate) struct ExitWatch(OwnedFd);

impl ExitWatch {
    /// Watches whatever process has this pid now.
    pub(crate) fn open(pid: Pid) -> Option<Self> {
        pidfd_open(pid).ok().map(Self)
    }

    /// Signals the very process that was opened, whatever has its number now; whether it was still there.
    pub(crate) fn signal(&self, number: i32) -> io::Result<bool> {
        let signal = rustix::process::Signal::from_named_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
        match rustix::process::pidfd_send_signal(&self.0, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it has ended, for at most this long; whether it has.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&self.0.as_fd(), PollFlags::IN)], Some(&timeout)) == Ok(1)
    }
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDONLY)
}

pub(super) fn reopen(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDWR)
}

fn open_as(path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    Ok(file.into())
}

pub(super) fn create(path: &Path, like: Option<&Stat>) -> io::Result<File> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o666)
        .open(path)?;
    if let Some(like) = like {
        let own = file.metadata()?;
        // Who may not give it that group gives its own what all others were allowed: nobody gets more, and only the old
        // group may get less.
        let group = own.gid() == like.gid || rustix::fs::fchown(&file, None, Some(Gid::from_raw(like.gid))).is_ok();
        let mode = like.mode & 0o777;
        let mode = if group {
            mode
        } else {
            mode & 0o707 | (mode & 0o007) << 3
        };
        if own.mode() & 0o7777 != mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
    }
    Ok(file)
}

pub(super) fn stat(path: &Path) -> io::Result<Stat> {
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    match rustix::io::retry_on_intr(|| rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::BASIC_STATS)) {
        Ok(found) => Ok(found.into()),
        // Before Linux 4.11.
        Err(Errno::NOSYS) => Ok((&std::fs::symlink_metadata(path)?).into()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn stat_file(file: &File) -> io::Result<Stat> {
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::EMPTY_PATH;
    match rustix::io::retry_on_intr(|| rustix::fs::statx(file, c"", flags, StatxFlags::BASIC_STATS)) {
        Ok(found) => Ok(found.into()),
        Err(Errno::NOSYS) => Ok((&file.metadata()?).into()),
        Err(error) => Err(error.into()),
    }
}

/// What the caches say, which have just been refreshed.
pub(super) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, std::fs::symlink_metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

impl From<rustix::fs::Statx> for Stat {
    fn from(found: rustix::fs::Statx) -> Self {
        Self {
            kind: kind(found.stx_mode.into()),
            device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
            inode: found.stx_ino,
            links: found.stx_nlink.into(),
            mode: u32::from(found.stx_mode) & 0o7777,
            uid: found.stx_uid,
            gid: found.stx_gid,
            size: found.stx_size,
            changed: Duration::new(found.stx_mtime.tv_sec.max(0).unsigned_abs(), found.stx_mtime.tv_nsec),
        }
    }
}

impl From<&std::fs::Metadata> for Stat {
    fn from(found: &std::fs::Metadata) -> Self {
        Self {
            kind: kind(found.mode()),
            device: found.dev(),
            inode: found.ino(),
            links: found.nlink(),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            size: found.size(),
            changed: Duration::new(
                found.mtime().max(0).unsigned_abs(),
                u32::try_from(found.mtime_nsec()).unwrap_or(0),
            ),
        }
    }
}

fn kind(mode: u32) -> Kind {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => Kind::File,
        rustix::fs::FileType::Symlink => Kind::Symlink,
        rustix::fs::FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    }
}

pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(length) => {
                filled += length;
                // Records end in a newline: where a short read ends in one too, that is the end, and is not asked for.
                if filled < buffer.len() && buffer[filled - 1] == b'\n' {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// The whole file, exclusively.
const WHOLE: libc::flock = libc::flock {
    l_type: libc::F_WRLCK as i16,
    l_whence: libc::SEEK_SET as i16,
    l_start: 0,
    l_len: 0,
    l_pid: 0,
};

pub(super) fn is_locked(file: &File) -> io::Result<bool> {
    let mut asked = WHOLE;
    nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_OFD_GETLK(&mut asked))?;
    Ok(i32::from(asked.l_type) != libc::F_UNLCK)
}

pub(super) fn lock_range(file: &File) -> io::Result<()> {
    match nix::fcntl::fcntl(file, nix::fcntl::FcntlArg::F_OFD_SETLK(&WHOLE)) {
        Ok(_) => Ok(()),
        // fcntl(2): one or the other when the lock is held by another.
        Err(nix::errno::Errno::EACCES | nix::errno::Errno::EAGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn touch(file: &File) -> io::Result<()> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(rustix::io::retry_on_intr(|| rustix::fs::futimens(file, &times))?)
}

pub(super) fn space(dir: &Path) -> io::Result<Space> {
    let found = rustix::io::retry_on_intr(|| rustix::fs::statvfs(dir))?;
    Ok(Space {
        bytes: found.f_bavail.saturating_mul(found.f_frsize),
        // No total: they are not counted (Btrfs, some network filesystems).
        files: (found.f_files > 0).then_some(found.f_favail),
        longest_name: found.f_namemax,
    })
}

pub(super) fn mount_of(path: &Path) -> Option<Mount> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let id = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    let device = (found.stx_dev_major, found.stx_dev_minor);
    // Before Linux 5.8, the device alone.
    mountinfo.lines().filter_map(Mount::parse).find(|mount| match id {
        true => mount.id == found.stx_mnt_id,
        false => mount.device == device,
    })
}

pub(super) fn static_host_name() -> Option<String> {
    read_small("/etc/hostname").filter(|name| !name.is_empty())
}

/// SIGINT and SIGTERM, held back while there is something to tidy up.
#[derive(Debug)]
pub(crate) struct Interrupts {
    signals: SignalFd,
    old_mask: SigSet,
}

impl Interrupts {
    /// Holds them back in this thread, and in those that it starts from now on.
    pub(crate) fn hold() -> Option<Self> {
        let mask: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok()?;
        let old_mask = mask.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).ok()?;
        Some(Self { signals, old_mask })
    }

    /// One that has come.
    pub(crate) fn take(&self) -> Option<i32> {
        let signal = self.signals.read_signal().ok()??;
        i32::try_from(signal.ssi_signo).ok()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let _ = self.old_mask.thread_set_mask();
    }
}

pub(super) fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// How long a process may take to end after a signal was passed on to it.
const LEAVING: Duration = Duration::from_secs(5);

/// Does work in a process of its own, and gives the code that it comes to, or the signal that ended it. A process whose
/// thread waits for a dead mount cannot end; this one is left behind then.
///
/// # Safety
/// The caller is this process's only thread.
pub(super) unsafe fn apart(work: impl FnOnce() -> u8) -> io::Result<Result<u8, i32>> {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    let interrupts = Interrupts::hold();
    let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: with one thread, no lock is held by another that the copy does not have.
    let child = match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => child,
        nix::unistd::ForkResult::Child => {
            drop((interrupts, told));
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
            let code = work();
            // Whoever reads what was printed is not to wait for a process that cannot end.
            for stream in 0..=2 {
                let _ = nix::unistd::close(stream);
            }
            let _ = rustix::io::write(&tell, &[code]);
            std::process::exit(code.into());
        }
    };
    drop(tell);
    let mut passed_on: Option<(i32, std::time::Instant)> = None;
    loop {
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        let ready = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&told, PollFlags::IN)], Some(&tick)))?;
        if ready > 0 {
            let mut code = [0];
            if rustix::io::retry_on_intr(|| rustix::io::read(&told, &mut code))? == 1 {
                return Ok(Ok(code[0]));
            }
            // It ended before it came to a code.
            return match waitpid(child, None::<WaitPidFlag>)? {
                WaitStatus::Signaled(_, signal, _) => Ok(Err(signal as i32)),
                WaitStatus::Exited(_, code) => Ok(Ok(u8::try_from(code).unwrap_or(u8::MAX))),
                _ => Err(io::ErrorKind::Other.into()),
            };
        }
        if let Some((signal, since)) = passed_on
            && since.elapsed() > LEAVING
        {
            return Ok(Err(signal));
        }
        if let Some(signal) = interrupts.as_ref().and_then(Interrupts::take) {
            let _ = nix::sys::signal::kill(child, Signal::try_from(signal).ok());
            passed_on.get_or_insert((signal, std::time::Instant::now()));
        }
    }
}

/// EPERM is what link(2) documents for a filesystem without hard links; EMLINK, for one with no room for more.
pub(super) fn is_unsupported(errno: i32) -> bool {
    [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP, Errno::MLINK]
        .iter()
        .any(|known| known.raw_os_error() == errno)
}

/// What open(2) answers to O_NOFOLLOW.
pub(super) fn is_symlink_refusal(errno: i32) -> bool {
    errno == Errno::LOOP.raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_cannot_forge_the_fields() {
        let tail = "S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 181470 1000 200 18446744073709551615";
        for name in ["sh", ") R 1 (", "a b", ")", "((", "\u{f022}"] {
            let line = format!("77 ({name}) {tail}\n");
            assert_eq!(
                parse_stat(line.as_bytes()),
                Some(ProcStat {
                    state: 'S',
                    parent: 1,
                    group: 77,
                    threads: 3,
                    start: 181_470
                }),
                "{name:?}"
            );
        }
        for short in [
            "",
            "77",
            "77 (sh",
            "77 (sh)",
            "77 (sh) S 1 2",
            "77 (sh) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 x",
        ] {
            assert_eq!(parse_stat(short.as_bytes()), None, "{short:?}");
        }
    }
}
