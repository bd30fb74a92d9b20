//! Hosts that meet, in namespaces of one machine: other names, machine ids and boot ids over one filesystem.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;

use super::Said;
use super::support::host::{Host, initial, possible};
use super::support::{Answer, LEASEHOLD, clean, directory, eventually, names, signal};

/// A host that comes to a meeting.
fn comes(host: &Host, dir: &Path, more: &[&str]) -> Child {
    let mut command = host.command(LEASEHOLD);
    command.arg("doctor").arg(dir).args(["--meet", "tuesday"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ends(child: Child) -> Answer {
    child.wait_with_output().unwrap().into()
}

/// Whether a file of the meeting says this.
fn is_said(dir: &Path, what: &str) -> bool {
    let inside = |name: &OsString| {
        let files = fs::read_dir(dir.join(name)).into_iter().flatten().flatten();
        files
            .map(|file| fs::read_to_string(file.path()).unwrap_or_default())
            .any(|text| text.contains(what))
    };
    names(dir)
        .iter()
        .filter(|name| name.to_string_lossy().starts_with(".leasehold-meeting-"))
        .any(inside)
}

#[test]
fn two_hosts_find_out_the_same() {
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let (a, b) = (Host::named("login-a").start(), Host::named("login-b").start());
    let (one, other) = (comes(&a, dir.path(), &["--json"]), comes(&b, dir.path(), &["--json"]));
    let (one, other) = (ends(one), ends(other));
    assert_eq!(one.stdout, other.stdout, "both say the same");
    assert!(
        one.stderr.contains("waiting for another host to run: leasehold doctor"),
        "{one:?}"
    );
    assert_eq!((one.code, other.code), (0, 0), "{one:?}");
    let said = Said::from(one);
    assert_eq!(said.bad(), [""; 0], "{}", said.json);
    for (id, what) in [
        ("ids", "ok: boot id, machine id and name differ"),
        ("see-create", "ok: seen by all"),
        ("see-replace", "ok: seen by all"),
        ("see-remove", "ok: seen by all"),
        ("see-own-loss", "ok: "),
        ("see-no-gap", "ok: a file that another host replaces is never missing"),
        ("one-link", "ok: one winner in each of 500 rounds"),
        ("one-create", "ok: one winner in each of 500 rounds"),
        ("flock", "ok: flock exclude"),
        ("fcntl-lock", "ok: fcntl locks exclude"),
        // On one kernel's own filesystem a flock is no lock of the kind that is asked for.
        ("getlk-flock", "note: "),
        ("getlk-fcntl", "ok: "),
        ("one-clock", "ok: 8 files made in turn"),
        ("clocks", "ok: against the clock of the files: "),
    ] {
        assert!(said.of(id).starts_with(what), "{id}: {}", said.of(id));
    }
    let hosts = said.json["hosts"].as_array().unwrap();
    let mut met: Vec<_> = hosts
        .iter()
        .map(|host| host["host"]["host"].as_str().unwrap())
        .collect();
    met.sort_unstable();
    assert_eq!(met, ["login-a", "login-b"]);
    assert_eq!(names(dir.path()), [""; 0], "nothing is left");
}

/// A third may join; a meeting before it was killed, and what it left does not count.
#[test]
fn a_third_may_join_where_others_had_died() {
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let hosts = ["login-a", "login-b", "login-c"].map(|name| Host::named(name).start());
    for host in &hosts[..2] {
        let mut child = comes(host, dir.path(), &[]);
        eventually("it waits", || is_said(dir.path(), host.boot_id()));
        signal(&child, Signal::SIGKILL);
        child.wait().unwrap();
    }
    let all = hosts.each_ref().map(|host| comes(host, dir.path(), &[]));
    for answer in all.map(ends) {
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(
            answer.stdout.starts_with("3 hosts met: nothing in the way"),
            "{answer:?}"
        );
        assert!(answer.stdout.contains("one winner in each of 500 rounds"), "{answer:?}");
    }
    assert_eq!(names(dir.path()), [""; 0], "nothing is left, of the dead neither");
}

#[test]
fn clones_are_told() {
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let machine = "0123456789abcdef0123456789abcdef";
    let (a, b) = (
        Host::named("login").machine(machine).start(),
        Host::named("login").machine(machine).start(),
    );
    let (one, other) = (comes(&a, dir.path(), &["--json"]), comes(&b, dir.path(), &["--json"]));
    let (said, other) = (Said::from(ends(one)), ends(other));
    assert_eq!((said.code, other.code), (2, 2), "{}", said.json);
    assert_eq!(said.bad(), ["same-machine-id"]);
    assert!(
        said.of("same-machine-id")
            .ends_with("have one machine id, and one name"),
        "{}",
        said.json
    );
}

#[test]
fn nobody_comes() {
    let (dir, _) = directory();
    let began = Instant::now();
    let mut command = clean(LEASEHOLD);
    command
        .arg("doctor")
        .arg(dir.path())
        .args(["--meet", "x", "--wait", "1s"]);
    let answer = Answer::from(command.output().unwrap());
    assert_eq!(answer.code, 75, "{answer:?}");
    assert!(answer.stderr.contains("no other host came"), "{answer:?}");
    assert!(began.elapsed().as_secs() < 20);
    assert_eq!(names(dir.path()), [""; 0]);
    command.arg("--json");
    let said = Said::from(Answer::from(command.output().unwrap()));
    assert_eq!((said.code, &said.json["exit"]), (75, &75.into()));
    let missing = dir.path().join("none");
    let answer = clean(LEASEHOLD)
        .arg("doctor")
        .arg(missing)
        .args(["--meet", "x"])
        .output()
        .unwrap();
    assert_eq!(answer.status.code(), Some(74), "{answer:?}");
}

/// One is told to end: it tidies up, and dies by the signal as whoever sent it expects. The other does not wait for it.
#[test]
fn one_leaves() {
    use std::os::unix::process::ExitStatusExt;
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let b = Host::named("login-b").start();
    let mut one = clean(LEASEHOLD)
        .arg("doctor")
        .arg(dir.path())
        .args(["--meet", "tuesday"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let other = comes(&b, dir.path(), &[]);
    eventually("both have begun", || is_said(dir.path(), "\"create 0.0\":"));
    signal(&one, Signal::SIGTERM);
    assert_eq!(one.wait().unwrap().signal(), Some(15));
    let other = ends(other);
    assert_eq!(other.code, 75, "{other:?}");
    assert!(other.stderr.contains("left the meeting"), "{other:?}");
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn who_comes_late_is_told() {
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let hosts = ["login-a", "login-b", "login-c"].map(|name| Host::named(name).start());
    let first = [&hosts[0], &hosts[1]].map(|host| comes(host, dir.path(), &[]));
    eventually("they have begun", || is_said(dir.path(), "\"roster\":[\""));
    let late = ends(comes(&hosts[2], dir.path(), &[]));
    assert_eq!(late.code, 75, "{late:?}");
    assert!(
        late.stderr.contains("others are meeting under this word already"),
        "{late:?}"
    );
    for answer in first.map(ends) {
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    assert_eq!(names(dir.path()), [""; 0]);
}
