//! Processes that a test starts, or knows by their numbers.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::{PATIENCE, clean, eventually};

/// A child that is killed with the test.
#[derive(Debug)]
pub struct Running {
    pub(super) child: Child,
    pub process: Process,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let child = command.spawn().expect("it starts");
        let process = Process::find(number(&child));
        Self { child, process }
    }

    /// Something that does nothing.
    pub fn idle() -> Self {
        Self::start(clean("sleep").arg("1000").stdout(Stdio::null()).stderr(Stdio::null()))
    }

    pub fn pid(&self) -> leasehold::Pid {
        leasehold::Pid::new(self.process.pid.into()).expect("a pid")
    }

    /// Its pid, as a word of a command.
    pub fn id(&self) -> String {
        self.process.pid.to_string()
    }

    pub fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        wait_at_most(&mut self.child, PATIENCE).expect("it ends")
    }

    /// Waits for its end: the exit code.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        self.status().code().expect("an exit code, not a signal")
    }

    /// Waits for its end: the signal, if it was one.
    #[track_caller]
    pub fn ended_by(&mut self) -> Option<i32> {
        std::os::unix::process::ExitStatusExt::signal(&self.status())
    }

    /// Ends it for good: reaped, so that its pid names nothing.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The pid of a process that has ended and been reaped.
pub fn ended_pid() -> String {
    Running::idle().id()
}

/// A process, known by its start time too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    start: u64,
}

impl Process {
    #[track_caller]
    pub fn find(pid: i32) -> Self {
        let (_, start) = stat(pid).unwrap_or_else(|| panic!("there is no process {pid}"));
        Self { pid, start }
    }

    /// Whether it runs, or is stopped: it is more than a zombie.
    pub fn is_alive(self) -> bool {
        self.state().is_some_and(|state| state != 'Z' && state != 'X')
    }

    pub fn is_stopped(self) -> bool {
        self.state() == Some('T')
    }

    pub fn state(self) -> Option<char> {
        stat(self.pid)
            .filter(|(_, start)| *start == self.start)
            .map(|(state, _)| state)
    }

    pub fn signal(self, signal: Signal) {
        if self.state().is_some() {
            let _ = kill(nix::unistd::Pid::from_raw(self.pid), signal);
        }
    }

    #[track_caller]
    pub fn wait_for_end(self) {
        eventually("the process has ended", || !self.is_alive());
    }
}

/// State and start time.
pub fn stat(pid: impl std::fmt::Display) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    Some((fields[0].chars().next()?, fields[19].parse().ok()?))
}

/// Kills each process whose directory in /proc passes, until there is none.
pub fn kill_all(of: &str, is_meant: impl Fn(&Path) -> bool) {
    eventually(&format!("every process of {of} has ended"), || {
        let mut none = true;
        for entry in std::fs::read_dir("/proc").expect("/proc can be read").flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(rustix::process::Pid::from_raw) else {
                continue;
            };
            // Asked after it was opened: if it is another's number by now, the signal reaches nobody.
            if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty())
                && is_meant(&entry.path())
            {
                none = false;
                let _ = pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
            }
        }
        none
    });
}

/// CLOCK_BOOTTIME.
pub fn now() -> Duration {
    leasehold::clock::Clock::now(&leasehold::clock::BootClock)
}

/// Waits for the end of a child, for at most this long.
pub fn wait_at_most(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    if let Some(status) = child.try_wait().expect("a child can be waited for") {
        return Some(status);
    }
    let pidfd = pidfd_open(rustix::process::Pid::from_child(child), PidfdFlags::empty()).expect("a pidfd of the child");
    let time = Timespec::try_from(time).expect("a short time");
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let ended = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&time))).expect("poll");
    (ended == 1).then(|| child.wait().expect("a child can be waited for"))
}

/// Sends a signal to a child that was not waited for; it may have ended.
pub fn signal(child: &Child, signal: Signal) {
    kill(nix::unistd::Pid::from_raw(number(child)), signal).expect("a signal to the own child");
}

fn number(child: &Child) -> i32 {
    child.id().try_into().expect("a pid")
}
