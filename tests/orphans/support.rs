//! Records, processes and namespaces for these tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold::clock::{BootClock, Clock};
use leasehold::identity::{Host, Process};
use leasehold::{OwnerLine, Pid, Record, RunState, Token};
use serde_json::Value;

pub const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// A command that the environment of whoever runs the tests does not reach.
pub fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "LEASEHOLD_HOST_ID",
        "LEASEHOLD_TOKEN",
        "LEASEHOLD_PATH",
        "LEASEHOLD_EPOCH",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(128),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    /// Lines of fields, without the directory in the path.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |line: &str| line.split('\t').map(str::to_owned).collect();
        self.stdout.lines().map(row).collect()
    }

    /// `name: verdict reason`, in order.
    pub fn verdicts(&self) -> Vec<String> {
        let row = |row: &Vec<String>| {
            let name = Path::new(&row[6]).file_name().expect("a file").to_string_lossy();
            format!("{name}: {} {}", row[0], row[1])
        };
        self.rows().iter().map(row).collect()
    }

    pub fn objects(&self) -> Vec<Value> {
        let object = |line| serde_json::from_str(line).expect("a JSON object a line");
        self.stdout.lines().map(object).collect()
    }
}

/// Runs the command with words, of which paths may be among.
#[macro_export]
macro_rules! leasehold {
    ($($word:expr),+ $(,)?) => {{
        let mut command = $crate::support::clean($crate::support::LEASEHOLD);
        $(command.arg($word);)+
        $crate::support::Answer::from(command.output().expect("the command starts"))
    }};
}

/// The same as a user who is not root and owns nothing; where these tests are not run by root, as that user.
pub fn as_nobody(program: &str) -> Command {
    if !is_root() {
        return clean(program);
    }
    let mut command = clean("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says why a test proves nothing here, or fails where everything has to be proven.
pub fn skip(why: &str) {
    if std::env::var_os("LEASEHOLD_REQUIRE_NAMESPACES").is_some_and(|value| value == "1") {
        panic!("LEASEHOLD_REQUIRE_NAMESPACES is set, and {why}");
    }
    // Not by eprintln!, which the test harness keeps to itself.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "SKIP {name}: {why}");
}

/// Waits for a condition, but not for ever.
#[track_caller]
pub fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !met() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is ended with the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("it starts"))
    }

    /// Something that does nothing.
    pub fn idle() -> Self {
        Self::start(clean("sleep").arg("1000"))
    }

    /// A shell that has done this much and waits.
    pub fn shell(script: &str) -> Self {
        let mut command = clean("sh");
        // It becomes what it waits in: nothing of it outlives the test. Ignored signals stay ignored.
        command.args(["-c", &format!("{script}\necho ready; exec sleep 1000")]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self(child)
    }

    pub fn pid(&self) -> Pid {
        Pid::new(self.0.id().into()).expect("a pid")
    }

    pub fn runs(&mut self) -> bool {
        self.0.try_wait().expect("a child can be waited for").is_none()
    }

    /// The signal that ended it.
    pub fn signal(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.0.wait().expect("a child can be waited for").signal()
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A directory of records that everybody may read.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, content).expect("it can be written");
        path
    }

    pub fn link(&self, name: &str, target: &str) -> PathBuf {
        let path = self.file(name);
        std::os::unix::fs::symlink(target, &path).expect("a link");
        path
    }

    pub fn put(&self, name: &str, record: &Record) -> PathBuf {
        self.write(name, record.print())
    }

    /// Everything that could be seen to have changed: names, bytes, inodes, times.
    pub fn snapshot(&self) -> Vec<(PathBuf, u64, i64, i64, Vec<u8>)> {
        use std::os::unix::fs::MetadataExt;
        let entries = std::fs::read_dir(self.path()).expect("it can be listed");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let seen = |path: PathBuf| {
            let stat = std::fs::symlink_metadata(&path).expect("it is there");
            let bytes = if stat.is_file() {
                std::fs::read(&path).expect("it can be read")
            } else {
                Vec::new()
            };
            (path, stat.ino(), stat.mtime(), stat.mtime_nsec(), bytes)
        };
        paths.into_iter().map(seen).collect()
    }
}

/// A record of this host and boot that names a process as it is now.
pub fn record_of(pid: Pid) -> Record {
    record(&Process::of(pid).expect("it runs"))
}

pub fn record(process: &Process) -> Record {
    let here = Host::here().observer;
    Record {
        owner: OwnerLine {
            change: None,
            leasehold: 1,
            token: Token::from_bits(u128::from(process.start) << 64 | u128::from(process.pid.get().unsigned_abs())),
            epoch: 3,
            seq: 7,
            host: here.host,
            machine: here.machine,
            host_id: None,
            boot: here.boot,
            pid: Some(process.pid),
            start: Some(process.start),
            pidns: here.pidns,
            timens: here.timens,
            pidfd: process.pidfd,
            uid: None,
            keeper: None,
            since: Some("2026-01-02T03:04:05Z".into()),
            ttl: None,
            lock: None,
            cmd: None,
            binds: None,
            adopted: None,
            policy: None,
            ended: None,
            extra: Default::default(),
        },
        state: RunState::default(),
        beat: 0,
    }
}

/// A record of another host that happens to name the same pid.
pub fn foreign(pid: Pid) -> Record {
    let mut record = record_of(pid);
    record.owner.host = Some("login-z".into());
    record.owner.machine = Some("ffffffffffff4fffbfffffffffffffff".into());
    record.owner.boot = Some("00000001-1111-4222-8333-444455556666".into());
    record
}

pub fn with(mut record: Record, fields: &[(&str, &str)]) -> Record {
    for (key, value) in fields {
        record.state.set(*key, *value);
    }
    record
}

/// A record as it stands in a file.
#[track_caller]
pub fn read(path: &Path) -> Record {
    Record::parse(&std::fs::read(path).expect("it can be read")).expect("a record")
}

/// Runs this very test again, alone, as the first process but one of a pid namespace with its own /proc, where pids can
/// be chosen. `true` there; outside, `false` once it has passed there, or was skipped.
pub fn in_pid_namespace(name: &str) -> bool {
    if std::env::var_os("LEASEHOLD_TEST_INSIDE").is_some() {
        return true;
    }
    let inside = |program: &std::ffi::OsStr, arguments: &[&str]| {
        let mut command = clean("unshare");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        command.arg(program).args(arguments).env("LEASEHOLD_TEST_INSIDE", "1");
        Answer::from(command.output().expect("unshare starts"))
    };
    let tried = inside("sh".as_ref(), &["-c", "echo 1000 > /proc/sys/kernel/ns_last_pid"]);
    if tried.code != 0 {
        skip(&format!(
            "no pid namespace in which pids can be chosen: {}",
            tried.stderr.trim()
        ));
        return false;
    }
    let test = std::env::current_exe().expect("a test has an executable");
    let answer = inside(test.as_os_str(), &["--exact", name, "--nocapture", "--test-threads=1"]);
    assert!(
        answer.code == 0 && answer.stdout.contains("1 passed"),
        "inside: {answer:?}"
    );
    false
}

/// A process that gets this very pid, which must be free. Only in a namespace of one's own.
///
/// It gets another start time than what had the pid before: a start tick has 10 ms, and without pidfs (before Linux 6.9)
/// nothing tells two processes of one pid and one tick apart.
pub fn start_as(pid: Pid) -> Running {
    let ticks = || BootClock.now().as_millis() / 10;
    let now = ticks();
    eventually("the next tick", || ticks() > now + 1);
    for _ in 0..20 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid.get() - 1).to_string()).expect("pids can be chosen here");
        let process = Running::idle();
        if process.pid() == pid {
            return process;
        }
    }
    panic!("pid {pid} was not given out again");
}
