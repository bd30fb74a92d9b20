//! `leasehold ask`: the owner's own host is asked about a record.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Facts, Judge, Judgement, testimony};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold ask run/bridge.lease
  leasehold ask run/bridge.lease --via 'ssh -oBatchMode=yes -l ops {host}' --timeout 5s
  leasehold ask run/bridge.lease --map /home=/export/home --remote-command /opt/bin/leasehold

The transport gets one more word: a command line for a shell, as ssh takes it. An answer counts only when it comes from \
the host that the record names and is about this very claim. The record is not written.

Exit: as judge: 0 held · 1 dead, as its own host says · 2 undetermined, also when nobody answers · 3 free · 4 lapsed";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The record
    path: PathBuf,
    #[command(flatten)]
    how: How,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// How to reach another host.
#[derive(clap::Args)]
pub(crate) struct How {
    /// The command that runs a command line on a host
    #[arg(long, value_name = "COMMAND", default_value = "ssh -oBatchMode=yes {host}")]
    via: String,
    /// Give up on a host after this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::duration)]
    timeout: Duration,
    /// Where leasehold is there
    #[arg(long, value_name = "COMMAND", default_value = "leasehold")]
    remote_command: String,
    /// The directory has another name there
    #[arg(long, value_name = "HERE=THERE", value_parser = map)]
    map: Vec<(String, String)>,
}

fn map(text: &str) -> Result<(String, String), String> {
    let (here, there) = text.split_once('=').ok_or("write it as /here=/there")?;
    Ok((here.to_owned(), there.to_owned()))
}

/// The longest answer that is read, in bytes.
const LONGEST: u64 = 1 << 20;

pub(crate) fn run(args: Args) -> Exit {
    let (judgement, facts) = Judge::here().judge(&args.path);
    let judgement = match testimony::may_help(&judgement) {
        true => args.how.ask(&args.path, &facts),
        false => judgement,
    };
    if args.json {
        text::print(&format!("{}\n", text::judgement_json(&judgement, &args.path)));
    } else if std::io::stdout().is_terminal() {
        text::print(&text::paragraph(&judgement, &args.path));
    } else {
        text::print(&text::tab_line(&judgement, &args.path));
    }
    judgement.verdict.into()
}

impl How {
    /// Asks, and weighs the answer. Whatever goes wrong leaves the record undetermined, and says why.
    pub(crate) fn ask(&self, path: &Path, facts: &Facts) -> Judgement {
        let answer = self
            .command(path, facts)
            .and_then(|command| answer(command, self.timeout));
        answer
            .and_then(|answer| testimony::weigh(facts, &answer))
            .unwrap_or_else(|why| testimony::unanswered(facts, &why))
    }

    fn command(&self, path: &Path, facts: &Facts) -> Result<Command, String> {
        let host = facts.record.host.as_deref().unwrap_or_default();
        // The name comes out of a file that others may write: it must not become an option or a command.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if host.is_empty() || host.starts_with(['-', '.']) || !host.bytes().all(plain) {
            return Err("the record's host name is none that may be handed to a command".into());
        }
        let words = shell_words::split(&self.via).map_err(|error| format!("--via: {error}"))?;
        let mut words = words.into_iter().map(|word| word.replace("{host}", host));
        let mut command = Command::new(words.next().ok_or("--via names no command")?);
        let there = self.there(path)?;
        let line = format!("{} judge --json -- {}", self.remote_command, shell_words::quote(&there));
        command.args(words).arg(line);
        Ok(command)
    }

    /// The path as the other host knows it.
    fn there(&self, path: &Path) -> Result<String, String> {
        let here = std::path::absolute(path).map_err(|error| error.to_string())?;
        let here = here
            .to_str()
            .ok_or("a path that is no UTF-8 cannot be asked about")?
            .to_owned();
        let mapped = self
            .map
            .iter()
            .find_map(|(from, to)| Some(format!("{to}{}", here.strip_prefix(from.as_str())?)));
        Ok(mapped.unwrap_or(here))
    }
}

/// What a command prints, bounded in time and size.
fn answer(mut command: Command, at_most: Duration) -> Result<Vec<u8>, String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run the transport: {error}"))?;
    let output = child.stdout.take().ok_or("the transport has no output")?;
    let (done, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = output.take(LONGEST + 1).read_to_end(&mut bytes);
        // Nobody listens any more after the timeout.
        let _ = done.send(result.map(|_| bytes));
    });
    let answer = read.recv_timeout(at_most);
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
    match answer {
        Ok(Ok(bytes)) if bytes.len() as u64 > LONGEST => Err("the answer is too long".into()),
        Ok(Ok(bytes)) if bytes.is_empty() => Err("there was no answer".into()),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(format!("the answer cannot be read: {error}")),
        Err(_) => Err(format!("no answer within {:.0} s", at_most.as_secs_f64())),
    }
}
