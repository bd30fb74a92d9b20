//! The run state: the second line of a record. The caller's own fields, and ours about what the owner was doing.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::owner;

/// The field that tells of a claim that an operator broke.
pub(crate) const BROKEN: &str = "broken";

/// The field that tells on what verdict the record of a dead owner was vacated.
pub(crate) const SETTLED: &str = "settled";

/// The field that keeps the last starts.
pub(crate) const STARTS: &str = "starts";

/// What became of an action that was noted with `intent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    Completed,
    /// It was given up, and nothing is left half done.
    Failed,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        })
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "completed" => Ok(Self::Completed),
            "failed" => Ok(Self::Failed),
            other => Err(format!("an outcome is `completed` or `failed`, not `{other}`")),
        }
    }
}

/// Fields that describe the run. `intent`, `outcome` and `exit` have a meaning of their own; every other key is the
/// caller's (`phase`, `thread`, `appserver`, …).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunState(Map<String, Value>);

impl RunState {
    /// All fields, in the order in which they were first set.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// A field as text; `None` when it is not there or is not a JSON string.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// Whether a field says this: a string its text, anything else its JSON.
    pub fn says(&self, key: &str, value: &str) -> bool {
        match self.0.get(key) {
            Some(Value::String(text)) => text == value,
            Some(other) => serde_json::to_string(other).is_ok_and(|json| json == value),
            None => false,
        }
    }

    /// Sets a field.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }

    /// Why a caller may not set a field of this name, if so: leasehold writes it itself, or reading it back by name would
    /// give something else.
    pub(crate) fn refuses(key: &str) -> Option<String> {
        let why = match key {
            BROKEN | SETTLED | STARTS => "is written by leasehold alone",
            _ if owner::KEYS.contains(&key) || key == "beat" => {
                "would be hidden by that of the owner line or heartbeat"
            }
            _ if key.is_empty() || key.contains('=') || key.contains(char::is_control) => {
                "is no name: it is empty, or has an equals sign or a control character in it"
            }
            _ => return None,
        };
        Some(format!("the field `{key}` {why}; choose another name"))
    }

    /// Removes a field; the others keep their order.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.shift_remove(key);
    }

    /// The action that the owner was about to take. One that is not a string is one all the same, as its JSON text:
    /// taking it for none would settle a doubt that is there.
    pub fn intent(&self) -> Option<Cow<'_, str>> {
        match self.0.get("intent")? {
            Value::Null => None,
            Value::String(text) => Some(text.into()),
            other => Some(other.to_string().into()),
        }
    }

    /// What became of it. A word that this version does not know is no outcome: the effect stays in doubt.
    pub fn outcome(&self) -> Option<Outcome> {
        self.get("outcome")?.parse().ok()
    }
}

impl From<Map<String, Value>> for RunState {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}
