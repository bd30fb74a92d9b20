//! What a directory, its mount and this host can and cannot do for leases; tried, wherever a try from one host can tell.
//!
//! [`Doctor::examine`] looks from this host alone. [`Doctor::meet`] is for what only two hosts can find out together.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use leasehold::doctor::{Doctor, Level};
//!
//! let report = Doctor::new(dir.path()).examine();
//! for finding in report.findings.iter().filter(|finding| finding.level > Level::Note) {
//!     println!("{}: {} {}", finding.what, finding.why, finding.remedy);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod facts;
pub mod findings;
mod meet;
pub mod meeting;
mod probe;
mod scratch;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::observe::Judge;
use crate::platform::Interrupts;
use facts::{Facts, HostFacts};
pub use findings::{Area, Finding, Level, worst};
pub use meeting::Account;
use watch::{Cut, Watched};

/// How long a call on the filesystem may take, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Does work in a process of its own, which is left behind if it cannot end, as one whose thread waits for a dead mount:
/// for a command, before it has any other thread. The code that the work comes to.
///
/// # Errors
/// The signal that ended it.
pub fn apart(work: impl Fn() -> u8) -> Result<u8, i32> {
    crate::platform::apart(work)
}

/// How long a host looks for another's change before it says that it does not see it.
pub(crate) const SEEN: Duration = Duration::from_secs(10);

/// An examination of a directory.
#[must_use = "nothing is examined until `examine` or `meet` is called"]
#[derive(Debug)]
pub struct Doctor {
    judge: Judge,
    dir: PathBuf,
    patience: Duration,
    signals: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What it means.
    pub findings: Vec<Finding>,
    /// What it rests on.
    pub facts: Facts,
    /// The signal that came, if one did: not everything was looked at, and all was tidied up.
    #[serde(skip)]
    pub interrupted: Option<i32>,
}

/// What hosts that met found out. All of them have the same.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Met {
    /// What it means.
    pub findings: Vec<Finding>,
    /// What each of them says, in one order.
    pub hosts: Vec<Account>,
}

/// Why hosts did not meet, or parted too early. Everything of this host's is tidied up, if it could be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Unmet {
    /// Nobody came in time.
    Nobody,
    /// Others are meeting under this word already.
    Late,
    /// This host left, or gives no sign of life.
    Gone(String),
    /// Those who came did not agree in time on who takes part.
    Disagreed,
    /// The directory cannot be used.
    Io(String),
    /// This signal came.
    Signal(i32),
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("no other host came"),
            Self::Late => f.write_str("others are meeting under this word already; take another one, or come again"),
            Self::Gone(host) => write!(f, "{host} left the meeting, or gives no sign of life any more"),
            Self::Disagreed => f.write_str("the hosts did not agree in time on who takes part"),
            Self::Io(why) => f.write_str(why),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

impl std::error::Error for Unmet {}

impl Doctor {
    /// Examines a directory from this process.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            judge: Judge::here(),
            dir: dir.into(),
            patience: PATIENCE,
            signals: false,
        }
    }

    /// Looks from there instead.
    pub fn from(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    /// How long one call on the filesystem may take until it is said to hang; [`PATIENCE`] unless told otherwise.
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// Ends at SIGINT and SIGTERM with everything tidied up, and says so in its report; for a command. Both are held back
    /// for this thread meanwhile.
    pub fn until_signals(mut self, yes: bool) -> Self {
        self.signals = yes;
        self
    }

    fn watched(&self) -> (Watched, Judge, Option<Interrupts>) {
        let watched = Watched::new(self.judge.fs.clone());
        let judge = self.judge.clone().with_fs(Arc::new(watched.clone()));
        let interrupts = self.signals.then(Interrupts::hold).flatten();
        (watched, judge, interrupts)
    }

    /// Meets other hosts on which the same is called with the same word, and finds out with them what happens between
    /// hosts. The first two may come up to `wait` apart; a third may join within seconds.
    ///
    /// # Errors
    /// [`Unmet`] when nobody comes, or somebody leaves.
    pub fn meet(self, word: &str, wait: Duration) -> Result<Met, Unmet> {
        let (watched, judge, interrupts) = self.watched();
        let dir = self.dir;
        let digest: String = Sha256::digest(word)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (own, place) = (watched.clone(), scratch::meeting_place(&dir, &digest));
        let (met, cut) = watched.run(self.patience, interrupts.as_ref(), move |out| {
            let _ = out.send(meet::meet(&judge, &own, &dir, place, wait));
        });
        match (cut, met) {
            (Some(Cut::Signal(signal)), _) => Err(Unmet::Signal(signal)),
            (Some(Cut::Hang(hang)), _) => Err(Unmet::Io(format!(
                "{} has not answered for {:.0} s",
                hang.operation, hang.seconds
            ))),
            (None, Some(Ok(hosts))) => Ok(Met {
                findings: meeting::judge(&hosts),
                hosts,
            }),
            (None, Some(Err(unmet))) => Err(unmet),
            (None, None) => unreachable!("a meeting ends with a result"),
        }
    }

    /// Looks, and tries what can be tried with files that are removed again.
    pub fn examine(self) -> Report {
        let (watched, judge, interrupts) = self.watched();
        let dir = self.dir;
        let (facts, cut) = watched.run(self.patience, interrupts.as_ref(), move |out| {
            let mut facts = Facts {
                host: probe::host(&judge),
                place: None,
                leases: None,
                hangs: None,
            };
            // Nobody listens any more when a call has hung for too long.
            let _ = out.send(facts.clone());
            let mut place = probe::look(&judge, &dir);
            facts.place = Some(place.clone());
            let _ = out.send(facts.clone());
            if place.unusable.is_some() {
                return;
            }
            let now = probe::attempt(&judge, &dir, &mut place);
            facts.place = Some(place);
            let _ = out.send(facts.clone());
            let swept = now.map_or(0, |now| scratch::sweep(&judge, &dir, now));
            facts.leases = Some(probe::leases(&judge, &dir, swept));
            let _ = out.send(facts);
        });
        let mut facts = facts.unwrap_or_else(|| Facts {
            host: HostFacts::default(),
            place: None,
            leases: None,
            hangs: None,
        });
        let mut interrupted = None;
        match cut {
            Some(Cut::Hang(hang)) => facts.hangs = Some(hang),
            Some(Cut::Signal(signal)) => interrupted = Some(signal),
            None => {}
        }
        Report {
            findings: findings::judge(&facts),
            facts,
            interrupted,
        }
    }
}
