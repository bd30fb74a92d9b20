//! `leasehold show` and `leasehold id`

use serde_json::json;

use crate::support::call::{Run, Site};
use crate::support::ended_pid;

#[test]
fn show_prints_a_field_and_nothing_else() {
    let site = Site::new();
    site.claim().args(["--ttl", "60s", "--set", "note=two\nlines"]).ok();
    let show = |name: &str| site.run("show").args(["--field", name]).ok();
    assert_eq!(show("epoch"), "1\n");
    assert_eq!(show("ttl"), "60\n");
    assert_eq!(show("pid"), site.owner.id() + "\n");
    assert_eq!(show("note"), "two\nlines\n", "a script gets it as it is");
    let json = |name: &str| site.run("show").args(["--json", "--field", name]).ok();
    assert_eq!(json("note"), "\"two\\nlines\"\n");
    assert_eq!(json("epoch"), "1\n");
}

#[test]
fn show_prints_the_whole_record() {
    let site = Site::new();
    let token = site.claim().args(["--set", "phase=up"]).ok().trim_end().to_owned();
    let text = site.run("show").ok();
    for line in [&format!("token     {token}\n"), "epoch     1\n", "phase     up\n"] {
        assert!(text.contains(line), "{line}{text}");
    }
    let shown = site.run("show").arg("--json").json();
    assert_eq!(shown["owner"]["token"], token);
    assert_eq!(shown["state"], json!({"phase": "up"}));
    assert!(shown["heartbeat"]["beat"].is_u64());
    // It judges nothing: another host's record is shown as any other.
    site.make_foreign();
    assert_eq!(site.field("host"), "login-b");
}

#[test]
fn what_cannot_be_shown_has_a_code_and_a_reason() {
    let site = Site::new();
    site.run("show").exits(3).prints_nothing().says(&["there is no record"]);
    let absent = site.run("show").arg("--json").exits(3).json();
    assert_eq!((&absent["exit"], &absent["path"]), (&json!(3), &json!(site.path)));

    site.claimed();
    let missing = || site.run("show").args(["--field", "no\x1bpe"]);
    missing()
        .exits(2)
        .prints_nothing()
        .says(&["there is no field `no\\x1bpe`"]);
    assert_eq!(missing().arg("--json").exits(2).json()["exit"], 2);

    for (text, why) in [
        ("", "the file is empty"),
        ("{", "cut short"),
        ("hello\n", "neither an owner line nor a pid"),
    ] {
        std::fs::write(&site.path, text).expect("write");
        site.run("show")
            .exits(2)
            .prints_nothing()
            .says(&["holds no record", why]);
        assert_eq!(site.run("show").arg("--json").exits(2).json()["exit"], 2);
    }
}

#[test]
fn id_prints_what_a_claim_would_write() {
    let site = Site::new();
    site.claimed();
    let id = Run::new("id").args(["--json", "--owner", &site.owner.id()]).done();
    let id = id.expect_code(0).json();
    let shown = site.run("show").arg("--json").json();
    for key in [
        "host", "machine", "host_id", "boot", "pid", "start", "pidns", "timens", "pidfd",
    ] {
        assert_eq!(id[key], shown["owner"][key], "{key}");
    }
    assert!(id["warnings"].is_array());
    Run::new("id")
        .args(["--owner", &ended_pid()])
        .exits(64)
        .says(&["there is no such process"]);
}

#[test]
fn the_operator_names_a_host() {
    let site = Site::new();
    site.claim().env("LEASEHOLD_HOST_ID", "rack 7").ok();
    assert_eq!(site.field("host_id"), "rack 7");
    let id = Run::new("id").env("LEASEHOLD_HOST_ID", "rack 7").done();
    assert!(id.stdout.contains("rack 7\n"), "{}", id.stdout);
    // Whoever has another one is another host, whatever else looks the same.
    let judge = |id| site.run("judge").env("LEASEHOLD_HOST_ID", id).done();
    judge("rack 7").expect_code(0);
    let other = judge("rack 8");
    assert!(
        other
            .expect_code(2)
            .stdout
            .starts_with("undetermined\tidentity-conflict\t"),
        "{}",
        other.stdout
    );
}
