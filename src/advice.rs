//! What to do next, in words: for each reason one honest way on.

use crate::facts::RecordFacts;
use crate::scan::Tally;
use crate::verdict::{Effect, Judgement, Reason, Verdict};

impl Judgement {
    /// What to do next about the record at `path`.
    pub fn next(&self, path: &str) -> String {
        let way = way(self, path);
        match self.effect {
            Effect::InDoubt => format!(
                "{way}; its action `{}` may or may not have happened: find out before it is run again",
                self.owner.intent.as_deref().unwrap_or_default()
            ),
            _ => way,
        }
    }
}

impl Tally {
    /// What to do next about the records of a sweep over these places, quoted for a shell, a line each.
    pub fn next(&self, places: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |applies: bool, line: String| {
            if applies {
                lines.push(line);
            }
        };
        let has = |reason| self.has(reason);
        say(
            self.count(Verdict::Held) > 0 && has(Reason::ProcessRunning),
            "held: wait for their owners, or end one that should not run: leasehold stop PATH".into(),
        );
        say(
            self.count(Verdict::Dead) > 0,
            format!("dead: claim them, or let other hosts know that they are free: leasehold settle {places}"),
        );
        say(
            self.count(Verdict::Lapsed) > 0,
            "lapsed: claim with --take-lapsed where the owner's own terms may end it".into(),
        );
        for host in &self.hosts {
            let is_plain = is_host_name(host) && places.split(' ').all(is_plain);
            say(
                true,
                match is_plain {
                    true => format!("of {host}: ask there: ssh {host} leasehold scan {places}"),
                    false => format!("of {host}: ask there: leasehold scan --ask {places}"),
                },
            );
        }
        let unplaced = [Reason::NoHost, Reason::NoBoot].into_iter().any(has);
        say(
            unplaced,
            "no-host, no-boot: these cannot be placed; look by hand on every host that shares them".into(),
        );
        let broken = [Reason::Unreadable, Reason::Torn, Reason::Malformed, Reason::Empty];
        say(
            broken.into_iter().any(has),
            "unreadable, torn, malformed, empty: look again in a moment; what stays has to be looked at by hand".into(),
        );
        let other = Reason::ALL.iter().copied().filter(|reason| {
            let told = [Reason::ForeignHost, Reason::NoHost, Reason::NoBoot];
            reason.verdict() == Verdict::Undetermined
                && has(*reason)
                && !told.contains(reason)
                && !broken.contains(reason)
        });
        let other: Vec<_> = other.map(Reason::word).collect();
        say(
            !other.is_empty(),
            format!("{}: leasehold judge PATH says what to do", other.join(", ")),
        );
        say(
            self.in_doubt > 0,
            format!(
                "{} in doubt: an intent and no outcome; find out before the action is run again",
                self.in_doubt
            ),
        );
        lines
    }
}

fn way(judgement: &Judgement, path: &str) -> String {
    let owner = &judgement.owner;
    let there = there(owner);
    match judgement.reason {
        Reason::ProcessRunning => format!("wait for process {} to end or release it (claim --wait)", pid(owner)),
        Reason::KeeperRunning => "wait: the supervisor ends what the owner left, then the record is free".into(),
        Reason::AskedHeld => format!("wait, or end it on {there}"),
        Reason::AskedDead => match on_its_host(owner, "settle", path) {
            Some(line) => format!("let its host say so in the record: {line}"),
            None => "let its host say so in the record: leasehold settle, there".into(),
        },
        Reason::ServerAttested => format!("wait, or ask its host: {}", ask(owner, path)),
        Reason::NoRecord | Reason::Ended => "claim it".into(),
        Reason::NotRenewed => {
            format!("claim with --take-lapsed if the owner's own terms may end it; {there} may still be running it")
        }
        Reason::ForeignHost
        | Reason::IdentityConflict
        | Reason::OtherTimeNamespace
        | Reason::NoPidNamespace
        | Reason::NoStartTime => match owner.ttl {
            Some(ttl) => format!(
                "ask its host: {}; or watch whether it lapses: leasehold judge --observe {}s {}",
                ask(owner, path),
                crate::verdict::lapse_after(ttl).as_secs() + 2,
                quote(path)
            ),
            None => format!("ask its host: {}", ask(owner, path)),
        },
        Reason::OtherPidNamespace => {
            format!(
                "judge it inside the container that wrote it: process {} there; leasehold ask --via reaches into one",
                pid(owner)
            )
        }
        Reason::StartUnreadable => {
            "judge it as the owner's user or as root, in a pid namespace that has its own /proc without hidepid".into()
        }
        Reason::NoHost => {
            let look = format!(
                "find out by hand on every host that shares this directory whether process {} is meant",
                pid(owner)
            );
            match &owner.legacy {
                Some(legacy) if legacy.family == "bare-pid" => format!(
                    "{look}; there, a second file can say so: leasehold claim --binds FILE --owner {} {}, \
                     FILE being its name without the directory",
                    pid(owner),
                    quote(&format!("{path}.lease"))
                ),
                _ => look,
            }
        }
        Reason::NoBoot => format!("look on {there} by hand for process {}", pid(owner)),
        Reason::PayloadMismatch => "look which of the two pids is right; another program wrote the pid file".into(),
        Reason::Empty => {
            "look again in a moment; if it stays empty and nobody is about to write it, remove it by hand".into()
        }
        Reason::Torn => {
            "look again in a moment; if it stays, its writer crashed or does not replace files whole".into()
        }
        Reason::Malformed => "look at the file: it is not a record of this tool".into(),
        Reason::Symlink => "name the file that the link points to, if that is meant".into(),
        Reason::NotAFile | Reason::TooLarge => "name another path: this is not a record".into(),
        Reason::NewerFormat => "use the newer version of leasehold that wrote it".into(),
        Reason::Unreadable => "look at the filesystem and its permissions; nothing is known about the record".into(),
        _ if judgement.verdict == Verdict::Dead => "claim it: the new owner gets the next epoch".into(),
        _ => "look at it by hand".into(),
    }
}

fn there(owner: &RecordFacts) -> &str {
    owner.host.as_deref().unwrap_or("its host")
}

fn pid(owner: &RecordFacts) -> String {
    owner.pid.as_ref().map_or_else(|| "?".into(), ToString::to_string)
}

fn ask(owner: &RecordFacts, path: &str) -> String {
    let ask = format!("leasehold ask {}", quote(path));
    match on_its_host(owner, "judge", path) {
        Some(line) => format!("{ask}, or {line}"),
        None => ask,
    }
}

/// The line to type, where it needs no quoting: what ssh hands over is read by two shells. And what a record says is not
/// put before somebody's shell unless it is plain.
fn on_its_host(owner: &RecordFacts, verb: &str, path: &str) -> Option<String> {
    let host = owner.host.as_deref()?;
    (is_host_name(host) && is_plain(path)).then(|| format!("ssh {host} leasehold {verb} {path}"))
}

fn is_host_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && !text.starts_with(['-', '.']) && text.bytes().all(plain)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&byte))
}

/// As a shell reads it back.
fn quote(path: &str) -> String {
    match is_plain(path) {
        true => path.to_owned(),
        false if path.starts_with('-') => format!("-- '{}'", path.replace('\'', r"'\''")),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::facts::Facts;
    use crate::verdict::judge;

    fn next(host: &str, ttl: Option<u64>, path: &str) -> String {
        let facts: Facts = serde_json::from_value(json!({
            "record": { "state": "present", "host": host, "boot": "b1", "pid": 42, "token": "t", "ttl": ttl },
            "observer": { "host": "here", "boot": "b2" }
        }))
        .expect("facts");
        judge(&facts).next(path)
    }

    #[test]
    fn what_is_advised_can_be_typed() {
        assert_eq!(
            next("login-a", None, "run/x.lease"),
            "ask its host: leasehold ask run/x.lease, or ssh login-a leasehold judge run/x.lease"
        );
        assert_eq!(
            next("login-a", Some(60), "x"),
            "ask its host: leasehold ask x, or ssh login-a leasehold judge x; \
             or watch whether it lapses: leasehold judge --observe 65s x"
        );
        assert_eq!(
            next("login-a", None, "it's a"),
            r"ask its host: leasehold ask 'it'\''s a'"
        );
        assert_eq!(next("login-a", None, "-x"), "ask its host: leasehold ask -- '-x'");
        for host in [".a", "$(touch x)", "-oProxyCommand=x", "a b", "a;b", "a\nb"] {
            assert_eq!(next(host, None, "x"), "ask its host: leasehold ask x", "{host}");
        }
    }
}
