//! A directory that a hostile user may write to, a place outside of it, and all verbs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::identity::{Host, Process};
use leasehold::{Pid, Record, Token};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::support::call::{Done, Run, is_harmless};
use crate::support::{LEASEHOLD, Running, chmod, clean, eventually, in_parallel, is_root, skip};

/// Whose lease it is, and who plants. Numbers that nobody has.
pub const USER: u32 = 64_001;
pub const OTHER: u32 = 64_002;
/// A group that both are in.
pub const GROUP: u32 = 64_003;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// No verb but a claim that outlasts a rival waits at all, and that waits for half a second; the rest is a busy machine.
pub const SOON: Duration = Duration::from_secs(10);

/// Says why nothing is proven, where these tests cannot be made.
pub fn possible() -> bool {
    let mounts = || Command::new("unshare").args(["--mount", "true"]).output();
    if is_root() && mounts().is_ok_and(|output| output.status.success()) {
        return true;
    }
    skip("only root, with mounts of its own, can be two other users and make devices");
    false
}

pub struct Place {
    root: tempfile::TempDir,
    /// Processes of root, of the user and of the other, of which nobody may signal the first two.
    sentinels: [Running; 3],
    outside: BTreeMap<PathBuf, Look>,
}

/// What shows that a file was written. Links and ctime do not count: names in the shared directory may go.
#[derive(Debug, PartialEq)]
struct Look {
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    mtime: (i64, i64),
    content: Vec<u8>,
}

impl Place {
    /// A directory that everybody may write to.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same, with things outside.
    pub fn with(furnish: impl FnOnce(&Path)) -> Self {
        // Of this thread and what it starts: devices of the test's own, on a filesystem that is gone with it.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("root may have mounts of its own");
        let root = tempfile::tempdir().expect("a directory");
        run("mount", &["--make-rprivate".as_ref(), "/".as_ref()]);
        let options = ["-t", "tmpfs", "-o", "mode=0755,size=64m,nr_inodes=20000", "attack"].map(OsStr::new);
        run("mount", &[&options[..], &[root.path().as_os_str()]].concat());
        let at = |name: &str| root.path().join(name);
        for name in ["shared", "outside", "bin"] {
            fs::create_dir(at(name)).expect("a directory");
        }
        chmod(at("shared"), 0o777);
        // The build directory may be closed to others. Copied by another process: what is open for writing cannot be run,
        // and other threads fork.
        run("cp", &[LEASEHOLD.as_ref(), at("bin/leasehold").as_os_str()]);
        chown(at("outside"), Some(USER), Some(USER)).expect("chown");
        let sentinels = [0, USER, OTHER].map(|uid| {
            let user = [format!("--reuid={uid}"), format!("--regid={uid}")];
            Running::start(clean("setpriv").args(user).args(["--clear-groups", "sleep", "1000"]))
        });
        let mut place = Self {
            root,
            sentinels,
            outside: BTreeMap::new(),
        };
        for sentinel in &place.sentinels {
            let name = format!("/proc/{}/comm", sentinel.id());
            eventually("it is sleep(1)", || fs::read_to_string(&name).unwrap() == "sleep\n");
        }
        fs::write(place.outside("secret"), "untouched").expect("write");
        fs::write(place.outside("pid"), place.sentinel(USER).to_string()).expect("write");
        place.put_at(
            &place.outside("live.lease"),
            USER,
            &place.record_of(place.sentinel(USER)),
        );
        for name in ["secret", "pid"] {
            chown(place.outside(name), Some(USER), Some(USER)).expect("chown");
        }
        furnish(&place.outside(""));
        place.outside = looks(&place.outside(""));
        place
    }

    pub fn shared(&self) -> PathBuf {
        self.root.path().join("shared")
    }

    /// The record's path.
    pub fn path(&self) -> PathBuf {
        self.beside("x.lease")
    }

    pub fn beside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.shared().join(name)
    }

    pub fn outside(&self, name: &str) -> PathBuf {
        self.root.path().join("outside").join(name)
    }

    pub fn sentinel(&self, uid: u32) -> Pid {
        let at = [0, USER, OTHER]
            .iter()
            .position(|known| *known == uid)
            .expect("one of each");
        self.sentinels[at].pid()
    }

    /// A record of this host that names a process as it is.
    pub fn record_of(&self, pid: Pid) -> Record {
        let (here, process) = (Host::here().observer, Process::of(pid).expect("it runs"));
        let owner = json!({
            "leasehold": 1, "token": TOKEN, "epoch": 3, "seq": 7, "host": here.host, "machine": here.machine,
            "boot": here.boot, "pid": process.pid, "start": process.start, "pidns": here.pidns, "timens": here.timens,
            "pidfd": process.pidfd
        });
        let mut owner = owner.as_object().expect("an object").clone();
        owner.retain(|_, value| !value.is_null());
        let text = format!(
            "{}\n{{\"role\":\"bridge\"}}\n{{\"beat\":\"0000000000000001\"}}\n",
            Value::from(owner)
        );
        Record::parse(text.as_bytes()).expect("a record")
    }

    /// Plants a file of the other user.
    pub fn plant(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.beside(name);
        self.write(&path, OTHER, content.as_ref());
        path
    }

    pub fn put(&self, uid: u32, record: &Record) {
        self.put_at(&self.path(), uid, record);
    }

    fn put_at(&self, path: &Path, uid: u32, record: &Record) {
        self.write(path, uid, &record.print());
    }

    fn write(&self, path: &Path, uid: u32, content: &[u8]) {
        let _ = fs::remove_file(path);
        fs::write(path, content).expect("write");
        chown(path, Some(uid), Some(uid)).expect("chown");
    }

    pub fn device(&self, name: &str, kind: FileType, major: u32, minor: u32) -> PathBuf {
        let path = self.beside(name);
        let device = rustix::fs::makedev(major, minor);
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device).expect("mknod");
        // It is made with the umask.
        chmod(&path, 0o666);
        path
    }

    pub fn command(&self) -> PathBuf {
        self.root.path().join("bin/leasehold")
    }

    /// The command, as this user.
    pub fn run(&self, uid: u32, verb: &str) -> Run {
        self.program(uid, self.command()).arg(verb)
    }

    pub fn program(&self, uid: u32, program: impl AsRef<OsStr>) -> Run {
        let user = [
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--clear-groups".into(),
        ];
        Run::program("setpriv").args(user).arg(program).dir(self.shared())
    }

    /// Every verb on the record and its directory, as this user and as root: whatever the answer is, it is one, it comes
    /// soon, and it does no harm.
    pub fn every_verb(&self) {
        self.every_verb_as(&[USER, 0]);
    }

    pub fn every_verb_as(&self, users: &[u32]) {
        for verbs in [LOOKS, CHANGES] {
            for &uid in users {
                for words in verbs {
                    self.harmless(uid, words);
                }
            }
            self.is_unharmed();
        }
    }

    pub fn harmless(&self, uid: u32, words: &[&str]) -> Done {
        let (verb, words) = words.split_first().expect("a verb");
        let words = words.iter().map(|word| match *word {
            "DIR" => self.shared().into_os_string(),
            "PATH" => self.path().into_os_string(),
            "PID" => self.sentinel(USER).to_string().into(),
            word => word.into(),
        });
        let words: Vec<_> = words.collect();
        let json = words.iter().any(|word| word == "--json");
        let done = self.run(uid, verb).args(words).done();
        let code = done
            .status
            .code()
            .unwrap_or_else(|| panic!("{}: {}", done.what, done.status));
        assert!(ANSWERS.contains(&code), "{}: {code}\n{}", done.what, done.stderr);
        assert!(done.took < SOON, "{} took {:?}", done.what, done.took);
        is_harmless(&done.stderr);
        if json {
            for line in done.stdout.lines() {
                let _: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            }
        } else {
            is_harmless(&done.stdout);
        }
        done
    }

    pub fn is_unharmed(&self) {
        assert_eq!(looks(&self.outside("")), self.outside);
        // The other user's own process may end by what that user planted.
        for child in &self.sentinels[..2] {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("nobody has reaped it");
            assert!(
                ["(sleep) S ", "(sleep) R "].iter().any(|runs| stat.contains(runs)),
                "{stat}"
            );
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        run("umount", &["--lazy".as_ref(), self.root.path().as_os_str()]);
    }
}

fn run(program: &str, words: &[&OsStr]) {
    let status = Command::new(program).args(words).status().expect("util-linux");
    assert!(status.success(), "{program} {words:?}");
}

pub fn each<T: Sync>(cases: &[T], test: impl Fn(&T) + Sync) {
    in_parallel(4, cases, test);
}

/// Codes of the table, and what `run` adds to them.
const ANSWERS: [i32; 20] = [
    0, 1, 2, 3, 4, 5, 6, 7, 64, 74, 75, 102, 103, 104, 105, 106, 107, 164, 174, 175,
];

/// Verbs that change no record, unless they end a process.
const LOOKS: &[&[&str]] = &[
    &["judge", "PATH"],
    &["judge", "PATH", "--json"],
    &["judge", "PATH", "--observe", "30ms"],
    &["show", "PATH"],
    &["show", "PATH", "--json"],
    &["show", "PATH", "--field", "cmd", "--json"],
    &["ask", "PATH", "--via", "false"],
    &["ask", "PATH", "--via", "false", "--json"],
    &["scan", "DIR"],
    &["scan", "DIR", "--json", "--legacy", "--recursive"],
    &["scan", "DIR", "--ask", "--via", "false", "--processes"],
    &["verify", "PATH", "--token", TOKEN],
    &["stop", "PATH", "--grace", "100ms"],
    &["stop", "PATH", "--grace", "100ms", "--json"],
    &[
        "scan",
        "DIR",
        "--legacy",
        "--where",
        "role=bridge",
        "--stop-orphans",
        "--grace",
        "100ms",
    ],
];

/// What these make of a planted record is the user's own, who may end what it names.
const CHANGES: &[&[&str]] = &[
    &["renew", "PATH", "--token", TOKEN],
    &["note", "PATH", "--token", TOKEN, "a=b"],
    &["hand-over", "PATH", "--token", TOKEN, "--to", "PID"],
    &["release", "PATH", "--token", TOKEN],
    &["settle", "DIR", "--verbose", "--recursive"],
    &["claim", "PATH", "--owner", "PID", "--wait", "20ms"],
    &[
        "claim",
        "PATH",
        "--owner",
        "PID",
        "--json",
        "--take-lapsed",
        "--accept-in-doubt",
        "--give-way",
        "--sole-writer",
    ],
    &["run", "PATH", "--", "true"],
    &["run", "--dir", "DIR", "--key", "../x", "--", "true"],
    &["break", "PATH", "--token", TOKEN, "--reason", "r", "--yes", "--json"],
];

fn looks(dir: &Path) -> BTreeMap<PathBuf, Look> {
    let mut found = BTreeMap::new();
    let mut paths = vec![dir.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = path.symlink_metadata().expect("stat");
        let content = if stat.is_dir() {
            paths.extend(
                fs::read_dir(&path)
                    .expect("list")
                    .map(|entry| entry.expect("an entry").path()),
            );
            Vec::new()
        } else if stat.is_file() && stat.size() < 1 << 20 {
            fs::read(&path).expect("read")
        } else {
            Vec::new()
        };
        let look = Look {
            inode: stat.ino(),
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            size: stat.size(),
            mtime: (stat.mtime(), stat.mtime_nsec()),
            content,
        };
        found.insert(path, look);
    }
    found
}

/// The token of what stands at the path, if it is a record.
pub fn token(path: &Path) -> Option<Token> {
    Some(Record::parse(&fs::read(path).ok()?).ok()?.owner.token)
}
