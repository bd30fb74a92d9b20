//! A cgroup of its own for a command (Linux, cgroups(7) version 2), and a sentinel that empties it when the supervisor
//! ends, however it does: so no descendant is left, whatever its parents, session and credentials are.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid as RawPid, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::owner::Pid;

const REMEDY: &str = "--contain needs a cgroup (version 2) that is delegated to you; start it as \
     `systemd-run --user --scope -p Delegate=yes leasehold run …`, or leave --contain out";

/// The cgroup. When this is dropped it is removed, and the sentinel with it; whatever was in it must have ended.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    kill: File,
    events: File,
    sentinel: RawPid,
}

impl Cgroup {
    /// Makes an empty one in this process's own.
    ///
    /// # Errors
    /// [`Error::Io`] with the remedy where that is not allowed or not possible.
    pub fn create() -> Result<Self> {
        let parent =
            own().map_err(|error| refuse("find a cgroup of version 2 in", Path::new("/proc/self/cgroup"), error))?;
        let path = parent.join(format!(
            "leasehold-{}-{:08x}",
            std::process::id(),
            super::super::random() as u32
        ));
        fs::create_dir(&path).map_err(|error| refuse("create the cgroup", &path, error))?;
        let made = Self::watch(&path);
        made.inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    fn watch(path: &Path) -> Result<Self> {
        let open = |name: &str, write: bool| {
            let file = path.join(name);
            // Where it is missing the kernel is older than Linux 5.14.
            File::options()
                .read(!write)
                .write(write)
                .open(&file)
                .map_err(|error| refuse("open", &file, error))
        };
        let (kill, events) = (open("cgroup.kill", true)?, open("cgroup.events", false)?);
        let supervisor = super::pidfd_open(Pid::new(std::process::id().into()).expect("pids are above 0"))
            .map_err(|error| refuse("watch the supervisor of", path, error.into()))?;
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path that exists holds no NUL");
        // SAFETY: the child makes only system calls, on what has been made before.
        match unsafe { fork() }.map_err(|error| refuse("fork a sentinel for", path, error.into()))? {
            ForkResult::Parent { child } => Ok(Self {
                path: path.to_owned(),
                kill,
                events,
                sentinel: child,
            }),
            ForkResult::Child => watch_over(&supervisor, &kill, &events, &name),
        }
    }

    /// Who answers for the record until the cgroup is empty.
    pub fn sentinel(&self) -> Pid {
        Pid::new(self.sentinel.as_raw().into()).expect("pids are above 0")
    }

    /// Puts a process into it, with all that it will fork.
    ///
    /// # Errors
    /// [`Error::Io`] with the remedy.
    pub fn add(&self, pid: Pid) -> Result<()> {
        let file = self.path.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|error| refuse("move the command into", &file, error))
    }

    /// Kills everything in it.
    pub fn kill(&self) {
        let _ = (&self.kill).write_all(b"1");
    }

    /// Whether nothing runs in it any more.
    pub fn is_empty(&self) -> bool {
        is_empty(&self.events)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.path);
        let _ = kill(self.sentinel, Signal::SIGKILL);
        while waitpid(self.sentinel, None) == Err(Errno::EINTR) {}
    }
}

/// With those that the command has made in it. One that is not empty stays, and the sentinel was its last chance.
fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

fn refuse(operation: &'static str, path: &Path, error: io::Error) -> Error {
    Error::io(operation, path)(io::Error::new(error.kind(), format!("{error}; {REMEDY}")))
}

/// The directory of this process's cgroup.
fn own() -> io::Result<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup")?;
    let name = membership.lines().find_map(|line| line.strip_prefix("0::"));
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    // On hybrid systems it is not the one on /sys/fs/cgroup itself.
    let dir = mounts
        .filter(|mount| mount.kind == "cgroup2")
        .filter_map(|mount| Some(Path::new(&mount.target).join(name?.trim_start_matches('/'))))
        .find(|dir| dir.join("cgroup.procs").exists());
    dir.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none, or it is not mounted here"))
}

fn is_empty(events: &File) -> bool {
    let mut text = [0; 256];
    // Where it cannot be read the cgroup is gone.
    let length = events.read_at(&mut text, 0).unwrap_or(0);
    !text[..length].windows(11).any(|word| word == b"populated 1")
}

/// The sentinel: outlives the supervisor, empties the cgroup, ends. Its own session, no signal but SIGKILL, and none of the
/// supervisor's descriptors, so that nobody waits for a pipe's end.
fn watch_over(supervisor: &OwnedFd, kill: &File, events: &File, path: &CString) -> ! {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None);
    let _ = nix::unistd::setsid();
    let _ = nix::unistd::chdir(c"/");
    let mut keep = [supervisor.as_raw_fd(), kill.as_raw_fd(), events.as_raw_fd()];
    keep.sort_unstable();
    let mut from = 0;
    for fd in keep {
        close_range(from, fd - 1);
        from = fd + 1;
    }
    close_range(from, i32::MAX);

    while poll(&mut [PollFd::new(supervisor, PollFlags::IN)], None).is_err() {}
    loop {
        let _ = { kill }.write_all(b"1");
        if is_empty(events) {
            break;
        }
        // It tells of each change; killed again meanwhile, should one be slow to fork.
        let pause = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&events.as_fd(), PollFlags::PRI)], Some(&pause));
    }
    // SAFETY: a NUL-terminated path; _exit(2) does not return.
    unsafe {
        libc::rmdir(path.as_ptr());
        libc::_exit(0)
    }
}

fn close_range(from: i32, to: i32) {
    if from <= to {
        // Before Linux 5.9 they stay open, until this process ends.
        // SAFETY: nothing in this process uses them.
        unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    }
}
