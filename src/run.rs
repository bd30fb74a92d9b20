//! Keeping a lease while a command runs, and stopping the command before the lease can be lost.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::claim::Claim;
use crate::error::Result;
use crate::token::Token;

/// What becomes of processes that the command leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Descendants {
    /// They are ended: SIGTERM, and SIGKILL after the grace.
    #[default]
    End,
    /// The lease is kept until they have ended by themselves.
    Wait,
    /// They are left alone, and the lease ends with the command.
    Leave,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl Ending {
    /// The code that a shell gives it: the exit code, or 128 and the signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Exit(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Ends this process by a signal that a terminal sent to its command: a shell takes an exit code of 130 for an ordinary
/// end, and goes on with its script. Returns where that is not possible.
pub fn end_by_signal(signal: i32) {
    crate::platform::end_by_signal(signal);
}

/// What came of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// The claim.
    pub token: Token,
    /// Its fencing number.
    pub epoch: u64,
    /// How the command ended; `None` when it could not be started.
    pub ending: Option<Ending>,
    /// Why the lease was lost, if it was: the command was ended for that.
    pub lost: Option<String>,
    /// Why the command could not be started.
    pub not_started: Option<std::io::Error>,
    /// Why the record could not be vacated at the end, if so.
    pub unreleased: Option<crate::Error>,
    /// The command still ran when the deadline passed, in spite of SIGKILL (blocked in the kernel, on a dead mount).
    pub outlived: bool,
    /// The command was ended from its terminal, by SIGINT or SIGQUIT: a caller that was started by a shell should end by
    /// the same signal, so that a script's loop ends too.
    pub interrupted: bool,
}

/// A command that runs under a lease.
///
/// The order leaves no gap: a process is forked that waits; it is named as owner, and this process as its keeper; the
/// lease is won; only then does the process run the program. While it runs the lease is renewed every third of its ttl.
/// When no renewal counted in time, or the record is another's, the command gets SIGTERM, and SIGKILL before the
/// deadline in any case. See `docs/run.md` for what stopping a process cannot do.
///
/// ```no_run
/// use leasehold::{Claim, Run};
/// use std::time::Duration;
///
/// let claim = Claim::new("run/bridge.lease").set("role", "bridge").wait(Duration::from_secs(10));
/// let words = ["./bridge", "--port", "4100"].map(Into::into);
/// let report = Run::new(claim, words.to_vec()).ttl(Duration::from_secs(30)).run()?;
/// match (report.lost, report.ending) {
///     (Some(why), _) => eprintln!("the lease was lost, and the bridge ended: {why}"),
///     (None, Some(ending)) => println!("the bridge ended: {ending}"),
///     (None, None) => eprintln!("the bridge could not be started"),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// It takes over the calling process: call it from the main thread of a program that has no other children. Linux only.
#[must_use = "nothing runs until `run` is called"]
pub struct Run {
    pub(crate) claim: Claim,
    pub(crate) words: Vec<OsString>,
    pub(crate) ttl: Duration,
    pub(crate) grace: Option<Duration>,
    pub(crate) descendants: Descendants,
    pub(crate) contain: bool,
    pub(crate) on_outlived: Option<Box<dyn FnMut()>>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("claim", &self.claim)
            .field("words", &self.words)
            .finish_non_exhaustive()
    }
}

impl Run {
    /// Runs `words` under `claim`, with a ttl of 60 s.
    pub fn new(claim: Claim, words: Vec<OsString>) -> Self {
        Self {
            claim,
            words,
            ttl: Duration::from_secs(60),
            grace: None,
            descendants: Descendants::default(),
            contain: false,
            on_outlived: None,
        }
    }

    /// Lets the lease lapse when it is not renewed for this long.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Leaves this much time between SIGTERM and SIGKILL; at most half of the ttl. Without it a quarter, at most 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Says what becomes of processes that the command leaves behind.
    pub fn descendants(mut self, descendants: Descendants) -> Self {
        self.descendants = descendants;
        self
    }

    /// Runs the command in a cgroup of its own, which is emptied at the end: descendants are ended also after a SIGKILL of
    /// this process, and whatever credentials they have. Fails where no cgroup can be made.
    pub fn contain(mut self, yes: bool) -> Self {
        self.contain = yes;
        self
    }

    /// Called when the command still runs at the deadline, in spite of SIGKILL.
    pub fn on_outlived(mut self, call: impl FnMut() + 'static) -> Self {
        self.on_outlived = Some(Box::new(call));
        self
    }

    /// Takes the lease and runs the command to its end.
    ///
    /// # Errors
    /// Those of [`Claim::take`], and [`Error::Invalid`](crate::Error::Invalid) for a grace of more than half the ttl;
    /// nothing has run then. Everything after that is in the [`Report`].
    pub fn run(self) -> Result<Report> {
        #[cfg(all(target_os = "linux", not(leasehold_portable)))]
        return crate::supervise::run(self);
        #[cfg(not(all(target_os = "linux", not(leasehold_portable))))]
        Err(crate::Error::invalid(
            self.claim.path(),
            "running a command under a lease is not supported on this system",
        ))
    }
}
