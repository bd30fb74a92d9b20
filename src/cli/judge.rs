//! `leasehold judge`

use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::facts::RecordState;
use leasehold::{Facts, Judge, Judgement};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold judge run/bridge.lease && echo 'still held'
  leasehold judge run/*.lease | awk -F'\\t' '$1 == \"dead\" { print $5 }'
  leasehold judge thread-7.lease --observe 70s      # can tell a lapse
  leasehold judge odd.lease --save-facts facts.json # then anywhere: judge --replay facts.json

A line a path, tab separated: verdict, reason, host, pid, path; `-` for what is not known. On a terminal, a paragraph. \
Judging changes nothing on disk. Pid files and locks in which other programs name an owner are recognised, too.

Exit with one path: 0 held · 1 dead · 2 undetermined · 3 free · 4 lapsed · 64 usage
With several, or --stdin0: 0 all could be read · 74 something could not";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The records
    #[arg(required_unless_present_any = ["stdin0", "replay"])]
    paths: Vec<PathBuf>,
    /// Read more paths from standard input, each ended by a NUL byte
    #[arg(long)]
    stdin0: bool,
    /// Save what was found out about the record as JSON, to be judged again elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "stdin0"])]
    save_facts: Option<PathBuf>,
    /// Judge saved facts instead of a record
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "stdin0", "observe"])]
    replay: Option<PathBuf>,
    /// Watch for at most this long whether the owner renews the lease
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    observe: Option<Duration>,
    /// Print one JSON object a path
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Exit {
    match judge(&args) {
        Ok(exit) => exit,
        Err(message) => {
            text::complain(&format!("leasehold: {message}\n"));
            Exit::Io
        }
    }
}

/// Facts are small; what is longer is cut, and holds none.
const LARGEST_FACTS: u64 = 1 << 20;

fn judge(args: &Args) -> Result<Exit, String> {
    if let Some(file) = &args.replay {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(file).and_then(|open| open.take(LARGEST_FACTS).read_to_end(&mut bytes));
        read.map_err(|error| format!("cannot read {}: {error}", text::path(file)))?;
        let facts: Facts = match serde_json::from_slice(&bytes) {
            Ok(facts) => facts,
            Err(error) => {
                let error = text::escape(&error.to_string());
                text::complain(&format!("leasehold: {} holds no facts: {error}\n", text::path(file)));
                return Ok(Exit::Usage);
            }
        };
        let judgement = leasehold::verdict::judge(&facts);
        report(args, &judgement, file);
        return Ok(judgement.verdict.into());
    }
    let mut paths = args.paths.clone();
    if args.stdin0 {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot read standard input: {error}"))?;
        paths.extend(
            bytes
                .split(|byte| *byte == 0)
                .filter(|name| !name.is_empty())
                .map(from_bytes),
        );
    }
    if args.save_facts.is_some() && paths.len() != 1 {
        text::complain("leasehold: --save-facts takes one path at a time\n");
        return Ok(Exit::Usage);
    }
    if let (Some(file), [path]) = (&args.save_facts, &paths[..])
        && same_file(file, path)
    {
        text::complain("leasehold: --save-facts would overwrite the record itself\n");
        return Ok(Exit::Usage);
    }
    let here = Judge::here();
    let mut all_read = true;
    let mut last = Exit::Done;
    for path in &paths {
        let (judgement, facts) = match args.observe {
            Some(time) => here.observe(path, time),
            None => here.judge(path),
        };
        if let Some(file) = &args.save_facts {
            let json = serde_json::to_string_pretty(&facts).map_err(|error| error.to_string())?;
            std::fs::write(file, json + "\n").map_err(|error| format!("cannot write {}: {error}", text::path(file)))?;
        }
        all_read &= facts.record.state != RecordState::Unreadable;
        last = judgement.verdict.into();
        if !report(args, &judgement, path) {
            break;
        }
    }
    // A list that happens to have one path in it is a list.
    Ok(match (paths.len(), all_read) {
        (1, _) if !args.stdin0 => last,
        (_, true) => Exit::Done,
        (_, false) => Exit::Io,
    })
}

/// Prints a judgement; whether anybody still reads.
fn report(args: &Args, judgement: &Judgement, path: &Path) -> bool {
    if args.json {
        text::print(&format!("{}\n", text::judgement_json(judgement, path)))
    } else if std::io::stdout().is_terminal() {
        text::print(&text::paragraph(judgement, path))
    } else {
        text::print(&text::tab_line(judgement, path))
    }
}

pub(super) fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(unix)]
fn from_bytes(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(bytes.to_vec()).into()
}

#[cfg(not(unix))]
fn from_bytes(bytes: &[u8]) -> PathBuf {
    OsString::from(String::from_utf8_lossy(bytes).into_owned()).into()
}
