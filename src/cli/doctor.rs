//! `leasehold doctor`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::doctor::{Doctor, Finding, Level, Unmet, worst};
use serde_json::{Value, json};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold doctor ~/run
  leasehold doctor ~/run --meet tuesday     # and the same on another host, within a minute

Findings are ok, note, warning or problem, each with why it matters and what to do. What can be tried is tried, with \
files that are removed again. Two hosts find out together what one cannot tell: what they see of each other's changes, \
whether links and creates have one winner, whether locks exclude. docs/filesystems.md has a table of filesystems.

Exit: 0 nothing in the way · 2 something makes verdicts weak (a warning) · 64 usage · 74 the directory cannot be used (a \
problem) · 75 nobody came to the meeting, or somebody left it";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of the records
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// How long a call on the filesystem may take until it is said to hang
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = super::duration)]
    patience: Duration,
    /// Meet other hosts on which the same is run with the same word, and find out together
    #[arg(long, value_name = "WORD")]
    meet: Option<String>,
    /// How long to wait for another host to come
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "meet", value_parser = super::duration)]
    wait: Duration,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> ExitCode {
    match leasehold::doctor::apart(|| examine(&args) as u8) {
        Ok(code) => code.into(),
        Err(signal) => interrupted(signal).into(),
    }
}

fn examine(args: &Args) -> Exit {
    let doctor = Doctor::new(&args.dir).patience(args.patience).until_signals(true);
    if let Some(word) = &args.meet {
        return meet(args, doctor, word);
    }
    let report = doctor.examine();
    if let Some(signal) = report.interrupted {
        return interrupted(signal);
    }
    let exit = exit(&report.findings);
    if args.json {
        print_json(args, exit, json!(report));
    } else {
        let mut out = format!("{}: {}\n", text::path(&args.dir), summary(&report.findings));
        list(&report.findings, &mut out);
        text::print(&out);
    }
    exit
}

fn meet(args: &Args, doctor: Doctor, word: &str) -> Exit {
    let dir = text::path(&args.dir);
    let word_shown = text::escape(word);
    text::complain(&format!(
        "leasehold: waiting for another host to run: leasehold doctor {dir} --meet {word_shown}\n"
    ));
    let met = match doctor.meet(word, args.wait) {
        Ok(met) => met,
        Err(Unmet::Signal(signal)) => return interrupted(signal),
        Err(unmet) => {
            let exit = match unmet {
                Unmet::Io(_) => Exit::Io,
                _ => Exit::TimedOut,
            };
            if args.json {
                let failure = text::failure_json(&unmet.to_string(), &args.dir, exit);
                text::print(&format!("{}\n", Value::from(failure)));
            } else {
                text::complain(&format!("leasehold: {dir}: {}\n", text::escape(&unmet.to_string())));
            }
            return exit;
        }
    };
    let exit = exit(&met.findings);
    if args.json {
        print_json(args, exit, json!(met));
        return exit;
    }
    let mut out = format!("{} hosts met: {}\n", met.hosts.len(), summary(&met.findings));
    for host in &met.hosts {
        let (name, mount) = (text::escape(&host.name()), text::escape(&host.mount));
        out.push_str(&format!("  {name}, process {}: {mount}\n", host.pid));
    }
    list(&met.findings, &mut out);
    text::print(&out);
    exit
}

fn print_json(args: &Args, exit: Exit, fields: Value) {
    let mut object = text::path_json(&args.dir);
    object.insert("exit".into(), json!(exit as u8));
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    text::print(&format!("{}\n", Value::from(object)));
}

fn exit(findings: &[Finding]) -> Exit {
    match worst(findings) {
        Level::Ok | Level::Note => Exit::Done,
        Level::Warning => Exit::Undetermined,
        Level::Problem => Exit::Io,
    }
}

/// Everything is tidied up; whoever sent the signal is to see that it worked.
fn interrupted(signal: i32) -> Exit {
    leasehold::end_by_signal(signal);
    Exit::TimedOut
}

fn summary(findings: &[Finding]) -> String {
    let verdict = match worst(findings) {
        Level::Ok | Level::Note => "nothing in the way",
        Level::Warning => "usable; verdicts are weak in some cases",
        Level::Problem => "cannot be used",
    };
    let mut counts = Vec::new();
    for level in [Level::Problem, Level::Warning, Level::Note] {
        match findings.iter().filter(|finding| finding.level == level).count() {
            0 => {}
            1 => counts.push(format!("1 {}", text::word(&level))),
            many => counts.push(format!("{many} {}s", text::word(&level))),
        }
    }
    match counts.is_empty() {
        true => verdict.into(),
        false => format!("{verdict} ({})", counts.join(", ")),
    }
}

/// Where the columns are, and how wide the last may be.
const LEVEL: usize = 9;
const AREA: usize = 12;
const ID: usize = 21;
const WIDTH: usize = 72;

fn list(findings: &[Finding], out: &mut String) {
    let indent = " ".repeat(LEVEL + AREA + ID);
    for finding in findings {
        let head = format!(
            "{:<LEVEL$}{:<AREA$}{:<ID$}",
            text::word(&finding.level),
            text::word(&finding.area),
            finding.id
        );
        let mut rows = vec![(head, "", &finding.what)];
        if finding.level > Level::Ok {
            rows.push((indent.clone(), "why: ", &finding.why));
            rows.push((indent.clone(), "do:  ", &finding.remedy));
        }
        for (head, label, what) in rows.into_iter().filter(|(.., what)| !what.is_empty()) {
            let mut lines = wrapped(&text::escape(what), WIDTH - label.len()).into_iter();
            out.push_str(&format!("{head}{label}{}\n", lines.next().unwrap_or_default()));
            for line in lines {
                out.push_str(&format!("{indent}{}{line}\n", " ".repeat(label.len())));
            }
        }
    }
}

/// In lines of at most that many characters, broken at spaces.
fn wrapped(what: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in what.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
