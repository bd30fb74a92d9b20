//! Resumes a thread on one host at a time, and appends what comes on standard input to a transcript of its own epoch:
//! `resume_guard DIR THREAD`.
//!
//! Exit: 0 appended; 5 when the thread is in use; 2 when that cannot be told from here; 6 when the lease was lost meanwhile;
//! 7 when the last one may have ended in the middle of its work; 64, 74.

use std::error::Error as StdError;
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Claim, Error, Lease, Outcome, Verdict, key};

/// An owner that has not renewed its lease for this long has lost it for others.
const TTL: Duration = Duration::from_secs(60);

/// What must be left of that before a line is written.
const MARGIN: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, thread] = &words[..] else {
        eprintln!("usage: resume_guard DIR THREAD");
        return ExitCode::from(64);
    };
    match resume(Path::new(dir), thread) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resume_guard: {error}");
            ExitCode::from(error.downcast_ref().map_or(74, code))
        }
    }
}

fn code(error: &Error) -> u8 {
    match error {
        Error::Refused(judgement) if judgement.verdict == Verdict::Held => 5,
        // Not to be told from here, or lapsed: the other one may still append.
        Error::Refused(_) => 2,
        Error::InDoubt(_) => 7,
        Error::Lost { .. } | Error::Expiring { .. } => 6,
        _ => 74,
    }
}

fn resume(dir: &Path, thread: &str) -> Result<(), Box<dyn StdError>> {
    // Any text names a record of its own, also one with slashes in it.
    let record = dir.join(key::file_name(thread));
    let mut lease = Claim::new(&record)
        .ttl(TTL)
        .set("thread", thread)
        // Should this program be killed in the middle, the next one is told.
        .set("intent", "append")
        .take()?;
    match append(&mut lease, &record) {
        Ok(()) => Ok(lease
            .release(Some(Outcome::Completed))
            .map_err(|unreleased| unreleased.error)?),
        Err(error) => {
            // What was written is whole lines, and the rest was not begun. A lost lease cannot be released.
            let _ = lease.release(Some(Outcome::Failed));
            Err(error)
        }
    }
}

fn append(lease: &mut Lease, record: &Path) -> Result<(), Box<dyn StdError>> {
    // A file for each epoch: late bytes of a writer that lost its lease land in its own file, and nothing mixes.
    let transcript = record.with_extension(format!("transcript.{}", lease.epoch()));
    let mut transcript = OpenOptions::new().create(true).append(true).open(transcript)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        // Waiting for a line may have taken longer than the ttl. Renewing is a ballot: it re-wins the lease, or says
        // that it is lost.
        if lease.holder().verify(Some(MARGIN)).is_err() {
            lease.renew()?;
        }
        writeln!(transcript, "{line}")?;
    }
    transcript.sync_all()?;
    Ok(())
}
