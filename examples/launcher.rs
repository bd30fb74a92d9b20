//! Starts a bridge once for all hosts that share a directory, and tells a second start where the first one is:
//! `launcher DIR -- COMMAND [ARG]…`.
//!
//! Exit: the command's own code; 5 when the bridge runs already; 2 when that cannot be told from here; 64, 74.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Claim, Error, Judge, Run, Verdict};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [dir, dashes, command @ ..] = &words[..] else {
        return usage();
    };
    if dashes != "--" || command.is_empty() {
        return usage();
    }
    launch(&Path::new(dir).join("bridge.lease"), command.to_vec())
}

fn usage() -> ExitCode {
    eprintln!("usage: launcher DIR -- COMMAND [ARG]…");
    ExitCode::from(64)
}

fn launch(path: &Path, command: Vec<OsString>) -> ExitCode {
    // Two starts at the same moment: one wins, and the other one sees it a little later.
    let claim = Claim::new(path).set("role", "bridge").wait(Duration::from_secs(2));
    // The lease is won before the command begins, and kept while it runs. The command can say where it listens:
    // `leasehold note address=…`, or `Holder::note` with the path and token of its environment.
    match Run::new(claim, command).ttl(Duration::from_secs(60)).run() {
        Ok(report) => {
            if let Some(why) = report.lost {
                eprintln!("launcher: the lease was lost, and the bridge ended: {why}");
                return ExitCode::from(74);
            }
            if let Some(why) = report.not_started {
                eprintln!("launcher: the bridge cannot be started: {why}");
                return ExitCode::from(127);
            }
            let code = report.ending.map_or(0, |ending| ending.code());
            ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
        }
        Err(error) => refused(path, error),
    }
}

/// Nothing was started: why, and what to do.
fn refused(path: &Path, error: Error) -> ExitCode {
    let judgement = match error {
        Error::TimedOut { last, .. } => return refused(path, *last),
        Error::Refused(judgement) => judgement,
        error => {
            eprintln!("launcher: {error}");
            return ExitCode::from(74);
        }
    };
    match judgement.verdict {
        Verdict::Held => {
            let record = Judge::here().read(path).ok().flatten();
            let address = record.as_ref().and_then(|record| record.state.get("address"));
            println!(
                "the bridge runs already, at {}",
                address.unwrap_or("an address it has not told yet")
            );
            ExitCode::from(5)
        }
        // It may run elsewhere. Starting another one is not an option.
        _ => {
            eprintln!("launcher: {}", judgement.sentence);
            eprintln!("launcher: {}", judgement.next(&path.to_string_lossy()));
            ExitCode::from(2)
        }
    }
}
