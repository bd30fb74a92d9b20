//! Files in which other programs name the owner of something: pid files and locks from before owner lines. Readers only,
//! and pure: such a file is never written or removed by Leasehold. What each can and cannot tell: `docs/legacy.md`.
//!
//! A family is one line of [`FAMILIES`] and a function that takes the content apart. It must be sure: what it does not
//! recognise as a whole is for another family, or nobody's.

use serde_json::Value;

use crate::facts::{LegacyFacts, RecordFacts, RecordState};
use crate::owner::Pid;

/// What stands at a path.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The text of a regular file.
    Text(&'a str),
    /// Where a symbolic link points that leads nowhere.
    Link(&'a str),
}

/// One kind of file.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name, as it is printed and stands in facts.
    pub name: &'static str,
    /// For people.
    pub about: &'static str,
    read: fn(Content<'_>) -> Option<Claimant>,
}

/// What a file says about its owner. All but the pid may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
struct Claimant {
    pid: i64,
    host: Option<String>,
    boot: Option<String>,
    pidns: Option<u64>,
    start: Option<u64>,
    started: Option<i64>,
}

/// Every family, in the order in which they are asked.
pub const FAMILIES: &[Family] = &[
    family("bare-pid", "a pid file: a number and nothing else", bare_pid),
    family("gnupg", "a lock of GnuPG (dotlock)", gnupg),
    family("pid-host", "a pid file with a host name on its second line", pid_host),
    family(
        "agmsg-holder",
        "the holder file of an agmsg configuration lock",
        agmsg_holder,
    ),
    family("agmsg-lease", "a lease file of agmsg", agmsg_lease),
    family("codex", "the pid file of a Codex app server", codex),
    family("codeflowmu", "a runtime lock of CodeFlowMu", codeflowmu),
    family("mercurial", "a lock of Mercurial", mercurial),
    family("emacs", "a lock of Emacs", emacs),
    family("chrome", "the singleton lock of a Chrome profile", chrome),
];

const fn family(name: &'static str, about: &'static str, read: fn(Content<'_>) -> Option<Claimant>) -> Family {
    Family { name, about, read }
}

/// The facts of a file of another program; `None` when no family recognises it.
pub fn recognise(content: Content<'_>) -> Option<RecordFacts> {
    // A link is looked up, to see that it leads nowhere: beside itself, and not where its maker wants us to look.
    if let Content::Link(target) = content
        && (target.starts_with('/') || target.split('/').any(|part| part == ".."))
    {
        return None;
    }
    FAMILIES.iter().find_map(|family| {
        let claimant = (family.read)(content)?;
        let pid = Pid::new(claimant.pid)?;
        Some(RecordFacts {
            state: RecordState::Present,
            pid: Some(pid.get().into()),
            host: claimant.host,
            boot: claimant.boot,
            pidns: claimant.pidns,
            start: claimant.start,
            legacy: Some(LegacyFacts {
                family: family.name.to_owned(),
                started: claimant.started,
                born: None,
            }),
            ..RecordFacts::default()
        })
    })
}

fn bare_pid(content: Content<'_>) -> Option<Claimant> {
    let Content::Text(text) = content else { return None };
    Some(Claimant {
        pid: number(text.trim_matches([' ', '\t', '\r', '\n']))?,
        ..Claimant::default()
    })
}

/// `%10d`, a newline, the node name.
fn gnupg(content: Content<'_>) -> Option<Claimant> {
    let [first, second] = lines(content)?;
    let padded = first.len() == 10 && first.starts_with(' ');
    Some(Claimant {
        pid: padded.then(|| number(first.trim_start()))??,
        host: Some(host(second)?),
        ..Claimant::default()
    })
}

fn pid_host(content: Content<'_>) -> Option<Claimant> {
    let [first, second] = lines(content)?;
    Some(Claimant {
        pid: number(first.trim())?,
        host: Some(host(second.trim())?),
        ..Claimant::default()
    })
}

/// `token HOST.PID.EPOCH.32hex`, `pid PID`, `command …`, `host HOST`.
fn agmsg_holder(content: Content<'_>) -> Option<Claimant> {
    let lines: [&str; 4] = lines(content)?;
    let field = |key: &str| {
        let mut named = lines
            .iter()
            .filter_map(|line| line.split_once(' ').filter(|(name, _)| *name == key));
        named.next().map(|(_, value)| value)
    };
    let (token, pid) = (field("token")?, number(field("pid")?)?);
    field("command")?;
    let host = host(field("host")?)?;
    // The token says the same once more; a host name may hold dots.
    let mut parts = token.rsplitn(4, '.');
    let (random, epoch, named, place) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let whole = random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    (whole && number(epoch).is_some() && number(named) == Some(pid) && place == host).then(|| Claimant {
        pid,
        host: Some(host),
        ..Claimant::default()
    })
}

/// Seven lines `key=value`, of which the first is `v=1`. The start is raw ticks where `startsrc` says so.
fn agmsg_lease(content: Content<'_>) -> Option<Claimant> {
    let lines: [&str; 7] = lines(content)?;
    let field = |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    if lines[0] != "v=1" {
        return None;
    }
    field("project")?;
    field("pairs")?;
    let ticks = field("startsrc")? == "proc";
    Some(Claimant {
        pid: number(field("pid")?)?,
        host: host(field("host")?),
        start: field("start").filter(|_| ticks).and_then(|start| start.parse().ok()),
        ..Claimant::default()
    })
}

/// `{"pid":…,"processStartTime":"Wed Aug 26 10:25:14 2026"}`; newer ones have `processIdentity` as well, or instead.
fn codex(content: Content<'_>) -> Option<Claimant> {
    let object = object(content)?;
    let (time, identity) = (object.get("processStartTime"), object.get("processIdentity"));
    if time.is_none() && identity.is_none() {
        return None;
    }
    let identity = |key: &str| identity.and_then(|identity| identity.get(key));
    Some(Claimant {
        pid: object.get("pid")?.as_i64()?,
        boot: identity("bootId")
            .and_then(Value::as_str)
            .map(|boot| boot.trim().to_ascii_lowercase()),
        start: identity("startTicks").and_then(|ticks| ticks.as_u64().or_else(|| ticks.as_str()?.parse().ok())),
        started: time.and_then(Value::as_str).and_then(wall_clock),
        ..Claimant::default()
    })
}

fn codeflowmu(content: Content<'_>) -> Option<Claimant> {
    let object = object(content)?;
    let keys = ["instance_id", "pid", "panel_port", "project_root", "acquired_at"];
    keys.iter().all(|key| object.contains_key(*key)).then_some(())?;
    Some(Claimant {
        pid: object.get("pid")?.as_i64()?,
        ..Claimant::default()
    })
}

/// `host/pidns:pid`, the namespace's inode in hex; `host:pid` where there are no namespaces.
fn mercurial(content: Content<'_>) -> Option<Claimant> {
    let Content::Link(target) = content else { return None };
    let (place, pid) = target.rsplit_once(':')?;
    let (name, pidns) = match place.split_once('/') {
        Some((name, inode)) => (name, Some(u64::from_str_radix(inode, 16).ok()?)),
        None => (place, None),
    };
    Some(Claimant {
        pid: number(pid)?,
        host: Some(host(name)?),
        pidns,
        ..Claimant::default()
    })
}

/// `user@host.pid:boottime`; the boot time may be missing, and its colon comes back as U+F022 from some CIFS mounts.
fn emacs(content: Content<'_>) -> Option<Claimant> {
    let Content::Link(target) = content else { return None };
    let place = match target.rsplit_once([':', '\u{f022}']) {
        Some((place, boot)) => number(boot).map(|_| place)?,
        None => target,
    };
    let (_, place) = place.rsplit_once('@')?;
    let (name, pid) = place.rsplit_once('.')?;
    Some(Claimant {
        pid: number(pid)?,
        host: Some(host(name)?),
        ..Claimant::default()
    })
}

/// `host-pid`.
fn chrome(content: Content<'_>) -> Option<Claimant> {
    let Content::Link(target) = content else { return None };
    let (name, pid) = target.rsplit_once('-')?;
    Some(Claimant {
        pid: number(pid)?,
        host: Some(host(name)?),
        ..Claimant::default()
    })
}

/// Exactly so many lines; the last newline may be missing.
fn lines<const N: usize>(content: Content<'_>) -> Option<[&str; N]> {
    let Content::Text(text) = content else { return None };
    let lines: Vec<&str> = text.lines().take(N + 1).collect();
    lines.try_into().ok()
}

fn object(content: Content<'_>) -> Option<serde_json::Map<String, Value>> {
    let Content::Text(text) = content else { return None };
    match serde_json::from_str(text).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// Digits and nothing else.
fn number(text: &str) -> Option<i64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// What can be a host name; a number alone is none.
fn host(text: &str) -> Option<String> {
    let fits = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    (fits && text.len() <= 255 && text.bytes().any(|byte| byte.is_ascii_alphabetic())).then(|| text.to_owned())
}

/// `Wed Aug 26 10:25:14 2026` (asctime(3), `ps -o lstart`), in the zone of whoever wrote it: the seconds since 1970 that
/// the same reading would be in UTC. Two readings of one zone can be compared.
fn wall_clock(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, month, day, time, year] = words[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let day: u8 = day.parse().ok()?;
    let reading = humantime::parse_rfc3339_weak(&format!("{year}-{month:02}-{day:02} {time}")).ok()?;
    let since = reading.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_a_wall_clock() {
        // date -u -d '2026-08-26 10:25:14' +%s
        assert_eq!(wall_clock("Wed Aug 26 10:25:14 2026"), Some(1_787_739_914));
        assert_eq!(wall_clock("Thu Jan  1 00:00:00 1970"), Some(0));
        for odd in [
            "",
            "Wed Aug 26 10:25:14",
            "Wed Foo 26 10:25:14 2026",
            "Wed Aug 42 10:25:14 2026",
            "a b c d e",
        ] {
            assert_eq!(wall_clock(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn no_two_families_have_a_name_in_common() {
        let mut names: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }
}
