//! Running the command, and seeing what it changed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The command under test.
pub const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Says why a test that needs namespaces proves nothing here, or fails where everything has to be proven.
pub fn skip(why: &str) {
    skip_for("LEASEHOLD_REQUIRE_NAMESPACES", why);
}

/// The same, where another variable demands the proof.
pub fn skip_for(variable: &str, why: &str) {
    if std::env::var_os(variable).is_some_and(|value| value == "1") {
        panic!("{variable} is set, and {why}");
    }
    // Not by eprintln!, which the test harness keeps to itself.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "SKIP {name}: {why}");
}

/// A command that the environment of whoever runs the tests does not reach.
pub fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for variable in ["LEASEHOLD_HOST_ID", "LEASEHOLD_TOKEN", "LEASEHOLD_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            // A shell's way to name a signal.
            code: output.status.code().unwrap_or(128),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    /// Stdout of a command that must have ended with 0.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout.trim_end().to_owned()
    }
}

/// Waits for a condition, but not for ever.
#[track_caller]
pub fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !met() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A file: path, inode, mtime in seconds and nanoseconds, mode, bytes.
pub type Seen = (PathBuf, u64, i64, i64, u32, Vec<u8>);

/// Everything that could be seen to have changed in a directory: names, bytes, inodes, times, modes.
pub fn snapshot(dir: &Path) -> Vec<Seen> {
    use std::os::unix::fs::MetadataExt;
    let mut paths = vec![dir.to_owned()];
    paths.extend(std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
    paths.sort();
    let seen = |path: PathBuf| {
        let stat = std::fs::symlink_metadata(&path).unwrap();
        let bytes = if stat.is_file() {
            std::fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        (path, stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.mode(), bytes)
    };
    paths.into_iter().map(seen).collect()
}
