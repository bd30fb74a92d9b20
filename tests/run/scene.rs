//! A directory with a record, and the runs that are started on it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{Record, judge};
use nix::sys::signal::Signal;

use crate::support::{Answer, LEASEHOLD, Process, Running, clean, eventually, kill_all, make_foreign, record};

/// A directory with a record, and every process that is started for it: they all end with it.
pub struct Scene {
    dir: tempfile::TempDir,
    mark: String,
}

/// The variable by which a scene's processes are known, whatever becomes of their parents.
const MARK: &str = "LEASEHOLD_TEST_SCENE";

impl Scene {
    pub fn new() -> Self {
        static SCENES: AtomicU64 = AtomicU64::new(0);
        // In memory: a heartbeat must not wait for a disk that a build keeps busy.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self {
            dir: dir.unwrap(),
            mark: format!("{}-{}", std::process::id(), SCENES.fetch_add(1, Ordering::Relaxed)),
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A named pipe: what a script reads from it comes when the test writes it.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.file(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        path
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn lease(&self) -> PathBuf {
        self.file("x.lease")
    }

    /// A command of this scene, in its directory, without input. It is killed should the test end before it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = clean(program);
        command.current_dir(self.dir.path()).env(MARK, &self.mark);
        // SAFETY: a system call only.
        unsafe { command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)) };
        command
    }

    /// `leasehold WORDS`, separated by spaces.
    pub fn leasehold(&self, words: &str) -> Command {
        let mut command = self.command(LEASEHOLD);
        command.args(words.split_whitespace());
        command
    }

    /// `leasehold run x.lease OPTIONS -- sh -c SCRIPT`. The script knows `leasehold` as `$L`.
    pub fn run(&self, options: &str, script: &str) -> Command {
        let mut command = self.leasehold(&format!("run x.lease {options}"));
        command.args(["--", "sh", "-c", script]).env("L", LEASEHOLD);
        command
    }

    /// The same, run to its end.
    pub fn run_to_end(&self, options: &str, script: &str) -> Answer {
        self.run(options, script).output().unwrap().into()
    }

    /// The same, started. What it prints goes to files, which nobody has to read.
    pub fn start(&self, options: &str, script: &str) -> Running {
        let mut command = self.run(options, script);
        Running::start(command.stdout(self.sink("stdout")).stderr(self.sink("stderr")))
    }

    fn sink(&self, name: &str) -> fs::File {
        fs::File::options()
            .append(true)
            .create(true)
            .open(self.file(name))
            .unwrap()
    }

    /// What stands in a file, once it is a whole line.
    #[track_caller]
    pub fn line(&self, name: &str) -> String {
        let mut text = String::new();
        eventually(&format!("a line in {name}"), || {
            text = fs::read_to_string(self.file(name)).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim_end().to_owned()
    }

    /// A pid that a script has written.
    #[track_caller]
    pub fn pid(&self, name: &str) -> Process {
        Process::find(self.line(name).parse().unwrap())
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.file("stderr")).unwrap_or_default()
    }

    /// The record as it stands.
    #[track_caller]
    pub fn record(&self) -> Record {
        record(self.lease()).expect("a record")
    }

    /// As `held/process-running`, seen from here.
    pub fn verdict(&self) -> String {
        let judgement = judge(self.lease());
        format!("{}/{}", judgement.verdict, judgement.reason)
    }

    /// Whether another process finds the record's lock taken.
    pub fn is_locked(&self) -> bool {
        let mut flock = self.command("flock");
        flock.args(["--nonblock", "--conflict-exit-code", "9", "x.lease", "true"]);
        match flock.status().unwrap().code() {
            Some(0) => false,
            Some(9) => true,
            other => panic!("flock ended with {other:?}"),
        }
    }

    /// Puts a complete record of another host and claim in place of the present one.
    pub fn take_from_elsewhere(&self) {
        let mut record = self.record();
        make_foreign(&mut record);
        let owner = &mut record.owner;
        owner.token = "0123456789abcdef0123456789abcdef".parse().unwrap();
        (owner.epoch, owner.seq) = (owner.epoch + 1, owner.seq + 1);
        owner.keeper = None;
        fs::write(self.file("foreign"), record.print()).unwrap();
        fs::rename(self.file("foreign"), self.lease()).unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let wanted = format!("{MARK}={}", self.mark);
        kill_all("the scene", |process| {
            // That of a process which has ended is empty.
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        });
    }
}
