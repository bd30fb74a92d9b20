//! The command: one file a verb, on the library's public API only.

mod ask;
mod breaking;
mod claim;
mod doctor;
mod exit;
mod holder;
mod id;
mod judge;
mod path;
mod run;
mod scan;
mod settle;
mod show;
mod stop;
mod text;

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use leasehold::Error;

use exit::Exit;

const EXAMPLES: &str = "\
Examples:
  token=$(leasehold claim run/bridge.lease --owner $$ --ttl 60s) || exit
  leasehold judge run/*.lease
  leasehold release run/bridge.lease --token \"$token\"

A record says which process of which host and boot holds the lease. No other host's pid is ever judged, and what cannot \
be told from here is `undetermined`, never dead.

Exit codes, the same for every verb:
   0 done (judge: held)   3 free                6 lost: token not current   70 a bug in leasehold
   1 verified dead        4 lapsed              7 effect in doubt           74 the filesystem failed
   2 undetermined         5 held by another    64 wrong usage               75 the wait ran out";

/// Who holds this, and can I tell from here?
#[derive(Parser)]
#[command(name = "leasehold", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

// Deferred: only the options of the verb that is called are set up. A flattened group of options must have no
// documentation comment then: it would take the place of the verb's.
#[derive(Subcommand)]
#[command(defer = true)]
enum Verb {
    /// Take a lease, and print the token that names the claim
    Claim(claim::Args),
    /// Judge records: held, dead, lapsed, free, or undetermined with the reason
    Judge(judge::Args),
    /// Judge every record in directories, and say what to do next
    Scan(scan::Args),
    /// Print a record without judging it
    Show(show::Args),
    /// Check before a write that the claim is still current, and print its epoch
    Verify(holder::VerifyArgs),
    /// Renew a claim for another ttl
    Renew(holder::RenewArgs),
    /// End a claim
    Release(holder::ReleaseArgs),
    /// Name another process of this host as the owner of a claim
    HandOver(holder::HandOverArgs),
    /// Set fields of the run state
    Note(holder::NoteArgs),
    /// Run a command under a lease, and stop it before the lease can be lost
    Run(run::Args),
    /// End the recorded process, where it certainly runs here, and vacate the record
    Stop(stop::Args),
    /// Vacate the records whose owner was this host's and is dead
    Settle(settle::Args),
    /// Print the path of the record that a key names
    Path(path::Args),
    /// Ask the owner's host about a record that cannot be judged from here
    Ask(ask::Args),
    /// Break somebody's lease: an operator's decision, recorded as one
    Break(breaking::Args),
    /// Find out what a directory, its mount and this host can and cannot do
    Doctor(doctor::Args),
    /// Print what this host and a process of it would write into a record
    Id(id::Args),
}

pub(crate) fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        text::complain(&format!("leasehold: internal error: {panic}; please report it\n"));
        std::process::exit(Exit::Bug as i32);
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let run = std::env::args_os().nth(1).is_some_and(|verb| verb == "run");
            if error.use_stderr() {
                // It repeats words, which may be file names that a shell found.
                let told = error.render().to_string();
                let lines: Vec<String> = told.lines().map(text::escape).collect();
                text::complain(&(lines.join("\n") + "\n"));
                return if run { run::USAGE.into() } else { Exit::Usage.into() };
            }
            return match error.print() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => Exit::Io.into(),
                _ => Exit::Done.into(),
            };
        }
    };
    match cli.verb {
        Verb::Claim(args) => claim::run(args),
        Verb::Judge(args) => judge::run(args),
        Verb::Scan(args) => scan::run(args),
        Verb::Show(args) => show::run(args),
        Verb::Verify(args) => holder::verify(args),
        Verb::Renew(args) => holder::renew(args),
        Verb::Release(args) => holder::release(args),
        Verb::HandOver(args) => holder::hand_over(args),
        Verb::Note(args) => holder::note(args),
        Verb::Run(args) => return run::run(args).into(),
        Verb::Stop(args) => stop::run(args),
        Verb::Settle(args) => settle::run(args),
        Verb::Path(args) => path::run(args),
        Verb::Ask(args) => ask::run(args),
        Verb::Break(args) => breaking::run(args),
        Verb::Doctor(args) => return doctor::run(args),
        Verb::Id(args) => id::run(args),
    }
    .into()
}

/// A time such as `90s`, `5m` or `500ms`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).map_err(|_| "a time is written as 90s, 5m or 500ms".into()),
    }
}

/// What a field of the run state has to say, `key=value`.
fn condition(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("a condition is written as key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A field of the run state, `key=value`.
fn field(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("a field is written as key=value")?;
    if key == "outcome" {
        value.parse::<leasehold::Outcome>()?;
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn pid(text: &str) -> Result<leasehold::Pid, String> {
    text.parse()
        .ok()
        .and_then(leasehold::Pid::new)
        .ok_or_else(|| "a pid is a number from 1 to 2147483647".into())
}

/// Reports an error of an operation on a record, and says with which code to end.
fn fail(error: &Error, path: &std::path::Path, json: bool) -> Exit {
    fail_with(error, path, json, Exit::from(error))
}

fn fail_with(error: &Error, path: &std::path::Path, json: bool, exit: Exit) -> Exit {
    if json {
        text::print(&format!("{}\n", text::error_json(error, path, exit)));
    } else {
        text::complain(&text::error(error, path));
    }
    exit
}
