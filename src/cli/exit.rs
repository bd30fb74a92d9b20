//! Exit codes: one table for all verbs, and the one place where errors become codes.

use std::process::ExitCode;

use leasehold::{Error, Reason, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; for judge: held.
    Done = 0,
    /// Verified dead. No verbs but judge, ask and stop end with it.
    Dead = 1,
    Undetermined = 2,
    Free = 3,
    Lapsed = 4,
    HeldByAnother = 5,
    Lost = 6,
    InDoubt = 7,
    /// sysexits.h EX_USAGE
    Usage = 64,
    /// sysexits.h EX_SOFTWARE
    Bug = 70,
    /// sysexits.h EX_IOERR
    Io = 74,
    /// sysexits.h EX_TEMPFAIL
    TimedOut = 75,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Held => Self::Done,
            Verdict::Dead => Self::Dead,
            Verdict::Undetermined => Self::Undetermined,
            Verdict::Free => Self::Free,
            Verdict::Lapsed => Self::Lapsed,
        }
    }
}

impl Exit {
    /// Of a process that was not stopped: what the judge says of its record. Held is not done here: what holds it is not
    /// the recorded process of this host.
    pub(crate) fn unstopped(error: &Error) -> Self {
        match error {
            Error::Refused(judgement) if judgement.verdict != Verdict::Held => judgement.verdict.into(),
            other => other.into(),
        }
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            // A filesystem that fails is an error of its own kind.
            Error::Refused(judgement) if judgement.reason == Reason::Unreadable => Self::Io,
            Error::Refused(judgement) => match judgement.verdict {
                Verdict::Held => Self::HeldByAnother,
                Verdict::Lapsed => Self::Lapsed,
                // A dead or free record is not refused; should a race make it look so, nothing is told from here.
                Verdict::Undetermined | Verdict::Dead | Verdict::Free => Self::Undetermined,
            },
            Error::NotARecord { .. } => Self::Undetermined,
            Error::InDoubt(_) => Self::InDoubt,
            Error::Lost { .. } | Error::Expiring { .. } => Self::Lost,
            Error::GaveWay { .. } => Self::HeldByAnother,
            Error::TimedOut { .. } | Error::BudgetSpent { .. } | Error::Contended { .. } => Self::TimedOut,
            Error::Invalid { .. } => Self::Usage,
            Error::Io { .. } | Error::Unreadable { .. } | Error::Uncertain(_) => Self::Io,
            // The enum may grow; a command that does not know an error must not make one up.
            _ => Self::Bug,
        }
    }
}
