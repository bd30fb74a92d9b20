//! Text that drives terminals, in everything that is printed.

use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::place::{OTHER, Place, TOKEN, USER, each, possible};
use crate::support::call::{forge, is_harmless};

/// Titles and colours, C1 in one character, marks that turn text round, lines that look like another answer.
const EVIL: &str = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{90}q\u{9c}\r\u{8}\u{7f}\u{61c}\u{200e}\u{200f}\u{202e}\u{2066}\u{2028}\u{2029}\ndead\tno-such-process\t$(x)`x`';x";

/// Fields of a record that hold text, or may.
const KEYS: [&str; 15] = [
    "token", "host", "machine", "host_id", "boot", "pid", "pidns", "since", "lock", "cmd", "binds", "policy", "ended",
    "keeper", "x",
];

/// What the user's terminal would be sent, its line ends made newlines again.
fn on_a_terminal(place: &Place, words: &[&str]) {
    let words: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    let line = format!("'{}' {}", place.command().display(), words.join(" "));
    let script = place.program(USER, "script").args(["-qec", &line, "/dev/null"]);
    is_harmless(&script.done().stdout.replace("\r\n", "\n"));
}

fn looks(place: &Place) {
    for words in [
        &["judge", "x.lease"][..],
        &["show", "x.lease"],
        &["show", "x.lease", "--field", "x"],
        &["show", "x.lease", "--field", "cmd"],
        &["scan", "."],
        &["scan", ".", "--legacy", "--field", "evil"],
        &["ask", "x.lease", "--via", "false"],
        &["claim", "x.lease", "--owner", &place.sentinel(OTHER).to_string()],
        &["stop", "x.lease"],
        &["renew", "x.lease", "--token", TOKEN],
    ] {
        on_a_terminal(place, words);
    }
}

#[test]
fn in_every_field() {
    if !possible() {
        return;
    }
    each(&KEYS, |key| {
        for value in [json!(EVIL), json!({ EVIL: [EVIL, 1] })] {
            println!("{key}: {value}");
            let place = Place::new();
            place.put(OTHER, &place.record_of(place.sentinel(OTHER)));
            forge(&place.path(), &[(key, value)]);
            looks(&place);
            place.every_verb();
        }
    });
    let place = Place::new();
    place.put(OTHER, &place.record_of(place.sentinel(OTHER)));
    forge(&place.path(), &[(EVIL, json!(EVIL))]);
    place.every_verb();
}

/// Another host's record gives other answers, with its host's name in what to do.
#[test]
fn in_a_record_of_another_host() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let mut record = place.record_of(place.sentinel(OTHER));
    for key in [
        "intent", "outcome", "evil", "phase", "broken", "settled", "starts", "exit",
    ] {
        record.state.set(key, json!({ EVIL: EVIL }));
    }
    record.state.set("intent", EVIL);
    record.state.set(EVIL, EVIL);
    for host in [EVIL, "login-z", "-oProxyCommand=x", "$(x)"] {
        record.owner.host = Some(host.into());
        record.owner.boot = Some(EVIL.into());
        record.owner.cmd = Some(EVIL.into());
        for ttl in [None, Some(5)] {
            record.owner.ttl = ttl;
            place.put(OTHER, &record);
            looks(&place);
            place.every_verb();
        }
    }
    let scan = place.harmless(USER, &["scan", "DIR"]);
    assert!(!scan.stderr.contains("ssh $"), "{}", scan.stderr);
}

#[test]
fn in_names_of_files() {
    if !possible() {
        return;
    }
    let bytes: &[u8] = b"\xff\xc2\x9b\x1b[31m\n.lease";
    let evil = EVIL.replace('/', "");
    let names = [
        std::ffi::OsString::from(format!("{evil}.lease")),
        format!("{evil}.pid").into(),
        format!("--{evil}").into(),
        std::ffi::OsStr::from_bytes(bytes).to_owned(),
        "-rf.lease".into(),
        "$(touch y).lease".into(),
    ];
    each(&names, |name| {
        let place = Place::new();
        let record = place.record_of(place.sentinel(OTHER)).print();
        for content in [&record[..], b"42\n", b"", b"{\"leasehold\":1", b"{\"leasehold\":2}\n"] {
            std::fs::write(place.beside(name), content).expect("write");
            for verb in ["judge", "show", "settle", "stop", "scan", "ask", "claim"] {
                // As a shell hands over what `*` finds, and as a careful script does.
                for guard in [&[][..], &["--"]] {
                    let done = place.run(USER, verb).args(guard).arg(name).done();
                    is_harmless(&done.stderr);
                    is_harmless(&done.stdout);
                }
            }
        }
        looks(&place);
        place.every_verb();
    });
}

/// A usage error repeats the word that is wrong.
#[test]
fn in_words_that_a_shell_found() {
    if !possible() {
        return;
    }
    let place = Place::new();
    for word in [format!("--{EVIL}"), EVIL.into()] {
        for words in [
            &["judge", "x"][..],
            &["claim", "x", "--owner"],
            &["note", "x", "--token"],
        ] {
            on_a_terminal(&place, &[words, &[&word]].concat());
        }
    }
}
