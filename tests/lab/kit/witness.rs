//! The one clock: workers on the nodes tell the driver what they do while they do it, over the control network, and the
//! driver stamps it.
//!
//! A sign of life counts from when the answer to the one before was sent: by then the worker was alive for certain.

use super::history::{Fault, History, Hold, Line, Look, Stall, Write};
use super::{Result, net, until};
use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PORT: u16 = 7008;
const TICK: Duration = Duration::from_millis(100);

struct Book {
    began: Instant,
    history: Mutex<History>,
    over: AtomicBool,
}

impl Book {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver's side. Dropping it ends the listener.
pub struct Witness {
    book: Arc<Book>,
    run: String,
    listener: Option<JoinHandle<()>>,
}

impl Witness {
    pub fn listen(run: &str) -> Result<Self> {
        let address = (net::Net::Control.address(net::DRIVER), PORT);
        let listener = net::within(run, || {
            Ok(TcpListener::bind(address).map_err(|e| format!("{address:?}: listen: {e}"))?)
        })?;
        listener.set_nonblocking(true)?;
        let book = Arc::new(Book {
            began: Instant::now(),
            history: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let theirs = book.clone();
        let listener = thread::spawn(move || {
            while !theirs.over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let book = theirs.clone();
                        // A worker that is killed closes its end, or never speaks again.
                        thread::spawn(move || serve(&book, stream));
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
                    Err(_) => return,
                }
            }
        });
        Ok(Self {
            book,
            run: run.into(),
            listener: Some(listener),
        })
    }

    pub fn now(&self) -> u64 {
        self.book.now()
    }

    pub fn history(&self) -> History {
        self.book.history().clone()
    }

    /// The words to put after `leasehold run … --`: a worker that holds for so long.
    pub fn worker(&self, agent: &[String], hold: Duration, end: &str) -> Vec<String> {
        let address = net::Net::Control.address(net::DRIVER);
        let role = format!("{}=work={address}:{PORT}", super::ROLE);
        let mut words: Vec<String> = vec!["env".into(), role];
        words.push(format!("LAB_HOLD={}", hold.as_millis()));
        words.push(format!("LAB_END={end}"));
        words.extend(agent.iter().cloned());
        words
    }

    /// All processes of the node are gone.
    pub fn crashed(&self, node: &str) {
        let now = self.now();
        for hold in self.book.history().holds.iter_mut().filter(|hold| hold.node == node) {
            hold.ended.get_or_insert(now);
        }
    }

    pub fn stalled(&self, node: &str, from: u64, to: u64) {
        let node = node.into();
        self.book.history().stalls.push(Stall { node, from, to });
    }

    pub fn faulty(&self, from: u64, to: u64) {
        self.book.history().faults.push(Fault { from, to });
    }

    pub fn wanted(&self, from: u64, to: u64) {
        self.book.history().wanted = Some((from, to));
    }

    /// An answer of `leasehold judge --json`.
    pub fn judged(&self, path: &str, by: &str, from: u64, to: u64, json: &serde_json::Value) {
        let text = |value: &serde_json::Value| value.as_str().map(String::from);
        let owner = &json["owner"];
        self.book.history().looks.push(Look {
            path: path.into(),
            by: by.into(),
            from,
            to,
            verdict: text(&json["verdict"]).unwrap_or_default(),
            reason: text(&json["reason"]).unwrap_or_default(),
            token: text(&owner["token"]),
            epoch: owner["epoch"].as_u64(),
            seq: owner["seq"].as_u64(),
        });
    }

    /// A transcript of an epoch, as it stands on the server.
    pub fn transcript(&self, path: &str, epoch: u64, text: &str) {
        let lines = text.lines().map(|line| Line {
            path: path.into(),
            epoch,
            token: line.split(' ').nth(1).unwrap_or_default().into(),
        });
        self.book.history().lines.extend(lines);
    }

    /// The first hold that fits.
    pub fn hold(&self, what: &str, limit: Duration, mut fits: impl FnMut(&Hold) -> bool) -> Result<Hold> {
        until(what, limit, || {
            Ok(self.book.history().holds.iter().find(|hold| fits(hold)).cloned())
        })
    }

    pub fn run(&self) -> &str {
        &self.run
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.book.over.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// One worker's talk. The paths of a lease by different mounts are one: its last two components name it.
fn serve(book: &Book, stream: TcpStream) -> Result {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    let hello = lines.next().ok_or("it said nothing")??;
    let words: Vec<&str> = hello.split(' ').collect();
    let &["hello", node, path, epoch, token] = &words[..] else {
        return Err(format!("not a hello: {hello}").into());
    };
    let now = book.now();
    let (path, epoch, token) = (lease_name(path), epoch.parse()?, token.to_owned());
    let index = {
        let mut history = book.history();
        history.holds.push(Hold {
            path: path.clone(),
            node: node.into(),
            epoch,
            token: token.clone(),
            from: now,
            to: now,
            ended: None,
        });
        history.holds.len() - 1
    };
    let mut asked = now;
    let mut answered = book.now();
    answers.write_all(b"ok\n")?;
    for line in lines {
        let Ok(line) = line else { break };
        let now = book.now();
        let mut history = book.history();
        let hold = &mut history.holds[index];
        // A machine that is gone says nothing: this was under way already.
        if hold.ended.is_none() {
            hold.to = hold.to.max(answered);
        }
        match &*line {
            "ask" => asked = now,
            "wrote" => history.writes.push(Write {
                path: path.clone(),
                epoch,
                token: token.clone(),
                asked,
            }),
            _ => {}
        }
        drop(history);
        answered = book.now();
        if answers.write_all(b"ok\n").is_err() {
            break;
        }
    }
    let now = book.now();
    book.history().holds[index].ended.get_or_insert(now);
    Ok(())
}

/// The same lease, by whatever mount.
pub fn lease_name(path: &str) -> String {
    let parts: Vec<&str> = path.rsplit('/').take(2).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}

// ---- in the node ----

struct Talk {
    stream: BufReader<TcpStream>,
}

impl Talk {
    fn say(&mut self, what: &str) -> Result {
        self.stream.get_mut().write_all(format!("{what}\n").as_bytes())?;
        let mut answer = String::new();
        match self.stream.read_line(&mut answer)? {
            0 => Err("the driver has gone".into()),
            _ => Ok(()),
        }
    }
}

/// The command under a lease: lives, checks, and writes lines to its epoch's transcript.
pub fn work(address: &str) -> Result {
    let var = |name: &str| std::env::var(name).map_err(|e| format!("{name}: {e}"));
    let (path, epoch, token) = (var("LEASEHOLD_PATH")?, var("LEASEHOLD_EPOCH")?, var("LEASEHOLD_TOKEN")?);
    let hold = Duration::from_millis(var("LAB_HOLD")?.parse()?);
    let node = gethostname::gethostname().to_string_lossy().into_owned();
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let talk = Arc::new(Mutex::new(Talk {
        stream: BufReader::new(stream),
    }));
    let say = {
        let talk = talk.clone();
        move |what: &str| talk.lock().unwrap_or_else(PoisonError::into_inner).say(what)
    };
    say(&format!("hello {node} {path} {epoch} {token}"))?;
    let began = Instant::now();
    // Signs of life make no call on the shared filesystem, so they go on while that hangs.
    let ticks = say.clone();
    thread::spawn(move || {
        while ticks("tick").is_ok() {
            thread::sleep(TICK);
        }
    });
    let mut number = 0;
    loop {
        say("ask")?;
        let verified = Command::new("leasehold").arg("verify").stderr(Stdio::null()).output()?;
        match verified.status.code() {
            Some(0) => {
                number += 1;
                let line = format!("{epoch} {token} {number} {node}\n");
                append(&format!("{path}.transcript.{epoch}"), &line)?;
                say("wrote")?;
            }
            Some(6) => std::process::exit(6),
            // The filesystem has failed: nothing may be written, and it may come back.
            _ => {}
        }
        if began.elapsed() >= hold {
            break;
        }
        thread::sleep(Duration::from_millis(100).min(hold.saturating_sub(began.elapsed())));
    }
    if var("LAB_END")? == "killed" {
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)?;
    }
    say("bye")?;
    // Past the ticking thread: not one more may follow.
    std::process::exit(0);
}

fn append(file: &str, line: &str) -> Result {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(line.as_bytes())?;
    Ok(file.sync_data()?)
}
