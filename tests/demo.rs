//! scripts/demo plays to its end as docs/demo.txt shows it, and leaves nothing when it is interrupted.
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
    demo.env("LEASEHOLD_BIN", LEASEHOLD).env("TMPDIR", temp);
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

/// A transcript without what differs each time: numbers of processes, inodes, ids, times, and a shell's words for an errno.
fn but_for_numbers(text: &str) -> String {
    let part_of_a_word = |char: char| char.is_ascii_alphanumeric() || "-+:.".contains(char);
    let mut said = String::new();
    for line in text.lines() {
        if line.contains("kill: ") {
            said.push_str("kill: …\n");
            continue;
        }
        // Each word with what follows it.
        for piece in line.split_inclusive(|char| !part_of_a_word(char)) {
            let word = piece.trim_end_matches(|char| !part_of_a_word(char));
            let number = word.len() > 3 && word.contains(|char: char| char.is_ascii_digit());
            said.push_str(if number { "…" } else { word });
            said.push_str(&piece[word.len()..]);
        }
        said.push('\n');
    }
    said
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
    let shown = include_str!("../docs/demo.txt")
        .strip_prefix("$ scripts/demo\n")
        .unwrap();
    assert_eq!(
        but_for_numbers(shown),
        but_for_numbers(&answer.stdout),
        "scripts/transcript writes it anew"
    );
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
