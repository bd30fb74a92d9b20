//! Records of this host's processes, and what the command makes of a directory of them.

use std::path::{Path, PathBuf};

use leasehold::identity::{Host, Process};
use leasehold::{OwnerLine, Pid, Record, RunState, Token};
use serde_json::Value;

use crate::support::{self, Answer, Running, chmod, clean, eventually, is_root, make_foreign, now, skip};

/// What lists records.
impl Answer {
    /// Lines of fields.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |line: &str| line.split('\t').map(str::to_owned).collect();
        self.stdout.lines().map(row).collect()
    }

    /// `name: verdict reason`, in order, without the directory in the path.
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

/// A directory of records that everybody may read.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        chmod(dir.path(), 0o755);
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
}

/// A record of this host and boot that names a process as it is now.
pub fn record_of(pid: Pid) -> Record {
    let process = Process::of(pid).expect("it runs");
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
    make_foreign(&mut record);
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
    support::record(path).expect("a record")
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
    let ticks = || now().as_millis() / 10;
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
