//! Ending the owner of a record, and no other process: the one way in this crate to signal what it did not start.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::facts::LeaseFacts;
use crate::fs::Stat;
use crate::names;
use crate::observe::{Judge, Sight, look};
use crate::owner::Pid;
use crate::platform::{self, ExitWatch};
use crate::record::{LARGEST, Record};
use crate::settle::Settlement;
use crate::token::Token;
use crate::verdict::{Judgement, Reason};

/// How long a killed process is waited for: the kernel may first have to finish a call of its.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Between two looks at a record that its supervisor is about to vacate.
const GLANCE: Duration = Duration::from_millis(20);

/// A signal, by its name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

impl Signal {
    /// SIGTERM.
    pub const TERM: Self = Self(15);
    /// SIGKILL.
    pub const KILL: Self = Self(9);
    /// SIGCONT, which has another number elsewhere.
    fn cont() -> Option<Self> {
        platform::signal_number("CONT").map(Self)
    }
}

impl FromStr for Signal {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        platform::signal_number(text)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no signal; name one as TERM, SIGINT or 15"))
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match platform::signal_name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

/// The end of a record's owner: asked for with a signal, and enforced after a grace.
///
/// It happens only where the judge says held/process-running: the recorded process, on this host. The process is opened
/// first (pidfd_open(2)), judged after, and signalled through that descriptor, so that no number is ever signalled: what
/// gets the number meanwhile is not meant.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("bridge.lease");
/// use leasehold::{Claim, Error, Pid, Stop, Verdict};
/// use std::process::Command;
///
/// let mut bridge = Command::new("sleep").arg("1000").spawn()?;
/// let pid = Pid::new(bridge.id().into()).expect("a pid");
/// Claim::new(&path).owner(pid).set("role", "bridge").take()?.leave();
///
/// let stopped = Stop::new(&path).only_if("role", "bridge").run()?;
/// assert_eq!(stopped.pid, pid);
/// bridge.wait()?;
/// match Stop::new(&path).run() {
///     Err(Error::Refused(judgement)) => assert_eq!(judgement.verdict, Verdict::Free),
///     other => panic!("there is nobody to stop: {other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is stopped until `run` is called"]
pub struct Stop {
    judge: Judge,
    path: PathBuf,
    signal: Signal,
    grace: Duration,
    fields: Vec<(String, String)>,
}

/// A stopped owner.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    /// The process.
    pub pid: Pid,
    /// The signal that ended it, as far as can be told: the one asked for, or SIGKILL after the grace.
    pub signal: Signal,
    /// The record as it stands now; `None` when somebody else has taken or removed it meanwhile.
    pub record: Option<Record>,
}

impl Stop {
    /// Stops the owner of the record at `path` with SIGTERM, and with SIGKILL after ten seconds.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            judge: Judge::here(),
            path: path.into(),
            signal: Signal::TERM,
            grace: Duration::from_secs(10),
            fields: Vec::new(),
        }
    }

    /// Looks from there instead of from this process over real files.
    pub fn from(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    /// The signal that asks the process to end.
    pub fn signal(mut self, signal: Signal) -> Self {
        self.signal = signal;
        self
    }

    /// How long it gets before SIGKILL.
    pub fn grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// Refuses unless this field of the run state says this.
    pub fn only_if(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.push((key.into(), value.into()));
        self
    }

    /// Ends the process, waits until it has ended, and vacates the record. A supervisor that is recorded as keeper ends
    /// what the process leaves behind and vacates the record itself; that is waited for, too.
    ///
    /// # Errors
    /// [`Error::Refused`] with the judgement for anything but held/process-running, and then nothing was signalled;
    /// [`Error::Invalid`] when a field says something else, or others than root and the process's user could have written
    /// the record; [`Error::Contended`] when it was changed meanwhile; [`Error::Io`] when the process may not be signalled or the
    /// filesystem fails; [`Error::TimedOut`] when the process, or its supervisor, has not ended in spite of SIGKILL.
    pub fn run(self) -> Result<Stopped> {
        let began = self.judge.clock.now();
        // No pid is asked about, or opened, before the record places it on this host.
        let (first, ..) = self.look()?;
        let pid = first.owner.valid_pid().expect("what runs was judged by its pid");
        let Some(process) = ExitWatch::open(pid) else {
            let (again, ..) = self.look()?;
            // Still there, and cannot be opened: a kernel before 5.3, or a filter.
            let error = std::io::Error::new(std::io::ErrorKind::Unsupported, format!("process {}", pid_of(&again)));
            return Err(Error::io("open the owner of", &self.path)(error));
        };
        // Only now: whatever is judged to run under this number from here on is what was opened, or comes after its end.
        let (judgement, token, keeper) = self.look()?;
        if judgement.owner.valid_pid() != Some(pid) {
            return Err(Error::Refused(Box::new(judgement)));
        }
        let mut sent = self.signal;
        let mut ended = !self.send(&process, sent)?;
        if sent != Signal::KILL {
            // A stopped process could not act on it.
            if let Some(cont) = Signal::cont() {
                self.send(&process, cont)?;
            }
            ended = ended || process.wait(self.grace);
        }
        if !ended {
            sent = Signal::KILL;
            self.send(&process, sent)?;
            ended = process.wait(LAST_WAIT);
        }
        let timed_out = |judgement: Judgement| Error::TimedOut {
            waited: self.judge.clock.now().saturating_sub(began),
            last: Box::new(Error::Refused(Box::new(judgement))),
        };
        if !ended {
            return Err(timed_out(judgement));
        }
        if let Some(keeper) = keeper {
            self.await_keeper(&keeper, token);
        }
        let mut note = Map::new();
        note.insert("signal".into(), Value::from(sent.to_string()));
        let record = match self.judge.vacate(&self.path, Some(token), note)? {
            Settlement::Vacated(record, _) => Some(*record),
            Settlement::LeftAlone(now) if now.reason == Reason::KeeperRunning => return Err(timed_out(*now)),
            Settlement::LeftAlone(_) => match look(&*self.judge.fs, &self.path).content {
                Ok(record) if record.owner.token == token => Some(*record),
                _ => None,
            },
        };
        Ok(Stopped {
            pid,
            signal: sent,
            record,
        })
    }

    /// Judges the record, and refuses what is not verified to run here.
    fn look(&self) -> Result<(Judgement, Token, Option<ExitWatch>)> {
        let sight = look(&*self.judge.fs, &self.path);
        let (judgement, _) = self.judge.weigh(&self.path, &sight, LeaseFacts::default());
        let Sight {
            content: Ok(record), ..
        } = &sight
        else {
            return Err(Error::Refused(Box::new(judgement)));
        };
        if judgement.reason != Reason::ProcessRunning {
            return Err(Error::Refused(Box::new(judgement)));
        }
        if let Some((key, value)) = self.fields.iter().find(|(key, value)| !record.state.says(key, value)) {
            let found = record.state.fields().get(key);
            let what = match found {
                Some(found) => format!("its field `{key}` says {found}, not {value}; nothing was signalled"),
                None => format!("it has no field `{key}`; nothing was signalled"),
            };
            return Err(Error::invalid(&self.path, what));
        }
        self.trust(record, judgement.owner.valid_pid())?;
        let keeper = record.owner.keeper.as_ref().and_then(|keeper| {
            let watch = ExitWatch::open(keeper.pid);
            // Opened first, looked at after, as the owner.
            let found = self.judge.table.probe(keeper.pid, false);
            watch.filter(|_| found.start == Some(keeper.start))
        });
        Ok((judgement, record.owner.token, keeper))
    }

    /// A record that somebody else wrote, or could write into, may name any process, for whoever acts on it to end. And one
    /// that has another name was written for another place.
    fn trust(&self, record: &Record, owner: Option<Pid>) -> Result<()> {
        // Content and writer of one and the same file: names can be exchanged between two calls.
        let fs = &*self.judge.fs;
        let read = |file| Ok((fs.stat_file(&file)?, fs.read(&file, LARGEST)?));
        let (stat, bytes) = fs
            .open(&self.path)
            .and_then(read)
            .map_err(Error::io("read", &self.path))?;
        if !Record::parse(&bytes).is_ok_and(|now| now.owner == record.owner && now.state == record.state) {
            return Err(Error::Contended {
                path: self.path.clone(),
            });
        }
        let (user, group) = owner.and_then(platform::process_user).unzip();
        let shown = |uid: Option<u32>| uid.map_or_else(|| "unknown".to_owned(), |uid| uid.to_string());
        let why = if stat.uid != 0 && Some(stat.uid) != user {
            format!(
                "it was written by user {}, and the process is of user {}",
                stat.uid,
                shown(user)
            )
        } else if stat.mode & 0o002 != 0 || stat.mode & 0o020 != 0 && Some(stat.gid) != group {
            format!(
                "others may write into it (mode {:03o}, group {}; the process is of group {})",
                stat.mode & 0o777,
                stat.gid,
                shown(group)
            )
        } else if stat.links > 1 && stat.links > 1 + self.second_names(record, &stat) {
            "the file has another name, and may be of another place".to_owned()
        } else {
            return Ok(());
        };
        let what = format!("{why}: nothing was signalled; end it by hand, if it is the right one");
        Err(Error::invalid(&self.path, what))
    }

    /// How many of the file's names are those that a change gives it for a while, or for as long as a rival may be at work.
    fn second_names(&self, record: &Record, stat: &Stat) -> u64 {
        let name = self.path.file_name().unwrap_or_default();
        let seq = record.owner.seq;
        let of_change = record
            .owner
            .change
            .into_iter()
            .flat_map(|change| names::of_change(name, change));
        let names = [names::ballot(name, seq), names::kept(name, seq)]
            .into_iter()
            .chain(of_change);
        let is_one = |name: &OsString| {
            let found = self.judge.fs.stat(&self.path.with_file_name(name));
            found.is_ok_and(|found| found.file() == stat.file())
        };
        names.filter(is_one).count() as u64
    }

    /// Whether it was still there.
    fn send(&self, process: &ExitWatch, signal: Signal) -> Result<bool> {
        process
            .signal(signal.0)
            .map_err(Error::io("signal the owner of", &self.path))
    }

    /// Waits until the supervisor has vacated the record, or is gone.
    fn await_keeper(&self, keeper: &ExitWatch, token: Token) {
        let clock = &self.judge.clock;
        let end = clock.now() + self.grace + LAST_WAIT;
        while clock.now() < end && !keeper.wait(GLANCE) {
            match look(&*self.judge.fs, &self.path).content {
                Ok(record) if record.owner.token == token && record.owner.ended.is_none() => {}
                _ => return,
            }
        }
    }
}

fn pid_of(judgement: &Judgement) -> String {
    judgement
        .owner
        .valid_pid()
        .map_or_else(String::new, |pid| pid.to_string())
}

impl Judgement {
    /// Whether [`Stop`] would act on the record: its owner is verified to run on this host.
    pub fn may_be_stopped(&self) -> bool {
        self.reason == Reason::ProcessRunning && self.owner.legacy.is_none()
    }
}
