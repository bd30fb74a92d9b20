//! `leasehold settle`

use std::path::{Path, PathBuf};

use leasehold::{Error, Judge, Scan, Settlement, Verdict};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold settle ~/run                      # from a login script, or from cron on every host
  leasehold settle run/bridge.lease --verbose

For the other hosts a record of this one is undetermined for ever, unless this host says that its owner is dead: that is \
what this does. Nothing else is touched: no living owner's record, no other host's, no other program's file. Epoch and \
token stay, `settled` in the run state says on what verdict, and an intent without an outcome stays in doubt.

Quiet; again, or on all hosts at once, is fine.

Exit: 0 done, also when there was nothing to do · 64 usage · 74 something could not be read or written · 75 a record kept \
changing";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Records, and directories of records
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Also the directories below
    #[arg(long)]
    recursive: bool,
    /// Say which records were vacated, a line each: verdict, reason, host, pid and path, tab separated
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn run(args: Args) -> Exit {
    let here = Judge::here();
    let mut exit = Exit::Done;
    let mut dead = Vec::new();
    let swept = Scan::new(args.paths)
        .from(here.clone())
        .recursive(args.recursive)
        .run(|finding| {
            if finding.judgement.verdict == Verdict::Dead && finding.record.is_some() {
                dead.push(finding.path);
            } else if !finding.was_read() {
                let why = finding.facts.record.detail.unwrap_or_default();
                complain(&finding.path, &why);
                exit = Exit::Io;
            }
        });
    for failure in &swept.failures {
        complain(&failure.path, &failure.error.to_string());
        exit = Exit::Io;
    }
    for path in dead {
        match here.settle(&path) {
            Ok(Settlement::Vacated(_, judgement)) if args.verbose => {
                text::print(&text::tab_line(&judgement, &path));
            }
            // Whatever it is now, it is not ours to settle: its owner's, or another settlement's.
            Ok(_) => {}
            Err(error) => {
                text::complain(&text::error(&error, &path));
                if exit == Exit::Done || !matches!(error, Error::Contended { .. }) {
                    exit = Exit::from(&error);
                }
            }
        }
    }
    exit
}

fn complain(path: &Path, why: &str) {
    text::complain(&format!("leasehold: {}: {}\n", text::path(path), text::escape(why)));
}
