//! The way in for a pid file that other programs read: a second file, bound to it.

use std::ffi::OsStr;

use leasehold::identity::Process;

use crate::leasehold;
use crate::records::*;
use crate::support::*;

#[test]
fn a_running_process_is_adopted_as_it_is_now() {
    let (dir, owner, stranger) = (Dir::new(), Running::idle(), Running::idle());
    let pid = owner.id();
    let file = dir.write("x.pid", format!("{pid}\n"));
    let lease = dir.file("x.pid.lease");
    let before = snapshot(dir.path());
    let claim = |pid: &str| {
        leasehold!(
            "claim",
            &lease,
            "--binds",
            "x.pid",
            "--owner",
            pid,
            "--set",
            "role=bridge"
        )
    };
    let other = claim(&stranger.id());
    assert_eq!(other.code, 64, "FILE names another: {other:?}");
    assert!(other.stderr.contains(&format!("names {pid}")), "{other:?}");
    assert_eq!(snapshot(dir.path()), before);

    assert_eq!(claim(&pid).code, 0);
    let record = read(&lease);
    let process = Process::of(owner.pid()).unwrap();
    assert_eq!(
        record.owner.adopted,
        Some(true),
        "the record says that somebody vouched"
    );
    assert_eq!(
        (record.owner.pid, record.owner.start),
        (Some(process.pid), Some(process.start))
    );
    assert_eq!(
        snapshot(dir.path())[OsStr::new("x.pid")],
        before[OsStr::new("x.pid")],
        "the pid file keeps its bytes, and its inode"
    );
    assert_eq!(
        leasehold!("scan", dir.path()).verdicts(),
        ["x.pid.lease: held process-running"]
    );

    // Another writer has put itself into the pid file.
    std::fs::write(&file, format!("{}\n", stranger.pid())).unwrap();
    let judged = leasehold!("judge", &lease, "--json");
    let object = &judged.objects()[0];
    assert_eq!((judged.code, &object["reason"]), (2, &"payload-mismatch".into()));
    let sentence = object["sentence"].as_str().unwrap();
    assert!(
        sentence.contains(&pid) && sentence.contains(&stranger.id()),
        "both: {sentence}"
    );
    assert_eq!(leasehold!("stop", &lease).code, 2, "and nobody is ended on that");
}

#[test]
fn nobody_is_adopted_who_does_not_run_here() {
    let dir = Dir::new();
    let lease = dir.file("x.pid.lease");
    let claim = |pid: &str| leasehold!("claim", &lease, "--binds", "x.pid", "--owner", pid);
    let missing = claim(&std::process::id().to_string());
    assert_eq!(missing.code, 64);
    assert!(missing.stderr.contains("does not exist"), "{missing:?}");
    let mut gone = Running::idle();
    let pid = gone.id();
    gone.kill();
    dir.write("x.pid", format!("{pid}\n"));
    let answer = claim(&pid);
    assert_eq!(answer.code, 64);
    assert!(answer.stderr.contains("no such process"), "{answer:?}");
    dir.write("x.pid", "not a pid\n");
    assert!(claim(&std::process::id().to_string()).stderr.contains("names no pid"));
    assert!(!lease.exists());
}
