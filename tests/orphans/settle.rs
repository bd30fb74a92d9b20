//! `leasehold settle`: the word of the one host that can tell.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::time::{Duration, SystemTime};

use leasehold::verdict::INITIAL_PIDNS;
use leasehold::{Judge, Record, Settlement};

use crate::leasehold;
use crate::records::*;
use crate::support::*;

/// A record of a process of this host that has ended.
fn dead() -> Record {
    let mut process = Running::idle();
    let record = record_of(process.pid());
    process.kill();
    record
}

/// All but the directory itself: a temp file in it may have told the time of its filesystem.
fn files(dir: &Dir) -> BTreeMap<OsString, Look> {
    let mut all = snapshot(dir.path());
    all.remove(OsStr::new("."));
    all
}

#[test]
fn dead_owners_of_this_host_are_vacated_and_nothing_else_is_touched() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let pid = owner.pid();
    dir.put("held.lease", &record_of(pid));
    dir.put("foreign.lease", &foreign(pid));
    let mut container = dead();
    container.owner.pidns = Some(4_026_539_999);
    dir.put("container.lease", &container);
    dir.write("old.pid", "4194000\n");
    dir.write("torn.lease", "{\"leasehold\":1,");
    dir.link(
        "lock",
        &format!("{}:4194000", rustix::system::uname().nodename().to_string_lossy()),
    );
    let others = files(&dir);
    let before = with(dead(), &[("phase", "serving")]);
    let path = dir.put("dead.lease", &before);

    let answer = leasehold!("settle", dir.path());
    assert_eq!(
        (answer.code, answer.stdout.as_str(), answer.stderr.as_str()),
        (0, "", ""),
        "quiet"
    );
    let after = read(&path);
    assert!(after.owner.ended.is_some());
    assert_eq!(
        (after.owner.epoch, after.owner.token, after.owner.seq),
        (3, before.owner.token, 8)
    );
    assert_eq!(after.state.get("phase"), Some("serving"));
    assert_eq!(after.state.fields()["settled"]["verdict"], "dead");
    assert_eq!(after.state.fields()["settled"]["reason"], "no-such-process");
    let mut now = files(&dir);
    now.remove(OsStr::new("dead.lease"));
    assert_eq!(now, others);

    let settled = snapshot(dir.path());
    assert_eq!(leasehold!("settle", dir.path(), &path, dir.path()).code, 0);
    assert_eq!(snapshot(dir.path()), settled, "a second time there is nothing to do");
}

#[test]
fn it_says_what_it_did_when_asked() {
    let dir = Dir::new();
    let path = dir.put("dead.lease", &dead());
    let answer = leasehold!("settle", &path, "--verbose");
    let line = answer.stdout.trim_end();
    assert!(
        line.starts_with("dead\tno-such-process\t") && line.ends_with("dead.lease"),
        "{answer:?}"
    );
    assert_eq!(leasehold!("settle", &path, "--verbose").stdout, "");
}

#[test]
fn an_action_without_an_outcome_stays_in_doubt() {
    let dir = Dir::new();
    let path = dir.put("x.lease", &with(dead(), &[("intent", "push branch")]));
    assert_eq!(leasehold!("settle", &path).code, 0);
    assert!(read(&path).owner.ended.is_some());
    let judged = leasehold!("scan", &path, "--json").objects();
    assert_eq!(
        (&judged[0]["verdict"], &judged[0]["effect"]),
        (&"free".into(), &"in-doubt".into())
    );
    let claim = leasehold!("claim", &path, "--owner", std::process::id().to_string());
    assert_eq!(claim.code, 7, "{claim:?}");
}

/// Many at once agree on one replacement a record.
#[test]
fn all_at_once_is_fine() {
    let dir = Dir::new();
    let record = dead();
    let paths: Vec<_> = (0..20).map(|n| dir.put(&format!("{n}.lease"), &record)).collect();
    std::thread::scope(|scope| {
        let settling: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| leasehold!("settle", dir.path())))
            .collect();
        for settled in settling {
            let answer = settled.join().expect("no panic");
            assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
        }
    });
    for path in &paths {
        let after = read(path);
        assert!(after.owner.ended.is_some());
        assert_eq!(after.owner.seq, 8, "replaced once");
    }
    // Ballots of those who came too late stay, as the protocol wants it, until the next claim, whom they do not hold up.
    for path in &paths {
        let claim = leasehold!("claim", path, "--owner", std::process::id().to_string());
        assert_eq!(claim.code, 0, "{claim:?}");
        assert_eq!(read(path).owner.epoch, 4);
    }
    let mut beside = names(dir.path());
    beside.retain(|name| !paths.contains(&dir.path().join(name)));
    assert_eq!(beside, [""; 0], "nothing is left beside them");
}

/// A record of an earlier boot of a host with this name and machine id.
fn of_another_boot() -> Option<Record> {
    let mut record = dead();
    record.owner.boot = Some("00000001-1111-4222-8333-444455556666".into());
    let known = record.owner.machine.is_some() && record.owner.pidns == Some(INITIAL_PIDNS);
    if !known {
        skip("this host has no machine id, or this is a container: it cannot be known again after a reboot");
    }
    known.then_some(record)
}

fn changed_at(path: &std::path::Path, since_boot: i64) {
    let boot = SystemTime::now() - now();
    let time = match u64::try_from(since_boot) {
        Ok(after) => boot + Duration::from_secs(after),
        Err(_) => boot - Duration::from_secs(since_boot.unsigned_abs()),
    };
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

#[test]
fn a_reboot_of_this_host_is_settled_too() {
    let Some(record) = of_another_boot() else { return };
    let dir = Dir::new();
    let path = dir.put("x.lease", &record);
    changed_at(&path, -3600);
    assert_eq!(leasehold!("settle", dir.path()).code, 0);
    let after = read(&path);
    assert_eq!(after.state.fields()["settled"]["reason"], "host-rebooted");
}

/// A clone of this host that lives: its record is younger than this boot, by less than the clocks of two hosts are
/// allowed to differ, so that only the stamps of the filesystem itself can tell.
#[test]
fn the_record_of_a_living_clone_is_left_alone() {
    let Some(record) = of_another_boot() else { return };
    let up = i64::try_from(now().as_secs()).unwrap();
    let dir = Dir::new();
    let path = dir.put("x.lease", &record);
    changed_at(&path, (up / 2).min(200));
    let before = files(&dir);
    let answer = leasehold!("settle", dir.path());
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(files(&dir), before);
    match Judge::here().settle(&path).expect("the filesystem works") {
        Settlement::LeftAlone(judgement) => assert_eq!(judgement.reason.word(), "identity-conflict"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let dir = Dir::new();
    let answer = leasehold!("settle", dir.file("nowhere"));
    assert_eq!(answer.code, 74, "{answer:?}");
    assert!(answer.stderr.contains("nowhere"), "{answer:?}");
}
