//! The programs of examples/ that people copy from, as whole processes.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::Record;
use nix::sys::signal::Signal;
use support::{Answer, LEASEHOLD, Running, clean, eventually, example, make_foreign, record};

fn program(name: &str) -> Command {
    let mut command = clean(example(name));
    command.env("L", LEASEHOLD);
    command
}

fn answer(command: &mut Command) -> Answer {
    command.output().expect("it starts").into()
}

/// Makes the record at a path that of another host.
fn move_away(path: &Path) {
    let mut record = record(path).expect("a record");
    make_foreign(&mut record);
    fs::write(path, record.print()).expect("write");
}

#[test]
fn launcher_starts_a_bridge_once() {
    let dir = tempfile::tempdir().unwrap();
    let lease = dir.path().join("bridge.lease");
    let launcher = |script: &str| {
        let mut command = program("launcher");
        command.arg(dir.path()).args(["--", "sh", "-c", script]);
        command
    };
    assert_eq!(answer(&mut launcher("exit 3")).code, 3);
    let missing = answer(program("launcher").arg(dir.path()).args(["--", "./no-such-program"]));
    assert_eq!(missing.code, 127, "{missing:?}");

    let first = Running::start(&mut launcher("\"$L\" note address=h:4100; exec sleep 1000"));
    let address = |record: &Record| record.state.get("address") == Some("h:4100");
    eventually("the bridge tells its address", || {
        record(&lease).is_some_and(|record| address(&record))
    });
    let second = answer(&mut launcher("exit 0"));
    assert_eq!(
        (second.code, second.stdout.as_str()),
        (5, "the bridge runs already, at h:4100\n"),
        "{second:?}"
    );

    first.signal(Signal::SIGTERM);
    eventually("the lease is free", || {
        record(&lease).is_some_and(|record| record.owner.ended.is_some())
    });
    drop(first);
    let this = std::process::id().to_string();
    answer(clean(LEASEHOLD).args(["claim", "--owner", &this]).arg(&lease)).ok();
    move_away(&lease);
    let refused = answer(&mut launcher("exit 0"));
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("ssh login-z leasehold judge "), "{refused:?}");

    assert_eq!(answer(program("launcher").arg(dir.path())).code, 64);
}

#[test]
fn resume_guard_lets_one_in_and_writes_a_file_for_each_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let guard = |thread: &str| {
        let mut command = program("resume_guard");
        command.arg(dir.path()).arg(thread);
        command
    };
    let transcript =
        |epoch: u64| fs::read_to_string(dir.path().join(format!("7.transcript.{epoch}"))).unwrap_or_default();

    let mut first = Running::start(guard("7").stdin(Stdio::piped()));
    let mut input = first.input();
    input.write_all(b"one\n").unwrap();
    eventually("the line is written", || transcript(1) == "one\n");
    let second = answer(&mut guard("7"));
    assert_eq!(second.code, 5, "{second:?}");
    assert_eq!(
        answer(&mut guard("a/b")).code,
        0,
        "another thread, with a slash in its name"
    );
    input.write_all(b"two\n").unwrap();
    drop(input);
    assert_eq!(first.code(), 0);
    assert_eq!(transcript(1), "one\ntwo\n");

    let mut third = Running::start(guard("7").stdin(Stdio::piped()));
    let mut input = third.input();
    input.write_all(b"three\n").unwrap();
    eventually("the next epoch has its own file", || transcript(2) == "three\n");
    drop(third);
    let after_a_crash = answer(&mut guard("7"));
    assert_eq!(after_a_crash.code, 7, "{after_a_crash:?}");

    let mut lost = Running::start(guard("8").stdin(Stdio::piped()));
    let lease = dir.path().join("8.lease");
    eventually("it has its lease", || record(&lease).is_some());
    fs::remove_file(&lease).unwrap();
    lost.input().write_all(b"late\n").unwrap();
    assert_eq!(lost.code(), 6, "nothing is written under a lost lease");
    assert_eq!(fs::read_to_string(dir.path().join("8.transcript.1")).unwrap(), "");
}

#[test]
fn orphan_scan_ends_what_is_of_this_host_and_role() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let claimed = |name: &str, role: &str| {
        let owner = Running::idle();
        let mut claim = clean(LEASEHOLD);
        claim.arg("claim").arg(path(name)).args(["--owner", &owner.id()]);
        answer(claim.args(["--set", &format!("role={role}")])).ok();
        owner
    };
    let scan = || answer(program("orphan_scan").arg(dir.path()).arg("bridge"));
    let mut orphan = claimed("orphan.lease", "bridge");
    let mut worker = claimed("worker.lease", "worker");
    drop(claimed("died.lease", "bridge"));
    let cleared = scan();
    assert_eq!((cleared.code, cleared.stderr.as_str()), (0, ""), "{cleared:?}");
    assert_eq!(cleared.stdout.lines().count(), 2, "{cleared:?}");
    orphan.status();
    assert!(worker.runs(), "another role");
    for name in ["orphan.lease", "died.lease"] {
        assert!(record(path(name)).unwrap().owner.ended.is_some(), "{name}");
    }

    let mut stranger = claimed("foreign.lease", "bridge");
    move_away(&path("foreign.lease"));
    let refused = scan();
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stdout.contains("ssh login-z leasehold judge "), "{refused:?}");
    assert!(stranger.runs(), "a stranger under a foreign number");
    fs::remove_file(path("foreign.lease")).unwrap();
    fs::write(path("torn.lease"), "{\"leasehold\":1,").unwrap();
    assert_eq!(scan().code, 5, "it may be of this role");
    assert_eq!(
        answer(program("orphan_scan").arg(path("nowhere")).arg("bridge")).code,
        74
    );
    assert_eq!(answer(&mut program("orphan_scan")).code, 64);
}
