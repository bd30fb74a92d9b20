//! What the tests of `run` share.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Record, judge};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;

#[path = "../support/host.rs"]
#[allow(dead_code, reason = "other targets use the rest")]
pub mod host;

/// The command under test.
pub const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Nothing here takes that long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(40);

/// Says why a test proves nothing here, or fails where everything has to be proven.
pub fn skip(why: &str) {
    if std::env::var_os("LEASEHOLD_REQUIRE_NAMESPACES").is_some_and(|value| value == "1") {
        panic!("LEASEHOLD_REQUIRE_NAMESPACES is set, and {why}");
    }
    // Not by eprintln!, which the test harness keeps to itself.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "SKIP {name}: {why}");
}

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
}

/// Waits for a condition, but not for ever.
#[track_caller]
pub fn eventually(what: &str, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !met() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// CLOCK_BOOTTIME.
pub fn now() -> Duration {
    use leasehold::clock::Clock;
    leasehold::clock::BootClock.now()
}

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
        command
            .current_dir(self.dir.path())
            .env(MARK, &self.mark)
            .stdin(Stdio::null());
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(|| {
                // Whoever runs the tests may ignore some, as a shell does for what it starts in the background.
                for usual in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
                    nix::sys::signal::signal(usual, SigHandler::SigDfl)?;
                }
                sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
                Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?)
            });
        }
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
        Running::spawn(command.stdout(self.sink("stdout")).stderr(self.sink("stderr")))
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
        Record::parse(&fs::read(self.lease()).unwrap()).unwrap()
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
        let owner = &mut record.owner;
        owner.token = "0123456789abcdef0123456789abcdef".parse().unwrap();
        (owner.epoch, owner.seq) = (owner.epoch + 1, owner.seq + 1);
        owner.host = Some("elsewhere".into());
        owner.machine = Some("fedcba98765443218fedcba987654321".into());
        owner.boot = Some("11111111-2222-4333-8444-555555555555".into());
        owner.keeper = None;
        fs::write(self.file("foreign"), record.print()).unwrap();
        fs::rename(self.file("foreign"), self.lease()).unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let wanted = format!("{MARK}={}", self.mark);
        host::kill_all("the scene", |process| {
            // That of a process which has ended is empty.
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        });
    }
}

/// A started command. It is killed when it goes out of scope.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pub process: Process,
}

impl Running {
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.spawn().unwrap();
        let process = Process::find(child.id().try_into().unwrap());
        Self { child, process }
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        eventually("the command has ended", || self.has_ended());
        self.child.wait().unwrap()
    }

    /// Waits for its end: the exit code.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        self.status().code().expect("an exit code, not a signal")
    }

    pub fn input(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process, known by its start time too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    start: u64,
}

impl Process {
    #[track_caller]
    pub fn find(pid: i32) -> Self {
        let (_, start) = stat(pid).unwrap_or_else(|| panic!("there is no process {pid}"));
        Self { pid, start }
    }

    /// Whether it runs, or is stopped: it is more than a zombie.
    pub fn is_alive(self) -> bool {
        self.state().is_some_and(|state| state != 'Z' && state != 'X')
    }

    pub fn is_stopped(self) -> bool {
        self.state() == Some('T')
    }

    fn state(self) -> Option<char> {
        stat(self.pid)
            .filter(|(_, start)| *start == self.start)
            .map(|(state, _)| state)
    }

    pub fn signal(self, signal: Signal) {
        if self.state().is_some() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    #[track_caller]
    pub fn wait_for_end(self) {
        eventually("the process has ended", || !self.is_alive());
    }
}

/// State and start time.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    Some((fields[0].chars().next()?, fields[19].parse().ok()?))
}

/// The lines of a process's status that tell how it takes signals.
pub fn signal_lines(status: &str) -> Vec<&str> {
    status
        .lines()
        .filter(|line| line.starts_with("Sig") && !line.starts_with("SigQ"))
        .collect()
}
