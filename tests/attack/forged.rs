//! Records that name processes which nobody should end or believe in.

use std::fs;
use std::os::unix::fs::chown;

use serde_json::{Value, json};

use crate::place::{GROUP, OTHER, Place, TOKEN, USER, each, possible, token};
use crate::support::call::{Run, forge, thread_id};
use crate::support::{chmod, snapshot, stat};

#[test]
fn of_processes_that_are_none_or_everybodys() {
    if !possible() {
        return;
    }
    let thread: Value = serde_json::from_str(&thread_id()).expect("a number");
    let pids = [
        json!(1),
        json!(std::process::id()),
        thread,
        json!(-1),
        json!(0),
        json!(-(i64::from(std::process::id()))),
        json!(i32::MAX),
        json!(u32::MAX),
        json!(1u64 << 63),
        json!(1e300),
        json!(1.5),
        json!("1"),
        json!([1]),
        json!(null),
    ];
    each(&pids, |pid| {
        println!("pid {pid}");
        let place = Place::new();
        // What is everybody's is tried without the power to harm it: of the user's own there is a process to lose.
        let users = match pid.as_i64() {
            Some(..=1) => vec![USER],
            _ => vec![USER, 0],
        };
        let start = pid.as_i64().and_then(stat).map(|(_, start)| start);
        let put = |key: &str, value: &Value| {
            place.put(OTHER, &place.record_of(place.sentinel(OTHER)));
            forge(&place.path(), &[("pidfd", Value::Null), (key, value.clone())]);
            if let Some(start) = start {
                forge(&place.path(), &[("start", start.into())]);
            }
        };
        put("pid", pid);
        place.every_verb_as(&users);
        put("keeper", &json!({ "pid": pid, "start": start.unwrap_or(1) }));
        place.every_verb_as(&users);
        let _ = fs::remove_file(place.path());
        place.plant("bare.pid", pid.to_string());
        place.every_verb_as(&users);
    });
}

/// The very process that looks.
#[test]
fn of_whoever_reads_it() {
    if !possible() {
        return;
    }
    for verb in ["judge", "stop", "settle"] {
        let place = Place::new();
        place.put(OTHER, &place.record_of(place.sentinel(USER)));
        let record = fs::read_to_string(place.path()).expect("read");
        let number = place.sentinel(USER).to_string();
        let template = record.replace(&format!("\"pid\":{number},"), "\"pid\":PID,");
        place.plant("template", template);
        let script = r#"
            start=$(cut -d' ' -f22 /proc/$$/stat)
            sed "s/PID/$$/; s/\"start\":[0-9]*/\"start\":$start/; s/,\"pidfd\":[0-9]*//" template > x.lease
            exec "$LEASEHOLD" "$0" x.lease"#;
        let done = Run::program("sh").dir(place.shared()).args(["-c", script, verb]);
        // Root's own record, of root's own process: that may be ended, and nothing else.
        let done = done.done();
        if verb != "stop" {
            assert!(done.status.code().is_some(), "{verb}: {}", done.status);
        }
        place.is_unharmed();
    }
}

/// Whoever could have written the record decides whom `stop` ends: nobody but the process's own user, or root, may.
#[test]
fn by_others_end_nobody() {
    if !possible() {
        return;
    }
    type Set = fn(&Place);
    let cases: &[(&str, Set, &str)] = &[
        (
            "written by another user",
            |place| place.put(OTHER, &place.record_of(place.sentinel(USER))),
            "was written by user",
        ),
        (
            "written by another user, of a process of root",
            |place| place.put(OTHER, &place.record_of(place.sentinel(0))),
            "was written by user",
        ),
        (
            "written by its user, who let everybody write into it",
            |place| {
                place.put(USER, &place.record_of(place.sentinel(USER)));
                chmod(place.path(), 0o646);
            },
            "others may write into it",
        ),
        (
            "written by root, whose group may write into it",
            |place| {
                place.put(0, &place.record_of(place.sentinel(USER)));
                chown(place.path(), Some(0), Some(GROUP)).expect("chown");
                chmod(place.path(), 0o664);
            },
            "others may write into it",
        ),
        (
            "written elsewhere, and linked here",
            |place| fs::hard_link(place.outside("live.lease"), place.path()).expect("link"),
            "has another name",
        ),
    ];
    for (what, set, why) in cases {
        let place = Place::new();
        set(&place);
        for uid in [USER, 0] {
            let stopped = place.harmless(uid, &["stop", "PATH", "--grace", "100ms"]);
            stopped.expect_code(64).says(&[why, "nothing was signalled"]);
            let swept = [
                "scan",
                "DIR",
                "--where",
                "role=bridge",
                "--stop-orphans",
                "--grace",
                "100ms",
            ];
            place.harmless(uid, &swept).says(&[why]);
        }
        println!("{what}");
        place.is_unharmed();
    }
}

/// A replacement keeps the mode of what it replaces: of a record that was planted for that.
#[test]
fn through_the_mode_of_a_planted_record() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let mut vacant = place.record_of(place.sentinel(OTHER));
    vacant.owner.ended = Some("2026-01-01T00:00:00Z".into());
    place.put(OTHER, &vacant);
    chmod(place.path(), 0o666);
    let owner = place.sentinel(0).to_string();
    let claimed = place.harmless(0, &["claim", "PATH", "--owner", &owner]);
    claimed.expect_code(0);
    // It is root's file now, and the other user writes into it.
    let forged = String::from_utf8(place.record_of(place.sentinel(USER)).print()).expect("text");
    let write = Run::program("setpriv").args([&format!("--reuid={OTHER}"), "--clear-groups"]);
    write
        .args(["sh", "-c", "cat > \"$0\""])
        .arg(place.path())
        .input(&forged)
        .ok();
    for words in [
        &["stop", "PATH"][..],
        &["scan", "DIR", "--where", "role=bridge", "--stop-orphans"],
    ] {
        place.harmless(0, words).says(&["others may write into it"]);
    }
    place.is_unharmed();
}

/// The same checks leave `stop` to whom it belongs.
#[test]
fn by_its_own_user_it_is_stopped() {
    if !possible() {
        return;
    }
    for (writer, mode) in [(USER, 0o644), (USER, 0o664), (0, 0o644)] {
        let place = Place::new();
        place.put(writer, &place.record_of(place.sentinel(USER)));
        chmod(place.path(), mode);
        place.run(USER, "stop").arg(place.path()).done().expect_code(0);
    }
}

/// A record may be bound to any file: of that only a number is read, and only of a regular file.
#[test]
fn bound_to_something_elsewhere() {
    if !possible() {
        return;
    }
    let outside = |place: &Place| place.outside("secret").to_str().expect("a plain path").to_owned();
    let long = "y/".repeat(5000);
    let files = [
        "fifo",
        "zero",
        "link",
        "huge",
        "../outside/secret",
        "../outside/pid",
        "../outside/live.lease",
        "OUTSIDE",
        "",
        ".",
        "/",
        "x.lease",
        "/proc/self/stat",
        "/proc/self/mem",
        "a\u{0}b",
        &long,
    ];
    each(&files, |file| {
        println!("{file:.60?}");
        let place = Place::new();
        place.device("fifo", rustix::fs::FileType::Fifo, 0, 0);
        place.device("zero", rustix::fs::FileType::CharacterDevice, 1, 5);
        std::os::unix::fs::symlink("../outside/pid", place.beside("link")).expect("symlink");
        let huge = fs::File::create(place.beside("huge")).expect("create");
        huge.set_len(1 << 40).expect("tmpfs has holes");
        let file = file.replace("OUTSIDE", &outside(&place));
        place.put(OTHER, &place.record_of(place.sentinel(OTHER)));
        forge(&place.path(), &[("binds", file.into())]);
        let judged = place.harmless(USER, &["judge", "PATH", "--json"]);
        assert!(!judged.stdout.contains("untouched"), "{}", judged.stdout);
        place.every_verb();
    });
}

/// Numbers and terms at their limits.
#[test]
fn with_terms_without_end() {
    if !possible() {
        return;
    }
    let terms = [
        ("ttl", json!(u64::MAX)),
        ("ttl", json!(5)),
        ("epoch", json!(u64::MAX)),
        ("epoch", json!(i64::MAX)),
        ("seq", json!(i64::MAX)),
        ("seq", json!(0)),
        ("start", json!(0)),
        ("start", json!(u64::MAX)),
        ("uid", json!(0)),
        ("lock", json!("flock")),
        ("policy", json!("sole-writer")),
        ("leasehold", json!(2)),
        ("token", json!("../../etc/passwd")),
        ("ended", json!("x")),
        ("host_id", json!("x")),
    ];
    each(&terms, |(key, value)| {
        println!("{key} {value}");
        let place = Place::new();
        for pid in [place.sentinel(USER), place.sentinel(OTHER)] {
            place.put(OTHER, &place.record_of(pid));
            forge(&place.path(), &[(key, value.clone())]);
            place.every_verb();
        }
    });
}

/// Locks and pid files of other programs are no reason to signal, write or remove anything.
#[test]
fn files_of_other_programs() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let pid = place.sentinel(USER);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    place.plant("bare.pid", pid.to_string());
    place.plant("LCK..x", format!("{:>10}\n", pid.get()));
    place.plant("vim.swp", format!("b0VIM 8.2{}", "\0".repeat(100)));
    place.plant("lockfile", format!("{host}\n{pid}\n"));
    place.plant(
        "json.lock",
        json!({ "pid": pid, "hostname": host, "role": "bridge" }).to_string(),
    );
    for (name, target) in [
        (".#doc", format!("root@{host}.{pid}:1700000000")),
        ("SingletonLock", format!("{host}-{pid}")),
        ("lock", format!("{host}:{pid}")),
        ("away", format!("a@../../../../net/{host}.{pid}:1")),
    ] {
        std::os::unix::fs::symlink(target, place.beside(name)).expect("symlink");
    }
    let before: Vec<_> = snapshot(&place.shared())
        .into_iter()
        .filter(|(name, _)| name != ".")
        .collect();
    place.every_verb();
    let after = snapshot(&place.shared());
    for (name, look) in before {
        assert_eq!(after.get(&name), Some(&look), "{name:?}");
    }
    for words in [
        &["stop", "bare.pid"][..],
        &["stop", "lockfile"],
        &["scan", "DIR", "--legacy", "--stop-orphans", "--where", "role=bridge"],
        &["claim", "bare.pid", "--owner", "PID"],
        &["break", "bare.pid", "--token", TOKEN, "--reason", "x", "--yes"],
    ] {
        place.harmless(0, words);
    }
    place.is_unharmed();
    assert_eq!(token(&place.beside("bare.pid")), None);
}
