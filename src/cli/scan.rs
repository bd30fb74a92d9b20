//! `leasehold scan`

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Error, Finding, Judge, Judgement, MOST_JOBS, Orphan, Scan, Standing, Stop, Tally, Verdict};
use serde_json::{Value, json};

use super::exit::Exit;
use super::stop::Manner;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold scan ~/agents --recursive --only dead --only undetermined
  leasehold scan run --where role=bridge --stop-orphans   # before a respawn: end those of this host
  leasehold scan --processes                              # what outlived its record

A table on a terminal; otherwise tab separated: verdict, reason, host, pid, age in seconds, what runs under the pid now, \
path, then each --field; `-` for what is not known. Counts, and what to do next, go to standard error then.

Exit: 0 all could be read · 64 usage · 74 something could not, or may not be signalled · 75 a process has not ended";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directories of records, and single records
    #[arg(required_unless_present = "processes", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also the directories below
    #[arg(long)]
    recursive: bool,
    /// List only this verdict; repeatable
    #[arg(long, value_name = "VERDICT", value_parser = verdict)]
    only: Vec<Verdict>,
    /// List only records whose run state says this; repeatable
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = super::condition)]
    fields: Vec<(String, String)>,
    /// Print this field of the run state, too; repeatable
    #[arg(long = "field", value_name = "KEY")]
    show: Vec<String>,
    /// Also list pid files and locks of other programs; never changed
    #[arg(long)]
    legacy: bool,
    /// Also list processes of this host whose claim is over
    #[arg(long)]
    processes: bool,
    /// End the listed owners that verifiably run here; needs --where
    #[arg(long, requires = "fields")]
    stop_orphans: bool,
    #[command(flatten)]
    how: Manner,
    /// Ask the owners' hosts about what cannot be told from here
    #[arg(long, conflicts_with = "stop_orphans")]
    ask: bool,
    #[command(flatten)]
    transport: super::ask::How,
    /// How many reads may be under way at once
    #[arg(long, value_name = "N", default_value = "32", value_parser = jobs)]
    jobs: NonZeroUsize,
    /// Print one JSON object a record
    #[arg(long)]
    json: bool,
}

fn verdict(word: &str) -> Result<Verdict, String> {
    let known = Tally::VERDICTS.into_iter().find(|verdict| verdict.word() == word);
    known.ok_or_else(|| "a verdict is held, dead, undetermined, free or lapsed".into())
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .ok()
        .filter(|jobs: &NonZeroUsize| jobs.get() <= MOST_JOBS)
        .ok_or_else(|| format!("a number from 1 to {MOST_JOBS}"))
}

/// What is printed for a record: the cells of its row.
const COLUMNS: [&str; 7] = ["VERDICT", "REASON", "HOST", "PID", "AGE", "NOW", "PATH"];

/// The widest that what runs now gets on a terminal.
const WIDEST: usize = 32;

pub(crate) fn run(args: Args) -> Exit {
    let here = Judge::here();
    let terminal = std::io::stdout().is_terminal() && !args.json;
    let mut exit = Exit::Done;
    let sums = Mutex::new((Tally::default(), 0));
    let mut listed: Vec<Finding> = Vec::new();
    let mut progress = Progress::new();
    let mut lines = Lines::default();
    // A table needs all of it before it knows its widths, and what is to be stopped is told with its line.
    let keep = terminal || args.stop_orphans || args.ask;
    let wanted = |judgement: &Judgement| args.only.is_empty() || args.only.contains(&judgement.verdict);
    let swept = Scan::new(args.dirs.clone())
        .from(here.clone())
        .recursive(args.recursive)
        .legacy(args.legacy)
        .jobs(args.jobs)
        .on_progress(|files| progress.show(files))
        .run_with(
            |finding| {
                // What is asked about gets its verdict later.
                let listed = (args.ask || wanted(&finding.judgement)) && finding.has(&args.fields);
                let mut sums = sums.lock().expect("counting does not panic");
                sums.1 += usize::from(!finding.was_read());
                if !listed {
                    return None;
                }
                // Those two change what there is to count.
                if !args.ask && !args.stop_orphans {
                    sums.0.add(&finding.judgement);
                }
                drop(sums);
                Some(if keep {
                    Err(Box::new(finding))
                } else {
                    Ok(line(&args, &finding, None))
                })
            },
            |made| match made {
                Some(Ok(line)) => lines.add(&line),
                Some(Err(finding)) => listed.push(*finding),
                None => {}
            },
        );
    let (mut tally, unread) = sums.into_inner().expect("counting does not panic");
    progress.clear();
    if args.ask {
        let looked = listed
            .iter()
            .map(|finding| (finding.path.clone(), finding.judgement.clone(), finding.facts.clone()));
        let judgements = args.transport.ask_each(&here, looked.collect());
        for (finding, judgement) in listed.iter_mut().zip(judgements) {
            finding.judgement = judgement;
        }
        listed.retain(|finding| wanted(&finding.judgement));
        listed.iter().for_each(|finding| tally.add(&finding.judgement));
    }
    let fates = if args.stop_orphans {
        stop_all(&here, &args, &listed)
    } else {
        Vec::new()
    };
    for (finding, fate) in listed.iter().zip(&fates) {
        match fate {
            Some(_) => tally.add(&here.judge(&finding.path).0),
            None => tally.add(&finding.judgement),
        }
    }
    let fate = |at: usize| fates.get(at).and_then(Option::as_ref);
    if terminal {
        let rows: Vec<_> = listed.iter().map(|finding| row(&args, finding, true)).collect();
        lines.add(&table(&args, &rows));
    } else {
        for (at, finding) in listed.iter().enumerate() {
            lines.add(&line(&args, finding, fate(at)));
        }
    }
    let orphans = match args.processes.then(|| here.orphans()) {
        Some(Ok(orphans)) => orphans,
        Some(Err(error)) => {
            text::complain(&text::error(&error, Path::new("")));
            exit = Exit::Io;
            Vec::new()
        }
        None => Vec::new(),
    };
    for orphan in &orphans {
        lines.add(&orphan_line(&args, orphan, terminal));
    }
    lines.flush();

    for failure in &swept.failures {
        let why = text::escape(&failure.error.to_string());
        text::complain(&format!("leasehold: {}: {why}\n", text::path(&failure.path)));
        exit = Exit::Io;
    }
    if unread > 0 {
        exit = Exit::Io;
    }
    for (finding, fate) in listed.iter().zip(&fates) {
        match fate {
            Some(Ok(how)) => text::complain(&format!("leasehold: {}: {how}\n", text::path(&finding.path))),
            Some(Err(error)) => {
                text::complain(&text::error(error, &finding.path));
                // Refused: it has ended, or was given on, since it was judged.
                if !matches!(error, Error::Refused(_) | Error::Invalid { .. }) && exit == Exit::Done {
                    exit = Exit::from(error);
                }
            }
            None => {}
        }
    }
    let summary = summary(&args, &tally, unread, args.processes.then(|| known(&orphans)));
    if terminal {
        text::print(&summary);
    } else {
        text::complain(&summary);
    }
    exit
}

/// How many are known to be orphans.
fn known(orphans: &[Orphan]) -> usize {
    let known = |orphan: &&Orphan| orphan.standing != Standing::Unknown;
    orphans.iter().filter(known).count()
}

type Fate = Option<Result<String, Error>>;

/// Stops what is verified to run here, many at a time: each may take its grace.
fn stop_all(here: &Judge, args: &Args, listed: &[Finding]) -> Vec<Fate> {
    let fates: Vec<Mutex<Fate>> = listed.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.get().min(listed.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(finding) = listed.get(at) else { return };
                    if !finding.judgement.may_be_stopped() {
                        continue;
                    }
                    let stop = Stop::new(&finding.path).from(here.clone());
                    let stopped = args.how.apply(stop, &args.fields).run();
                    let fate = stopped.map(|stopped| format!("process {} ended by {}", stopped.pid, stopped.signal));
                    *fates[at].lock().expect("it is locked here only") = Some(fate);
                }
            });
        }
    });
    let unlocked = |fate: Mutex<Fate>| fate.into_inner().expect("it is locked above only");
    fates.into_iter().map(unlocked).collect()
}

/// Standard output, in large pieces.
#[derive(Default)]
struct Lines {
    text: String,
    /// Nobody reads any more.
    closed: bool,
}

impl Lines {
    fn add(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() >= 64 * 1024 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !self.closed && !text.is_empty() {
            self.closed = !text::print(&text);
        }
    }
}

fn line(args: &Args, finding: &Finding, fate: Option<&Result<String, Error>>) -> String {
    if !args.json {
        return row(args, finding, false).join("\t") + "\n";
    }
    let mut object = match text::judgement_json(&finding.judgement, &finding.path) {
        Value::Object(object) => object,
        _ => Default::default(),
    };
    object.insert("age".into(), json!(finding.age.map(|age| age.as_secs())));
    object.insert("now".into(), json!(finding.now));
    object.insert(
        "state".into(),
        json!(finding.record.as_ref().map(|record| &record.state)),
    );
    match fate {
        Some(Ok(how)) => object.insert("stopped".into(), how.as_str().into()),
        Some(Err(error)) => object.insert("not_stopped".into(), error.to_string().into()),
        None => None,
    };
    Value::from(object).to_string() + "\n"
}

fn row(args: &Args, finding: &Finding, terminal: bool) -> Vec<String> {
    let judgement = &finding.judgement;
    let owner = &judgement.owner;
    let host = owner.host.as_deref().filter(|host| !host.is_empty());
    let age = |age: Duration| {
        if terminal {
            text::age(age)
        } else {
            age.as_secs().to_string()
        }
    };
    let now = |command: &String| {
        let command = text::escape(command);
        if terminal {
            text::shorten(&command, WIDEST)
        } else {
            command
        }
    };
    let dash = || "-".to_owned();
    let mut cells = vec![
        judgement.verdict.to_string(),
        judgement.reason.to_string(),
        host.map_or_else(dash, text::escape),
        owner.valid_pid().map_or_else(dash, |pid| pid.to_string()),
        finding.age.map_or_else(dash, age),
        finding.now.as_ref().map_or_else(dash, now),
        text::path(&finding.path),
    ];
    let fields = finding.record.as_ref().map(|record| record.state.fields());
    cells.extend(
        args.show
            .iter()
            .map(|key| match fields.and_then(|fields| fields.get(key)) {
                Some(Value::String(value)) => text::escape(value),
                Some(value) => text::escape(&value.to_string()),
                None => dash(),
            }),
    );
    cells
}

fn table(args: &Args, rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let fields = args.show.iter().map(|key| text::escape(key).to_uppercase());
    let head: Vec<String> = COLUMNS.iter().map(|name| (*name).to_owned()).chain(fields).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn orphan_line(args: &Args, orphan: &Orphan, terminal: bool) -> String {
    let why = orphan.standing.word();
    if args.json {
        let mut object = text::path_json(&orphan.path);
        object.insert("orphan".into(), json!(orphan));
        return Value::from(object).to_string() + "\n";
    }
    let command = orphan.cmd.as_deref().map_or("-".into(), text::escape);
    let path = text::path(&orphan.path);
    if terminal {
        return format!(
            "orphan: process {} ({why}) of {path}: {}\n",
            orphan.pid,
            text::shorten(&command, 64)
        );
    }
    format!("orphan\t{why}\t-\t{}\t-\t{command}\t{path}\n", orphan.pid)
}

fn summary(args: &Args, tally: &Tally, unread: usize, orphans: Option<usize>) -> String {
    let mut counts: Vec<String> = Tally::VERDICTS
        .into_iter()
        .filter(|verdict| tally.count(*verdict) > 0)
        .map(|verdict| format!("{} {verdict}", tally.count(verdict)))
        .collect();
    if unread > 0 {
        counts.push(format!("{unread} of the directory unreadable"));
    }
    let mut out = String::new();
    if !args.dirs.is_empty() {
        let records = if tally.total() == 1 { "record" } else { "records" };
        let colon = if counts.is_empty() { "" } else { ": " };
        out.push_str(&format!("{} {records}{colon}{}\n", tally.total(), counts.join(", ")));
    }
    let places: Vec<_> = args.dirs.iter().map(|dir| dir.to_string_lossy()).collect();
    for line in tally.next(&shell_words::join(&places)) {
        out.push_str(&format!("  {}\n", text::escape(&line)));
    }
    if let Some(count) = orphans {
        let found = match count {
            0 => "no process carries the token of a claim that is over".to_owned(),
            1 => "1 process carries the token of a claim that is over".to_owned(),
            count => format!("{count} processes carry the token of a claim that is over"),
        };
        out.push_str(&format!("{found}\n"));
        if count > 0 {
            out.push_str("  look what each still does; nothing vouches that it is the process that held the claim\n");
        }
    }
    out
}

/// A line on the terminal about a scan that takes its time.
struct Progress {
    began: Instant,
    terminal: bool,
    shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            shown: false,
        }
    }

    fn show(&mut self, files: usize) {
        if self.terminal && self.began.elapsed() >= Duration::from_secs(1) {
            self.shown = true;
            let _ = write!(std::io::stderr(), "\r{files} files looked at");
        }
    }

    fn clear(&self) {
        if self.shown {
            // To the start of the line, and erase it.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
