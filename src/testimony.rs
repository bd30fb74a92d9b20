//! What another host says about a record: how far it is believed. Pure.

use serde::Deserialize;

use crate::facts::{Facts, Observer, RecordFacts};
use crate::verdict::{Asked, Judgement, Reason, Verdict, asked, judge};

/// The answer of `leasehold judge --json`, as far as anything in it is used.
#[derive(Debug, Deserialize)]
struct Answer {
    verdict: String,
    reason: String,
    owner: RecordFacts,
    observer: Observer,
}

/// Weighs the answer of `leasehold judge --json`, given on the owner's host, about the record of `facts`.
///
/// It is believed when it is about the same claim, and comes from the host that the record names: of the same boot; or of
/// the same machine and name with another boot, which proves a reboot. Nothing else in it is believed.
///
/// # Errors
/// Why it is not believed, in words.
pub fn weigh(facts: &Facts, answer: &[u8]) -> Result<Judgement, String> {
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|error| format!("the answer is no judgement: {error}"))?;
    let record = &facts.record;
    if record.token.is_none() || answer.owner.token != record.token || answer.owner.seq != record.seq {
        return Err("the answer is about another claim, or another file".into());
    }
    let speaks = |mine: &Option<String>, theirs: &Option<String>| {
        mine.as_deref().is_some_and(|m| !m.is_empty()) && mine == theirs
    };
    let there = &answer.observer;
    let same_boot = speaks(&record.boot, &there.boot);
    let same_host = speaks(&record.host_id, &there.host_id)
        || speaks(&record.host, &there.host)
            && speaks(&record.machine, &there.machine)
            && record.host.as_deref() != Some("localhost");
    if record.machine.is_some() && there.machine.is_some() && record.machine != there.machine {
        return Err("it was answered by another machine than the record names".into());
    }
    let told = match (answer.verdict.as_str(), answer.reason.as_str()) {
        ("held", "process-running" | "keeper-running") if same_boot => Asked::Held,
        ("dead", "no-such-process" | "not-a-process" | "pid-reused" | "zombie") if same_boot => Asked::Dead,
        ("dead", "host-rebooted") if same_host && !same_boot && there.boot.is_some() => Asked::Dead,
        _ if !same_boot && !same_host => return Err("it was answered by another host than the record names".into()),
        (verdict, reason) => return Err(format!("its host cannot tell either: {verdict}/{reason}")),
    };
    Ok(asked(facts, told, &answer.reason))
}

/// The judgement of facts that nothing could be added to, with why.
pub fn unanswered(facts: &Facts, why: &str) -> Judgement {
    let mut judgement = judge(facts);
    if judgement.verdict == Verdict::Undetermined {
        judgement.sentence = format!("{}; its host was asked in vain: {why}", judgement.sentence);
    }
    judgement
}

/// Whether asking the owner's host can add anything.
pub fn may_help(judgement: &Judgement) -> bool {
    matches!(
        judgement.reason,
        Reason::ForeignHost | Reason::IdentityConflict | Reason::ServerAttested | Reason::NotRenewed
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts() -> Facts {
        serde_json::from_value(json!({
            "record": { "state": "present", "host": "login-a", "machine": "aa", "boot": "b1", "pid": 42, "start": 7,
                        "token": "t1", "epoch": 3, "seq": 9 },
            "observer": { "host": "login-b", "machine": "bb", "boot": "b2" }
        }))
        .expect("facts")
    }

    fn answer(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut answer = json!({
            "verdict": "dead", "reason": "no-such-process",
            "owner": { "state": "present", "token": "t1", "seq": 9 },
            "observer": { "host": "login-a", "machine": "aa", "boot": "b1" }
        });
        change(&mut answer);
        answer.to_string().into_bytes()
    }

    #[test]
    fn the_owners_host_is_believed() {
        let dead = weigh(&facts(), &answer(|_| {})).expect("believed");
        assert_eq!((dead.verdict, dead.reason.word()), (Verdict::Dead, "asked"));
        let held = weigh(
            &facts(),
            &answer(|a| (a["verdict"], a["reason"]) = (json!("held"), json!("process-running"))),
        );
        assert_eq!(held.expect("believed").verdict, Verdict::Held);
        let rebooted = answer(|a| {
            a["reason"] = json!("host-rebooted");
            a["observer"]["boot"] = json!("b7");
        });
        assert_eq!(weigh(&facts(), &rebooted).expect("believed").verdict, Verdict::Dead);
    }

    #[test]
    fn nobody_else_is() {
        type Change = fn(&mut Value);
        let liars: [(&str, Change); 9] = [
            ("another host", |a| {
                a["observer"] = json!({ "host": "login-c", "machine": "cc", "boot": "b9" })
            }),
            ("a clone of its image", |a| a["observer"]["boot"] = json!("b9")),
            ("a machine with its boot id", |a| a["observer"]["machine"] = json!("zz")),
            ("another claim", |a| a["owner"]["token"] = json!("t2")),
            ("another state of it", |a| a["owner"]["seq"] = json!(10)),
            ("no identity", |a| a["observer"] = json!({})),
            ("it does not know either", |a| {
                (a["verdict"], a["reason"]) = (json!("undetermined"), json!("foreign-host"))
            }),
            ("a verdict with a wrong reason", |a| a["reason"] = json!("asked")),
            ("free", |a| {
                (a["verdict"], a["reason"]) = (json!("free"), json!("ended"))
            }),
        ];
        for (who, change) in liars {
            assert!(weigh(&facts(), &answer(change)).is_err(), "{who}");
        }
        for noise in [&b""[..], b"{}", b"[]", b"dead", b"\xff"] {
            assert!(weigh(&facts(), noise).is_err());
        }
    }
}
