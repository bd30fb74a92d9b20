//! A second host, in milliseconds: namespaces of its own in which a name, a machine id, a boot id, a clock since boot
//! and, if asked for, a process table differ from this host's. What it shares with others is the filesystem.
//!
//! With a pid namespace of its own a host cannot see the others' processes, but neither is it in the initial namespace,
//! without which a name and a machine id prove nothing. Without one it is, and it has the other hosts' pids in its table:
//! a pid that is read without its boot id finds a stranger there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use super::{Answer, LEASEHOLD, NOBODY, as_nobody, clean, eventually, is_root, kill_all, now, skip};

/// Sets the host up from inside its namespaces, then lives until its standard input ends.
const INIT: &str = r#"
set -e
name=$1 machine=$2 boot=$3 proc=$4 etc=$5
hostname "$name"
[ "$proc" = shared ] || mount -t proc $([ "$proc" = own ] || echo "-o $proc") proc /proc
mount --bind "$boot" /proc/sys/kernel/random/boot_id
if ! [ -e /etc/machine-id ]; then
    mount -t tmpfs tmpfs "$etc"
    cp -a /etc/. "$etc" 2>/dev/null || true
    : > "$etc/machine-id"
    mount --bind "$etc" /etc
fi
mount --bind "$machine" /etc/machine-id
echo up
exec cat > /dev/null
"#;

/// Whether hosts can be made here; if not, says so.
pub fn possible() -> bool {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    let tried = TRIED.get_or_init(|| {
        let whole = Host::named("trial").pid_namespace(true).try_start();
        whole
            .map(drop)
            .map_err(|error| format!("no second host can be made here: {error}"))
    });
    tried.as_ref().inspect_err(|why| skip(why)).is_ok()
}

/// Whether this process is in the initial pid namespace, so that hosts without one of their own are, too.
pub fn initial() -> bool {
    let is = fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]");
    if !is {
        skip("the tests run in a pid namespace of their own, where name and machine id prove nothing");
    }
    is
}

/// Whether other users can be impersonated; if not, says so.
pub fn other_users() -> bool {
    let able = is_root()
        && as_nobody(LEASEHOLD)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success());
    if !able {
        skip("no command can be run as another user here");
    }
    able
}

/// How a host is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    name: String,
    machine: String,
    boot: String,
    proc: &'static str,
    operator_id: Option<String>,
    up_for: u64,
}

impl Plan {
    /// 32 hex digits; without this, a random one. Empty: none.
    pub fn machine(mut self, id: &str) -> Self {
        self.machine = id.to_owned();
        self
    }

    /// Without this, a random one.
    pub fn boot(mut self, id: &str) -> Self {
        self.boot = id.to_owned();
        self
    }

    /// With a process table of its own.
    pub fn pid_namespace(mut self, own: bool) -> Self {
        self.proc = if own { "own" } else { "shared" };
        self
    }

    /// The same, and /proc shows nobody another user's processes.
    pub fn hidepid(mut self) -> Self {
        self.proc = "hidepid=2";
        self
    }

    /// LEASEHOLD_HOST_ID of all its processes.
    pub fn operator_id(mut self, id: &str) -> Self {
        self.operator_id = Some(id.to_owned());
        self
    }

    /// Booted that many seconds ago.
    pub fn up_for(mut self, seconds: u64) -> Self {
        self.up_for = seconds;
        self
    }

    pub fn start(self) -> Host {
        self.try_start()
            .unwrap_or_else(|error| panic!("a second host: {error}"))
    }

    fn try_start(self) -> Result<Host, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let boot = Boot::start(&self, dir.path())?;
        Ok(Host {
            plan: self,
            dir,
            boot,
            former: Vec::new(),
        })
    }
}

/// A running host. Everything in it ends with it.
#[derive(Debug)]
pub struct Host {
    plan: Plan,
    /// Its boot id and machine id, as files to be bound; nothing that hosts share.
    dir: tempfile::TempDir,
    boot: Boot,
    /// Namespaces of ended boots, kept since the kernel gives their numbers out again.
    former: Vec<fs::File>,
}

/// From one boot to the next.
#[derive(Debug)]
struct Boot {
    init: Child,
    /// Held open: its end is the host's.
    _life: Option<ChildStdin>,
    user_namespace: bool,
    pid_namespace: bool,
}

impl Host {
    pub fn named(name: &str) -> Plan {
        Plan {
            name: name.to_owned(),
            machine: random_id().replace('-', ""),
            boot: random_id(),
            proc: "shared",
            operator_id: None,
            up_for: 0,
        }
    }

    pub fn boot_id(&self) -> &str {
        &self.plan.boot
    }

    pub fn machine_id(&self) -> &str {
        &self.plan.machine
    }

    /// Everything in it dies, and it comes up under another boot id.
    pub fn reboot(&mut self) {
        self.plan.boot = random_id();
        self.restart();
    }

    /// The same without another boot id: how a container restarts.
    pub fn restart(&mut self) {
        for kind in ["time", "pid"] {
            let link = format!("/proc/{}/ns/{kind}_for_children", self.boot.init.id());
            self.former.push(fs::File::open(link).unwrap());
        }
        self.boot.kill();
        // Time since boot is given in whole seconds: nothing that was written before the boot may look later than it.
        let second = now().as_secs();
        eventually("the next second", || now().as_secs() > second);
        self.plan.up_for = 0;
        self.boot = Boot::start(&self.plan, self.dir.path()).unwrap();
    }

    /// A command on this host.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.boot.enter();
        if let Some(id) = &self.plan.operator_id {
            command.env("LEASEHOLD_HOST_ID", id);
        }
        command.arg(program);
        command
    }

    /// Runs a command to its end.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Answer {
        let (program, words) = words.split_first().unwrap();
        let mut command = self.command(program);
        command.args(words).output().unwrap().into()
    }

    /// Runs `leasehold` with these words, which are separated by spaces.
    pub fn leasehold(&self, words: &str) -> Answer {
        let words: Vec<&str> = std::iter::once(LEASEHOLD).chain(words.split_whitespace()).collect();
        self.run(&words)
    }

    /// The same as another user.
    pub fn leasehold_as_nobody(&self, words: &str) -> Answer {
        let words = NOBODY.split(' ').chain([LEASEHOLD]).chain(words.split_whitespace());
        self.run(&words.collect::<Vec<_>>())
    }

    /// Runs a shell script.
    pub fn shell(&self, script: &str) -> Answer {
        self.run(&["sh", "-c", script])
    }

    /// Starts a process that lives until it is killed, or its standard input ends with the test.
    pub fn spawn(&self) -> Process<'_> {
        self.spawn_command(&["cat"])
    }

    /// Starts any command.
    pub fn spawn_command(&self, words: &[&str]) -> Process<'_> {
        let mut command = self.command("sh");
        command.args(["-c", "echo $$; exec \"$@\"", "sh"]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let pid = line.trim().parse().unwrap_or_else(|_| panic!("a pid, not {line:?}"));
        Process {
            host: self,
            child,
            output,
            pid,
            ended: false,
        }
    }

    /// The words of a command that runs them in this host's pid namespace with the outer /proc mounted, as `unshare
    /// --pid` without a new mount leaves it.
    pub fn under_outer_proc(&self, words: &str) -> Answer {
        let script = "umount -l /proc && mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let boot = self.dir.path().join("boot-id");
        let mut all = vec![
            "unshare",
            "--mount",
            "sh",
            "-c",
            script,
            boot.to_str().unwrap(),
            LEASEHOLD,
        ];
        all.extend(words.split_whitespace());
        self.run(&all)
    }

    /// Runs `leasehold` with this host's mounts, but in the pid namespace of whoever runs the tests.
    pub fn under_inner_proc(&self, words: &str) -> Answer {
        let mut command = self.boot.enter_namespaces(&["uts", "mnt"]);
        command.arg(LEASEHOLD).args(words.split_whitespace());
        command.output().unwrap().into()
    }
}

impl Boot {
    fn start(plan: &Plan, dir: &Path) -> Result<Self, String> {
        // Root needs no user namespace; others have no other way.
        Self::start_in(plan, dir, false).or_else(|error| {
            Self::start_in(plan, dir, true).map_err(|other| format!("{error}; in a user namespace: {other}"))
        })
    }

    fn start_in(plan: &Plan, dir: &Path, user_namespace: bool) -> Result<Self, String> {
        let file = |name: &str, content: &str| -> Result<PathBuf, String> {
            let path = dir.join(name);
            fs::write(&path, format!("{content}\n")).map_err(|error| error.to_string())?;
            Ok(path)
        };
        let (machine, boot) = (file("machine-id", &plan.machine)?, file("boot-id", &plan.boot)?);
        let etc = dir.join("etc");
        fs::create_dir_all(&etc).map_err(|error| error.to_string())?;
        let since_boot = i64::try_from(plan.up_for).unwrap() - i64::try_from(now().as_secs()).unwrap();
        let mut command = clean("unshare");
        if user_namespace {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--uts", "--mount", "--time", "--boottime", &since_boot.to_string()]);
        if plan.proc != "shared" {
            command.args(["--pid", "--fork", "--kill-child"]);
        }
        command
            .args(["sh", "-c", INIT, "init", &plan.name])
            .args([&machine, &boot])
            .arg(plan.proc)
            .arg(etc);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut init = command.spawn().map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let _ = BufReader::new(init.stdout.take().unwrap()).read_line(&mut line);
        if line.trim() == "up" {
            return Ok(Self {
                _life: init.stdin.take(),
                init,
                user_namespace,
                pid_namespace: plan.proc != "shared",
            });
        }
        let output = init.wait_with_output().map_err(|error| error.to_string())?;
        Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
    }

    fn enter(&self) -> Command {
        // Not even one's own may be entered without the rights in it.
        let pid = self.pid_namespace.then_some("pid_for_children");
        let kinds = ["uts", "mnt", "time_for_children"];
        self.enter_namespaces(&kinds.into_iter().chain(pid).collect::<Vec<_>>())
    }

    fn enter_namespaces(&self, kinds: &[&str]) -> Command {
        let mut command = clean("nsenter");
        let all = self.user_namespace.then_some("user");
        for kind in all.iter().chain(kinds) {
            let option = match *kind {
                "mnt" => "mount",
                kind => kind.strip_suffix("_for_children").unwrap_or(kind),
            };
            command.arg(format!("--{option}=/proc/{}/ns/{kind}", self.init.id()));
        }
        if self.user_namespace {
            command.arg("--preserve-credentials");
        }
        command
    }

    /// Ends every process that has this host's name space, so also those which left their parents.
    fn kill(&mut self) {
        let of_init = format!("/proc/{}/ns/uts", self.init.id());
        // Open until the end: the kernel gives the number of a namespace that is gone to the next one that is made.
        if let Ok(namespace) = fs::File::open(of_init) {
            let own = namespace.metadata().unwrap().ino();
            // The first process is reaped last.
            kill_all("the host", |process| {
                fs::metadata(process.join("ns/uts")).is_ok_and(|found| found.ino() == own)
            });
        }
        let _ = self.init.wait();
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process of a host, by the pid that it has there.
pub struct Process<'a> {
    host: &'a Host,
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    pub pid: i32,
    /// Its number may be another's by now.
    ended: bool,
}

impl Process<'_> {
    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn signal(&self, signal: &str) {
        self.host.shell(&format!("kill -s {signal} {}", self.pid)).ok();
    }

    /// Killed, and reaped by its parent.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.signal("KILL");
            // nsenter stops with a child that was stopped, and would not reap it.
            let outer = Pid::from_child(&self.child);
            eventually("it has ended", || {
                let _ = kill_process(outer, Signal::CONT);
                self.child.try_wait().unwrap().is_some()
            });
        }
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Claims for a process of a host, by the pid that it has there: the token.
pub fn claim(host: &Host, lease: &str, pid: i32) -> String {
    host.run(&[LEASEHOLD, "claim", lease, "--owner", &pid.to_string()]).ok()
}

fn random_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid")
        .unwrap()
        .trim()
        .to_owned()
}
