//! What the tests with real processes share.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::Record;

mod answers;
pub mod call;
pub mod faulty;
pub mod host;
mod process;
mod quick;

#[allow(unused_imports, reason = "as above")]
pub use answers::*;
#[allow(unused_imports, reason = "as above")]
pub use process::*;
#[allow(unused_imports, reason = "as above")]
pub use quick::Quick;

/// The worker, `examples/contend.rs`, on this record. Log and side file lie elsewhere, so that the record's directory
/// holds nothing but what Leasehold puts there.
pub fn contend(record: &Path, arguments: &[&str]) -> Command {
    let mut command = clean(example("contend"));
    command.arg(record).args(arguments);
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
pub fn run(worker: &mut Command) -> (ExitStatus, String) {
    let output = worker.output().expect("the worker starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&said).into_owned())
}

/// The record as it stands; `None` when there is none.
///
/// # Panics
/// When it is not complete.
pub fn record(path: impl AsRef<Path>) -> Option<Record> {
    let path = path.as_ref();
    match std::fs::read(path) {
        Ok(bytes) => Some(Record::parse(&bytes).unwrap_or_else(|flaw| panic!("{}: {flaw}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Makes a record one of a host that nobody here is.
pub fn make_foreign(record: &mut Record) {
    record.owner.host = Some("login-z".into());
    record.owner.machine = Some("fedcba98765443218fedcba987654321".into());
    record.owner.boot = Some("00000001-1111-4222-8333-444455556666".into());
}

/// A directory for a test.
pub fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let record = dir.path().join("x.lease");
    (dir, record)
}

/// Tries so many cases at once: most of their time is waiting.
pub fn in_parallel<T: Sync>(at_once: usize, cases: &[T], test: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    test(case);
                }
            });
        }
    });
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
