//! The table of shells, and running one script through all of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold::{Keeper, Record};

use crate::support::{Answer, LEASEHOLD, Running, chmod, clean, make_foreign, record, say_skipped, skip_for};

const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/leasehold.sh");

/// Every shell, as words.
const SHELLS: [&[&str]; 4] = [&["bash"], &["bash", "--posix"], &["dash"], &["busybox", "sh"]];

/// Names a bash 3.2, which no Debian package has.
const BASH32: &str = "LEASEHOLD_BASH32";

/// How callers set their shells.
const OPTIONS: [&str; 3] = ["", "set -eu", "set -euo pipefail"];

pub fn skip(why: &str) {
    skip_for("LEASEHOLD_REQUIRE_SHELLS", why);
}

#[test]
fn bash_3_2() {
    let Ok(path) = std::env::var(BASH32) else {
        return say_skipped("bash 3.2: not run, since no package has it; LEASEHOLD_BASH32 may name one");
    };
    assert!(runs(&[path], "case $BASH_VERSION in 3.2*) ;; *) exit 1 ;; esac"));
}

fn runs(words: &[String], script: &str) -> bool {
    let mut command = clean(&words[0]);
    command.args(&words[1..]).args(["-c", script]);
    command.output().is_ok_and(|output| output.status.success())
}

/// The shells that are here, as words.
pub fn shells() -> Vec<Vec<String>> {
    let table = SHELLS.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    let mut all: Vec<Vec<String>> = table.into();
    all.extend(std::env::var(BASH32).map(|path| vec![path]));
    all.retain(|words| {
        let is_here = runs(words, "exit 0");
        if !is_here {
            skip(&format!("there is no {}", words.join(" ")));
        }
        is_here
    });
    assert!(!all.is_empty());
    all
}

/// Every shell that is here with every setting that it knows: words, and the first line of a script.
pub fn settings() -> Vec<(Vec<String>, &'static str)> {
    let pairs = shells()
        .into_iter()
        .flat_map(|words| OPTIONS.map(|options| (words.clone(), options)));
    pairs.filter(|(words, options)| runs(words, options)).collect()
}

/// A directory of records, and the process that holds some of them.
pub struct Records {
    pub dir: tempfile::TempDir,
    pub owner: Running,
}

impl Records {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let owner = Running::idle();
        let pid = owner.id();
        let records = Self { dir, owner };
        records.claim("held.lease", &pid, &[]);
        fs::write(records.file("bound.pid"), &pid).unwrap();
        records.claim("bound.lease", &pid, &["--binds", "bound.pid"]);
        let dead = Running::idle();
        records.claim("dead.lease", &dead.id(), &[]);
        drop(dead);
        // Its owner is dead, and its supervisor runs.
        let mut kept = records.record("dead.lease");
        let supervisor = records.record("held.lease").owner;
        kept.owner.keeper = Some(Keeper {
            pid: supervisor.pid.unwrap(),
            start: supervisor.start.unwrap(),
            extra: Default::default(),
        });
        records.write("kept.lease", &kept.print());
        let token = records.claim("free.lease", &pid, &[]);
        let free = records.file("free.lease");
        let released = clean(LEASEHOLD)
            .arg("release")
            .arg(free)
            .args(["--token", &token])
            .output();
        Answer::from(released.unwrap()).ok();

        let held = fs::read(records.file("held.lease")).unwrap();
        let mut foreign = records.record("held.lease");
        make_foreign(&mut foreign);
        records.write("foreign.lease", &foreign.print());
        let line = held.iter().position(|byte| *byte == b'\n').unwrap();
        records.write("torn.lease", &held[..line]);
        records.write(
            "crlf.lease",
            String::from_utf8(held.clone())
                .unwrap()
                .replace('\n', "\r\n")
                .as_bytes(),
        );
        records.write("bare.pid", format!("{pid}\n").as_bytes());
        records
    }

    fn record(&self, name: &str) -> Record {
        record(self.file(name)).expect("a record")
    }

    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.file(name), content).unwrap();
    }

    /// A program in this directory that stands in for leasehold.
    pub fn program(&self, name: &str, script: &str) {
        self.write(name, format!("#!/bin/sh\n{script}\n").as_bytes());
        chmod(self.file(name), 0o755);
    }

    fn claim(&self, name: &str, pid: &str, options: &[&str]) -> String {
        let mut claim = clean(LEASEHOLD);
        claim.arg("claim").arg(self.file(name)).args(["--owner", pid]);
        Answer::from(claim.args(options).output().unwrap()).ok()
    }
}

/// A script that has sourced the functions, in `dir`. `$OWNER` is a running process.
pub fn script(words: &[String], options: &str, dir: &Path, script: &str) -> Command {
    // A read that waits for ever ends, and with a code that no test wants.
    let mut command = clean("timeout");
    let script = format!(
        "{options}\n. \"$FUNCTIONS\"\n\
         code() {{ if \"$@\"; then code=0; else code=$?; fi; }}\n{script}"
    );
    command
        .arg("60")
        .args(words)
        .args(["-c", &script, "caller"])
        .env("FUNCTIONS", FUNCTIONS)
        .env("LEASEHOLD", LEASEHOLD)
        .current_dir(dir);
    command
}

/// Runs a script in every shell with every setting: what it prints, and its code, must be these.
#[track_caller]
pub fn everywhere(text: &str, stdout: &str, code: i32) {
    for (words, options) in settings() {
        let records = Records::new();
        let mut command = script(&words, options, records.dir.path(), text);
        let answer = Answer::from(command.env("OWNER", records.owner.id()).output().unwrap());
        assert_eq!(
            (answer.stdout.as_str(), answer.code),
            (stdout, code),
            "{words:?} {options}: {}",
            answer.stderr
        );
    }
}
