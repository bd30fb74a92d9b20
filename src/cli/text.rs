//! How things are printed: tab lines, paragraphs, JSON, and names that may hold anything.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold::facts::RecordFacts;
use leasehold::{Error, Judgement, Verdict};
use serde_json::{Map, Value, json};

use super::exit::Exit;

/// Prints to stdout, and says whether a reader is still there: one that has gone away ends it quietly. A full disk does
/// not.
pub(crate) fn print(text: &str) -> bool {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> bool {
    match try_print(bytes) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
        Err(error) => {
            complain(&format!("leasehold: cannot write to standard output: {error}\n"));
            std::process::exit(Exit::Io as i32);
        }
    }
}

/// Prints a path as it is, for a shell to use, and a newline.
pub(crate) fn print_path(path: &Path) {
    print_bytes(&[path.as_os_str().as_encoded_bytes(), b"\n"].concat());
}

/// Prints to stdout.
pub(crate) fn try_print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Prints to stderr, in one call. Nobody is left to tell when that fails, and the exit code must not change by it.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// A path for a tab line or a message: tab, newline, backslash, other control characters and bytes that are no UTF-8
/// in C style.
pub(crate) fn path(path: &Path) -> String {
    let mut out = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        out.push_str(&escape(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Text out of a record, harmless on a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            // Besides controls, the marks that make text read in another order than it is written.
            char if char.is_control()
                || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "\\x{byte:02x}");
                }
            }
            char => out.push(char),
        }
    }
    out
}

/// `verdict TAB reason TAB host TAB pid TAB path`, `-` for what is not known.
pub(crate) fn tab_line(judgement: &Judgement, file: &Path) -> String {
    let owner = &judgement.owner;
    let host = owner
        .host
        .as_deref()
        .filter(|host| !host.is_empty())
        .map_or("-".into(), escape);
    let pid = owner.valid_pid().map_or("-".into(), |pid| pid.to_string());
    format!(
        "{}\t{}\t{host}\t{pid}\t{}\n",
        judgement.verdict,
        judgement.reason,
        path(file)
    )
}

/// The same for a person.
pub(crate) fn paragraph(judgement: &Judgement, path: &Path) -> String {
    let file = self::path(path);
    let mut out = format!("{file}: {} ({})\n", judgement.verdict, judgement.reason);
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "  {name:<9} {text}");
    };
    row("", &escape(&judgement.sentence));
    if let Some(owner) = owner(&judgement.owner) {
        row("owner", &owner);
    }
    if let Some(intent) = &judgement.owner.intent {
        row("intent", &format!("{} ({})", escape(intent), word(&judgement.effect)));
    }
    for evidence in judgement
        .evidence
        .iter()
        .filter(|evidence| judgement.verdict != Verdict::Free && evidence.recorded != evidence.found)
        // The process table was not asked, and "here -" would read as if it had an answer.
        .filter(|evidence| evidence.found.is_some() || !["start ticks", "pidfs inode"].contains(&evidence.what))
    {
        let side = |value: &Option<String>| value.as_deref().map_or("-".into(), escape);
        row(
            "",
            &format!(
                "{}: recorded {}, here {}",
                evidence.what,
                side(&evidence.recorded),
                side(&evidence.found)
            ),
        );
    }
    row("next", &next(judgement, path));
    out
}

/// What to do, escaped once.
fn next(judgement: &Judgement, path: &Path) -> String {
    escape(&judgement.next(&path.to_string_lossy()))
}

/// How long ago, in its two largest units.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, ..) => format!("{days}d{hours:02}h"),
    }
}

/// The beginning of a text that is too wide for its place.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// The owner in one line, if the record names one.
fn owner(record: &RecordFacts) -> Option<String> {
    let mut out = format!(
        "{} pid {}",
        escape(record.host.as_deref().unwrap_or("unknown host")),
        record.pid.as_ref()?
    );
    if let Some(uid) = record.uid {
        let _ = write!(out, " uid {uid}");
    }
    if let Some(epoch) = record.epoch {
        let _ = write!(out, ", epoch {epoch}");
    }
    if let Some(since) = &record.since {
        let _ = write!(out, ", since {}", escape(since));
    }
    if let Some(cmd) = &record.cmd {
        let _ = write!(out, ": {}", escape(cmd));
    }
    Some(out)
}

/// The word of an answer, as JSON spells it.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// A judgement as one JSON object.
pub(crate) fn judgement_json(judgement: &Judgement, file: &Path) -> Value {
    let mut object = path_json(file);
    if let Ok(Value::Object(fields)) = serde_json::to_value(judgement) {
        object.extend(fields);
    }
    object.insert("next".into(), judgement.next(&file.to_string_lossy()).into());
    object.into()
}

/// `path`, and `path_base64` where the path is no UTF-8.
pub(crate) fn path_json(file: &Path) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("path".into(), file.to_string_lossy().into());
    if file.to_str().is_none() {
        object.insert(
            "path_base64".into(),
            STANDARD.encode(file.as_os_str().as_encoded_bytes()).into(),
        );
    }
    object
}

/// An error for a person: what happened, to whom it is held, what to do.
pub(crate) fn error(error: &Error, file: &Path) -> String {
    let mut out = format!("leasehold: {}\n", head(error, file));
    if let Some(judgement) = judgement(error) {
        if let Some(owner) = owner(&judgement.owner) {
            let _ = writeln!(out, "  owner  {owner}");
        }
        let _ = writeln!(out, "  next   {}", next(judgement, file));
    }
    if matches!(error, Error::Lost { .. }) {
        out.push_str("  next   write nothing more under this token; another claim gets the next epoch\n");
    }
    out
}

fn head(error: &Error, path: &Path) -> String {
    let file = self::path(path);
    match error {
        Error::Refused(judgement) => {
            format!(
                "{file} is {} ({}): {}",
                judgement.verdict,
                judgement.reason,
                escape(&judgement.sentence)
            )
        }
        Error::InDoubt(judgement) => format!(
            "{file}: what its last owner was doing is in doubt: intent `{}`, no outcome noted; \
             --accept-in-doubt takes the lease all the same",
            escape(judgement.owner.intent.as_deref().unwrap_or_default())
        ),
        Error::TimedOut { waited, last } => {
            format!("gave up after {:.1} s: {}", waited.as_secs_f64(), head(last, path))
        }
        other => escape(&other.to_string()),
    }
}

fn judgement(error: &Error) -> Option<&Judgement> {
    match error {
        Error::Refused(judgement) | Error::InDoubt(judgement) => Some(judgement),
        Error::TimedOut { last, .. } => judgement(last),
        _ => None,
    }
}

/// An error as one JSON object.
pub(crate) fn error_json(error: &Error, file: &Path, exit: Exit) -> Value {
    let mut object = failure_json(&error.to_string(), file, exit);
    if let Some(judgement) = judgement(error) {
        object.insert("judgement".into(), judgement_json(judgement, file));
    }
    object.into()
}

pub(crate) fn failure_json(what: &str, file: &Path, exit: Exit) -> Map<String, Value> {
    let mut object = path_json(file);
    object.insert("error".into(), what.into());
    object.insert("exit".into(), json!(exit as u8));
    object
}
