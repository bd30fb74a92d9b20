//! `verify`, `renew`, `release`, `hand-over`, `note`

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::call::{Run, Site, thread_id};
use crate::support::{Running, chmod, ended_pid, snapshot};

const OTHER: &str = "0123456789abcdef0123456789abcdef";
const HOLDERS: [(&str, &[&str]); 5] = [
    ("verify", &[]),
    ("renew", &[]),
    ("release", &[]),
    ("note", &["phase=x"]),
    ("hand-over", &["--to=1"]),
];

#[test]
fn every_verb_of_the_holder_is_6_for_another_token_and_changes_nothing() {
    let site = Site::new();
    site.claimed();
    let before = snapshot(site.dir.path());
    for (verb, more) in HOLDERS {
        let lost = site.holder(verb, OTHER).args(more).exits(6);
        lost.prints_nothing()
            .says(&["is lost", "the record carries another token, of epoch 1"])
            .says(&[
                &format!("process {} of ", site.owner.id()),
                " has it since ",
                "next   write nothing more",
            ]);
        let lost = site.holder(verb, OTHER).args(more).arg("--json").exits(6).json();
        assert_eq!(lost["exit"], 6, "{verb}");
    }
    assert_eq!(snapshot(site.dir.path()), before);
}

#[test]
fn every_verb_of_the_holder_is_6_once_the_record_is_gone() {
    let site = Site::new();
    let token = site.claimed();
    std::fs::remove_file(&site.path).expect("remove");
    for (verb, more) in HOLDERS {
        site.holder(verb, &token)
            .args(more)
            .exits(6)
            .says(&["the record is gone"]);
    }
    assert!(site.names().is_empty(), "a holder never makes a record anew");
}

#[test]
fn every_verb_of_the_holder_but_release_is_6_after_the_end() {
    let site = Site::new();
    let token = site.claimed();
    site.holder("release", &token).ok();
    let before = snapshot(site.dir.path());
    for (verb, more) in HOLDERS.into_iter().filter(|(verb, _)| *verb != "release") {
        site.holder(verb, &token)
            .args(more)
            .exits(6)
            .says(&["the claim is ended"]);
    }
    assert_eq!(snapshot(site.dir.path()), before);
}

#[test]
fn the_token_comes_from_the_environment_too() {
    let site = Site::new();
    let token = site.claimed();
    let run = |verb| {
        Run::new(verb)
            .env("LEASEHOLD_PATH", &site.path)
            .env("LEASEHOLD_TOKEN", &token)
    };
    assert_eq!(run("verify").ok(), "1\n");
    run("renew").ok();
    run("note").arg("phase=serving").ok();
    assert_eq!(site.field("phase"), "serving");
    run("hand-over").args(["--to", &site.owner.id()]).ok();
    run("release").ok();
    site.is(3, "free", "ended");
}

#[test]
fn a_token_is_32_lower_case_hex_digits() {
    let site = Site::new();
    let token = site.claimed();
    for (verb, more) in HOLDERS {
        site.run(verb).args(more).exits(64).says(&["--token"]);
        for bad in [
            &token[1..],
            &token.to_uppercase().replace(char::is_numeric, "A"),
            "",
            "x",
        ] {
            let bad = format!("--token={bad}");
            site.run(verb).arg(bad).args(more).exits(64).prints_nothing();
        }
    }
}

#[test]
fn verify_prints_the_epoch_and_changes_nothing() {
    let site = Site::new();
    let token = site.claimed();
    let before = snapshot(site.dir.path());
    assert_eq!(site.holder("verify", &token).ok(), "1\n");
    // Without a ttl there is nothing of which a part could be left.
    assert_eq!(site.holder("verify", &token).args(["--margin", "1h"]).ok(), "1\n");
    let verified = site.holder("verify", &token).arg("--json").json();
    assert_eq!(verified, json!({"path": site.path, "token": token, "epoch": 1}));
    assert_eq!(snapshot(site.dir.path()), before);
}

#[test]
fn verify_wants_its_margin_of_the_ttl_and_renew_gives_it_back() {
    let site = Site::new();
    let token = site.claim().args(["--ttl", "5s"]).ok().trim_end().to_owned();
    let claimed = Instant::now();
    let margin = |time| site.holder("verify", &token).args(["--margin", time]);
    // More than the whole ttl is never left.
    margin("5001ms")
        .exits(6)
        .prints_nothing()
        .says(&["of its ttl are left, 5.0 s are wanted; renew it first"]);
    // Counts the ttl down; how far a run gets in it is the machine's matter.
    while margin("3s").done().status.success() {
        assert!(claimed.elapsed() < Duration::from_secs(30), "the ttl runs down");
    }
    assert!(
        claimed.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        claimed.elapsed()
    );
    let renewed = site.holder("renew", &token).arg("--json").json();
    assert_eq!((&renewed["epoch"], &renewed["seq"]), (&json!(1), &json!(2)));
    margin("3s").ok();

    // To the end: lapsed for its holder, and still there to be won back.
    while site.holder("verify", &token).done().status.success() {
        assert!(claimed.elapsed() < Duration::from_secs(60), "the ttl runs out");
    }
    margin("0").exits(6).says(&["its ttl of 5 s ran out; renew it first"]);
    site.holder("renew", &token).ok();
    assert_eq!(site.holder("verify", &token).ok(), "1\n");
}

#[test]
fn a_margin_cannot_be_told_of_another_boot() {
    let site = Site::new();
    let token = site.claim().args(["--ttl", "60s"]).ok().trim_end().to_owned();
    site.make_foreign();
    assert_eq!(site.holder("verify", &token).ok(), "1\n");
    let refused = site.holder("verify", &token).args(["--margin", "1s"]).exits(6);
    refused.says(&["renewed on another boot"]);
}

#[test]
fn a_time_without_end_does_not_overflow() {
    let site = Site::new();
    let forever = "18446744073709551615";
    let token = site.claim().args(["--ttl", forever]).ok().trim_end().to_owned();
    let margin = |time| site.holder("verify", &token).args(["--margin", time]);
    margin("1000000h").ok();
    margin(forever).exits(6);
    site.claim().args(["--wait", forever, "--binds", "none"]).exits(64);
}

#[test]
fn the_largest_numbers_of_a_record_do_no_harm() {
    let site = Site::new();
    let token = site.claimed();
    site.forge(&[("seq", u64::MAX.into())]);
    let before = snapshot(site.dir.path());
    site.holder("renew", &token).exits(2).prints_nothing();
    assert_eq!(snapshot(site.dir.path()), before);

    let site = Site::new();
    let token = site.claimed();
    let text = std::fs::read_to_string(&site.path).expect("read");
    let beat = format!("{{\"beat\":\"{}\"}}\n", "9".repeat(16));
    let cut = text.find("{\"beat\"").expect("a heartbeat");
    std::fs::write(&site.path, text[..cut].to_owned() + &beat).expect("write");
    site.holder("renew", &token).ok();
    site.is(0, "held", "process-running");
}

#[test]
fn release_leaves_a_vacant_record_and_may_be_repeated() {
    let site = Site::new();
    let token = site.claimed();
    assert_eq!(site.holder("release", &token).ok(), "");
    site.is(3, "free", "ended");
    let before = snapshot(site.dir.path());
    assert_eq!(before.len(), 2, "the record and its directory");
    let again = site.holder("release", &token).arg("--json").json();
    assert_eq!((&again["epoch"], &again["seq"]), (&json!(1), &json!(2)));
    assert_eq!(snapshot(site.dir.path()), before, "nothing is written for that");
}

#[test]
fn release_notes_an_outcome_and_never_pretends_to() {
    let site = Site::new();
    let token = site.claim().args(["--set", "intent=push"]).ok().trim_end().to_owned();
    let release = |outcome| site.holder("release", &token).args(["--outcome", outcome]);
    release("perhaps").exits(64).says(&["`completed` or `failed`"]);
    release("completed").ok();
    assert_eq!(site.field("outcome"), "completed");
    release("completed").ok();
    release("failed").exits(6).says(&["its outcome can no longer be noted"]);
    assert_eq!(site.field("outcome"), "completed");
    site.claim().ok();
}

#[test]
fn hand_over_names_another_process_of_the_same_claim() {
    let mut site = Site::new();
    let token = site.claimed();
    let heir = Running::idle();
    let hand = |to: &str| site.holder("hand-over", &token).args(["--to", to]);
    hand(&site.owner.id()).ok();
    assert_eq!(hand(&heir.id()).ok(), "");
    assert_eq!(site.field("pid"), heir.id());
    assert_eq!(site.holder("verify", &token).ok(), "1\n");

    let before = snapshot(site.dir.path());
    hand(&ended_pid())
        .exits(64)
        .says(&["there is no such process on this host"]);
    hand(&thread_id()).exits(64).says(&["this is a thread, not a process"]);
    assert_eq!(snapshot(site.dir.path()), before);

    // The lease follows the heir, not the first owner.
    site.end_owner();
    site.is(0, "held", "process-running");
    drop(heir);
    site.is(1, "dead", "no-such-process");
}

#[test]
fn hand_over_is_refused_while_a_keeper_is_recorded() {
    let site = Site::new();
    let token = site.claimed();
    site.forge(&[("keeper", json!({"pid": 1, "start": 1}))]);
    let refused = site
        .holder("hand-over", &token)
        .args(["--to", &site.owner.id()])
        .exits(64);
    refused.says(&["a keeper is recorded"]);
}

#[test]
fn note_sets_fields_and_keeps_the_others() {
    let site = Site::new();
    let token = site
        .claim()
        .args(["--set", "phase=starting"])
        .ok()
        .trim_end()
        .to_owned();
    let note = |fields: &[&str]| site.holder("note", &token).args(fields).ok();
    assert_eq!(note(&["thread=7", "appserver=h:4100"]), "");
    note(&["phase=serving"]);
    for (name, value) in [
        ("phase", "serving"),
        ("thread", "7"),
        ("appserver", "h:4100"),
        ("seq", "3"),
    ] {
        assert_eq!(site.field(name), value);
    }
    assert_eq!(site.names(), ["x.lease"]);
}

#[test]
fn note_says_what_it_cannot_note() {
    use std::os::unix::ffi::OsStrExt;
    let site = Site::new();
    let token = site.claimed();
    let before = snapshot(site.dir.path());
    let note = || site.holder("note", &token);
    note().exits(64).says(&["name at least one field"]);
    note()
        .arg("phase")
        .exits(64)
        .says(&["phase: a field is written as key=value"]);
    note().args(["a=1", "=2"]).exits(64);
    for (key, why) in [
        ("broken", "written by leasehold alone"),
        ("settled", "written by leasehold alone"),
        ("starts", "written by leasehold alone"),
        ("epoch", "hidden by that of the owner line"),
        ("host", "hidden by that of the owner line"),
        ("beat", "hidden by that of the owner line"),
        ("a\nb", "no name"),
    ] {
        let refused = note().args(["a=1", &format!("{key}=1")]).exits(64);
        refused.says(&["the field `", why, "choose another name"]);
        let free = site.dir.path().join("free.lease");
        let claim = Run::new("claim").arg(&free).args(["--owner", &site.owner.id()]);
        claim.args(["--set", &format!("{key}=1")]).exits(64).says(&[why]);
        assert!(!free.exists());
    }
    note().arg("outcome=done").exits(64).says(&["`completed` or `failed`"]);
    let foreign = std::ffi::OsStr::from_bytes(b"a=\xff");
    note().arg(foreign).exits(64).says(&["a field is UTF-8"]);
    let much = format!("much={}", "x".repeat(70_000));
    note().arg(much).exits(64).says(&["does not fit a record"]);
    assert_eq!(snapshot(site.dir.path()), before);
}

#[test]
fn what_other_programs_added_is_kept_by_every_change() {
    let site = Site::new();
    let token = site.claimed();
    site.forge(&[("x-origin", json!({"a": [1, 2]}))]);
    site.holder("renew", &token).ok();
    site.holder("note", &token).arg("a=b").ok();
    site.holder("release", &token).ok();
    assert_eq!(site.field("x-origin"), r#"{"a":[1,2]}"#);
}

#[test]
fn changes_keep_the_mode_of_the_record() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let token = site.claimed();
    chmod(&site.path, 0o640);
    site.holder("renew", &token).ok();
    let mode = site.path.metadata().expect("stat").permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
}
