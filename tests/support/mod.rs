//! What the tests with real processes share.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold::Record;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

mod answers;
pub mod faulty;
pub mod host;
mod quick;

#[allow(unused_imports, reason = "as above")]
pub use answers::*;
#[allow(unused_imports, reason = "as above")]
pub use quick::Quick;

/// The worker, `examples/contend.rs`, on this record. Log and side file lie elsewhere, so that the record's directory
/// holds nothing but what Leasehold puts there.
pub fn contend(record: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(example("contend"));
    command.arg(record).args(arguments).stdin(Stdio::null());
    command
}

/// A program of examples/.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has an executable");
    let profile = test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps");
    let program = profile.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is missing; build it: cargo build --example {name}",
        program.display()
    );
    program
}

/// Runs a worker to its end: its exit status and what it said.
pub fn run(record: &Path, arguments: &[&str]) -> (ExitStatus, String) {
    let output = contend(record, arguments).output().expect("the worker starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&said).into_owned())
}

/// Waits for the end of a child, for at most this long.
pub fn wait_at_most(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let pidfd = pidfd_open(pid(child), PidfdFlags::empty()).expect("a child that was not waited for has a pidfd");
    let timeout = Timespec {
        tv_sec: i64::try_from(time.as_secs()).expect("a short time"),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
        Ok(0) => None,
        Ok(_) => Some(child.wait().expect("a child can be waited for")),
        Err(error) => panic!("poll: {error}"),
    }
}

/// Sends a signal to a child; it may have ended.
pub fn signal(child: &Child, signal: Signal) {
    let pidfd = pidfd_open(pid(child), PidfdFlags::empty()).expect("a child that was not waited for has a pidfd");
    let _ = pidfd_send_signal(pidfd, signal);
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Names in a directory, in order.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("the directory can be read")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The record as it stands; `None` when there is none.
///
/// # Panics
/// When it is not complete.
pub fn record(path: &Path) -> Option<Record> {
    match std::fs::read(path) {
        Ok(bytes) => Some(Record::parse(&bytes).unwrap_or_else(|flaw| panic!("{}: {flaw}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// A directory for a test.
pub fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let record = dir.path().join("x.lease");
    (dir, record)
}

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
