//! A whole record: owner line, run state and heartbeat. Printing is stable, parsing is strict and total.

use std::fmt;

use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::owner::{FORMAT, OwnerLine, Pid};
use crate::run_state::RunState;

/// The largest record, in bytes.
pub const LARGEST: usize = 64 * 1024;

const BEAT_DIGITS: usize = 16;

/// Heartbeats wrap here, so that their line keeps its width. Observers only ask whether one changed.
const BEATS: u64 = 10u64.pow(BEAT_DIGITS as u32);

/// The largest `epoch` and `seq`: counting never gets there, and there is room above it to count on from any record.
const LARGEST_COUNT: u64 = i64::MAX as u64;

/// One record, as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Line 1.
    pub owner: OwnerLine,
    /// Line 2.
    pub state: RunState,
    /// Line 3: the heartbeat. Grows while the holder renews; observers only ask whether it changed.
    pub beat: u64,
}

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No bytes at all.
    Empty,
    /// A record that was cut short, by a crash or by a writer that does not replace files whole.
    Torn,
    /// Not a record, with what was found.
    Malformed(String),
    /// A record of a later format version.
    NewerFormat(u64),
    /// Nothing but a number: a pid file from before owner lines. It names no host.
    BarePid(Pid),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty"),
            Self::Torn => f.write_str("the record is cut short"),
            Self::Malformed(what) => write!(f, "not a record: {what}"),
            Self::NewerFormat(version) => write!(f, "format {version}; this version understands {FORMAT}"),
            Self::BarePid(pid) => write!(f, "a bare pid file: {pid}"),
        }
    }
}

impl Record {
    /// The bytes of the record, ready to be published.
    pub fn print(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(&self.owner).expect("an owner line holds only strings, numbers and maps");
        bytes.push(b'\n');
        serde_json::to_writer(&mut bytes, &self.state).expect("a run state is a JSON map");
        bytes.push(b'\n');
        bytes.extend_from_slice(beat_line(self.beat).as_bytes());
        bytes
    }

    /// Reads a record from the whole content of a file.
    ///
    /// Every proper prefix of a printed record is [`Flaw::Empty`] or [`Flaw::Torn`]; no input panics.
    ///
    /// # Errors
    /// What is wrong with it instead.
    pub fn parse(bytes: &[u8]) -> Result<Self, Flaw> {
        if bytes.is_empty() {
            return Err(Flaw::Empty);
        }
        // A crash may leave blocks of zeros where data was on its way to the disk.
        if bytes.contains(&0) {
            return Err(Flaw::Torn);
        }
        let text = std::str::from_utf8(bytes).map_err(|error| match error.error_len() {
            None => Flaw::Torn, // cut inside a character
            Some(_) => malformed("not UTF-8"),
        })?;
        if !text.starts_with('{') {
            return Err(bare_pid(text));
        }
        let mut lines = text.split_inclusive('\n');
        let first = lines.next().unwrap_or_default();
        match version(first)? {
            FORMAT => {}
            newer if newer > FORMAT => return Err(Flaw::NewerFormat(newer)),
            odd => return Err(malformed(format!("format {odd}"))),
        }
        let owner: OwnerLine = line("owner line", first)?;
        let state: Fields = line("run state", lines.next().unwrap_or_default())?;
        let beat = beat(lines.next().unwrap_or_default())?;
        if lines.next().is_some() {
            return Err(malformed("more than three lines"));
        }
        for (key, count) in [("epoch", owner.epoch), ("seq", owner.seq)] {
            if count > LARGEST_COUNT {
                return Err(malformed(format!("owner line: {key} {count} is beyond counting")));
            }
        }
        if owner.pid.is_none() && owner.ended.is_none() {
            return Err(malformed("owner line: missing field `pid`"));
        }
        Ok(Self {
            owner,
            state: state.0.into(),
            beat,
        })
    }
}

/// The heartbeat line of a beat, with its newline: what a holder writes over the end of the file.
pub(crate) fn beat_line(beat: u64) -> String {
    let beat = beat % BEATS;
    format!("{{\"beat\":\"{beat:0BEAT_DIGITS$}\"}}\n")
}

fn malformed(what: impl Into<String>) -> Flaw {
    Flaw::Malformed(what.into())
}

/// The format version, before anything else is asked of the line: a later format may have other keys.
fn version(first: &str) -> Result<u64, Flaw> {
    let head: Fields = line("owner line", first)?;
    match head.0.get("leasehold") {
        Some(version) => version
            .as_u64()
            .ok_or_else(|| malformed("the format version is no number")),
        None => Err(malformed("an owner line starts with the key `leasehold`")),
    }
}

/// A JSON object whose keys stand once each: of an intent that is noted twice, neither may win.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;

        impl<'de> Visitor<'de> for Once {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Map::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&key) {
                        return Err(de::Error::custom(format_args!("duplicate field {key:?}")));
                    }
                    fields.insert(key, value);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Once)
    }
}

fn line<T: DeserializeOwned>(what: &str, line: &str) -> Result<T, Flaw> {
    let Some(whole) = line.strip_suffix('\n') else {
        return Err(Flaw::Torn);
    };
    serde_json::from_str(whole).map_err(|error| {
        if error.is_eof() {
            Flaw::Torn
        } else {
            malformed(format!("{what}: {error}"))
        }
    })
}

fn beat(line: &str) -> Result<u64, Flaw> {
    if !line.ends_with('\n') {
        return Err(Flaw::Torn);
    }
    line.strip_prefix("{\"beat\":\"")
        .and_then(|rest| rest.strip_suffix("\"}\n"))
        .filter(|digits| digits.len() == BEAT_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| malformed("the third line is not a heartbeat"))
}

fn bare_pid(text: &str) -> Flaw {
    let number = text.trim_matches([' ', '\t', '\r', '\n']);
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse().ok().filter(|_| plain).and_then(Pid::new) {
        Some(pid) => Flaw::BarePid(pid),
        None => malformed("neither an owner line nor a pid"),
    }
}
