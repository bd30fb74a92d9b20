//! What another host says about a record: how far it is believed. Pure.

use std::time::Duration;

use serde::Deserialize;

use crate::facts::{Facts, LeaseFacts, Observer, RecordFacts};
use crate::verdict::{Asked, Judgement, Reason, Verdict, asked, examine, judge};

/// The longest part of another host's words that is repeated, in characters.
const LONGEST_QUOTE: usize = 200;

/// The answer of `leasehold judge --json`, as far as anything in it is used.
#[derive(Debug, Deserialize)]
struct Answer {
    verdict: String,
    reason: String,
    owner: RecordFacts,
    observer: Observer,
}

#[derive(Deserialize)]
struct Subject {
    path: String,
}

/// Of the lines that a host printed, the one that is about this path of its own. What a login script prints besides is
/// passed over.
///
/// # Errors
/// Why there is none, in words.
pub fn about<'a>(output: &'a [u8], path: &str) -> Result<&'a [u8], String> {
    let mut flaw = None;
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<Subject>(line) {
            Ok(subject) if subject.path == path => return Ok(line),
            Ok(_) => flaw = Some("the answer is about another path".to_owned()),
            Err(error) => {
                flaw.get_or_insert_with(|| quote(&format!("the answer is no judgement: {error}")));
            }
        }
    }
    Err(flaw.unwrap_or_else(|| "there was no answer".into()))
}

/// Weighs the answer of `leasehold judge --json`, given on the owner's host, about the record of `facts`.
///
/// It is believed when it is about the same state of the same claim, and comes from where the rules let such a record be
/// judged: the same boot and namespaces; or the same host in another boot, which proves a reboot. Nothing else in it is
/// believed.
///
/// `age`: for how long the record has not been changed. What was changed since that other boot is not of a host that
/// rebooted, but of one that looks like it.
///
/// # Errors
/// Why it is not believed, in words.
pub fn weigh(facts: &Facts, age: Option<Duration>, answer: &[u8]) -> Result<Judgement, String> {
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|error| quote(&format!("the answer is no judgement: {error}")))?;
    let record = &facts.record;
    if record.token.is_none() || answer.owner.token != record.token || answer.owner.seq != record.seq {
        return Err("the answer is about another claim, or another file".into());
    }
    let changed_since_boot = age
        .zip(answer.observer.uptime)
        .map(|(age, uptime)| age.as_secs_f64() < uptime);
    // Who answers stands where this observer does not: would the rules let it judge?
    let standing = examine(&Facts {
        record: RecordFacts {
            binds: None,
            ..record.clone()
        },
        observer: answer.observer,
        lease: LeaseFacts {
            changed_since_boot,
            ..LeaseFacts::default()
        },
        ..Facts::default()
    });
    if let Ok(judgement) = &standing
        && judgement.reason != Reason::HostRebooted
    {
        return Err(format!(
            "it was answered from where nobody can tell: {}",
            judgement.sentence
        ));
    }
    let told = match (answer.verdict.as_str(), answer.reason.as_str()) {
        ("held", "process-running" | "keeper-running") if standing.is_err() => Asked::Held,
        ("dead", "no-such-process" | "not-a-process" | "pid-reused" | "zombie") if standing.is_err() => Asked::Dead,
        ("dead", "host-rebooted") => Asked::Dead,
        (verdict, reason) => return Err(quote(&format!("its host cannot tell either: {verdict}/{reason}"))),
    };
    if told == Asked::Dead && facts.lease.renewal_seen == Some(true) {
        return Err("its host says that it is dead, and it was renewed meanwhile".into());
    }
    Ok(asked(facts, told, &answer.reason))
}

fn quote(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The judgement of facts that nothing could be added to, with why.
pub fn unanswered(facts: &Facts, why: &str) -> Judgement {
    let mut judgement = judge(facts);
    if judgement.verdict == Verdict::Undetermined {
        judgement.sentence = format!("{}; its host was asked in vain: {}", judgement.sentence, quote(why));
    }
    judgement
}

/// Whether asking the owner's host, or its container, can add anything.
pub fn may_help(judgement: &Judgement) -> bool {
    matches!(
        judgement.reason,
        Reason::ForeignHost
            | Reason::IdentityConflict
            | Reason::OtherPidNamespace
            | Reason::OtherTimeNamespace
            | Reason::StartUnreadable
            | Reason::ServerAttested
            | Reason::NotRenewed
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::verdict::INITIAL_PIDNS;

    fn facts() -> Facts {
        serde_json::from_value(json!({
            "record": { "state": "present", "host": "login-a", "machine": "aa", "boot": "b1", "pid": 42, "start": 7,
                        "pidns": INITIAL_PIDNS, "timens": 5, "token": "t1", "epoch": 3, "seq": 9 },
            "observer": { "host": "login-b", "machine": "bb", "boot": "b2", "pidns": INITIAL_PIDNS, "timens": 5 }
        }))
        .expect("facts")
    }

    fn answer(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut answer = json!({
            "path": "/x", "verdict": "dead", "reason": "no-such-process",
            "owner": { "state": "present", "token": "t1", "seq": 9 },
            "observer": { "host": "login-a", "machine": "aa", "boot": "b1", "pidns": INITIAL_PIDNS, "timens": 5,
                          "uptime": 1000.0 }
        });
        change(&mut answer);
        answer.to_string().into_bytes()
    }

    fn held(answer: &mut Value) {
        (answer["verdict"], answer["reason"]) = (json!("held"), json!("process-running"));
    }

    fn rebooted(answer: &mut Value) {
        answer["reason"] = json!("host-rebooted");
        answer["observer"]["boot"] = json!("b7");
    }

    fn word(result: Result<Judgement, String>) -> String {
        result.map_or_else(
            |why| why,
            |judgement| format!("{}/{}", judgement.verdict, judgement.reason),
        )
    }

    #[test]
    fn the_owners_host_is_believed() {
        let facts = facts();
        assert_eq!(word(weigh(&facts, None, &answer(|_| {}))), "dead/asked");
        assert_eq!(word(weigh(&facts, None, &answer(held))), "held/asked");
        assert_eq!(word(weigh(&facts, None, &answer(rebooted))), "dead/asked");
        let keeper = answer(|a| (a["verdict"], a["reason"]) = (json!("held"), json!("keeper-running")));
        assert_eq!(word(weigh(&facts, None, &keeper)), "held/asked");
        // Renamed since: the machine tells.
        let renamed = answer(|a| a["observer"]["host"] = json!("login-z"));
        assert_eq!(word(weigh(&facts, None, &renamed)), "dead/asked");
    }

    #[test]
    fn a_reboot_is_older_than_the_record_is_young() {
        let age = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(word(weigh(&facts(), age(1001), &answer(rebooted))), "dead/asked");
        let twin = word(weigh(&facts(), age(999), &answer(rebooted)));
        assert!(twin.contains("two live hosts"), "{twin}");
        // The age says nothing against a process table.
        assert_eq!(word(weigh(&facts(), age(1), &answer(|_| {}))), "dead/asked");
    }

    #[test]
    fn what_was_renewed_meanwhile_is_not_dead() {
        let mut facts = facts();
        facts.lease.renewal_seen = Some(true);
        let told = word(weigh(&facts, None, &answer(|_| {})));
        assert!(told.contains("renewed meanwhile"), "{told}");
        assert_eq!(word(weigh(&facts, None, &answer(held))), "held/asked");
    }

    #[test]
    fn nobody_else_is() {
        type Change = fn(&mut Value);
        let liars: &[(&str, Change)] = &[
            (
                "another host",
                |a| a["observer"] = json!({ "host": "login-c", "machine": "cc", "boot": "b9", "pidns": INITIAL_PIDNS }),
            ),
            ("another host that tells of a reboot", |a| {
                rebooted(a);
                a["observer"]["host"] = json!("login-c");
            }),
            ("a clone of its image", |a| a["observer"]["boot"] = json!("b9")),
            ("a clone of its image that runs something", |a| {
                held(a);
                a["observer"]["boot"] = json!("b9");
            }),
            ("a machine with its boot id", |a| a["observer"]["machine"] = json!("zz")),
            ("a name with its boot id", |a| {
                a["observer"]["host"] = json!("login-c");
                a["observer"]["machine"] = json!(null);
            }),
            ("a container of it", |a| a["observer"]["pidns"] = json!(77)),
            ("a rebooted container of it", |a| {
                rebooted(a);
                a["observer"]["pidns"] = json!(77);
            }),
            ("another clock of it", |a| a["observer"]["timens"] = json!(6)),
            ("a foreign /proc on it", |a| a["observer"]["proc_is_own"] = json!(false)),
            ("another claim", |a| a["owner"]["token"] = json!("t2")),
            ("another state of it", |a| a["owner"]["seq"] = json!(10)),
            ("no identity", |a| a["observer"] = json!({})),
            ("it does not know either", |a| {
                (a["verdict"], a["reason"]) = (json!("undetermined"), json!("foreign-host"))
            }),
            ("a verdict with a wrong reason", |a| a["reason"] = json!("asked")),
            ("held, for the reason of a death", |a| a["verdict"] = json!("held")),
            ("dead, for the reason of the living", |a| {
                a["reason"] = json!("process-running")
            }),
            ("free", |a| {
                (a["verdict"], a["reason"]) = (json!("free"), json!("ended"))
            }),
            ("wrong types", |a| a["observer"]["boot"] = json!(1)),
        ];
        for (who, change) in liars {
            assert!(weigh(&facts(), None, &answer(change)).is_err(), "{who}");
        }
        for noise in [&b""[..], b"{}", b"[]", b"dead", b"\xff"] {
            assert!(weigh(&facts(), None, noise).is_err());
        }
        let mut named = facts();
        named.record.host_id = Some("a".into());
        let other_id = answer(|a| a["observer"]["host_id"] = json!("b"));
        assert!(weigh(&named, None, &other_id).is_err(), "an operator id that differs");
        let mut many = facts();
        many.record.host = Some("localhost.localdomain".into());
        let reboot = answer(|a| {
            rebooted(a);
            a["observer"]["host"] = json!("localhost.localdomain");
        });
        assert!(weigh(&many, None, &reboot).is_err(), "a name that many have");
    }

    #[test]
    fn what_is_repeated_is_short() {
        let long = answer(|a| a["verdict"] = json!("x".repeat(100_000)));
        assert!(weigh(&facts(), None, &long).expect_err("no verdict").len() < 4 * LONGEST_QUOTE);
        let judgement = unanswered(&facts(), &"é".repeat(100_000));
        assert!(judgement.sentence.len() < 1000 && judgement.sentence.contains("in vain"));
    }

    #[test]
    fn each_path_has_its_own_line() {
        let output = b"Welcome!\n{\"path\":\"/a\",\"n\":1}\n\n{\"path\":\"/b\",\"n\":2}\n{\"path\":7}\n";
        assert_eq!(about(output, "/b"), Ok(&br#"{"path":"/b","n":2}"#[..]));
        assert_eq!(about(output, "/a"), Ok(&br#"{"path":"/a","n":1}"#[..]));
        assert!(about(output, "/c").is_err_and(|why| why.contains("another path")));
        assert!(about(b"Welcome!\n", "/a").is_err_and(|why| why.contains("no judgement")));
        assert!(about(b"\n", "/a").is_err_and(|why| why.contains("no answer")));
    }
}
