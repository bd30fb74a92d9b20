//! The table of shells, and running one script through all of it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use leasehold::{Keeper, Record};

use crate::support::{Answer, LEASEHOLD, clean};

const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/leasehold.sh");

/// Every shell, as words.
const SHELLS: [&[&str]; 4] = [&["bash"], &["bash", "--posix"], &["dash"], &["busybox", "sh"]];

/// Names a bash 3.2, which no Debian package has.
const BASH32: &str = "LEASEHOLD_BASH32";

/// How callers set their shells.
const OPTIONS: [&str; 3] = ["", "set -eu", "set -euo pipefail"];

/// Says why a shell proves nothing here, or fails where every shell has to be there.
pub fn skip(why: &str) {
    if std::env::var_os("LEASEHOLD_REQUIRE_SHELLS").is_some_and(|value| value == "1") {
        panic!("LEASEHOLD_REQUIRE_SHELLS is set, and {why}");
    }
    say_skipped(why);
}

fn say_skipped(why: &str) {
    // Not by eprintln!, which the test harness keeps to itself.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "SKIP {name}: {why}");
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
    pub owner: Child,
}

impl Records {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let idle = || clean("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
        let mut records = Self { dir, owner: idle() };
        let pid = records.owner.id();
        records.claim("held.lease", pid, &[]);
        fs::write(records.file("bound.pid"), pid.to_string()).unwrap();
        records.claim("bound.lease", pid, &["--binds", "bound.pid"]);
        let mut dead = idle();
        records.claim("dead.lease", dead.id(), &[]);
        dead.kill().unwrap();
        dead.wait().unwrap();
        // Its owner is dead, and its supervisor runs.
        let mut kept = records.record("dead.lease");
        let supervisor = records.record("held.lease").owner;
        kept.owner.keeper = Some(Keeper {
            pid: supervisor.pid.unwrap(),
            start: supervisor.start.unwrap(),
            extra: Default::default(),
        });
        records.write("kept.lease", &kept.print());
        let token = records.claim("free.lease", pid, &[]);
        let free = records.file("free.lease");
        let released = clean(LEASEHOLD)
            .arg("release")
            .arg(free)
            .args(["--token", &token])
            .output();
        Answer::from(released.unwrap()).ok();

        let held = fs::read(records.file("held.lease")).unwrap();
        let mut foreign = records.record("held.lease");
        foreign.owner.host = Some("login-z".into());
        foreign.owner.machine = Some("ffffffffffff4fffbfffffffffffffff".into());
        foreign.owner.boot = Some("00000001-1111-4222-8333-444455556666".into());
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
        Record::parse(&fs::read(self.file(name)).unwrap()).unwrap()
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
        fs::set_permissions(self.file(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn claim(&mut self, name: &str, pid: u32, options: &[&str]) -> String {
        let mut claim = clean(LEASEHOLD);
        claim
            .arg("claim")
            .arg(self.file(name))
            .args(["--owner", &pid.to_string()]);
        Answer::from(claim.args(options).output().unwrap()).ok()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let _ = self.owner.kill();
        let _ = self.owner.wait();
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
        .current_dir(dir)
        .stdin(Stdio::null());
    command
}

/// Runs a script in every shell with every setting: what it prints, and its code, must be these.
#[track_caller]
pub fn everywhere(text: &str, stdout: &str, code: i32) {
    for (words, options) in settings() {
        let records = Records::new();
        let mut command = script(&words, options, records.dir.path(), text);
        let answer = Answer::from(command.env("OWNER", records.owner.id().to_string()).output().unwrap());
        assert_eq!(
            (answer.stdout.as_str(), answer.code),
            (stdout, code),
            "{words:?} {options}: {}",
            answer.stderr
        );
    }
}
