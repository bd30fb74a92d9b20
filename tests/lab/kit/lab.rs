//! The driver: boots nodes, breaks them, and leaves nothing behind.
//!
//! A run is a folder: `state.json` says what the run started, and is written before each thing it names. Whatever is
//! ended later is ended by that book: a session by the start time of its leader, or by being inside the run's own
//! network namespace.

use super::agent::{self, Hello, Node};
use super::ids::{self, ProcId};
use super::net::{self, Net};
use super::{Helper, ROLE, Result, tool, until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub const SERVER: &str = "server";
const BOOT: Duration = Duration::from_secs(90);
const MEMORY: &str = "256M";
/// Starts a kernel, and beside it, in its session, what gives it a timer's signal now and then. For each of its timer events the
/// kernel arms a one-shot timer of the host, after the event before: if one signal is lost, no sleep in the node ever ends. One
/// signal too many is an event with nothing to do; until the kernel has its handler, it is ignored.
const PULSE: &str = r#"trap '' ALRM; while sleep 0.25 && kill -ALRM $$; do :; done 2>/dev/null & exec "$@""#;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    pub at: String,
    /// As for `mount -o`; `vers=` is needed.
    pub options: String,
}

impl Mount {
    pub fn new(at: &str, options: &str) -> Self {
        Self {
            at: at.into(),
            options: options.into(),
        }
    }

    /// At /mnt/v4, with further options.
    pub fn v4(more: &str) -> Self {
        Self::with("/mnt/v4", "vers=4.2,hard,timeo=50", more)
    }

    /// At /mnt/v3, with further options.
    pub fn v3(more: &str) -> Self {
        Self::with("/mnt/v3", "vers=3,hard,timeo=50", more)
    }

    /// What a person asks for: v3 if the options say so, else v4.2.
    pub fn asked(options: &str) -> Self {
        let more: Vec<&str> = options
            .split(',')
            .filter(|o| !matches!(*o, "vers=3" | "vers=4.2"))
            .collect();
        let more = more.join(",");
        if options.split(',').any(|o| o == "vers=3") {
            Self::v3(&more)
        } else {
            Self::v4(&more)
        }
    }

    fn with(at: &str, options: &str, more: &str) -> Self {
        Self::new(at, format!("{options},{more}").trim_end_matches(','))
    }

    pub fn source(&self) -> String {
        let path = if self.options.split(',').any(|o| o == "vers=3") {
            "/mnt/export"
        } else {
            "/"
        };
        format!("{SERVER}:{path}")
    }
}

#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub name: String,
    pub mounts: Vec<Mount>,
}

impl NodeSpec {
    /// A login node with the export at /mnt/v4 and at /mnt/v3.
    pub fn client(name: &str) -> Self {
        Self {
            name: name.into(),
            mounts: vec![Mount::v4(""), Mount::v3("")],
        }
    }

    pub fn mounts(mut self, mounts: Vec<Mount>) -> Self {
        self.mounts = mounts;
        self
    }
}

pub struct Setup {
    pub base: PathBuf,
    pub helper: Helper,
    /// Programs to have on the nodes' PATH: name and file.
    pub programs: Vec<(String, PathBuf)>,
    /// The login nodes; the server comes by itself.
    pub nodes: Vec<NodeSpec>,
}

/// Where runs are kept unless told.
pub fn base() -> PathBuf {
    std::env::var_os("LEASEHOLD_LAB_DIR").map_or_else(|| "/var/lib/leasehold-lab".into(), PathBuf::from)
}

#[derive(Serialize, Deserialize)]
struct State {
    run: String,
    /// Of this machine; with another one, no process of the run can be left.
    boot: String,
    namespace: Option<u64>,
    /// The driver; none for a lab that stays up until `down`.
    owner: Option<ProcId>,
    agent: Vec<String>,
    nodes: Vec<NodeState>,
}

#[derive(Clone, Serialize, Deserialize)]
struct NodeState {
    name: String,
    number: u8,
    machine: String,
    mounts: Vec<Mount>,
    process: Option<ProcId>,
    cut: bool,
}

impl NodeState {
    fn is_server(&self) -> bool {
        self.name == SERVER
    }
}

pub struct Lab {
    dir: PathBuf,
    state: State,
    /// To reap; a lab found in its folder has none.
    children: HashMap<String, Child>,
    guard: Option<Child>,
    alone: Option<File>,
    ours: bool,
}

/// What `status` tells of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Power {
    Up,
    Paused,
    Off,
}

impl Lab {
    // ---- up and down ----

    /// Clears what dead runs left, then boots a server and the nodes. Dropping the lab ends it.
    pub fn up(setup: Setup) -> Result<Self> {
        let mut lab = Self::prepare(&setup.base, &setup.helper, true)?;
        for (name, file) in &setup.programs {
            lab.put(name, file)?;
        }
        lab.add(NodeSpec {
            name: SERVER.into(),
            mounts: Vec::new(),
        })?;
        for spec in setup.nodes {
            lab.add(spec)?;
        }
        let names: Vec<String> = lab.state.nodes.iter().map(|n| n.name.clone()).collect();
        for name in &names {
            lab.power_on(name)?;
        }
        lab.make_ready(&names)?;
        Ok(lab)
    }

    /// A run with its networks and no node yet.
    pub fn prepare(base: &Path, helper: &Helper, guarded: bool) -> Result<Self> {
        // Root starts programs from here: nobody else may write.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(base)
            .map_err(|e| format!("{}: mkdir: {e}", base.display()))?;
        let held = lock(base)?;
        sweep(base)?;
        let run = new_run_id(base)?;
        let dir = base.join(&run);
        let state = State {
            run: run.clone(),
            boot: ids::boot_id()?,
            namespace: None,
            owner: Some(ProcId::this()?),
            agent: std::iter::once("/run/lab/bin/lab-agent".into())
                .chain(helper.args.iter().cloned())
                .collect(),
            nodes: Vec::new(),
        };
        // Published with its state, so that a folder without one proves nothing and needs nothing.
        let fresh = base.join(format!(".new-{run}"));
        for part in ["bin", "uml"] {
            let path = fresh.join(part);
            fs::create_dir_all(&path).map_err(|e| format!("{}: mkdir: {e}", path.display()))?;
        }
        write_state(&fresh, &state)?;
        fs::rename(&fresh, &dir).map_err(|e| format!("{}: rename: {e}", dir.display()))?;
        // From here on the run has a living owner; and a failure below takes the lock itself to clear up.
        drop(held);
        let mut lab = Self {
            dir,
            state,
            children: HashMap::new(),
            guard: None,
            alone: None,
            ours: true,
        };
        lab.put("lab-agent", &helper.exe)?;
        if guarded {
            lab.guard = Some(lab.start_guard(helper)?);
        }
        lab.state.namespace = Some(net::create(&run)?);
        lab.save()?;
        lab.write_file("init", include_str!("init.sh"), 0o755)?;
        Ok(lab)
    }

    /// The lab that a person has up. Dropping this handle leaves it so.
    pub fn attach(base: &Path) -> Result<Self> {
        let mut runs = runs(base);
        runs.retain(|(_, state)| state.owner.is_none());
        match runs.pop() {
            Some((dir, state)) => Ok(Self::found(dir, state)),
            None => Err("no lab is up; `scripts/lab up` starts one".into()),
        }
    }

    /// The same to change it: one handle at a time.
    pub fn attach_alone(base: &Path) -> Result<Self> {
        let mut lab = Self::attach(base)?;
        lab.alone = Some(lock(&lab.dir)?);
        // It may have changed while this handle waited.
        lab.state = read_state(&lab.dir).ok_or("the lab went down meanwhile")?;
        Ok(lab)
    }

    fn found(dir: PathBuf, state: State) -> Self {
        Self {
            dir,
            state,
            children: HashMap::new(),
            guard: None,
            alone: None,
            ours: false,
        }
    }

    /// Leaves the lab up when this process ends.
    pub fn detach(mut self) -> Result {
        self.state.owner = None;
        self.save()?;
        self.dismiss_guard()?;
        self.ours = false;
        Ok(())
    }

    /// Ends every node and removes every trace. Good to call again.
    pub fn down(mut self) -> Result {
        self.take_down()
    }

    fn take_down(&mut self) -> Result {
        self.ours = false;
        let base = self.dir.parent().ok_or("a run's folder has a parent")?.to_owned();
        let held = lock(&base)?;
        if self.dir.exists() {
            self.end_everything()?;
        }
        drop(held);
        self.dismiss_guard()
    }

    fn end_everything(&mut self) -> Result {
        if self.state.boot == ids::boot_id()? {
            // Also a node whose number the book does not have yet, because the driver died between start and entry.
            let init = format!(" init={}/init ", self.dir.display());
            let mut sessions: Vec<i32> = self
                .state
                .nodes
                .iter()
                .filter_map(|n| n.process)
                .map(|p| p.pid)
                .collect();
            if let Some(namespace) = self.state.namespace {
                let inside = ids::inside(namespace).into_iter().filter(|s| s.session == s.id.pid);
                sessions.extend(
                    inside
                        .map(|s| s.id.pid)
                        .filter(|&pid| ids::command_line(pid).contains(&init)),
                );
            }
            for session in sessions {
                self.kill_session(session)?;
            }
        }
        self.reap_all()?;
        net::remove(&self.state.run)?;
        fs::remove_dir_all(&self.dir).map_err(|e| format!("{}: remove: {e}", self.dir.display()).into())
    }

    // ---- nodes ----

    /// Enters a node into the book; `boot` starts it.
    pub fn add(&mut self, spec: NodeSpec) -> Result {
        let name = &spec.name;
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !plain || name.len() > 6 {
            return Err(format!("node name {name:?}: at most 6 small letters and digits, a letter first").into());
        }
        if self.state.nodes.iter().any(|n| n.name == *name) {
            return Err(format!("node {name} exists already").into());
        }
        let taken = |number: &u8| self.state.nodes.iter().any(|n| n.number == *number);
        let number = (1..net::DRIVER).find(|n| !taken(n)).ok_or("too many nodes")?;
        net::add_taps(&self.state.run, name)?;
        self.make_disk(&format!("{name}.disk"), "24M")?;
        if name == SERVER {
            self.make_disk("export.disk", "512M")?;
        }
        let machine = format!("{}{:012x}", random_hex(10)?, number);
        let NodeSpec { name, mounts } = spec;
        self.state.nodes.push(NodeState {
            name,
            number,
            machine,
            mounts,
            process: None,
            cut: false,
        });
        self.save()?;
        self.write_hosts()
    }

    /// Ends a node for good.
    pub fn forget(&mut self, name: &str) -> Result {
        if self.entry(name)?.process.is_some() {
            self.crash(name)?;
        }
        net::remove_taps(&self.state.run, name)?;
        self.state.nodes.retain(|n| n.name != name);
        self.save()
    }

    pub fn names(&self) -> Vec<String> {
        self.state.nodes.iter().map(|n| n.name.clone()).collect()
    }

    /// A handle for commands. It stays good over reboots.
    pub fn node(&self, name: &str) -> Result<Node> {
        let n = self.entry(name)?;
        let home = n
            .mounts
            .first()
            .map_or("/mnt/export/home".into(), |m| format!("{}/home", m.at));
        Ok(Node {
            name: name.into(),
            run: self.state.run.clone(),
            number: n.number,
            home,
        })
    }

    pub fn boot(&mut self, name: &str) -> Result {
        self.power_on(name)?;
        self.make_ready(&[name.to_owned()])
    }

    /// A power cut. Returns when nothing of the node is left.
    pub fn crash(&mut self, name: &str) -> Result {
        let Some(process) = self.entry(name)?.process else {
            return Err(format!("{name} is off; `boot` starts it").into());
        };
        self.kill_session(process.pid)?;
        self.reap(name)?;
        self.entry_mut(name)?.process = None;
        self.save()
    }

    /// Takes the node off the NFS network; its control network stays.
    pub fn cut(&mut self, name: &str) -> Result {
        self.entry_mut(name)?.cut = true;
        self.save()?;
        net::cut(&self.state.run, name)
    }

    pub fn mend(&mut self, name: &str) -> Result {
        self.entry_mut(name)?.cut = false;
        self.save()?;
        net::mend(&self.state.run, name)
    }

    /// Stops the whole machine, its clocks' interrupts included.
    pub fn pause(&mut self, name: &str) -> Result {
        self.signal_kernel(name, Signal::SIGSTOP)?;
        let stopped = || Ok((self.power(name)? == Power::Paused).then_some(()));
        until(&format!("{name} stops"), Duration::from_secs(5), stopped)
    }

    pub fn resume(&mut self, name: &str) -> Result {
        self.signal_kernel(name, Signal::SIGCONT)
    }

    /// Steps the node's wall clock.
    pub fn clock(&mut self, name: &str, seconds: i64) -> Result {
        let node = self.node(name)?;
        // With the fraction: steps would add up to seconds.
        let script = format!("now=$(date +%s.%N); date -s @$(( ${{now%.*}} + {seconds} )).${{now#*.}}");
        node.ok(&script).map(drop)
    }

    /// Stops and starts the NFS service of a server that stays up; a grace period follows, as after a boot.
    pub fn restart_nfs(&mut self) -> Result {
        self.node(SERVER)?.ok("rpc.nfsd 0 && rpc.nfsd 4").map(drop)
    }

    pub fn power(&self, name: &str) -> Result<Power> {
        Ok(match self.entry(name)?.process.and_then(ProcId::state) {
            None => Power::Off,
            Some('T') => Power::Paused,
            Some(_) => Power::Up,
        })
    }

    pub fn is_cut(&self, name: &str) -> Result<bool> {
        Ok(self.entry(name)?.cut)
    }

    pub fn machine_id(&self, name: &str) -> Result<&str> {
        Ok(&self.entry(name)?.machine)
    }

    /// Puts a program on every node's PATH.
    pub fn put(&self, name: &str, file: &Path) -> Result {
        let to = self.dir.join("bin").join(name);
        // By rename: a node may be running the old one.
        let fresh = self.dir.join("bin").join(format!(".{name}"));
        fs::copy(file, &fresh).map_err(|e| format!("{}: copy to {}: {e}", file.display(), fresh.display()))?;
        fs::rename(&fresh, &to).map_err(|e| format!("{}: rename: {e}", to.display()).into())
    }

    /// Brings every node back to up, connected, right in time and without processes of scenarios.
    pub fn heal(&mut self) -> Result {
        for name in self.names() {
            if self.power(&name)? == Power::Paused {
                self.resume(&name)?;
            }
            if self.is_cut(&name)? {
                self.mend(&name)?;
            }
        }
        // The server first: a client that hangs may only be waiting for it.
        for name in self.names() {
            if self.power(&name)? == Power::Off {
                self.entry_mut(&name)?.process = None;
                self.boot(&name)?;
            } else if let Err(e) = self.tidy(&name) {
                eprintln!("lab {}: {name} is booted anew: {e}", self.state.run);
                self.crash(&name)?;
                self.boot(&name).map_err(|again| format!("{e}; then {again}"))?;
            }
        }
        Ok(())
    }

    fn tidy(&mut self, name: &str) -> Result {
        let node = self.node(name)?;
        node.clear()?;
        let Hello { ahead, .. } = node.hello()?;
        if ahead.abs() > 1 {
            self.clock(name, -ahead)?;
        }
        time_passes(&node)?;
        for mount in &self.entry(name)?.mounts {
            let look = node
                .cmd(&["stat", "--file-system", &mount.at])
                .limit(Duration::from_secs(20))
                .run()?;
            if look.code != 0 {
                return Err(format!("{name}: {}", look.err()).into());
            }
        }
        Ok(())
    }

    /// The run's name; taps and bridges carry it.
    pub fn run(&self) -> &str {
        &self.state.run
    }

    pub fn namespace(&self) -> Option<u64> {
        self.state.namespace
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// For the tests of cleaning up: lets go as a killed driver does, with `owner` in its place in the book.
    pub fn abandon_to(mut self, owner: ProcId) -> Result {
        self.state.owner = Some(owner);
        self.ours = false;
        self.save()
    }

    /// For the same tests: writes another process into the book as a node's.
    pub fn forge(&mut self, name: &str, process: ProcId) -> Result {
        self.entry_mut(name)?.process = Some(process);
        self.save()
    }

    /// The words that start this program on a node.
    pub fn agent_words(&self) -> Vec<String> {
        self.state.agent.clone()
    }

    /// Makes an empty directory that everybody may write; the answer is its path below any mount of the export.
    pub fn fresh_dir(&self, tag: &str) -> Result<String> {
        let made = self.node(SERVER)?.ok(&format!(
            "d=$(mktemp -d /mnt/export/home/{tag}.XXXXXX) && chmod 777 $d && echo $d"
        ))?;
        Ok(made.trim_start_matches("/mnt/export/").into())
    }

    /// Whether it obeys, and whether time goes on there; for reports of failures.
    pub fn health(&self, name: &str) -> Result<String> {
        let tell = |outcome: Result| outcome.map_or_else(|e| e.to_string(), |()| "yes".into());
        let node = self.node(name)?;
        let (answers, passes) = (tell(node.hello().map(drop)), tell(time_passes(&node)));
        let process = self.entry(name)?.process.map(|p| p.pid);
        let status = process.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok());
        let signals = status
            .iter()
            .flat_map(|text| text.lines())
            .filter(|l| l.starts_with("State") || l.starts_with("Sig") || l.starts_with("Shd"));
        let signals = signals.map(|l| l.replace('\t', " ")).collect::<Vec<_>>().join(", ");
        let power = self.power(name)?;
        Ok(format!(
            "{power:?}; answers: {answers}; time passes: {passes}; its process: {signals}"
        ))
    }

    /// The last lines that the node's kernel wrote.
    pub fn console(&self, name: &str) -> String {
        let text = fs::read(self.dir.join(format!("{name}.console"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    // ---- inside ----

    fn entry(&self, name: &str) -> Result<&NodeState> {
        let known = || format!("no node {name}; there are {}", self.names().join(", "));
        self.state
            .nodes
            .iter()
            .find(|n| n.name == name)
            .ok_or_else(|| known().into())
    }

    fn entry_mut(&mut self, name: &str) -> Result<&mut NodeState> {
        self.entry(name)?;
        let found = self.state.nodes.iter_mut().find(|n| n.name == name);
        Ok(found.expect("`entry` has just found it"))
    }

    fn power_on(&mut self, name: &str) -> Result {
        if self.power(name)? != Power::Off {
            return Err(format!("{name} is on; `crash` ends it").into());
        }
        let n = self.entry(name)?.clone();
        let path = self.dir.join(format!("{name}.console"));
        let console = File::create(&path).map_err(|e| format!("{}: create: {e}", path.display()))?;
        let mut command = Command::new("setsid");
        command
            .args(["sh", "-c", PULSE, "sh", "linux.uml"])
            .args(self.boot_line(&n))
            .stdin(Stdio::null())
            .stderr(console.try_clone()?)
            .stdout(console);
        let start = || Ok(command.spawn().map_err(|e| format!("setsid linux.uml: start: {e}"))?);
        let child = net::within(&self.state.run, start)?;
        let process = ProcId::of(child.id() as i32);
        self.children.insert(name.into(), child);
        self.entry_mut(name)?.process = process;
        self.save()
    }

    fn boot_line(&self, n: &NodeState) -> Vec<String> {
        let dir = self.dir.display();
        let vector = |index: u8, net: Net| {
            let tap = net::tap(&self.state.run, &n.name, net);
            // The same address at every boot: the others' ARP tables stay right.
            let mac = format!("02:4c:48:00:{:02x}:{:02x}", index, n.number);
            format!("vec{index}:transport=tap,ifname={tap},depth=64,gro=1,mac={mac}")
        };
        let mut line: Vec<String> = [
            &*format!("mem={MEMORY}"),
            "root=/dev/root rootfstype=hostfs rootflags=/ ro quiet con=null con0=null,fd:1",
            &format!("uml_dir={dir}/uml/ umid={} init={dir}/init", n.name),
            &vector(0, Net::Nfs),
            &vector(1, Net::Control),
            &format!("ubd0={dir}/{}.disk", n.name),
            &format!("lab_dir={dir} lab_name={} lab_machine={}", n.name, n.machine),
            &format!(
                "lab_nfs={} lab_control={}",
                Net::Nfs.address(n.number),
                Net::Control.address(n.number)
            ),
            &format!("lab_port={} lab_agent={}", agent::PORT, self.state.agent.join(",")),
            if n.is_server() {
                "lab_role=server"
            } else {
                "lab_role=client"
            },
        ]
        .iter()
        .flat_map(|words| words.split(' ').map(String::from))
        .collect();
        if n.is_server() {
            line.push(format!("ubd1={dir}/export.disk"));
        }
        line
    }

    /// Waits for the agents and mounts; the server first, as far as it is among them.
    fn make_ready(&self, names: &[String]) -> Result {
        let (servers, clients): (Vec<_>, Vec<_>) = names.iter().partition(|n| *n == SERVER);
        for name in servers {
            self.wait_for_agent(name)?;
        }
        thread::scope(|scope| {
            let jobs: Vec<_> = clients
                .iter()
                .map(|name| scope.spawn(|| self.ready_client(name)))
                .collect();
            jobs.into_iter()
                .try_for_each(|j| j.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn wait_for_agent(&self, name: &str) -> Result<Hello> {
        let node = self.node(name)?;
        let answers = || match node.hello() {
            Ok(hello) => Ok(Some(hello)),
            Err(_) if self.power(name)? != Power::Off => Ok(None),
            Err(e) => Err(e),
        };
        until(&format!("{name} boots"), BOOT, answers)
            .map_err(|e| format!("{e}; the end of its console:\n{}", self.console(name)).into())
    }

    fn ready_client(&self, name: &str) -> Result {
        self.wait_for_agent(name)?;
        let node = self.node(name)?;
        for mount in &self.entry(name)?.mounts {
            node.ok(&format!(
                "mkdir -p {0} && mount -t nfs -o {1} {2} {0}",
                mount.at,
                mount.options,
                mount.source()
            ))?;
        }
        Ok(())
    }

    fn signal_kernel(&self, name: &str, signal: Signal) -> Result {
        let process = self.entry(name)?.process.filter(|p| p.state().is_some());
        let process = process.ok_or_else(|| format!("{name} is off; `boot` starts it"))?;
        // To this process alone: a stop of the group would panic the kernel in it.
        kill(Pid::from_raw(process.pid), signal).map_err(|e| format!("{name}: {signal}: {e}").into())
    }

    /// Ends a session that this run started, and returns when nothing is left of it.
    fn kill_session(&self, leader: i32) -> Result {
        let mut proven = false;
        until(&format!("session {leader} ends"), Duration::from_secs(10), || {
            let mut left = ids::all();
            left.retain(|s| s.session == leader && s.group == leader && !matches!(s.state, 'Z' | 'X'));
            let booked = |s: &ids::Stat| self.state.nodes.iter().any(|n| n.process == Some(s.id));
            let ours = |s: &ids::Stat| booked(s) || self.state.namespace.is_some_and(|ns| ids::is_inside(s.id.pid, ns));
            if left.iter().any(ours) {
                proven = true;
                // One call for the whole group: a node's processes, freed from their tracer, would run on as the host's own.
                let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
            }
            // One that is just ending has left the namespace already and may still hold a tap.
            Ok((left.is_empty() || !proven).then_some(()))
        })
    }

    fn reap(&mut self, name: &str) -> Result {
        let Some(mut child) = self.children.remove(name) else {
            return Ok(());
        };
        until(&format!("{name} is reaped"), Duration::from_secs(5), || {
            Ok(child.try_wait()?)
        })
        .map(drop)
    }

    fn reap_all(&mut self) -> Result {
        self.names().iter().try_for_each(|name| self.reap(name))
    }

    fn save(&self) -> Result {
        write_state(&self.dir, &self.state)
    }

    fn write_file(&self, name: &str, text: &str, mode: u32) -> Result {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: write: {e}", path.display()))?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).map_err(|e| format!("{}: chmod: {e}", path.display()).into())
    }

    /// In place: the nodes have this very file bound over /etc/hosts.
    fn write_hosts(&self) -> Result {
        let lines = self
            .state
            .nodes
            .iter()
            .map(|n| format!("{} {}\n", Net::Nfs.address(n.number), n.name));
        let text: String = std::iter::once("127.0.0.1 localhost\n".into()).chain(lines).collect();
        self.write_file("hosts", &text, 0o644)
    }

    fn make_disk(&self, name: &str, size: &str) -> Result {
        let path = self.dir.join(name);
        let path = path
            .to_str()
            .ok_or_else(|| format!("{}: must be UTF-8", path.display()))?;
        tool("mkfs.ext4", &["-q", "-F", path, size])
    }

    fn start_guard(&self, helper: &Helper) -> Result<Child> {
        let mut command = Command::new("setsid");
        command
            .arg(&helper.exe)
            .args(&helper.args)
            .env(ROLE, format!("guard={}", self.dir.display()));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command
            .spawn()
            .map_err(|e| format!("setsid {}: start: {e}", helper.exe.display()))?)
    }

    fn dismiss_guard(&mut self) -> Result {
        let Some(mut guard) = self.guard.take() else {
            return Ok(());
        };
        if let Some(mut pipe) = guard.stdin.take() {
            pipe.write_all(b"dismissed")
                .map_err(|e| format!("tell the guard to go: {e}"))?;
        }
        until("the guard goes", Duration::from_secs(10), || Ok(guard.try_wait()?)).map(drop)
    }
}

/// A node may answer while no sleep on it ever ends: see `PULSE`.
fn time_passes(node: &Node) -> Result {
    node.cmd(&["sleep", "0.01"])
        .limit(Duration::from_secs(5))
        .run()
        .map(drop)
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.ours
            && let Err(e) = self.take_down()
        {
            eprintln!("lab: {e}; the next `up` tries again");
        }
    }
}

/// Lives beside a driver and takes the lab down when that one ends in whatever way without having done so.
pub fn guard(dir: &Path) -> Result {
    let mut last_words = String::new();
    std::io::stdin()
        .read_to_string(&mut last_words)
        .map_err(|e| format!("guard: read: {e}"))?;
    match read_state(dir) {
        Some(state) if last_words.is_empty() => Lab::found(dir.into(), state).take_down(),
        _ => Ok(()),
    }
}

fn write_state(dir: &Path, state: &State) -> Result {
    let (fresh, path) = (dir.join(".state.json"), dir.join("state.json"));
    fs::write(&fresh, serde_json::to_vec_pretty(state)?).map_err(|e| format!("{}: write: {e}", fresh.display()))?;
    fs::rename(&fresh, &path).map_err(|e| format!("{}: rename: {e}", path.display()).into())
}

fn read_state(dir: &Path) -> Option<State> {
    serde_json::from_slice(&fs::read(dir.join("state.json")).ok()?).ok()
}

fn runs(base: &Path) -> Vec<(PathBuf, State)> {
    let Ok(entries) = fs::read_dir(base) else {
        return Vec::new();
    };
    let run = |dir: PathBuf| read_state(&dir).map(|state| (dir, state));
    entries.flatten().filter_map(|e| run(e.path())).collect()
}

/// Ends the runs whose driver is gone. The caller holds the lock.
fn sweep(base: &Path) -> Result {
    let boot = ids::boot_id()?;
    for (dir, state) in runs(base) {
        // A lab that a person left up has no owner, and goes with the machine's boot only.
        let owned = state.owner.is_none_or(|owner| owner.state().is_some());
        if state.boot != boot || !owned {
            Lab::found(dir, state).end_everything()?;
        }
    }
    let Ok(entries) = fs::read_dir(base) else {
        return Ok(());
    };
    for entry in entries
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(".new-"))
    {
        fs::remove_dir_all(entry.path()).map_err(|e| format!("{}: remove: {e}", entry.path().display()))?;
    }
    Ok(())
}

/// One driver at a time makes or removes a run.
#[allow(
    clippy::incompatible_msrv,
    reason = "only what users build is built with the oldest Rust"
)]
fn lock(base: &Path) -> Result<File> {
    let path = base.join(".lock");
    let file = File::create(&path).map_err(|e| format!("{}: create: {e}", path.display()))?;
    let what = format!("{} is free", path.display());
    until(&what, Duration::from_secs(60), || match file.try_lock() {
        Ok(()) => Ok(Some(())),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(format!("{}: lock: {e}", path.display()).into()),
    })?;
    Ok(file)
}

fn new_run_id(base: &Path) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        let run = random_hex(2)?;
        if !base.join(&run).exists() && !net::namespace_file(&run).exists() {
            return Ok(run);
        }
    }
    Err(format!("{}: full of runs", base.display()).into())
}

fn random_hex(bytes: usize) -> Result<String> {
    let mut random = vec![0; bytes];
    let path = "/dev/urandom";
    File::open(path)
        .and_then(|mut f| f.read_exact(&mut random))
        .map_err(|e| format!("{path}: read: {e}"))?;
    Ok(random.iter().map(|b| format!("{b:02x}")).collect())
}
