//! The agent inside a node, and the driver's side of the talk with it.
//!
//! One TCP connection on the control network per request. Request: one frame of JSON. Answer: a frame of JSON, then the
//! standard output and the standard error as they are. A frame is its length in 4 bytes, big endian, and the bytes.

use super::ids::{self, ProcId};
use super::mountstats::Rpcs;
use super::{Result, net, until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const PORT: u16 = 7007;
const PATH: &str = "/run/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const JOBS: &str = "/run/jobs";
const BIGGEST: usize = 256 << 20;

#[derive(Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request {
    Hello,
    /// Runs a command to its end, or for `millis`, then kills its process group.
    Run {
        command: Words,
        millis: u64,
    },
    Start {
        command: Words,
    },
    /// Answers when the job has ended, or after `millis` with what there is so far.
    Wait {
        job: u64,
        millis: u64,
    },
    Signal {
        job: u64,
        signal: i32,
        group: bool,
    },
    /// Kills every process that was not there when the agent started.
    Clear,
}

#[derive(Clone, Serialize, Deserialize)]
struct Words {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    dir: Option<String>,
    stdin: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
    boot: String,
    /// The node's wall clock, in milliseconds.
    now: u64,
    job: u64,
    pid: u32,
    /// As a shell counts: 128 + n for a signal.
    exit: Option<i32>,
}

fn send(to: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(bytes)
}

fn receive(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > BIGGEST {
        return Err(std::io::Error::other(format!("a frame of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

// ---- in the node ----

struct Task {
    pid: u32,
    exit: Mutex<Option<i32>>,
    ended: Condvar,
}

#[derive(Default)]
struct Agent {
    tasks: Mutex<(u64, HashMap<u64, Arc<Task>>)>,
    old: HashSet<ProcId>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn serve(address: &str) -> Result {
    fs::create_dir_all(JOBS).map_err(|e| format!("{JOBS}: mkdir: {e}"))?;
    let listener = TcpListener::bind(address).map_err(|e| format!("{address}: listen: {e}"))?;
    let agent = Arc::new(Agent {
        old: ids::all().iter().map(|s| s.id).collect(),
        ..Agent::default()
    });
    for stream in listener.incoming() {
        let mut stream = stream.map_err(|e| format!("{address}: accept: {e}"))?;
        let agent = agent.clone();
        // A driver that has given up closes its end; there is nobody to tell.
        thread::spawn(move || agent.answer(&mut stream));
    }
    Ok(())
}

impl Agent {
    fn answer(&self, stream: &mut TcpStream) -> Result {
        let request = serde_json::from_slice(&receive(stream)?)?;
        let (mut answer, out, err) = self.handle(request).unwrap_or_else(|e| {
            (
                Answer {
                    error: Some(e.to_string()),
                    ..Answer::default()
                },
                Vec::new(),
                Vec::new(),
            )
        });
        answer.boot = ids::boot_id()?;
        answer.now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as u64);
        let mut bytes = Vec::new();
        send(&mut bytes, &serde_json::to_vec(&answer)?)?;
        send(&mut bytes, &out)?;
        send(&mut bytes, &err)?;
        Ok(stream.write_all(&bytes)?)
    }

    fn handle(&self, request: Request) -> Result<(Answer, Vec<u8>, Vec<u8>)> {
        let nothing = |answer| Ok((answer, Vec::new(), Vec::new()));
        match request {
            Request::Hello => nothing(Answer::default()),
            Request::Run { command, millis } => {
                let (job, task) = self.start(command)?;
                if wait(&task, millis).is_none() {
                    let _ = killpg(Pid::from_raw(task.pid as i32), Signal::SIGKILL);
                    // One that hangs in the kernel does not end; it stays on the books.
                    if wait(&task, 1000).is_none() {
                        return Err(format!("ran longer than {millis} ms, and does not end when killed").into());
                    }
                    return Err(format!("ran longer than {millis} ms and was killed").into());
                }
                let answer = report(job, &task);
                locked(&self.tasks).1.remove(&job);
                for file in files(job) {
                    let _ = fs::remove_file(file);
                }
                answer
            }
            Request::Start { command } => {
                let (job, task) = self.start(command)?;
                nothing(Answer {
                    job,
                    pid: task.pid,
                    ..Answer::default()
                })
            }
            Request::Wait { job, millis } => {
                let task = self.task(job)?;
                wait(&task, millis);
                report(job, &task)
            }
            Request::Signal { job, signal, group } => {
                let task = self.task(job)?;
                // Under this lock the waiter cannot reap it, so the number cannot have passed to another.
                let exit = locked(&task.exit);
                if exit.is_none() {
                    let (pid, signal) = (Pid::from_raw(task.pid as i32), Signal::try_from(signal)?);
                    if group { killpg(pid, signal) } else { kill(pid, signal) }
                        .map_err(|e| format!("signal {pid}: {e}"))?;
                }
                nothing(Answer {
                    job,
                    pid: task.pid,
                    exit: *exit,
                    ..Answer::default()
                })
            }
            Request::Clear => {
                for s in ids::all() {
                    // Group 0: a kernel thread.
                    if s.group != 0 && !self.old.contains(&s.id) {
                        let _ = kill(Pid::from_raw(s.id.pid), Signal::SIGKILL);
                    }
                }
                nothing(Answer::default())
            }
        }
    }

    fn task(&self, job: u64) -> Result<Arc<Task>> {
        locked(&self.tasks)
            .1
            .get(&job)
            .cloned()
            .ok_or_else(|| format!("no job {job} since this boot").into())
    }

    fn start(&self, words: Words) -> Result<(u64, Arc<Task>)> {
        let mut tasks = locked(&self.tasks);
        tasks.0 += 1;
        let job = tasks.0;
        let [out, err] = files(job);
        let create = |path: &String| File::create(path).map_err(|e| format!("{path}: create: {e}"));
        let (program, args) = words.argv.split_first().ok_or("an empty command")?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", PATH)
            .envs(words.env)
            .current_dir(words.dir.as_deref().unwrap_or("/"));
        command.stdin(if words.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        // Files, not pipes: a grandchild that keeps the descriptor must not delay the answer.
        command.stdout(create(&out)?).stderr(create(&err)?).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("start {program}: {e}"))?;
        if let (Some(text), Some(mut pipe)) = (words.stdin, child.stdin.take()) {
            thread::spawn(move || pipe.write_all(text.as_bytes()));
        }
        let task = Arc::new(Task {
            pid: child.id(),
            exit: Mutex::new(None),
            ended: Condvar::new(),
        });
        tasks.1.insert(job, task.clone());
        let waiter = task.clone();
        thread::spawn(move || {
            // Without reaping it yet: `Signal` relies on the number staying ours while `exit` is empty.
            let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child));
            let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
            while matches!(
                rustix::process::waitid(id.clone(), options),
                Err(rustix::io::Errno::INTR)
            ) {}
            let mut exit = locked(&waiter.exit);
            // An error is impossible for a child of ours that nobody else reaps; 255 shows it all the same.
            *exit = Some(
                child
                    .wait()
                    .ok()
                    .and_then(|s| s.code().or(s.signal().map(|n| 128 + n)))
                    .unwrap_or(255),
            );
            waiter.ended.notify_all();
        });
        Ok((job, task))
    }
}

fn files(job: u64) -> [String; 2] {
    ["out", "err"].map(|kind| format!("{JOBS}/{job}.{kind}"))
}

fn wait(task: &Task, millis: u64) -> Option<i32> {
    let limit = Duration::from_millis(millis);
    let waited = task
        .ended
        .wait_timeout_while(locked(&task.exit), limit, |exit| exit.is_none());
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn report(job: u64, task: &Task) -> Result<(Answer, Vec<u8>, Vec<u8>)> {
    // First the state, then the output: what is reported as ended has written everything.
    let answer = Answer {
        job,
        pid: task.pid,
        exit: *locked(&task.exit),
        ..Answer::default()
    };
    let [out, err] = files(job);
    let read = |path: String| fs::read(&path).map_err(|e| format!("{path}: read: {e}"));
    Ok((answer, read(out)?, read(err)?))
}

// ---- in the driver ----

/// A node to send commands to. Cheap to clone, and good for use from several threads.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub run: String,
    pub number: u8,
    /// Where $HOME is for commands: on this node's first NFS mount.
    pub home: String,
}

#[derive(Clone, Debug)]
pub struct Output {
    /// 128 + n for a process ended by signal n.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().into()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().into()
    }
}

/// A command to be: `node.cmd(&["leasehold", "judge", "x"]).env("A", "b").run()`.
pub struct Cmd {
    node: Node,
    words: Words,
    limit: Duration,
}

pub struct Hello {
    pub boot: String,
    /// How far the node's wall clock is ahead of the driver's.
    pub ahead: i64,
}

impl Node {
    pub fn cmd(&self, argv: &[&str]) -> Cmd {
        let argv = argv.iter().map(|&a| a.into()).collect();
        let env = vec![("HOME".into(), self.home.clone())];
        Cmd {
            node: self.clone(),
            words: Words {
                argv,
                env,
                dir: None,
                stdin: None,
            },
            limit: Duration::from_secs(60),
        }
    }

    /// Runs a command to its end, whatever its exit code.
    pub fn run(&self, argv: &[&str]) -> Result<Output> {
        self.cmd(argv).run()
    }

    /// Starts a command in the background.
    pub fn start(&self, argv: &[&str]) -> Result<Job> {
        self.cmd(argv).start()
    }

    pub fn sh(&self, script: &str) -> Result<Output> {
        self.run(&["sh", "-c", script])
    }

    /// Runs a shell script that must succeed; the answer is its output.
    pub fn ok(&self, script: &str) -> Result<String> {
        let done = self.sh(script)?;
        if done.code != 0 {
            return Err(format!("{}: `{script}` ended with {}: {}", self.name, done.code, done.err()).into());
        }
        Ok(done.out())
    }

    pub fn hello(&self) -> Result<Hello> {
        let (answer, ..) = self.ask(&Request::Hello, Duration::from_secs(2))?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as i64);
        Ok(Hello {
            boot: answer.boot,
            ahead: (answer.now as i64 - now) / 1000,
        })
    }

    /// Kills everything that scenarios have started here since the boot.
    pub fn clear(&self) -> Result {
        self.ask(&Request::Clear, Duration::from_secs(5)).map(drop)
    }

    pub fn rpcs(&self, mount: &str) -> Result<Rpcs> {
        let text = self.ok("cat /proc/self/mountstats")?;
        Rpcs::parse(&text, mount).ok_or_else(|| format!("{}: {mount} is no NFS mount", self.name).into())
    }

    /// Does something and counts the RPCs that it cost this node on `mount`.
    pub fn counting<T>(&self, mount: &str, work: impl FnOnce(&Node) -> Result<T>) -> Result<(T, Rpcs)> {
        let before = self.rpcs(mount)?;
        let value = work(self)?;
        Ok((value, self.rpcs(mount)?.since(&before)))
    }

    fn ask(&self, request: &Request, limit: Duration) -> Result<(Answer, Vec<u8>, Vec<u8>)> {
        let deadline = Instant::now() + limit;
        let address = SocketAddr::from((net::Net::Control.address(self.number), PORT));
        let talk = || -> Result<(Answer, Vec<u8>, Vec<u8>)> {
            let mut stream = Bounded {
                stream: TcpStream::connect_timeout(&address, limit.min(SLACK))?,
                deadline,
            };
            send(&mut stream.stream, &serde_json::to_vec(request)?)?;
            let answer = serde_json::from_slice(&receive(&mut stream)?)?;
            Ok((answer, receive(&mut stream)?, receive(&mut stream)?))
        };
        let failed = |e| format!("{}: the agent does not answer: {e}", self.name);
        let (answer, out, err) = net::within(&self.run, talk).map_err(failed)?;
        match answer.error {
            Some(e) => Err(format!("{}: {e}", self.name).into()),
            None => Ok((answer, out, err)),
        }
    }
}

/// A stream whose reads, all together, end by a deadline.
struct Bounded {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Zero would mean "for ever".
        self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        self.stream.read(into)
    }
}

/// What the agent may need beyond a command's own limit; also a living kernel takes no longer to accept.
const SLACK: Duration = Duration::from_secs(5);

impl Cmd {
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.words.env.push((key.into(), value.into()));
        self
    }

    pub fn dir(mut self, dir: &str) -> Self {
        self.words.dir = Some(dir.into());
        self
    }

    pub fn stdin(mut self, text: &str) -> Self {
        self.words.stdin = Some(text.into());
        self
    }

    /// One minute unless told.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub fn run(self) -> Result<Output> {
        let millis = self.limit.as_millis() as u64;
        let what = self.words.argv.join(" ");
        let request = Request::Run {
            command: self.words,
            millis,
        };
        let (answer, stdout, stderr) = self
            .node
            .ask(&request, self.limit + SLACK)
            .map_err(|e| format!("`{what}`: {e}"))?;
        Ok(Output {
            code: answer.exit.ok_or("the agent left the exit code out")?,
            stdout,
            stderr,
        })
    }

    pub fn start(self) -> Result<Job> {
        let what = self.words.argv.join(" ");
        let (answer, ..) = self
            .node
            .ask(&Request::Start { command: self.words }, SLACK)
            .map_err(|e| format!("`{what}`: {e}"))?;
        Ok(Job {
            node: self.node,
            what,
            job: answer.job,
            pid: answer.pid,
        })
    }
}

/// A background process on a node. It is not ended by dropping this.
#[derive(Clone, Debug)]
pub struct Job {
    node: Node,
    what: String,
    job: u64,
    pub pid: u32,
}

impl Job {
    /// Waits for the end; `None` if it still runs after `limit`.
    pub fn wait(&self, limit: Duration) -> Result<Option<Output>> {
        let (code, stdout, stderr) = self.look(limit)?;
        Ok(code.map(|code| Output { code, stdout, stderr }))
    }

    /// Exit code, if it has ended, and the output so far.
    pub fn look(&self, limit: Duration) -> Result<(Option<i32>, Vec<u8>, Vec<u8>)> {
        let request = Request::Wait {
            job: self.job,
            millis: limit.as_millis() as u64,
        };
        let (answer, out, err) = self.node.ask(&request, limit + SLACK)?;
        Ok((answer.exit, out, err))
    }

    /// Waits until the standard output contains `text`.
    pub fn prints(&self, text: &str, limit: Duration) -> Result {
        let what = format!("{}: `{}` prints {text:?}", self.node.name, self.what);
        until(&what, limit, || {
            let (code, out, err) = self.look(Duration::ZERO)?;
            if String::from_utf8_lossy(&out).contains(text) {
                return Ok(Some(()));
            }
            match code {
                Some(code) => Err(format!("{what}: it ended with {code}: {}", String::from_utf8_lossy(&err)).into()),
                None => Ok(None),
            }
        })
    }

    /// To its whole process group.
    pub fn kill(&self, signal: Signal) -> Result {
        let request = Request::Signal {
            job: self.job,
            signal: signal as i32,
            group: true,
        };
        self.node.ask(&request, SLACK).map(drop)
    }

    /// To this process alone.
    pub fn kill_alone(&self, signal: Signal) -> Result {
        let request = Request::Signal {
            job: self.job,
            signal: signal as i32,
            group: false,
        };
        self.node.ask(&request, SLACK).map(drop)
    }
}
