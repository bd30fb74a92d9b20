//! `leasehold claim`

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::call::{Run, Site, thread_id};
use crate::support::{Running, ended_pid, snapshot};

const SCRIPT: &str = r#"
token=$("$LEASEHOLD" claim x.lease --owner $$) || exit
"$LEASEHOLD" verify x.lease --token "$token" || exit
"$LEASEHOLD" judge x.lease | cut -f1,2
"$LEASEHOLD" show x.lease --field pid | grep -qx "$$" || exit
"$LEASEHOLD" release x.lease --token "$token" || exit
"$LEASEHOLD" judge x.lease | cut -f1,2
"#;

#[test]
fn the_quick_start_works_in_every_shell() {
    for shell in [&["bash"][..], &["dash"], &["busybox", "sh"], &["sh"]] {
        let found = std::process::Command::new("which").arg(shell[0]).output();
        if shell != ["sh"] && !found.is_ok_and(|found| found.status.success()) {
            continue;
        }
        let site = Site::new();
        let run = Run::program(shell[0]).args(&shell[1..]).args(["-c", SCRIPT]);
        assert_eq!(
            run.dir(site.dir.path()).ok(),
            "1\nheld\tprocess-running\nfree\tended\n",
            "{shell:?}"
        );
    }
}

#[test]
fn the_token_stands_alone_on_stdout() {
    let site = Site::new();
    let out = site.claim().ok();
    let token = out.strip_suffix('\n').expect("a line");
    assert_eq!(token.len(), 32);
    assert!(token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    assert_eq!(site.field("token"), token);
    assert_eq!(site.names(), ["x.lease"], "nothing is left beside the record");
}

#[test]
fn the_epoch_grows_by_one_at_each_claim() {
    let site = Site::new();
    for epoch in 1..=3 {
        let claimed = site.claim().arg("--json").json();
        let token = claimed["token"].as_str().expect("a token");
        assert_eq!(claimed["epoch"], epoch);
        assert_eq!(claimed["path"], json!(site.path));
        site.holder("release", token).ok();
    }
}

#[test]
fn held_is_5_and_says_by_whom_since_when_and_what_to_do() {
    let site = Site::new();
    site.claimed();
    let before = snapshot(site.dir.path());
    let (host, since) = (site.field("host"), site.field("since"));
    let refused = site.claim().exits(5);
    refused.prints_nothing().says(&[
        &format!("{} is held (process-running)", site.path.display()),
        &format!("owner  {host} pid {}", site.owner.id()),
        "epoch 1",
        &format!("since {since}"),
        "sleep 1000",
        "next   wait for process",
    ]);
    assert_eq!(snapshot(site.dir.path()), before);

    let refused = site.claim().arg("--json").exits(5).json();
    assert_eq!(refused["exit"], 5);
    assert_eq!(refused["judgement"]["reason"], "process-running");
    assert_eq!(refused["judgement"]["owner"]["since"], since);
}

#[test]
fn undetermined_is_2_and_says_whom_to_ask() {
    let site = Site::new();
    site.claimed();
    site.make_foreign();
    let refused = site.claim().exits(2);
    refused.prints_nothing().says(&[
        "is undetermined (foreign-host)",
        "only that host can tell",
        "owner  login-b pid",
        &format!(
            "next   ask its host: leasehold ask {0}, or ssh login-b leasehold judge {0}",
            site.path.display()
        ),
    ]);
    let refused = site.claim().arg("--json").exits(2).json();
    assert_eq!(refused["judgement"]["verdict"], "undetermined");
}

#[test]
fn a_legacy_pid_file_is_no_free_lease() {
    let site = Site::new();
    for text in [ended_pid() + "\n", site.owner.id()] {
        std::fs::write(&site.path, &text).expect("write");
        site.claim()
            .exits(2)
            .says(&["(no-host)", "every host that shares this directory"]);
        assert_eq!(std::fs::read_to_string(&site.path).expect("read"), text);
    }
}

#[test]
fn a_lapse_is_4_without_leave_to_take_it_and_is_taken_with() {
    let lapsing = || {
        let site = Site::new();
        site.claim().args(["--ttl", "5s"]).ok();
        site.make_foreign();
        site
    };
    let (site, other) = (lapsing(), lapsing());
    // A single look tells no lapse.
    site.claim().arg("--take-lapsed").exits(2);
    let asking = site.claim().args(["--wait", "60s"]).start();
    let taking = other.claim().args(["--wait", "60s", "--take-lapsed", "--json"]).start();
    let refused = asking.end();
    refused.expect_code(4).prints_nothing().says(&[
        "is lapsed (not-renewed)",
        "owner  login-b",
        "--take-lapsed",
        "login-b may still be running it",
    ]);
    let taken = taking.end();
    assert_eq!(taken.expect_code(0).json()["epoch"], 2);
    for ended in [refused, taken] {
        assert!(ended.took >= Duration::from_secs(5), "{:?} is no ttl", ended.took);
        assert!(ended.took < Duration::from_secs(50), "{:?}", ended.took);
    }
}

#[test]
fn in_doubt_is_7_unless_accepted() {
    let mut site = Site::new();
    let token = site.claimed();
    site.holder("note", &token).arg("intent=push the branch").ok();
    site.end_owner();
    site.is(1, "dead", "no-such-process");
    // It is no matter of waiting.
    let refused = site.claim().args(["--wait", "60s"]).exits(7);
    refused.prints_nothing().says(&[
        "intent `push the branch`",
        "--accept-in-doubt",
        "owner  ",
        "may or may not have happened",
    ]);
    assert!(refused.took < Duration::from_secs(30));
    let refused = site.claim().arg("--json").exits(7).json();
    assert_eq!(refused["judgement"]["effect"], "in-doubt");

    let claimed = site.claim().args(["--accept-in-doubt", "--json"]).json();
    assert_eq!(claimed["epoch"], 2);
    assert_eq!(site.run("judge").arg("--json").json()["effect"], "unrecorded");
}

#[test]
fn an_outcome_ends_the_doubt_and_the_next_intent_brings_it_back() {
    for (notes, code) in [
        (&[&["intent=a"][..], &["outcome=completed"]][..], 0),
        (&[&["intent=a"], &["outcome=failed"]], 0),
        (&[&["intent=a", "outcome=completed"]], 0),
        (&[&["intent=a"], &["outcome=completed"], &["intent=b"]], 7),
        (
            &[&["intent=a"], &["outcome=completed"], &["intent=b", "outcome=failed"]],
            0,
        ),
        (&[&["intent=a"], &["outcome=completed"], &["phase=x"]], 0),
    ] {
        let site = Site::new();
        let token = site.claimed();
        for note in notes {
            site.holder("note", &token).args(*note).ok();
        }
        site.holder("release", &token).ok();
        assert_eq!(site.claim().done().status.code(), Some(code), "{notes:?}");
    }
}

#[test]
fn a_wait_is_bounded_and_names_the_holder_once() {
    let site = Site::new();
    site.claimed();
    let before = snapshot(site.dir.path());
    let done = site.claim().args(["--wait", "700ms"]).exits(75);
    done.prints_nothing()
        .says(&["leasehold: gave up after 0.", "is held (process-running)"]);
    let waiting = format!("waiting for {}", site.path.display());
    assert_eq!(done.stderr.matches(&waiting).count(), 1, "{}", done.stderr);
    assert!(done.took >= Duration::from_millis(700), "{:?}", done.took);
    assert!(done.took < Duration::from_secs(30), "{:?}", done.took);
    assert_eq!(snapshot(site.dir.path()), before);

    let done = site.claim().args(["--wait", "50ms", "--json"]).exits(75);
    assert_eq!(done.json()["exit"], 75);
}

#[test]
fn a_waiting_claim_wakes_when_the_holder_ends() {
    let mut site = Site::new();
    site.claimed();
    let heir = Running::idle();
    let mut waiting = Run::new("claim")
        .arg(&site.path)
        .args(["--owner", &heir.id(), "--wait", "60s", "--json"])
        .start();
    waiting.says("waiting for");
    let ended = Instant::now();
    site.end_owner();
    let done = waiting.end();
    assert!(ended.elapsed() < Duration::from_secs(10), "{:?}", ended.elapsed());
    assert_eq!(done.expect_code(0).json()["epoch"], 2);
    assert_eq!(site.field("pid"), heir.id());
}

#[test]
fn a_waiting_claim_gets_what_a_living_process_releases() {
    let site = Site::new();
    let token = site.claimed();
    let mut waiting = site.claim().args(["--wait", "60s", "--json"]).start();
    waiting.says("waiting for");
    site.holder("release", &token).ok();
    let done = waiting.end();
    assert_eq!(done.expect_code(0).json()["epoch"], 2);
    assert!(done.took < Duration::from_secs(30), "{:?}", done.took);
}

#[test]
fn an_owner_must_be_a_process_that_runs() {
    let site = Site::new();
    for (pid, why) in [
        (ended_pid().as_str(), "there is no such process on this host"),
        (&thread_id(), "this is a thread, not a process"),
        ("0", "a pid is a number from 1"),
        ("-1", "a pid is a number from 1"),
        ("2147483648", "a pid is a number from 1"),
        ("me", "a pid is a number from 1"),
    ] {
        let owner = format!("--owner={pid}");
        Run::new("claim")
            .arg(&site.path)
            .arg(owner)
            .exits(64)
            .prints_nothing()
            .says(&[why]);
    }
    Run::new("claim").arg(&site.path).exits(64).says(&["--owner"]);
    assert!(site.names().is_empty());
}

#[test]
fn a_ttl_has_whole_seconds_and_at_least_five() {
    let site = Site::new();
    for ttl in ["4s", "0", "5500ms", "4999ms"] {
        site.claim()
            .args(["--ttl", ttl])
            .exits(64)
            .says(&["a ttl has whole seconds, at least 5"]);
    }
    for ttl in ["", "soon", "-5s", "5 parsecs"] {
        let ttl = format!("--ttl={ttl}");
        site.claim().arg(ttl).exits(64).says(&["a time is written as 90s"]);
    }
    assert!(site.names().is_empty());
    for (ttl, seconds) in [("5", "5"), ("5000ms", "5"), ("2m", "120"), ("1h", "3600")] {
        let site = Site::new();
        site.claim().args(["--ttl", ttl]).ok();
        assert_eq!(site.field("ttl"), seconds);
    }
}

#[test]
fn fields_are_set_with_the_claim() {
    let site = Site::new();
    site.claim()
        .args([
            "--set",
            "phase=serving",
            "--set",
            "url=http://h/?a=b",
            "--set",
            "empty=",
            "--set",
            "phase=up",
        ])
        .ok();
    assert_eq!(site.field("phase"), "up");
    assert_eq!(site.field("url"), "http://h/?a=b");
    assert_eq!(site.field("empty"), "");
    for bad in ["phase", "=x", "outcome=maybe"] {
        site.claim().args(["--set", bad]).exits(64).prints_nothing();
    }
    let other = Site::new();
    let much = format!("much={}", "x".repeat(70_000));
    other
        .claim()
        .args(["--set", &much])
        .exits(64)
        .says(&["does not fit a record"]);
    assert!(other.names().is_empty());
}

mod binds {
    use super::*;

    fn bound() -> Site {
        let site = Site::new();
        write_pid(&site, &site.owner.id());
        site
    }

    fn write_pid(site: &Site, text: &str) {
        std::fs::write(site.dir.path().join("x.pid"), text).expect("write");
    }

    #[test]
    fn a_lease_holds_while_the_pid_file_names_its_owner() {
        let site = bound();
        site.claim().args(["--binds", "x.pid"]).ok();
        assert_eq!(site.field("binds"), "x.pid");
        site.is(0, "held", "process-running");
        let stranger = Running::idle();
        write_pid(&site, &format!("{}\n", stranger.id()));
        site.is(2, "undetermined", "payload-mismatch");
        let both = format!("x.pid names {}, the record {}", stranger.id(), site.owner.id());
        site.claim().exits(2).says(&["(payload-mismatch)", &both]);
        assert_eq!(
            std::fs::read_to_string(site.dir.path().join("x.pid")).expect("read"),
            format!("{}\n", stranger.id()),
            "the pid file is another program's"
        );
    }

    #[test]
    fn the_pid_file_has_to_name_the_owner_first() {
        let site = Site::new();
        let bind = || site.claim().args(["--binds", "x.pid"]);
        let file = site.dir.path().join("x.pid");
        let file = file.display();
        bind().exits(64).says(&[&format!("{file} does not exist")]);
        write_pid(&site, "");
        bind().exits(64).says(&[&format!("{file} names no pid")]);
        write_pid(&site, "1\n");
        bind()
            .exits(64)
            .says(&[&format!("{file} names 1"), &format!("the owner {}", site.owner.id())]);
        assert_eq!(site.names(), ["x.pid"]);
    }

    #[test]
    fn gone_with_its_owner_it_contradicts_nothing() {
        let mut site = bound();
        site.claim().args(["--binds", "x.pid"]).ok();
        std::fs::remove_file(site.dir.path().join("x.pid")).expect("remove");
        site.is(2, "undetermined", "payload-mismatch");
        site.end_owner();
        site.is(1, "dead", "no-such-process");
        assert_eq!(site.claim().arg("--json").json()["epoch"], 2);
    }

    /// By then the file names the new owner, which says nothing of the last one.
    #[test]
    fn after_a_crash_the_next_owner_binds_the_same_file() {
        let mut site = bound();
        site.claim().args(["--binds", "x.pid"]).ok();
        let next = Running::idle();
        write_pid(&site, &next.id());
        let last = std::mem::replace(&mut site.owner, next);
        site.claim()
            .args(["--binds", "x.pid"])
            .exits(5)
            .says(&["the recorded process is running on this host"]);
        drop(last);
        site.is(2, "undetermined", "payload-mismatch");
        site.claim().exits(2).says(&["(payload-mismatch)"]);
        assert_eq!(site.claim().args(["--json", "--binds", "x.pid"]).json()["epoch"], 2);
    }
}
