//! How things are printed: tab lines, paragraphs, JSON, and names that may hold anything.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leasehold::facts::RecordFacts;
use leasehold::{Error, Judgement};
use serde_json::{Map, Value, json};

use super::exit::Exit;

/// Prints to stdout. A reader that has gone away ends it quietly; a full disk does not.
pub(crate) fn print(text: &str) {
    print_bytes(text.as_bytes());
}

fn print_bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("leasehold: cannot write to standard output: {error}");
            std::process::exit(Exit::Io as i32);
        }
        _ => {}
    }
}

/// Prints a path as it is, for a shell to use, and a newline.
pub(crate) fn print_path(path: &Path) {
    print_bytes(&[path.as_os_str().as_encoded_bytes(), b"\n"].concat());
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
            char if char.is_control() => {
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
pub(crate) fn paragraph(judgement: &Judgement, file: &Path) -> String {
    let file = path(file);
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
        .filter(|evidence| evidence.recorded != evidence.found)
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
    row("next", &escape(&judgement.next(&file)));
    out
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
fn word(value: &impl serde::Serialize) -> String {
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
    object.insert("next".into(), judgement.next(&path(file)).into());
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
        let _ = writeln!(out, "  next   {}", escape(&judgement.next(&path(file))));
    }
    out
}

fn head(error: &Error, file: &Path) -> String {
    let file = path(file);
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
            format!(
                "gave up after {:.1} s: {}",
                waited.as_secs_f64(),
                head(last, Path::new(&file))
            )
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
    let mut object = path_json(file);
    object.insert("error".into(), error.to_string().into());
    object.insert("exit".into(), json!(exit as u8));
    if let Some(judgement) = judgement(error) {
        object.insert("judgement".into(), judgement_json(judgement, file));
    }
    object.into()
}
