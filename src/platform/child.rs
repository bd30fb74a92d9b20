//! A command that is started, watched and ended (Linux).
//!
//! [`Gate`] forks a process that waits before it runs its program, so that its pid and start time can be written into a
//! record first: exec changes neither.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, kill, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{
    ForkResult, Pid as RawPid, fork, getpgid, getpgrp, getpid, getppid, getsid, setpgid, tcgetpgrp, tcsetpgrp,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

pub(crate) use nix::sys::signal::Signal;

use crate::owner::Pid;
use crate::token::Token;

/// What the supervisor passes on to the command.
const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Everything that the supervisor waits for, in one poll.
#[derive(Debug)]
pub(crate) struct Events {
    signals: SignalFd,
    timer: OwnedFd,
    nudge: OwnedFd,
    old_mask: SigSet,
}

/// What woke the supervisor.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// Signals to pass on, and whether the kernel sent them (a terminal's, for the whole group).
    pub forward: Vec<(Signal, bool)>,
    /// SIGTSTP: the terminal asks the job to stop.
    pub stop: bool,
    /// A child of ours has changed.
    pub child: bool,
    /// The timer has run out.
    pub timer: bool,
    /// Another thread has news.
    pub nudge: bool,
}

impl Events {
    /// Blocks the signals that are waited for, in this thread and those that it starts from now on.
    pub fn new() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        FORWARDED.iter().for_each(|signal| mask.add(*signal));
        [Signal::SIGCHLD, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU]
            .iter()
            .for_each(|signal| mask.add(*signal));
        let mut old_mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), Some(&mut old_mask))?;
        Ok(Self {
            signals: SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
            nudge: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            old_mask,
        })
    }

    /// What another thread needs to wake the supervisor and to move its timer.
    pub fn remote(&self) -> io::Result<Remote> {
        Ok(Remote {
            timer: self.timer.try_clone()?,
            nudge: self.nudge.try_clone()?,
        })
    }

    /// Waits for the next event.
    pub fn wait(&mut self) -> io::Result<Woken> {
        let mut woken = Woken::default();
        {
            let signals = self.signals.as_fd();
            let mut fds = [
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.nudge, PollFlags::IN),
            ];
            rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        }
        while let Some(info) = self.signals.read_signal()? {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            match Signal::try_from(number) {
                Ok(Signal::SIGCHLD) => woken.child = true,
                Ok(Signal::SIGTSTP) => woken.stop = true,
                Ok(signal) if FORWARDED.contains(&signal) => woken.forward.push((signal, info.ssi_code > 0)),
                _ => {}
            }
        }
        woken.timer = drain(&self.timer);
        woken.nudge = drain(&self.nudge);
        Ok(woken)
    }

    /// Stops this process's job as the terminal would have, until the shell continues it.
    pub fn stop_job(&self, signal: Signal) {
        if signal == Signal::SIGSTOP {
            // Sent by somebody, to one process.
            let _ = kill(getpid(), signal);
            return;
        }
        let mut mask = SigSet::empty();
        mask.add(signal);
        let _ = killpg(getpgrp(), signal);
        // It is delivered here, and this returns when the job is continued.
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&mask), None);
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None);
    }

    /// Passes the signal that ended the command on to the rest of this process's job, if it is one of a terminal's. It
    /// stays blocked here.
    pub fn interrupt_job(&self, signal: i32) -> bool {
        let found = [Signal::SIGINT, Signal::SIGQUIT]
            .into_iter()
            .find(|known| *known as i32 == signal);
        found.is_some_and(|signal| killpg(getpgrp(), signal).is_ok())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // They were the command's, which is gone.
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.old_mask), None);
    }
}

fn drain(fd: &OwnedFd) -> bool {
    rustix::io::read(fd, &mut [0; 8]).is_ok()
}

/// The other threads' side of [`Events`].
#[derive(Debug)]
pub(crate) struct Remote {
    timer: OwnedFd,
    nudge: OwnedFd,
}

impl Remote {
    /// Wakes the supervisor.
    pub fn nudge(&self) {
        // It can only fail when the supervisor has been woken 2^64 times without looking.
        let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
    }

    /// Sets the timer to a moment of CLOCK_BOOTTIME. One that has passed runs out at once.
    pub fn set_timer(&self, at: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            // All zero would switch it off.
            tv_nsec: i64::from(at.subsec_nanos()).max(1),
        };
        let when = Itimerspec {
            it_interval: zero,
            it_value: at,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &when).expect("the time is a valid one");
    }
}

/// A forked process that waits to run its program.
#[derive(Debug)]
pub(crate) struct Gate {
    child: Child,
    go: OwnedFd,
}

impl Gate {
    /// Forks. The process has a group of its own and is killed when the calling thread ends, so call it from the main
    /// thread. When it is let go, it runs `words` with `LEASEHOLD_PATH` and what [`Gate::open`] tells it.
    pub fn fork(words: &[OsString], path: &Path) -> io::Result<Self> {
        let mut plan = Exec::new(words, path)?;
        let (go_read, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (failed, failed_write) = pipe_with(PipeFlags::CLOEXEC)?;
        let strangers = children().unwrap_or_default();
        let strangers = strangers.into_iter().filter_map(Descendant::at).collect();
        let parent = getpid();
        // SAFETY: the child makes only async-signal-safe calls; all that it needs has been allocated before.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                // Where it is ignored, as some parents leave it, the kernel reaps, and tells nobody. The command has it as
                // it was.
                // SAFETY: sets a default disposition.
                let _ = unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) };
                // Both sides do it, so that it is done whoever runs first; it fails once the child has exec'd.
                let _ = setpgid(child, child);
                let pid = Pid::new(child.as_raw().into()).expect("the kernel gives pids above 0");
                Ok(Self {
                    child: Child {
                        pid,
                        failed: failed.into(),
                        strangers,
                    },
                    go,
                })
            }
            ForkResult::Child => {
                drop(go);
                plan.wait_and_run(parent, &go_read, &failed_write)
            }
        }
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Lets it run its program, with `LEASEHOLD_TOKEN` and `LEASEHOLD_EPOCH`. Does not wait for that: a program on a dead
    /// mount may take for ever. [`Child::not_started`] tells when it has ended.
    pub fn open(self, token: Token, epoch: u64) -> Child {
        let mut message = [0; MESSAGE];
        message[..TOKEN_BYTES].copy_from_slice(token.to_string().as_bytes());
        let epoch = epoch.to_string();
        message[TOKEN_BYTES..][..epoch.len()].copy_from_slice(epoch.as_bytes());
        // It fails only when somebody has killed the process, which is then noticed as any other end.
        let _ = File::from(self.go).write_all(&message);
        self.child
    }

    /// Ends it before it has run anything.
    pub fn shut(self) {
        self.child.signal(Signal::SIGKILL);
        self.child.reap();
    }
}

const TOKEN_BYTES: usize = 32;
const EPOCH_BYTES: usize = 20;
/// What a gate is told when it opens: the token, and the epoch in decimal padded with NUL.
const MESSAGE: usize = TOKEN_BYTES + EPOCH_BYTES;

/// A program to run, with all memory that running it takes: after a fork nothing may be allocated.
struct Exec {
    /// Where the program may be, in the order in which execvp(3) tries.
    candidates: Vec<CString>,
    /// `LEASEHOLD_TOKEN=` and `LEASEHOLD_EPOCH=` with room for the values.
    token: Vec<u8>,
    epoch: Vec<u8>,
    /// Null-terminated pointers into these and the strings below.
    argv: Vec<*const libc::c_char>,
    script: Vec<*const libc::c_char>,
    environ: Vec<*const libc::c_char>,
    _strings: Vec<CString>,
}

const SHELL: &CStr = c"/bin/sh";
const TOKEN_NAME: &[u8] = b"LEASEHOLD_TOKEN=";
const EPOCH_NAME: &[u8] = b"LEASEHOLD_EPOCH=";

impl Exec {
    fn new(words: &[OsString], path: &Path) -> io::Result<Self> {
        let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let program = words.first().ok_or(io::ErrorKind::InvalidInput)?;
        let places = if program.as_bytes().contains(&b'/') {
            vec![PathBuf::from(program)]
        } else {
            let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
            std::env::split_paths(&search).map(|dir| dir.join(program)).collect()
        };
        let candidates = places
            .into_iter()
            .map(|path| c_string(path.into_os_string().into_vec()));
        let candidates: Vec<CString> = candidates.collect::<io::Result<_>>()?;

        let path = std::path::absolute(path)?;
        let mut environment = vec![c_string([b"LEASEHOLD_PATH=", path.as_os_str().as_bytes()].concat())?];
        let ours = ["LEASEHOLD_PATH", "LEASEHOLD_TOKEN", "LEASEHOLD_EPOCH"];
        for (name, value) in std::env::vars_os().filter(|(name, _)| !ours.iter().any(|own| name == own)) {
            environment.push(c_string([name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        let words: Vec<CString> = words
            .iter()
            .map(|word| c_string(word.as_bytes().to_vec()))
            .collect::<io::Result<_>>()?;

        let token = [TOKEN_NAME, &[0; TOKEN_BYTES + 1]].concat();
        let epoch = [EPOCH_NAME, &[0; EPOCH_BYTES + 1]].concat();
        let argv: Vec<_> = words
            .iter()
            .map(|word| word.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        let script = [SHELL.as_ptr(), std::ptr::null()]
            .into_iter()
            .chain(argv[1..].iter().copied())
            .collect();
        let values = [token.as_ptr().cast(), epoch.as_ptr().cast()];
        let environ = values
            .into_iter()
            .chain(environment.iter().map(|variable| variable.as_ptr()));
        let environ = environ.chain([std::ptr::null()]).collect();
        let _strings = words.into_iter().chain(environment).collect();
        Ok(Self {
            candidates,
            token,
            epoch,
            argv,
            script,
            environ,
            _strings,
        })
    }

    /// The forked child: waits for the word, then becomes the program.
    fn wait_and_run(&mut self, parent: RawPid, go: &OwnedFd, failed: &OwnedFd) -> ! {
        let _ = setpgid(RawPid::from_raw(0), RawPid::from_raw(0));
        // It belongs to the thread that forked; a parent that ended before this call is noticed by the next one.
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        if getppid() != parent {
            exit_now();
        }
        let mut message = [0; MESSAGE];
        let mut length = 0;
        while length < MESSAGE {
            match rustix::io::read(go, &mut message[length..]) {
                Ok(0) | Err(_) => exit_now(),
                Ok(more) => length += more,
            }
        }
        self.token[TOKEN_NAME.len()..][..TOKEN_BYTES].copy_from_slice(&message[..TOKEN_BYTES]);
        self.epoch[EPOCH_NAME.len()..][..EPOCH_BYTES].copy_from_slice(&message[TOKEN_BYTES..]);

        // The standard library ignores it; a command that ran alone would have had the default.
        // SAFETY: sets a default disposition.
        let _ = unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) };
        let mut worst = Errno::ENOENT;
        for candidate in &self.candidates {
            // SAFETY: NUL-terminated strings and null-terminated arrays of them, alive until exec.
            unsafe { libc::execve(candidate.as_ptr(), self.argv.as_ptr(), self.environ.as_ptr()) };
            match Errno::last() {
                Errno::ENOENT | Errno::ENOTDIR => {}
                Errno::ENOEXEC => {
                    self.script[1] = candidate.as_ptr();
                    // SAFETY: as above.
                    unsafe { libc::execve(SHELL.as_ptr(), self.script.as_ptr(), self.environ.as_ptr()) };
                    worst = Errno::ENOEXEC;
                    break;
                }
                Errno::EACCES => worst = Errno::EACCES,
                other => {
                    worst = other;
                    break;
                }
            }
        }
        let _ = rustix::io::write(failed, &(worst as i32).to_ne_bytes());
        exit_now()
    }
}

/// Ends a forked child: no destructor, no flush of what the parent has buffered.
fn exit_now() -> ! {
    // SAFETY: _exit(2) does not return.
    unsafe { libc::_exit(127) }
}

/// What a command is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Stopped(Signal),
    Exited(i32),
    Killed(i32),
}

/// A command that was started. It is left unreaped until [`Child::reap`], so that its pid and group stay its own.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Says why the program could not be run; closed by exec.
    failed: File,
    /// Children that the supervisor's process already had, from before it became the supervisor: none of the command's.
    strangers: Vec<Descendant>,
}

impl Child {
    fn raw(&self) -> RawPid {
        RawPid::from_raw(self.pid.get())
    }

    /// Why the program could not be run, of a process that has ended.
    pub fn not_started(&self) -> Option<io::Error> {
        let mut errno = [0; 4];
        (&self.failed).read_exact(&mut errno).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }

    /// Signals the process alone.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.raw(), signal);
    }

    /// Signals its whole group.
    pub fn signal_group(&self, signal: Signal) {
        let _ = killpg(self.raw(), signal);
    }

    /// What it is doing. A stop is told once.
    pub fn state(&self) -> State {
        match wait_for(Some(self.raw()), libc::WEXITED | libc::WNOWAIT) {
            Some((_, libc::CLD_EXITED, code)) => return State::Exited(code),
            Some((_, _, signal)) => return State::Killed(signal),
            None => {}
        }
        let stopped = wait_for(Some(self.raw()), libc::WSTOPPED);
        match stopped.and_then(|(_, _, signal)| Signal::try_from(signal).ok()) {
            Some(signal) => State::Stopped(signal),
            None => State::Running,
        }
    }

    /// Reaps processes that others left to us, while this one has not ended.
    pub fn reap_others(&self) {
        while let Some((pid, ..)) = wait_for(None, libc::WEXITED | libc::WNOWAIT)
            && pid != self.raw()
        {
            reap_if_ended(pid);
        }
    }

    /// Forgets it once it has ended.
    pub fn reap(&self) {
        while waitpid(self.raw(), None) == Err(Errno::EINTR) {}
    }

    /// What is left of this command, which has ended: whatever it left behind is the supervisor's by now.
    pub fn leftovers(&self) -> Vec<Descendant> {
        match self.other_children() {
            Some(pids) => pids.into_iter().for_each(reap_if_ended),
            None => self
                .descendants()
                .into_iter()
                .for_each(|left| reap_if_ended(RawPid::from_raw(left.pid.get()))),
        }
        match self.other_children() {
            // Nobody, told without a walk through the process table.
            Some(pids) if pids.is_empty() => Vec::new(),
            _ => self.descendants(),
        }
    }

    /// The supervisor's children but for this one; `None` where the kernel keeps no such list.
    fn other_children(&self) -> Option<Vec<RawPid>> {
        let mut pids = children()?;
        pids.retain(|pid| {
            *pid != self.raw()
                && (self.strangers.is_empty()
                    || Descendant::at(*pid).is_none_or(|child| !self.strangers.contains(&child)))
        });
        Some(pids)
    }

    /// The processes that descend from this one's supervisor, but for itself: those of a parent that has ended are the
    /// supervisor's own.
    pub fn descendants(&self) -> Vec<Descendant> {
        self.find(|_| true)
    }

    /// Those which do not belong to its group, so that nothing is signalled twice.
    pub fn descendants_elsewhere(&self) -> Vec<Descendant> {
        self.find(|stat| stat.group != self.pid.get())
    }

    fn find(&self, which: impl Fn(&super::ProcStat) -> bool) -> Vec<Descendant> {
        let mut parents: HashMap<i32, Vec<(Descendant, bool)>> = HashMap::new();
        let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in numbers.filter_map(|entry| Pid::new(entry.file_name().to_str()?.parse().ok()?)) {
            if let Some(stat) = super::read_stat(pid) {
                parents
                    .entry(stat.parent)
                    .or_default()
                    .push((Descendant { pid, start: stat.start }, which(&stat)));
            }
        }
        let mut found = Vec::new();
        let mut queue = vec![getpid().as_raw()];
        while let Some(parent) = queue.pop() {
            for (child, wanted) in parents.remove(&parent).unwrap_or_default() {
                if self.strangers.contains(&child) {
                    continue;
                }
                queue.push(child.pid.get());
                if wanted && child.pid != self.pid {
                    found.push(child);
                }
            }
        }
        found
    }
}

/// This process's children, of all its threads; `None` where the kernel keeps no such list.
fn children() -> Option<Vec<RawPid>> {
    let mut pids = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let list = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        pids.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .map(RawPid::from_raw),
        );
    }
    Some(pids)
}

fn reap_if_ended(pid: RawPid) {
    let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
}

/// waitid(2) for one child, or any, without waiting: its pid, how it changed (CLD_…), and the exit code or signal as a
/// number: the wrappers know no real-time signals.
fn wait_for(pid: Option<RawPid>, what: libc::c_int) -> Option<(RawPid, libc::c_int, libc::c_int)> {
    let (kind, id) = pid.map_or((libc::P_ALL, 0), |pid| (libc::P_PID, pid.as_raw().unsigned_abs()));
    // SAFETY: all zero is a valid siginfo_t, which the call fills in; the fields read are those of SIGCHLD.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let found = libc::waitid(kind, id, &mut info, what | libc::WNOHANG) == 0 && info.si_pid() != 0;
        found.then(|| (RawPid::from_raw(info.si_pid()), info.si_code, info.si_status()))
    }
}

/// A process that the command left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Descendant {
    pid: Pid,
    start: u64,
}

impl Descendant {
    /// The process that has this pid now.
    fn at(pid: RawPid) -> Option<Self> {
        let pid = Pid::new(pid.as_raw().into())?;
        Some(Self {
            pid,
            start: super::read_stat(pid)?.start,
        })
    }

    /// Signals it, if the pid is still its own.
    pub fn signal(self, signal: Signal) {
        let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) else {
            return;
        };
        let Ok(pidfd) = super::pidfd_open(self.pid) else { return };
        // Opened first and compared after, so that no other process can be meant.
        if super::read_stat(self.pid).is_some_and(|stat| stat.start == self.start) {
            let _ = rustix::process::pidfd_send_signal(&pidfd, signal);
        }
    }
}

/// Makes this process the parent of whatever its descendants leave behind, prctl(2) PR_SET_CHILD_SUBREAPER.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// The terminal that a job is controlled from.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    ours: RawPid,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, ours: getpgrp() })
    }

    /// Whether standard input and output are terminals: the command is the whole job, and not a part of a pipeline.
    pub fn is_interactive(&self) -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Whether the command's group is in the foreground.
    pub fn has(&self, child: &Child) -> bool {
        tcgetpgrp(&self.tty) == Ok(child.raw())
    }

    /// Whether this process's group, or the command's, is in the foreground.
    pub fn is_ours(&self, child: &Child) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.ours || group == child.raw())
    }

    /// Whether somebody outside this process's group, such as a shell, controls its job: otherwise (an orphaned group,
    /// setpgid(2)) nothing of a terminal's stops it, and nobody would continue it.
    pub fn is_controlled(&self) -> bool {
        let session = getsid(None);
        let mut parent = getppid();
        while parent.as_raw() > 0 && getsid(Some(parent)) == session {
            if getpgid(Some(parent)) != Ok(self.ours) {
                return true;
            }
            let stat = Pid::new(parent.as_raw().into()).and_then(super::read_stat);
            parent = RawPid::from_raw(stat.map_or(0, |stat| stat.parent));
        }
        false
    }

    /// Puts the command's group into the foreground, if ours is.
    pub fn give(&self, child: &Child) {
        self.give_to(child.pid);
    }

    /// The same, for a command that has not been let go yet.
    pub fn give_to(&self, pid: Pid) {
        if tcgetpgrp(&self.tty) == Ok(self.ours) {
            let _ = tcsetpgrp(&self.tty, RawPid::from_raw(pid.get()));
        }
    }

    /// Takes the foreground back, if the command has it.
    pub fn take(&self, child: &Child) {
        if tcgetpgrp(&self.tty) == Ok(child.raw()) {
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }
}
