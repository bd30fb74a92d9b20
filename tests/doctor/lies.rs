//! Filesystems that say one thing and do another: each lie is found, by one host or by two.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Judge;
use leasehold::doctor::{Doctor, Finding, Level};
use nix::errno::Errno;

use super::support::faulty::Call;
use super::support::faulty::stand_in::stand_in;
use super::support::{directory, names};

type Lie = fn(Call) -> Option<Errno>;

/// A filesystem that answers some calls with a lie: what would fail with this error is said to have worked, or a call
/// that it does not have.
#[derive(Debug)]
struct Liar {
    /// Errors that are kept quiet.
    hides: Lie,
    /// Calls that are missing.
    lacks: Lie,
}

impl Liar {
    fn pass<T: Made>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        if let Some(errno) = (self.lacks)(call) {
            return Err(errno.into());
        }
        match make() {
            Err(error) if (self.hides)(call).is_some_and(|errno| io::Error::from(errno).kind() == error.kind()) => {
                T::made_up().ok_or(error)
            }
            made => made,
        }
    }
}

/// What can be made up.
trait Made: Sized {
    fn made_up() -> Option<Self> {
        None
    }
}

impl Made for () {
    fn made_up() -> Option<Self> {
        Some(())
    }
}

impl Made for bool {}
impl Made for Vec<u8> {}
impl Made for Vec<std::ffi::OsString> {}
impl Made for std::ffi::OsString {}
impl Made for leasehold::fs::Stat {}
impl Made for leasehold::fs::Space {}
impl Made for std::fs::File {
    fn made_up() -> Option<Self> {
        std::fs::File::options().read(true).write(true).open("/dev/null").ok()
    }
}

stand_in!(Liar);

fn nothing(_: Call) -> Option<Errno> {
    None
}

fn doctor(dir: &Path, hides: Lie, lacks: Lie) -> Doctor {
    Doctor::new(dir).from(Judge::here().with_fs(Arc::new(Liar { hides, lacks })))
}

fn level(findings: &[Finding], id: &str) -> Option<Level> {
    findings
        .iter()
        .find(|finding| finding.id == id)
        .map(|finding| finding.level)
}

#[test]
fn one_host_finds_what_is_missing_and_what_lies() {
    let cases: [(Lie, Lie, &str, Level); 9] = [
        (
            |call| (call == Call::Create).then_some(Errno::EEXIST),
            nothing,
            "create",
            Level::Problem,
        ),
        (
            |call| (call == Call::Link).then_some(Errno::EEXIST),
            nothing,
            "link",
            Level::Problem,
        ),
        (
            |call| (call == Call::Lock).then_some(Errno::EWOULDBLOCK),
            nothing,
            "flock",
            Level::Note,
        ),
        (
            |call| (call == Call::LockRange).then_some(Errno::EWOULDBLOCK),
            nothing,
            "fcntl-lock",
            Level::Note,
        ),
        (
            nothing,
            |call| (call == Call::Link).then_some(Errno::EOPNOTSUPP),
            "link",
            Level::Warning,
        ),
        (
            nothing,
            |call| (call == Call::Rename).then_some(Errno::EPERM),
            "rename",
            Level::Problem,
        ),
        (
            nothing,
            |call| (call == Call::Lock).then_some(Errno::ENOLCK),
            "flock",
            Level::Note,
        ),
        (
            nothing,
            |call| (call == Call::Touch).then_some(Errno::EPERM),
            "futimens",
            Level::Note,
        ),
        (
            nothing,
            |call| (call == Call::Sync).then_some(Errno::EIO),
            "write",
            Level::Problem,
        ),
    ];
    for (hides, lacks, id, expected) in cases {
        let (dir, _) = directory();
        let report = doctor(dir.path(), hides, lacks).examine();
        assert_eq!(level(&report.findings, id), Some(expected), "{:?}", report.findings);
        assert_eq!(names(dir.path()), [""; 0], "{id}");
    }
}

#[test]
fn a_name_that_is_missing_for_a_moment_is_found_out() {
    static STATS: AtomicUsize = AtomicUsize::new(0);
    let (dir, _) = directory();
    let now_and_then =
        |call| (call == Call::Stat && STATS.fetch_add(1, Ordering::Relaxed) % 50 == 49).then_some(Errno::ENOENT);
    let report = doctor(dir.path(), nothing, now_and_then).examine();
    assert_eq!(
        level(&report.findings, "atomic-rename"),
        Some(Level::Problem),
        "{:?}",
        report.findings
    );
}

/// Two that meet over such a filesystem.
fn meet(hides: Lie, lacks: Lie) -> Vec<Finding> {
    let (dir, _) = directory();
    let path = dir.path().to_owned();
    let one = std::thread::spawn(move || doctor(&path, hides, lacks).meet("word", Duration::from_secs(30)));
    let other = doctor(dir.path(), hides, lacks)
        .meet("word", Duration::from_secs(30))
        .unwrap();
    let one = one.join().unwrap().unwrap();
    assert_eq!(one.findings, other.findings, "both say the same");
    assert_eq!(names(dir.path()), [""; 0]);
    one.findings
}

#[test]
fn two_hosts_find_a_second_winner() {
    let findings = meet(|call| (call == Call::Link).then_some(Errno::EEXIST), nothing);
    assert_eq!(level(&findings, "one-link"), Some(Level::Problem), "{findings:?}");
    assert_eq!(level(&findings, "one-create"), Some(Level::Ok), "{findings:?}");
    assert_eq!(level(&findings, "same-host"), Some(Level::Warning), "{findings:?}");
}

#[test]
fn two_hosts_find_that_locks_do_not_exclude() {
    let findings = meet(
        |call| match call {
            Call::Lock | Call::LockRange => Some(Errno::EWOULDBLOCK),
            _ => None,
        },
        |call| (call == Call::Link).then_some(Errno::EPERM),
    );
    for id in ["flock", "fcntl-lock", "one-link"] {
        assert_eq!(level(&findings, id), Some(Level::Note), "{findings:?}");
    }
    let told = |id: &str| findings.iter().find(|finding| finding.id == id).unwrap().what.clone();
    assert!(told("flock").contains("granted to two 2 of 2 times"), "{findings:?}");
    assert!(told("one-link").contains("not permitted"), "{findings:?}");
    assert_eq!(level(&findings, "one-create"), Some(Level::Ok), "{findings:?}");
}

/// The test of the tests: without a lie nothing is found.
#[test]
fn an_honest_one_is_believed() {
    let (dir, _) = directory();
    let report = doctor(dir.path(), nothing, nothing).examine();
    let tried = report.findings.iter().find(|finding| finding.id == "tried").unwrap();
    assert!(tried.what.ends_with("F_OFD_GETLK, long names"), "{tried:?}");
}
