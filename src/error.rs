//! What can go wrong, in the terms of whoever called.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::verdict::Judgement;

/// Why an operation did not happen.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The filesystem failed: neither held nor free.
    Io {
        /// What was being done, as `read` or `rename onto`.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A call failed, and whether the change was made could not be found out afterwards. `verify` tells, once
    /// the filesystem answers again.
    Uncertain(Box<Error>),
    /// The record cannot be read: whether the claim is current is not known.
    Unreadable {
        /// The record.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// What stands at the path is no record of this format.
    NotARecord {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// A claim was refused; the judgement says who holds the lease or why it cannot be told.
    Refused(Box<Judgement>),
    /// A claim was refused since the predecessor noted an intent and no outcome: its action may have happened.
    InDoubt(Box<Judgement>),
    /// The token is not the record's current one, or the record is gone.
    Lost {
        /// The record.
        path: PathBuf,
        /// What stands there instead.
        why: String,
    },
    /// The claim is current, and less of its ttl is left than is wanted, or than can be told.
    Expiring {
        /// The record.
        path: PathBuf,
        /// How much.
        why: String,
    },
    /// Another contender is changing the record, and the claim was to give way.
    GaveWay {
        /// The record.
        path: PathBuf,
    },
    /// Given up after many rounds: others kept changing the record, or ballots that nobody owns fill its directory.
    Contended {
        /// The record.
        path: PathBuf,
    },
    /// The lease has been started as often as its budget allows.
    BudgetSpent {
        /// The record.
        path: PathBuf,
        /// In how long it may be started again.
        again_in: Duration,
    },
    /// The wait ran out; the judgement is the last one.
    TimedOut {
        /// How long was waited.
        waited: Duration,
        /// Why the lease could not be taken at the end.
        last: Box<Error>,
    },
    /// The request cannot be carried out as it was made.
    Invalid {
        /// The record.
        path: PathBuf,
        /// What is wrong with it, and the remedy.
        what: String,
    },
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn invalid(path: &Path, what: impl Into<String>) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                operation,
                path,
                source,
            } => write!(f, "cannot {operation} {}: {source}", path.display()),
            Self::Uncertain(cause) => write!(
                f,
                "it is not known whether the record was changed: {cause}; `verify` tells, once the filesystem answers"
            ),
            Self::Unreadable { path, why } => write!(f, "cannot read {}: {why}", path.display()),
            Self::NotARecord { path, why } => write!(f, "{} holds no record: {why}", path.display()),
            Self::Refused(judgement) => write!(f, "{}: {}", judgement.verdict, judgement.sentence),
            Self::InDoubt(judgement) => write!(
                f,
                "the predecessor's action is in doubt: intent `{}`, no outcome noted ({})",
                judgement.owner.intent.as_deref().unwrap_or_default(),
                judgement.sentence
            ),
            Self::Lost { path, why } => write!(f, "the lease on {} is lost: {why}", path.display()),
            Self::Expiring { path, why } => write!(f, "the lease on {} must not be used now: {why}", path.display()),
            Self::GaveWay { path } => write!(f, "another claim on {} is under way; try again", path.display()),
            Self::Contended { path } => write!(
                f,
                "given up on {}: the record kept changing, or its directory is full of ballots that are not ours; look \
                 at the files `.NAME.ballot-*` beside it",
                path.display()
            ),
            Self::BudgetSpent { path, again_in } => write!(
                f,
                "{} was started as often as its budget allows; the next start is allowed in {:.1} s",
                path.display(),
                again_in.as_secs_f64()
            ),
            Self::TimedOut { waited, last } => write!(f, "gave up after {:.1} s: {last}", waited.as_secs_f64()),
            Self::Invalid { path, what } => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::TimedOut { last: cause, .. } | Self::Uncertain(cause) => Some(cause),
            _ => None,
        }
    }
}
