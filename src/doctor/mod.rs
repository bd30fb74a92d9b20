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
mod probe;
mod scratch;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::observe::Judge;
use crate::platform::Interrupts;
use facts::{Facts, HostFacts};
pub use findings::{Area, Finding, Level, worst};
use watch::{Cut, Watched};

/// How long a call on the filesystem may take, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(15);

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
