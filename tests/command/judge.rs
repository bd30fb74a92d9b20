//! `leasehold judge`

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::json;

use crate::support::call::{FOREIGN, Run, Site, Unprivileged, has_a_machine_id};
use crate::support::{Running, chmod, ended_pid, is_root, snapshot};

#[test]
fn each_verdict_has_its_code_and_changes_nothing() {
    let site = Site::new();
    site.is(3, "free", "no-record");
    let judged = |code, verdict, reason| {
        let before = snapshot(site.dir.path());
        site.is(code, verdict, reason);
        site.run("judge").arg("--json").exits(code);
        site.run("judge").args(["--observe", "50ms"]).exits(code);
        site.run("show").exits(0);
        assert_eq!(snapshot(site.dir.path()), before, "{verdict}/{reason}");
    };
    let token = site.claimed();
    judged(0, "held", "process-running");
    let record = std::fs::read(&site.path).expect("read");
    site.forge(&[("pid", ended_pid().parse::<i64>().expect("a pid").into())]);
    judged(1, "dead", "no-such-process");
    site.forge(&[("pid", std::process::id().into())]);
    judged(1, "dead", "pid-reused");
    std::fs::write(&site.path, record).expect("write");
    site.holder("release", &token).ok();
    judged(3, "free", "ended");
    site.claimed();
    site.make_foreign();
    judged(2, "undetermined", "foreign-host");
}

#[test]
fn a_line_has_five_fields() {
    let site = Site::new();
    site.claimed();
    let line = site.run("judge").ok();
    let host = site.field("host");
    let path = site.path.display();
    assert_eq!(
        line,
        format!("held\tprocess-running\t{host}\t{}\t{path}\n", site.owner.id())
    );
    std::fs::write(&site.path, "4242\n").expect("write");
    let line = site.run("judge").exits(2).stdout;
    assert_eq!(line, format!("undetermined\tno-host\t-\t4242\t{path}\n"));
    std::fs::write(&site.path, "").expect("write");
    let line = site.run("judge").exits(2).stdout;
    assert_eq!(line, format!("undetermined\tempty\t-\t-\t{path}\n"));
}

#[test]
fn a_json_judgement_answers_the_four_questions() {
    let site = Site::new();
    site.claimed();
    let judgement = site.run("judge").arg("--json").json();
    for (key, value) in [
        ("verdict", "held"),
        ("reason", "process-running"),
        ("liveness", "running"),
        ("identity", "same"),
        ("effect", "unrecorded"),
        ("authority", "owner"),
    ] {
        assert_eq!(judgement[key], value, "{key}");
    }
    assert_eq!(judgement["owner"]["pid"].to_string(), site.owner.id());
    assert_eq!(judgement["observer"]["boot"], judgement["owner"]["boot"]);
    assert!(judgement["next"].as_str().expect("a next step").contains("wait"));
    assert_eq!(judgement["path_base64"], json!(null));
}

#[test]
fn several_paths_are_0_when_all_could_be_read() {
    let site = Site::new();
    site.claimed();
    let none = site.dir.path().join("none");
    let dir = site.dir.path();
    // A directory is odd, and was found out all the same.
    let out = Run::new("judge").args([&site.path, &none]).arg(dir).ok();
    let verdicts: Vec<&str> = out
        .lines()
        .map(|line| line.split('\t').next().expect("a field"))
        .collect();
    assert_eq!(verdicts, ["held", "free", "undetermined"]);
    let out = Run::new("judge").args([&site.path, &none]).arg("--json").ok();
    let objects: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert_eq!(objects[1]["reason"], "no-record");
}

#[test]
fn one_unreadable_among_several_is_74_and_the_others_are_judged() {
    let user = Unprivileged::new();
    let owner = if is_root() {
        "1".into()
    } else {
        std::process::id().to_string()
    };
    let paths: Vec<PathBuf> = ["a", "b", "c"].map(|name| user.dir.path().join(name)).into();
    for path in &paths {
        Run::new("claim").arg(path).args(["--owner", &owner]).ok();
    }
    chmod(&paths[1], 0);
    let done = user.run("judge").args(&paths).exits(74);
    let reasons: Vec<&str> = done
        .stdout
        .lines()
        .map(|line| line.split('\t').nth(1).expect("a field"))
        .collect();
    assert_eq!(reasons, ["process-running", "unreadable", "process-running"]);
    // Alone it has the code of its verdict, and says why.
    user.run("judge").arg(&paths[1]).exits(2);
    let alone = user.run("judge").arg(&paths[1]).arg("--json").exits(2).json();
    assert!(
        alone["sentence"]
            .as_str()
            .expect("a sentence")
            .contains("Permission denied")
    );

    // Another user's process is held all the same.
    assert!(
        user.run("judge")
            .arg(&paths[0])
            .ok()
            .starts_with("held\tprocess-running\t")
    );
}

#[test]
fn paths_from_standard_input_end_with_nul() {
    let site = Site::new();
    site.claimed();
    let odd = site.dir.path().join(OsStr::from_bytes(b"a\nb\tc\xff"));
    std::fs::copy(&site.path, &odd).expect("copy");
    let mut input = site.path.as_os_str().as_bytes().to_vec();
    input.push(0);
    input.extend(odd.as_os_str().as_bytes());
    for end in [&b""[..], b"\0"] {
        let out = Run::new("judge").arg("--stdin0").input([&input, end].concat()).ok();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2, "{out}");
        assert!(lines.iter().all(|line| line.starts_with("held\t")), "{out}");
        assert!(lines[1].ends_with("/a\\nb\\tc\\xff"), "{out}");
    }
    let out = Run::new("judge").arg(&site.path).arg("--stdin0").input(&input).ok();
    assert_eq!(out.lines().count(), 3, "arguments come first");
    assert_eq!(Run::new("judge").arg("--stdin0").ok(), "");
}

#[test]
fn a_path_that_is_no_utf8_is_given_in_base64_too() {
    let site = Site::new();
    let odd = site.dir.path().join(OsStr::from_bytes(b"\xff.lease"));
    let claimed = Run::new("claim")
        .arg(&odd)
        .args(["--owner", &site.owner.id(), "--json"])
        .json();
    let judgement = Run::new("judge").arg(&odd).arg("--json").json();
    for object in [claimed, judgement] {
        use base64::Engine as _;
        let path = object["path_base64"].as_str().expect("base64");
        let path = base64::engine::general_purpose::STANDARD.decode(path).expect("base64");
        assert_eq!(path, odd.as_os_str().as_bytes());
    }
}

#[test]
fn saved_facts_give_the_same_verdict_anywhere() {
    for foreign in [false, true] {
        let site = Site::new();
        site.claimed();
        if foreign {
            site.make_foreign();
        }
        let facts = site.dir.path().join("facts.json");
        let saved = site.run("judge").arg("--json").arg("--save-facts").arg(&facts).done();
        let again = Run::new("judge").arg("--json").arg("--replay").arg(&facts).done();
        assert_eq!(saved.status.code(), again.status.code());
        assert_eq!(saved.status.code(), Some(if foreign { 2 } else { 0 }));
        for key in ["verdict", "reason", "sentence", "owner", "observer", "evidence"] {
            assert_eq!(saved.json()[key], again.json()[key], "{key}");
        }
        // What they say outlives the process that they tell of.
        let owner = Running::idle();
        drop(site.owner);
        let replayed = Run::new("judge").arg("--replay").arg(&facts).done();
        assert_eq!(replayed.status.code(), saved.status.code());
        drop(owner);
    }
}

#[test]
fn what_are_no_facts_is_said() {
    let site = Site::new();
    let facts = site.dir.path().join("facts.json");
    let replay = || Run::new("judge").arg("--replay").arg(&facts);
    replay().exits(74).says(&["cannot read", "No such file"]);
    std::fs::write(&facts, r#"{"record": {"state": "\u001b[31mred"}}"#).expect("write");
    let done = replay().exits(64);
    done.says(&["holds no facts"]);
    assert!(!done.stderr.contains('\x1b'), "{}", done.stderr);
    replay().arg(&site.path).exits(64);
    replay().arg("--stdin0").exits(64);
}

#[test]
fn saving_facts_spares_the_record() {
    let site = Site::new();
    site.claimed();
    let before = snapshot(site.dir.path());
    let other = site.dir.path().join(".").join("x.lease");
    for file in [&site.path, &other] {
        site.run("judge")
            .arg("--save-facts")
            .arg(file)
            .exits(64)
            .says(&["would overwrite the record"]);
    }
    assert_eq!(snapshot(site.dir.path()), before);
    let nowhere = site.dir.path().join("no").join("facts");
    site.run("judge")
        .arg("--save-facts")
        .arg(nowhere)
        .exits(74)
        .says(&["cannot write"]);
    let two = site.run("judge").arg(&site.path).args(["--save-facts", "f"]);
    two.exits(64).says(&["one path at a time"]);
}

#[test]
fn observing_tells_a_lapse_and_a_renewal() {
    let site = Site::new();
    site.claim().args(["--ttl", "5s"]).ok();
    site.make_foreign();
    let lapse = site.run("judge").args(["--observe", "90s", "--json"]).start();

    let renewed = Site::new();
    let token = renewed.claim().args(["--ttl", "1h"]).ok().trim_end().to_owned();
    renewed.make_foreign();
    let mut watching = renewed.run("judge").args(["--observe", "90s", "--json"]).start();
    while watching.child.runs() {
        renewed.holder("renew", &token).ok();
    }
    let seen = watching.end();
    assert_eq!(seen.expect_code(2).json()["reason"], "foreign-host");
    let evidence = seen.json()["evidence"].to_string();
    assert!(
        evidence.contains(r#""what":"renewal seen","found":"true""#),
        "{evidence}"
    );

    let lapsed = lapse.end();
    assert_eq!(lapsed.expect_code(4).json()["reason"], "not-renewed");
}

#[test]
fn observing_ends_at_once_where_waiting_tells_nothing() {
    let site = Site::new();
    for time in ["1h", "18446744073709551615"] {
        site.run("judge").args(["--observe", time]).exits(3);
    }
    site.claimed();
    site.run("judge").args(["--observe", "1h"]).exits(0);
    std::fs::write(&site.path, "{}\n").expect("write");
    site.run("judge").args(["--observe", "1h"]).exits(2);
}

#[test]
fn the_name_of_another_host_is_not_enough_to_be_it() {
    let site = Site::new();
    site.claimed();
    // The boot id of another boot, name and machine of this host: booted since, unless changed since.
    let boot = FOREIGN.map(|(key, value)| (key, json!(value)));
    site.forge(&boot[2..]);
    let judgement = site.run("judge").arg("--json").done().json();
    assert_ne!(judgement["verdict"], "held");
    site.forge(&boot[1..2]);
    let judgement = site.run("judge").arg("--json").exits(2).json();
    let sentence = judgement["sentence"].as_str().expect("a sentence");
    let why = if has_a_machine_id() {
        "the name is this host's, the machine id is not"
    } else {
        "the name is this host's, which proves nothing without a machine id"
    };
    assert!(sentence.contains(why), "{sentence}");
}
