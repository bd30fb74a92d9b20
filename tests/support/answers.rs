//! Running the command, and seeing what it changed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use serde_json::Value;

/// The command under test.
pub const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// The words that make what follows them the command of a user who owns nothing. Only root may.
pub const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says why a test that needs namespaces proves nothing here, or fails where everything has to be proven.
pub fn skip(why: &str) {
    skip_for("LEASEHOLD_REQUIRE_NAMESPACES", why);
}

/// The same, where another variable demands the proof.
pub fn skip_for(variable: &str, why: &str) {
    if std::env::var_os(variable).is_some_and(|value| value == "1") {
        panic!("{variable} is set, and {why}");
    }
    say_skipped(why);
}

/// The same for what nothing demands.
pub fn say_skipped(why: &str) {
    // Not by eprintln!, which the test harness keeps to itself.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "SKIP {name}: {why}");
}

/// A command without input and with the usual signals, that the environment of whoever runs the tests does not reach.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "LEASEHOLD_HOST_ID",
        "LEASEHOLD_TOKEN",
        "LEASEHOLD_PATH",
        "LEASEHOLD_EPOCH",
    ] {
        command.env_remove(variable);
    }
    // SAFETY: system calls only.
    unsafe { command.stdin(Stdio::null()).pre_exec(usual_signals) };
    command
}

/// Whoever runs the tests may ignore some, as a shell does for what it starts in the background.
fn usual_signals() -> std::io::Result<()> {
    for usual in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: it is no handler.
        unsafe { signal(usual, SigHandler::SigDfl) }?;
    }
    Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?)
}

/// The same as a user who owns nothing; where root does not run the tests, as who does.
pub fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    if !is_root() {
        return clean(program);
    }
    let mut command = clean("env");
    command.args(NOBODY.split(' ')).arg(program);
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
            // A signal is no code at all.
            code: output.status.code().unwrap_or(-1),
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

    /// What stands on stdout, as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Nothing that is waited for takes that long, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Waits for a condition, but not for ever.
#[track_caller]
pub fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !met() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The verdict on one record and its reason, as `dead/asked`; the exit code must agree.
#[track_caller]
pub fn verdict(answer: &Answer) -> String {
    let fields: Vec<&str> = answer.stdout.trim_end_matches('\n').split('\t').collect();
    assert_eq!(fields.len(), 5, "a tab line: {answer:?}");
    let verdicts = ["held", "dead", "undetermined", "free", "lapsed"];
    let said = usize::try_from(answer.code).ok().and_then(|code| verdicts.get(code));
    assert_eq!(said, Some(&fields[0]), "{answer:?}");
    fields[..2].join("/")
}

pub fn chmod(path: impl AsRef<Path>, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Changes the owner line of a record by hand.
pub fn edit(path: impl AsRef<Path>, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let text = std::fs::read_to_string(&path).expect("a record");
    let (first, rest) = text.split_once('\n').expect("lines");
    let mut owner = serde_json::from_str(first).expect("an owner line");
    change(&mut owner);
    std::fs::write(path, format!("{}\n{rest}", Value::from(owner))).expect("write the record");
}

/// Names in a directory, in order.
pub fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = std::fs::read_dir(dir)
        .expect("the directory can be read")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    names
}

/// Everything that a change of a file would show in, except when it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Look {
    inode: u64,
    mode: u32,
    links: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    content: Vec<u8>,
}

/// Looks at a directory and all that is in it, without opening anything but small regular files.
pub fn snapshot(dir: &Path) -> BTreeMap<OsString, Look> {
    let mut looks = BTreeMap::from([(OsString::from("."), look(dir))]);
    for name in names(dir) {
        let path = dir.join(&name);
        looks.insert(name, look(&path));
    }
    looks
}

fn look(path: &Path) -> Look {
    let found = path.symlink_metadata().expect("stat");
    let content = if found.is_symlink() {
        path.read_link().expect("a link").into_os_string().into_encoded_bytes()
    } else if found.is_file() && found.size() < 1 << 20 {
        std::fs::read(path).unwrap_or_default()
    } else {
        Vec::new()
    };
    Look {
        inode: found.ino(),
        mode: found.mode(),
        links: found.nlink(),
        size: found.size(),
        mtime: (found.mtime(), found.mtime_nsec()),
        ctime: (found.ctime(), found.ctime_nsec()),
        content,
    }
}
