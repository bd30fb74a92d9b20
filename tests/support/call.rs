//! Calls of the command as a user makes them, and leases to make them on.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{LEASEHOLD, Running, as_nobody, chmod, clean, edit, names, wait_at_most};

/// Whether this host has one: a bare container has none.
pub fn has_a_machine_id() -> bool {
    Run::new("id").done().stdout.contains("\nmachine ")
}

/// Beyond this a command hangs, whatever else runs on the machine.
const HANGS: Duration = Duration::from_secs(100);

/// One call of the command, in the making.
pub struct Run {
    command: Command,
    input: Vec<u8>,
}

impl Run {
    pub fn new(verb: &str) -> Self {
        let mut run = Self::program(LEASEHOLD);
        run.command.arg(verb);
        run
    }

    /// Another program, in the same clean environment.
    pub fn program(program: impl AsRef<OsStr>) -> Self {
        Self::of(clean(program))
    }

    fn of(mut command: Command) -> Self {
        command.env("LEASEHOLD", LEASEHOLD);
        Self {
            command,
            input: Vec::new(),
        }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// The directory to run in.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// What stands on standard input.
    pub fn input(mut self, input: impl AsRef<[u8]>) -> Self {
        self.input = input.as_ref().to_vec();
        self
    }

    /// Where standard output goes, instead of to the test.
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Done {
        self.command.stdout(to).stderr(Stdio::piped());
        self.spawn().end()
    }

    /// Where standard error goes, instead of to the test.
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Done {
        self.command.stdout(Stdio::null()).stderr(to);
        self.spawn().end()
    }

    pub fn start(mut self) -> Started {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn()
    }

    fn spawn(mut self) -> Started {
        let began = Instant::now();
        let mut child = Running::start(self.command.stdin(Stdio::piped()));
        // It may end before it has read everything, or anything.
        let _ = child.input().write_all(&self.input);
        Started {
            what: format!("{:?}", self.command),
            stdout: child.child.stdout.take().map(reader),
            stderr: child.child.stderr.take().map(BufReader::new),
            said: String::new(),
            child,
            began,
        }
    }

    pub fn done(self) -> Done {
        self.start().end()
    }

    /// Runs it; it has to end with this code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Done {
        let done = self.done();
        done.expect_code(code);
        done
    }

    /// Runs it; it has to succeed and say nothing on stderr. Its stdout.
    #[track_caller]
    pub fn ok(self) -> String {
        let done = self.exits(0);
        assert_eq!(done.stderr, "", "{} succeeds silently", done.what);
        done.stdout
    }

    /// The same, for output that is one JSON value.
    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// A call that has not ended yet.
pub struct Started {
    pub child: Running,
    what: String,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<BufReader<ChildStderr>>,
    said: String,
    began: Instant,
}

impl Started {
    /// Waits for a line on stderr that holds this.
    pub fn says(&mut self, text: &str) {
        let stderr = self.stderr.as_mut().expect("stderr is read here");
        loop {
            let before = self.said.len();
            let length = stderr.read_line(&mut self.said).expect("stderr");
            assert!(length > 0, "{}: `{text}` was not said, but {}", self.what, self.said);
            if self.said[before..].contains(text) {
                return;
            }
        }
    }

    /// Waits for the end.
    pub fn end(mut self) -> Done {
        let stderr = self.stderr.take().map(reader);
        let status = wait_at_most(&mut self.child.child, HANGS).unwrap_or_else(|| panic!("{} hangs", self.what));
        let took = self.began.elapsed();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        let joined = |reader: Option<JoinHandle<Vec<u8>>>| {
            reader.map_or_else(Vec::new, |reader| reader.join().expect("what was read"))
        };
        Done {
            what: self.what,
            status,
            stdout: text(joined(self.stdout.take())),
            stderr: self.said + &text(joined(stderr)),
            took,
        }
    }
}

/// A call that has ended.
pub struct Done {
    pub what: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Done {
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}: {}\n{}{}",
            self.what,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// All of these stand on stderr.
    #[track_caller]
    pub fn says(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(
                self.stderr.contains(text),
                "{}: no `{text}` in\n{}",
                self.what,
                self.stderr
            );
        }
        self
    }

    /// Nothing stands on stdout.
    #[track_caller]
    pub fn prints_nothing(&self) -> &Self {
        assert_eq!(self.stdout, "", "{}", self.what);
        self
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// What stands on stdout, as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{}: {error}: {}", self.what, self.stdout))
    }
}

/// A directory with a lease in it, and a process to hold it.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
    pub owner: Running,
}

impl Site {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self {
            path: dir.path().join("x.lease"),
            owner: Running::idle(),
            dir,
        }
    }

    /// The claim of the site's own process, ready for options.
    pub fn claim(&self) -> Run {
        Run::new("claim").arg(&self.path).args(["--owner", &self.owner.id()])
    }

    /// Its owner ends; who claims from now on is another process.
    pub fn end_owner(&mut self) {
        self.owner = Running::idle();
    }

    /// Claims, and gives the token.
    #[track_caller]
    pub fn claimed(&self) -> String {
        self.claim().ok().trim_end().to_owned()
    }

    /// A verb on the record.
    pub fn run(&self, verb: &str) -> Run {
        Run::new(verb).arg(&self.path)
    }

    /// A holder's verb, with the token.
    pub fn holder(&self, verb: &str, token: &str) -> Run {
        self.run(verb).args(["--token", token])
    }

    /// A field, as `show` prints it.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        self.run("show").args(["--field", name]).ok().trim_end().to_owned()
    }

    /// Judges: exit code, verdict and reason.
    #[track_caller]
    pub fn is(&self, code: i32, verdict: &str, reason: &str) {
        let done = self.run("judge").exits(code);
        assert!(
            done.stdout.starts_with(&format!("{verdict}\t{reason}\t")),
            "{} is {verdict}/{reason}, not {}",
            self.path.display(),
            done.stdout
        );
    }

    /// Rewrites keys of the owner line, as another host or a fault would leave them; `null` removes one.
    pub fn forge(&self, changes: &[(&str, Value)]) {
        forge(&self.path, changes);
    }

    /// Makes the record another host's.
    pub fn make_foreign(&self) {
        self.forge(&FOREIGN.map(|(key, value)| (key, value.into())));
    }

    /// The names beside the record; a claim leaves only the record.
    pub fn names(&self) -> Vec<OsString> {
        names(self.dir.path())
    }
}

pub const FOREIGN: [(&str, &str); 3] = [
    ("host", "login-b"),
    ("machine", "ffffffffffffffffffffffffffffffff"),
    ("boot", "00000000-0000-4000-8000-000000000000"),
];

pub fn forge(path: &Path, changes: &[(&str, Value)]) {
    edit(path, |owner| {
        for (key, value) in changes {
            match value {
                Value::Null => owner.shift_remove(*key),
                value => owner.insert((*key).into(), value.clone()),
            };
        }
    });
}

/// A user without privileges: nobody when the tests run as root, else the tests' own.
pub struct Unprivileged {
    /// A directory that this user may write to.
    pub dir: tempfile::TempDir,
    /// The build directory may be closed to others.
    bin: tempfile::TempDir,
}

impl Unprivileged {
    pub fn new() -> Self {
        let open = || {
            let dir = tempfile::tempdir().expect("a directory");
            chmod(dir.path(), 0o777);
            dir
        };
        let (dir, bin) = (open(), open());
        std::fs::copy(LEASEHOLD, bin.path().join("leasehold")).expect("a copy of the command");
        Self { dir, bin }
    }

    pub fn run(&self, verb: &str) -> Run {
        Run::of(as_nobody(self.bin.path().join("leasehold"))).arg(verb)
    }
}

/// Nothing in it drives a terminal.
#[track_caller]
pub fn is_harmless(output: &str) {
    let drives = |char: char| {
        let marks = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
        char.is_control() && !matches!(char, '\n' | '\t')
            || ('\u{202a}'..='\u{202e}').contains(&char)
            || ('\u{2066}'..='\u{2069}').contains(&char)
            || marks.contains(&char)
    };
    assert_eq!(output.chars().find(|char| drives(*char)), None, "{output:?}");
}

/// The id of a thread of this process that is not its leader; it stays for as long as the process.
pub fn thread_id() -> String {
    let (told, thread) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let link = std::fs::read_link("/proc/thread-self").expect("/proc");
        told.send(link).expect("the test listens");
        loop {
            std::thread::park();
        }
    });
    let link = thread.recv().expect("a thread");
    link.file_name()
        .expect("PID/task/TID")
        .to_str()
        .expect("a number")
        .to_owned()
}
