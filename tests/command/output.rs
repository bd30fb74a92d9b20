//! Where output goes and what it may hold: terminals, pipes, full disks, usage errors.

use std::process::Stdio;

use crate::support::LEASEHOLD;
use crate::support::call::{Run, Site, has_a_machine_id, is_harmless};

const VERBS: [&str; 9] = [
    "claim",
    "judge",
    "show",
    "verify",
    "renew",
    "release",
    "hand-over",
    "note",
    "id",
];

/// Sets the title of a terminal, turns it red, and in the one-character form of CSI again; then text that reads backwards.
const HOSTILE: &str = "\x1b]0;owned\x07\x1b[31m\u{9b}31m\r\u{8}\u{202e}txt";

#[test]
fn what_a_record_says_does_not_drive_a_terminal() {
    let site = Site::new();
    let token = site.claimed();
    site.holder("note", &token).arg(format!("intent={HOSTILE}")).ok();
    site.forge(&[
        ("cmd", HOSTILE.into()),
        ("since", HOSTILE.into()),
        ("host", HOSTILE.into()),
    ]);
    // Of another name, it is this host by its machine id alone.
    let same = site.run("judge").exits(if has_a_machine_id() { 0 } else { 2 }).stdout;
    site.forge(&[
        ("machine", HOSTILE.into()),
        ("boot", HOSTILE.into()),
        (HOSTILE, HOSTILE.into()),
    ]);
    let foreign = site.run("judge").exits(2).stdout;
    for line in [same, foreign] {
        is_harmless(&line);
        assert_eq!(line.matches('\t').count(), 4, "{line}");
        assert!(
            line.contains(r"\x1b]0;owned\x07\x1b[31m\xc2\x9b31m\r\x08\xe2\x80\xaetxt"),
            "{line}"
        );
    }
    let refused = site.claim().args(["--wait", "10ms"]).exits(75);
    refused.says(&["waiting for", r"\x1b[31m"]);
    is_harmless(&refused.stderr);
    is_harmless(&site.run("show").ok());

    let paragraph = on_a_terminal(&site, "judge", &[]);
    assert!(paragraph.contains(r"owner     \x1b]0;owned"), "{paragraph}");
    is_harmless(&paragraph);
    is_harmless(&on_a_terminal(&site, "show", &[]));
    is_harmless(&on_a_terminal(&site, "show", &["--field", "cmd"]));

    std::fs::write(&site.path, format!("{{\"leasehold\":1,\"token\":\"{HOSTILE}\"}}\n")).expect("write");
    let refused = site.holder("renew", &token).exits(2);
    is_harmless(&refused.stderr);
}

#[test]
fn what_a_path_says_does_not_drive_a_terminal() {
    let site = Site::new();
    let path = site.dir.path().join(HOSTILE.replace('/', ""));
    let owner = site.owner.id();
    let claim = || Run::new("claim").arg(&path).args(["--owner", &owner]);
    claim().ok();
    let refused = claim().exits(5);
    is_harmless(&refused.stderr);
    is_harmless(&Run::new("judge").arg(&path).ok());
    std::fs::write(&path, "x").expect("write");
    is_harmless(&claim().exits(2).stderr);
    is_harmless(&Run::new("show").arg(&path).exits(2).stderr);
}

#[test]
fn a_backslash_is_escaped_once() {
    let site = Site::new();
    let path = site.dir.path().join(r"a\b");
    let owner = site.owner.id();
    let claim = || Run::new("claim").arg(&path).args(["--owner", &owner]);
    claim().ok();
    assert!(Run::new("judge").arg(&path).ok().ends_with("/a\\\\b\n"));
    let gave_up = claim().args(["--wait", "10ms"]).exits(75);
    gave_up.says(&[r"/a\\b is held"]);
    assert!(!gave_up.stderr.contains(r"a\\\\b"), "{}", gave_up.stderr);
}

/// What a terminal would be sent: its line ends are made newlines again.
fn on_a_terminal(site: &Site, verb: &str, more: &[&str]) -> String {
    let words: Vec<String> = [LEASEHOLD, verb, site.path.to_str().expect("a plain path")]
        .iter()
        .chain(more)
        .map(|word| format!("'{word}'"))
        .collect();
    let done = Run::program("script")
        .args(["-qec", &words.join(" "), "/dev/null"])
        .done();
    done.stdout.replace("\r\n", "\n")
}

#[test]
fn on_a_terminal_judge_writes_for_people() {
    let site = Site::new();
    site.claimed();
    let text = on_a_terminal(&site, "judge", &[]);
    let path = site.path.display();
    for part in [
        &format!("{path}: held (process-running)\n"),
        "the recorded process is running on this host\n",
        &format!("pid {}", site.owner.id()),
        "  next      wait for process",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    site.make_foreign();
    let text = on_a_terminal(&site, "judge", &[]);
    assert!(text.contains("host: recorded login-b, here "), "{text}");
}

/// A pipe whose reader has gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full_disk() -> Stdio {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    full.expect("/dev/full").into()
}

#[test]
fn output_into_a_closed_pipe_ends_quietly() {
    let site = Site::new();
    site.claimed();
    for run in [
        site.run("judge"),
        site.run("judge").arg("--json"),
        site.run("show"),
        Run::new("id").arg("--json"),
        Run::new("--help"),
        site.run("judge").arg(&site.path),
    ] {
        let done = run.stdout(closed_pipe());
        done.expect_code(0);
        assert_eq!(done.stderr, "", "{}", done.what);
    }
    let script = r#"set -o pipefail; "$LEASEHOLD" judge "$0" | true; "$LEASEHOLD" judge "$0" "$0" | head -c0"#;
    assert_eq!(Run::program("bash").args(["-c", script]).arg(&site.path).ok(), "");
}

#[test]
fn output_onto_a_full_disk_is_74() {
    let site = Site::new();
    let token = site.claimed();
    for run in [
        site.run("judge"),
        site.run("judge").arg("--json"),
        site.run("show"),
        site.holder("verify", &token),
        site.claim().arg("--json"),
        Run::new("id"),
        Run::new("--help"),
        Run::new("--version"),
    ] {
        run.stdout(full_disk()).expect_code(74);
    }
}

#[test]
fn a_claim_whose_token_cannot_be_printed_is_given_back() {
    let site = Site::new();
    let done = site.claim().stdout(full_disk());
    done.expect_code(74).says(&["cannot print the token", "given back"]);
    site.is(3, "free", "ended");
    assert_eq!(site.names(), ["x.lease"]);
}

#[test]
fn messages_that_cannot_be_written_change_no_code() {
    let site = Site::new();
    let token = site.claimed();
    for to in [full_disk, closed_pipe] {
        site.claim().stderr(to()).expect_code(5);
        site.claim().args(["--wait", "10ms"]).stderr(to()).expect_code(75);
        site.run("show").args(["--field", "no"]).stderr(to()).expect_code(2);
        site.run("note").args(["--token", &token]).stderr(to()).expect_code(64);
        Run::new("judge").stderr(to()).expect_code(64);
        Run::new("judge")
            .args(["--replay", "/nowhere"])
            .stderr(to())
            .expect_code(74);
    }
}

#[test]
fn wrong_usage_is_64_for_every_verb() {
    for verb in VERBS {
        for words in [&["--no-such-option"][..], &["a", "b", "--json", "--json"]] {
            let done = Run::new(verb).args(words).exits(64);
            done.prints_nothing().says(&["error: "]);
        }
    }
    for verb in VERBS.iter().filter(|verb| **verb != "id") {
        Run::new(verb).exits(64).prints_nothing();
    }
    Run::new("frobnicate").exits(64).says(&["unrecognized subcommand"]);
    Run::program(LEASEHOLD).exits(64).says(&["Usage: leasehold"]);
}

#[test]
fn help_and_version_are_0_on_stdout() {
    let more = ["run", "scan", "stop", "settle", "path", "ask", "break"];
    let verbs = || VERBS.into_iter().chain(more);
    for verb in verbs() {
        let help = Run::new(verb).arg("--help").ok();
        for part in [&format!("Usage: leasehold {verb}")[..], "Examples:", "Exit"] {
            assert!(help.contains(part), "{verb}: no `{part}` in {help}");
        }
        assert_eq!(Run::new("help").arg(verb).ok(), help);
    }
    let help = Run::new("--help").ok();
    for verb in verbs() {
        let line = help
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{verb} ")));
        let about = line
            .and_then(|line| line.trim_start().strip_prefix(verb))
            .expect("a line a verb");
        assert!(!about.trim().is_empty(), "{verb} says what it does");
        // Unless the line is cut or wrapped.
        let own = Run::new(verb).arg("--help").ok();
        let first = own.lines().next().expect("a help text");
        assert!(
            first.starts_with(about.trim()),
            "{verb}: `{first}`, and in the list `{about}`"
        );
    }
    assert_eq!(
        Run::new("--version").ok(),
        format!("leasehold {}\n", env!("CARGO_PKG_VERSION"))
    );
}
