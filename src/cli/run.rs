//! `leasehold run`

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Claim, Descendants, Error, Report, Run};
use serde_json::{Value, json};

use super::exit::Exit;
use super::text;

const USAGE_LINES: &str = "\
leasehold run [OPTIONS] PATH -- COMMAND [ARG]…
       leasehold run [OPTIONS] --dir DIR --key TEXT -- COMMAND [ARG]…";

const EXAMPLES: &str = "\
Examples:
  leasehold run run/bridge.lease --set role=bridge -- ./bridge --port 4100
  leasehold run --dir run --key \"thread $id\" --wait 10s -- ./resume \"$id\"

The command gets LEASEHOLD_PATH, LEASEHOLD_TOKEN and LEASEHOLD_EPOCH. When the lease cannot be kept it gets SIGTERM, and \
SIGKILL before anybody else can take the lease; bytes that the kernel had accepted may still reach the file server \
later: write what must not mix to a file of its own epoch.

Exit: the command's own code, 128+n for a signal, 126 or 127 when it cannot be started. Of leasehold: 102 undetermined · \
104 lapsed · 105 held by another · 106 lost · 107 in doubt · 164 usage · 174 the filesystem failed · \
175 wait or budget ran out";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE_LINES)]
pub(crate) struct Args {
    /// The record; a file of its own, in an existing directory
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    path: Option<PathBuf>,
    #[command(flatten)]
    key: super::path::Key,
    /// Lapse when not renewed for this long, 5s or more
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::duration)]
    ttl: Duration,
    /// From SIGTERM to SIGKILL [default: a quarter of the ttl, up to 10s]
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    kill_grace: Option<Duration>,
    #[command(flatten)]
    admission: super::claim::Admission,
    /// What becomes of its leftovers: end, wait or leave
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true, default_value_t = Left::End)]
    descendants: Left,
    /// Run it in a cgroup, emptied even when leasehold is killed
    #[arg(long)]
    contain: bool,
    /// Refuse when started this often on this host in the time, as 5/30s
    #[arg(long, value_name = "STARTS/TIME", value_parser = budget)]
    budget: Option<(u32, Duration)>,
    /// End with this code whenever leasehold itself says no
    #[arg(long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// Say in this file, as JSON, how it ended, and whose code it is
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

// A comment on a value would give each option of the help three lines.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Left {
    End,
    Wait,
    Leave,
}

fn budget(text: &str) -> Result<(u32, Duration), String> {
    let parsed = text
        .split_once('/')
        .and_then(|(starts, time)| Some((starts.parse().ok()?, super::duration(time).ok()?)));
    parsed
        .filter(|(starts, _)| *starts > 0)
        .ok_or_else(|| "a budget is written as 5/30s: starts, and the time".into())
}

/// As much of a command as a message shows.
const WIDEST: usize = 64;

/// Own outcomes lie above the usual exit codes of commands.
const OWN: u8 = 100;

/// The code of a usage error of this verb.
pub(crate) const USAGE: u8 = OWN + Exit::Usage as u8;

pub(crate) fn run(args: Args) -> u8 {
    if args.contain && matches!(args.descendants, Left::Leave) {
        text::complain("leasehold: --contain leaves nothing behind; choose --descendants end or wait\n");
        return USAGE;
    }
    let path = match args.path.map_or_else(|| args.key.path(), Ok) {
        Ok(path) => path,
        Err(exit) => return OWN + exit as u8,
    };
    if args
        .status_file
        .as_deref()
        .is_some_and(|file| super::judge::same_file(file, &path))
    {
        text::complain("leasehold: --status-file would overwrite the record itself\n");
        return USAGE;
    }
    // Before anything runs: at the end it would be too late to say so.
    if let Some(file) = &args.status_file
        && let Err(error) = can_be_written(file)
    {
        text::complain(&format!(
            "leasehold: cannot write {}: {error}; nothing was started\n",
            text::path(file)
        ));
        return OWN + Exit::Io as u8;
    }
    let mut claim = args.admission.apply(Claim::new(&path), &path);
    if let Some((starts, within)) = args.budget {
        claim = claim.budget(starts, within);
    }
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let status = Status {
        file: args.status_file,
        path: path.clone(),
        command: text::shorten(&text::escape(&words.join(" ")), WIDEST),
    };
    let outlived = status.clone();
    let mut run = Run::new(claim, args.command)
        .ttl(args.ttl)
        .contain(args.contain)
        .descendants(match args.descendants {
            Left::End => Descendants::End,
            Left::Wait => Descendants::Wait,
            Left::Leave => Descendants::Leave,
        });
    if let Some(grace) = args.kill_grace {
        run = run.grace(grace);
    }
    run = run.on_outlived(move || {
        text::complain(&format!(
            "leasehold: {}: `{}` still runs past the deadline, in spite of SIGKILL (is a mount dead?)\n",
            text::path(&outlived.path),
            outlived.command
        ));
        outlived.write(&json!({ "by": "leasehold", "lost": true, "outlived": true }));
    });
    match run.run() {
        Ok(report) => {
            let code = ended(&report, args.conflict_exit_code, &status);
            if let (true, Some(leasehold::Ending::Signal(signal)), None) =
                (report.interrupted, report.ending, &report.lost)
            {
                leasehold::end_by_signal(signal);
            }
            code
        }
        Err(error) => {
            text::complain(&text::error(&error, &path));
            let exit = Exit::from(&error);
            let code = args
                .conflict_exit_code
                .filter(|_| is_conflict(&error))
                .unwrap_or(OWN + exit as u8);
            status.write(&json!({ "by": "leasehold", "code": code, "error": error.to_string() }));
            code
        }
    }
}

/// Whether leasehold itself says no, which is what `--conflict-exit-code` is about; a wrong request is not that.
fn is_conflict(error: &Error) -> bool {
    !matches!(error, Error::Invalid { .. })
}

fn ended(report: &Report, conflict: Option<u8>, status: &Status) -> u8 {
    let (by, code) = match (&report.lost, &report.not_started) {
        (Some(why), _) => {
            text::complain(&format!(
                "leasehold: {}: the lease is lost: {}; `{}` has ended\n",
                text::path(&status.path),
                text::escape(why),
                status.command
            ));
            ("leasehold", conflict.unwrap_or(OWN + Exit::Lost as u8))
        }
        (None, Some(error)) => {
            text::complain(&format!("leasehold: cannot run `{}`: {error}\n", status.command));
            (
                "leasehold",
                if error.kind() == std::io::ErrorKind::NotFound {
                    127
                } else {
                    126
                },
            )
        }
        (None, None) => {
            let code = report.ending.map_or(0, leasehold::Ending::code);
            ("command", u8::try_from(code).unwrap_or(u8::MAX))
        }
    };
    if let Some(error) = &report.unreleased {
        text::complain(&text::error(error, &status.path));
    }
    status.write(&json!({
        "by": by,
        "code": code,
        "command": report.ending,
        "token": report.token.to_string(),
        "epoch": report.epoch,
        "lost": report.lost,
        "not_started": report.not_started.as_ref().map(ToString::to_string),
        "outlived": report.outlived,
        "unreleased": report.unreleased.as_ref().map(ToString::to_string),
    }));
    code
}

#[derive(Clone)]
struct Status {
    file: Option<PathBuf>,
    /// The record.
    path: PathBuf,
    /// The command, for people.
    command: String,
}

impl Status {
    fn write(&self, what: &Value) {
        let Some(file) = &self.file else { return };
        let mut object = text::path_json(&self.path);
        if let Value::Object(fields) = what {
            object.extend(
                fields
                    .iter()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        if let Err(error) = write_whole(file, &format!("{}\n", Value::from(object))) {
            text::complain(&format!("leasehold: cannot write {}: {error}\n", text::path(file)));
        }
    }
}

/// A reader sees the old file or the new one. What is no regular file, such as a FIFO or /dev/stderr, is written to.
fn write_whole(file: &Path, content: &str) -> std::io::Result<()> {
    if std::fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(file, content);
    }
    let name = beside(file);
    std::fs::write(&name, content)?;
    std::fs::rename(&name, file).inspect_err(|_| drop(std::fs::remove_file(&name)))
}

/// Whether that can be done: tried, without touching the file. What is no file is not opened for a try.
fn can_be_written(file: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(file) {
        Ok(found) if found.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Ok(()),
        _ => std::fs::write(beside(file), "").and_then(|()| std::fs::remove_file(beside(file))),
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}
