//! Files in which other programs name an owner: recognised by content, judged with care, never touched.

use std::fs::File;
use std::time::SystemTime;

use leasehold::facts::{Facts, LegacyFacts, ProcessFacts, RecordFacts, RecordState};
use leasehold::identity::{Host, Process};
use leasehold::legacy::{Content, FAMILIES, recognise};
use leasehold::verdict::{INITIAL_PIDNS, judge};
use leasehold::{Pid, Reason, Verdict};
use serde_json::{Value, json};

use crate::leasehold;
use crate::records::*;
use crate::support::*;

const RANDOM: &str = "0123456789abcdef0123456789abcdef";

fn text(content: &str) -> Option<RecordFacts> {
    recognise(Content::Text(content))
}

fn link(target: &str) -> Option<RecordFacts> {
    recognise(Content::Link(target))
}

/// Family, host and pid.
#[track_caller]
fn is(found: Option<RecordFacts>, family: &str, host: Option<&str>, pid: i32) {
    let found = found.unwrap_or_else(|| panic!("not recognised as {family}"));
    assert_eq!(found.legacy.as_ref().map(|legacy| legacy.family.as_str()), Some(family));
    assert_eq!((found.host.as_deref(), found.valid_pid()), (host, Pid::new(pid.into())));
    assert!(FAMILIES.iter().any(|known| known.name == family));
}

#[test]
fn samples_of_every_family() {
    is(text("1902\n"), "bare-pid", None, 1902);
    is(text("1902"), "bare-pid", None, 1902);
    is(text(" 1902\r\n"), "bare-pid", None, 1902);
    is(
        text("1902\nlogin-a.example.org\n"),
        "pid-host",
        Some("login-a.example.org"),
        1902,
    );
    is(text("1902\nlogin-a"), "pid-host", Some("login-a"), 1902);
    is(text("      1902\nlogin-a\n"), "gnupg", Some("login-a"), 1902);
    let holder =
        format!("token login-a.example.1902.7.{RANDOM}\npid 1902\ncommand bash ./agmsg watch\nhost login-a.example\n");
    is(text(&holder), "agmsg-holder", Some("login-a.example"), 1902);
    let lease = "v=1\nproject=/home/u/p\npairs=a:b\nhost=login-a\npid=1902\nstart=181470\nstartsrc=proc\n";
    is(text(lease), "agmsg-lease", Some("login-a"), 1902);
    assert_eq!(text(lease).unwrap().start, Some(181_470));
    let from_ps = text(
        &lease
            .replace("=proc", "=ps")
            .replace("181470", "Wed Aug 26 10:25:14 2026"),
    );
    assert_eq!(from_ps.unwrap().start, None, "no ticks");
    let codex = r#"{"pid":1902,"processStartTime":"Wed Aug 26 10:25:14 2026"}"#;
    is(text(codex), "codex", None, 1902);
    assert_eq!(text(codex).unwrap().legacy.unwrap().started, Some(1_787_739_914));
    let newer = r#"{"pid":1902,"processStartTime":"Wed Aug 26 10:25:14 2026","processIdentity":{"bootId":"00000001-1111-4222-8333-444455556666","startTicks":181470}}"#;
    is(text(newer), "codex", None, 1902);
    let found = text(newer).unwrap();
    assert_eq!(found.boot.as_deref(), Some("00000001-1111-4222-8333-444455556666"));
    assert_eq!(found.start, Some(181_470));
    let mu = r#"{"instance_id":"a1","pid":1902,"panel_port":4100,"project_root":"/home/u/p","acquired_at":"2026-01-02T03:04:05Z"}"#;
    is(text(mu), "codeflowmu", None, 1902);
    is(link("login-a/effffffc:1902"), "mercurial", Some("login-a"), 1902);
    assert_eq!(link("login-a/effffffc:1902").unwrap().pidns, Some(INITIAL_PIDNS));
    is(link("login-a:1902"), "mercurial", Some("login-a"), 1902);
    is(
        link("u@login-a.example.1902:1787000000"),
        "emacs",
        Some("login-a.example"),
        1902,
    );
    is(link("u@login-a.1902"), "emacs", Some("login-a"), 1902);
    is(link("u@login-a.1902\u{f022}1787000000"), "emacs", Some("login-a"), 1902);
    is(link("u@corp@login-a.1902:0"), "emacs", Some("login-a"), 1902);
    is(link("login-a-1902"), "chrome", Some("login-a"), 1902);
}

#[test]
fn what_only_looks_similar_is_nobodys() {
    for content in [
        "",
        "\n",
        "0",
        "-5",
        "4294967297",
        "12 34",
        "0x10",
        "1902\n1903\n",
        "1902\nlogin a\n",
        "1902\nlogin-a\nmore\n",
        "pid 1902\n",
        "v=1\npid=1902\n",
        "{}",
        r#"{"pid":1902}"#,
        r#"{"pid":"1902","processStartTime":""}"#,
        r#"{"pid":0,"processStartTime":"x"}"#,
        r#"{"pid":1902,"panel_port":4100}"#,
        "[1902]",
        "token login-a.1903.7.0123456789abcdef0123456789abcdef\npid 1902\ncommand c\nhost login-a\n",
        "token login-b.1902.7.0123456789abcdef0123456789abcdef\npid 1902\ncommand c\nhost login-a\n",
    ] {
        assert_eq!(text(content), None, "{content:?}");
    }
    for target in [
        "",
        "file",
        "../x",
        "login-a:",
        ":12",
        "login-a/zz:12",
        "u@.12",
        "u@host.x:1",
        "a/b-12",
        "12-13",
        "u@12.13:1",
        // Recognised, they would be looked up: where an automounter listens, or out of the directory.
        "/net/login-z/u@login-a.12:1",
        "../../net/login-z/u@login-a.12:1",
    ] {
        assert_eq!(link(target), None, "{target:?}");
    }
}

/// With a host and no boot id nothing is held or dead; what can be seen is said.
#[test]
fn a_name_proves_nothing() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let host = Host::here().observer.host.expect("a name");
    let pid = owner.pid();
    dir.link("here", &format!("{host}-{pid}"));
    dir.link("gone", &format!("{host}-4194000"));
    dir.link("there", &format!("login-z-{pid}"));
    dir.link("elsewhere", &format!("{host}/f0001234:{pid}"));
    let ticks = Process::of(pid).unwrap().start;
    let lease = |ticks| format!("v=1\nproject=p\npairs=\nhost={host}\npid={pid}\nstart={ticks}\nstartsrc=proc\n");
    dir.write("same", lease(ticks));
    dir.write("other", lease(ticks - 1));
    dir.write("bare", format!("{pid}\n"));
    let before = snapshot(dir.path());
    let objects = leasehold!("scan", dir.path(), "--legacy", "--json").objects();
    let of = |name: &str| -> &Value {
        let found = objects.iter().find(|object| object["path"] == json!(dir.file(name)));
        found.unwrap_or_else(|| panic!("{name} is not listed"))
    };
    for (name, reason, says, now) in [
        ("here", "no-boot", "a process", json!("sleep 1000")),
        ("gone", "no-boot", "there is no process 4194000 here", json!(null)),
        ("there", "no-boot", "the name is not this host's", json!(null)),
        ("elsewhere", "no-boot", "another pid namespace", json!(null)),
        ("same", "no-boot", "may be another one", json!("sleep 1000")),
        ("other", "no-boot", "another start time", json!("sleep 1000")),
        ("bare", "no-host", "names a pid and no host", json!(null)),
    ] {
        let found = of(name);
        assert_eq!(
            (&found["verdict"], &found["reason"]),
            (&json!("undetermined"), &json!(reason)),
            "{found}"
        );
        assert!(found["sentence"].as_str().unwrap().contains(says), "{name}: {found}");
        assert_eq!(found["now"], now, "{name}");
    }
    // Each is the same when it is judged by itself.
    for name in ["here", "gone", "there", "bare"] {
        let alone = leasehold!("judge", dir.file(name), "--json");
        assert_eq!(alone.code, 2);
        assert_eq!(alone.objects()[0]["sentence"], of(name)["sentence"]);
    }
    let me = std::process::id().to_string();
    for name in names(dir.path()) {
        let path = &dir.path().join(name);
        assert_eq!(leasehold!("claim", path, "--owner", &me).code, 2, "{}", path.display());
        assert_eq!(leasehold!("stop", path).code, 2);
        assert_eq!(leasehold!("show", path).code, 2);
    }
    assert_eq!(leasehold!("settle", dir.path()).code, 0);
    assert_eq!(snapshot(dir.path()), before, "never written, never removed");
    assert_eq!(
        leasehold!("scan", dir.path()).stdout,
        "",
        "and not listed unless asked for"
    );
}

/// Only a file that also proves machine and namespace would let this host say that its process is gone.
#[test]
fn dead_only_where_the_host_is_proven_some_other_way() {
    let mut facts = Facts {
        record: RecordFacts {
            state: RecordState::Present,
            host: Some("login-a".into()),
            machine: Some("m1".into()),
            pid: Some(json!(4242)),
            pidns: Some(INITIAL_PIDNS),
            legacy: Some(LegacyFacts {
                family: "mercurial".into(),
                ..LegacyFacts::default()
            }),
            ..RecordFacts::default()
        },
        ..Facts::default()
    };
    facts.observer.host = Some("login-a".into());
    facts.observer.machine = Some("m1".into());
    facts.observer.pidns = Some(INITIAL_PIDNS);
    facts.observer.boot = Some("b1".into());
    let exists = |exists| {
        Some(ProcessFacts {
            exists: Some(exists),
            start: Some(7),
            ..ProcessFacts::default()
        })
    };
    facts.process = exists(false);
    assert_eq!(judge(&facts).reason, Reason::NoSuchProcess);
    facts.process = exists(true);
    assert_eq!(
        judge(&facts).reason,
        Reason::NoBoot,
        "a process is there: it may be any"
    );
    facts.process = exists(false);
    for forget in [
        |facts: &mut Facts| facts.record.machine = None,
        |facts: &mut Facts| facts.observer.machine = Some("m2".into()),
        |facts: &mut Facts| facts.record.pidns = None,
        |facts: &mut Facts| facts.record.host = Some("login-b".into()),
    ] {
        let mut less = facts.clone();
        forget(&mut less);
        assert_eq!(judge(&less).verdict, Verdict::Undetermined, "{less:?}");
    }
}

fn reading(seconds_after: i64, process: &Process) -> String {
    let boot = SystemTime::now() - now();
    let birth = boot.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + process.start / 100;
    let at = format!("@{}", i64::try_from(birth).unwrap() + seconds_after);
    let date = clean("date")
        .env("LC_ALL", "C")
        .args(["-d", &at, "+%a %b %e %H:%M:%S %Y"])
        .output()
        .expect("date(1)");
    String::from_utf8(date.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_boot_id_settles_the_host_and_ticks_the_process() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let process = Process::of(owner.pid()).unwrap();
    let here = Host::here().observer.boot.expect("a boot id");
    let write = |name: &str, pid: i32, started: &str, boot: &str, ticks: u64| {
        let identity = json!({ "bootId": boot, "startTicks": ticks });
        dir.write(
            name,
            json!({ "pid": pid, "processStartTime": started, "processIdentity": identity }).to_string(),
        );
    };
    let (pid, now) = (process.pid.get(), reading(0, &process));
    write("same.pid", pid, &now, &here, process.start);
    write(
        "other.pid",
        pid,
        &reading(-3600, &process),
        &here,
        process.start - 360_000,
    );
    write("gone.pid", 4_194_000, &now, &here, process.start);
    write(
        "rebooted.pid",
        pid,
        &now,
        "00000001-1111-4222-8333-444455556666",
        process.start,
    );
    let objects = leasehold!("scan", dir.path(), "--legacy", "--json").objects();
    let reasons: Vec<_> = objects
        .iter()
        .map(|object| object["reason"].as_str().unwrap())
        .collect();
    // In another pid namespace the number may be another process, so that only agreement proves something; and another
    // boot id says nothing of which host it was.
    assert_eq!(
        reasons,
        ["no-pid-namespace", "no-pid-namespace", "no-host", "process-running"]
    );
    let contradiction = |object: &Value| -> Option<i64> {
        let rows = object["evidence"].as_array().unwrap();
        let row = rows.iter().find(|row| row["what"] == "born after its record by (s)")?;
        row["found"].as_str().unwrap().parse().ok()
    };
    // gone, other, rebooted, same: in the order of names, gone first.
    let later: Vec<_> = objects.iter().map(contradiction).collect();
    assert!(
        later[1].is_some_and(|later| (3590..=3610).contains(&later)),
        "evidence, and no verdict: {}",
        objects[1]
    );
    assert_eq!((later[0], later[2], later[3]), (None, None, None));
    assert_eq!(
        leasehold!("stop", dir.file("same.pid")).code,
        5,
        "held, but nothing of ours to end"
    );
    let claim = leasehold!("claim", dir.file("same.pid"), "--owner", std::process::id().to_string());
    assert_eq!(claim.code, 5, "{claim:?}");
}

#[test]
fn an_empty_pid_file_beside_a_held_lock_is_starting() {
    let dir = Dir::new();
    let path = dir.write("app.pid", "");
    let said = |path| {
        leasehold!("judge", path, "--json").objects()[0]["sentence"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(!said(&path).contains("lock"), "{}", said(&path));
    let lock = File::create(dir.file("app.pid.lock")).unwrap();
    assert!(said(&path).contains("may be starting"), "{}", said(&path));
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(
        said(&path).contains("app.pid.lock beside it is locked"),
        "{}",
        said(&path)
    );
    assert_eq!(
        leasehold!("scan", dir.path(), "--legacy").verdicts(),
        ["app.pid: undetermined empty"]
    );
}

#[test]
fn a_link_that_leads_somewhere_is_a_link() {
    let dir = Dir::new();
    dir.write("login-a-12", "x");
    let path = dir.link("alias", "login-a-12");
    assert_eq!(leasehold!("judge", &path).stdout.split('\t').nth(1), Some("symlink"));
    std::fs::remove_file(dir.file("login-a-12")).unwrap();
    assert_eq!(leasehold!("judge", &path).stdout.split('\t').nth(1), Some("no-boot"));
}
