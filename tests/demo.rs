//! scripts/demo plays to its end, and leaves nothing when it is interrupted.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use support::host::possible;
use support::{Answer, LEASEHOLD, clean, eventually};

fn demo(temp: &Path) -> Command {
    let mut demo = clean(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/demo"));
    demo.env("LEASEHOLD_BIN", LEASEHOLD)
        .env("TMPDIR", temp)
        .stdin(Stdio::null());
    demo
}

/// No file, and no process that was told of one: each node's first process names them in its command line.
fn assert_nothing_left(temp: &Path) {
    assert_eq!(fs::read_dir(temp).unwrap().count(), 0);
    let name = temp.to_str().unwrap();
    let names_it =
        |pid: &Path| fs::read(pid.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(name));
    eventually("every process of it has ended", || {
        fs::read_dir("/proc")
            .unwrap()
            .all(|entry| !names_it(&entry.unwrap().path()))
    });
}

#[test]
fn the_demo_plays_the_founding_problem() {
    if !possible() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let answer = Answer::from(demo(temp.path()).output().unwrap());
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{}", answer.stdout);
    let lines: Vec<&str> = answer.stdout.lines().map(str::trim).collect();
    for wanted in [
        "held\tprocess-running",
        "undetermined\tno-host",
        "undetermined\tforeign-host",
        "dead\tno-such-process",
        "dead\thost-rebooted",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(wanted)),
            "{wanted}: {}",
            answer.stdout
        );
    }
    assert_eq!(lines.last(), Some(&"== All as expected"));
    assert_nothing_left(temp.path());
}

#[test]
fn an_unexpected_result_fails_the_demo() {
    if !possible() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // A leasehold that says yes to everything.
    let answer = Answer::from(demo(temp.path()).env("LEASEHOLD_BIN", "/bin/true").output().unwrap());
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("NOT AS EXPECTED"), "{answer:?}");
    assert_nothing_left(temp.path());
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    if !possible() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let mut demo = demo(temp.path())
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    // Both nodes are up then, and a process runs on one.
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.contains("held\t")))
        .unwrap()
        .unwrap();
    kill_process_group(Pid::from_child(&demo), Signal::INT).unwrap();
    lines.for_each(drop);
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert_nothing_left(temp.path());
}
