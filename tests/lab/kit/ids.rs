//! Which process is which: a pid counts only together with its start time, and a session only inside the run's own
//! network namespace.

use super::Result;
use serde::{Deserialize, Serialize};
use std::fs;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcId {
    pub pid: i32,
    pub start: u64,
}

pub struct Stat {
    pub id: ProcId,
    pub state: char,
    pub group: i32,
    pub session: i32,
}

pub fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold blanks and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        id: ProcId {
            pid,
            start: fields.get(19)?.parse().ok()?,
        },
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
    })
}

impl ProcId {
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|s| s.id)
    }

    pub fn this() -> Result<Self> {
        Self::of(std::process::id() as i32).ok_or_else(|| "read /proc/self/stat: is /proc mounted?".into())
    }

    /// An exited process that its parent has not reaped does not count.
    pub fn state(self) -> Option<char> {
        stat(self.pid)
            .filter(|s| s.id == self && !matches!(s.state, 'Z' | 'X'))
            .map(|s| s.state)
    }
}

pub fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| stat(e.file_name().to_str()?.parse().ok()?))
        .collect()
}

pub fn is_inside(pid: i32, namespace: u64) -> bool {
    let link = fs::read_link(format!("/proc/{pid}/ns/net"));
    link.is_ok_and(|link| link.to_str() == Some(&format!("net:[{namespace}]")))
}

/// The living processes inside a network namespace.
pub fn inside(namespace: u64) -> Vec<Stat> {
    let mut all = all();
    all.retain(|s| !matches!(s.state, 'Z' | 'X') && is_inside(s.id.pid, namespace));
    all
}

pub fn command_line(pid: i32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    Ok(fs::read_to_string(path)
        .map_err(|e| format!("{path}: read: {e}"))?
        .trim()
        .into())
}
