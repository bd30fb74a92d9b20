//! What the functions answer.

use crate::shells::{Records, everywhere, script, settings};
use crate::support::Answer;

const FILES: &str =
    "held.lease bound.lease kept.lease dead.lease free.lease absent.lease foreign.lease torn.lease crlf.lease bare.pid";

#[test]
fn states_are_those_of_judge() {
    let states = "\
held.lease 0 held process-running
bound.lease 0 held process-running
kept.lease 0 held keeper-running
dead.lease 1 dead no-such-process
free.lease 3 free ended
absent.lease 3 free no-record
foreign.lease 2 undetermined foreign-host
torn.lease 2 undetermined torn
crlf.lease 2 undetermined malformed
bare.pid 2 undetermined no-host
";
    for function in ["lh_state", "lh_pid_state"] {
        everywhere(
            &format!("for f in {FILES}; do code {function} $f; echo $f $code $lh_verdict $lh_reason; done"),
            states,
            0,
        );
    }
    everywhere(
        "lh_state held.lease; [ $lh_pid = $OWNER ]; [ $lh_host = $(uname -n) ]",
        "",
        0,
    );
}

#[test]
fn only_what_is_verified_to_be_unused_is_not_in_use() {
    everywhere(
        &format!("for f in {FILES}; do code lh_may_be_in_use $f; echo $f $code; done"),
        "held.lease 0\nbound.lease 0\nkept.lease 0\ndead.lease 1\nfree.lease 3\nabsent.lease 3\nforeign.lease 0\ntorn.lease 0\ncrlf.lease 0\nbare.pid 0\n",
        0,
    );
}

#[test]
fn spawn_and_kill_are_refused_unless_verified() {
    everywhere(
        &format!("for f in {FILES}; do code lh_may spawn $f; s=$code; code lh_may kill $f; echo $f $s $code; done"),
        "held.lease 5 0\nbound.lease 5 0\nkept.lease 5 5\ndead.lease 0 1\nfree.lease 0 3\nabsent.lease 0 3\nforeign.lease 2 2\ntorn.lease 2 2\ncrlf.lease 2 2\nbare.pid 2 2\n",
        0,
    );
}

#[test]
fn a_claim_is_taken_verified_guarded_and_released() {
    everywhere(
        r#"lh_claim x.lease --ttl 60s --set phase=up
        [ "$("$LEASEHOLD" show x.lease --field token)" = "$lh_token" ]
        [ "$("$LEASEHOLD" show x.lease --field pid)" = $$ ]
        mine=$lh_token
        code lh_claim x.lease; echo $code "[$lh_token]"
        lh_verify x.lease $mine; echo $lh_epoch
        lh_verify x.lease $mine 10s; echo $lh_epoch
        code lh_verify x.lease $mine 61s; echo $code "[$lh_epoch]"
        code lh_verify x.lease 00000000000000000000000000000000; echo $code
        append() { echo "$lh_epoch $*"; }
        lh_guard x.lease $mine 10s -- append "a  b" c; echo $lh_code
        code lh_guard x.lease $mine 10s -- sh -c 'exit 1'; echo $code $lh_code
        code lh_guard x.lease $mine 10s -- nothing-of-that-name 2>&-; echo $code $lh_code
        code lh_guard x.lease $mine 61s -- touch ran; echo $code "[$lh_code]"
        lh_release x.lease $mine --outcome completed
        code lh_guard x.lease $mine 10s -- touch ran; echo $code
        [ ! -e ran ]
        code lh_release x.lease $mine; echo $code
        lh_claim x.lease --owner $OWNER; [ "$("$LEASEHOLD" show x.lease --field pid)" = $OWNER ]"#,
        "5 []\n1\n1\n6 []\n6\n1 a  b c\n0\n8 1\n8 127\n6 []\n6\n0\n",
        0,
    );
}

#[test]
fn a_bound_file_that_names_another_keeps_the_guard_shut() {
    everywhere(
        r#"echo $$ > x.pid; lh_claim x.pid.lease --binds x.pid
        lh_guard x.pid.lease $lh_token 1s -- echo mine
        echo 12 > x.pid
        code lh_guard x.pid.lease $lh_token 1s -- echo never; echo $code"#,
        "mine\n6\n",
        0,
    );
}

#[test]
fn names_are_taken_as_they_are() {
    everywhere(
        r#"for f in "a b" "*" "-x" "q\"'\$x" "$(printf 'new\nline')" "[a]"; do
            lh_claim "$f"; lh_verify "$f" $lh_token; lh_pid_state "$f"; lh_pid_state "$f"
            lh_release "$f" $lh_token; echo $lh_verdict
        done"#,
        &"probably-held\n".repeat(6),
        0,
    );
}

#[test]
fn a_missing_word_is_wrong_usage() {
    for (function, code) in [
        ("lh_claim", 64),
        ("lh_claim x.lease --json", 64),
        ("lh_release x.lease", 64),
        ("lh_verify x.lease", 64),
        ("lh_guard x.lease 0 1s true", 64),
        ("lh_guard x.lease 0 1s --", 64),
        ("lh_state", 64),
        ("lh_state dead.lease free.lease", 64),
        ("lh_pid_state", 64),
        ("lh_may delete dead.lease", 64),
        ("lh_may spawn", 64),
        ("lh_may_be_in_use", 0),
    ] {
        everywhere(&format!("code {function}; echo $code"), &format!("{code}\n"), 0);
    }
}

/// What stands in for leasehold, and the code that every function has to make of it.
const BROKEN: [(&str, &str, i32); 8] = [
    ("false", "exit 1", 70),
    ("dead", "echo dead; exit 1", 70),
    ("other", "echo held; exit 1", 70),
    ("true", "exit 0", 70),
    ("words", "echo some words; exit 0", 70),
    ("killed", "kill -9 $$", 137),
    ("loader", "echo 'symbol not found' >&2; exit 127", 69),
    ("full", "exit 74", 74),
];

#[test]
fn a_leasehold_that_fails_never_says_dead() {
    for (words, options) in settings() {
        let records = Records::new();
        for (name, text, _) in BROKEN {
            records.program(name, text);
        }
        records.write("no-program", b"");
        let missing = [("no-program", "", 69), (".", "", 69), ("nowhere/leasehold", "", 69)];
        for (name, _, wanted) in BROKEN.iter().chain(&missing) {
            let text = "\
                for call in 'lh_claim x' 'lh_verify dead.lease 0' 'lh_guard dead.lease 0 1s -- echo ran' \
                    'lh_state dead.lease' 'lh_pid_state dead.lease' 'lh_may spawn dead.lease' 'lh_may kill held.lease' \
                    'lh_release dead.lease 0' 'lh_may_be_in_use dead.lease'; do\n\
                    code $call; echo $code\n\
                done";
            let mut command = script(&words, options, records.dir.path(), text);
            let answer = Answer::from(command.env("LEASEHOLD", format!("./{name}")).output().unwrap());
            // The one that has nothing to say when it is done.
            let release = if matches!(*name, "true" | "words") { 0 } else { *wanted };
            let lines = format!("{wanted}\n").repeat(7) + &format!("{release}\n0\n");
            assert_eq!(
                (answer.stdout, answer.code),
                (lines, 0),
                "{words:?} {options} {name}: {}",
                answer.stderr
            );
            if *wanted == 69 {
                let told = format!("cannot run ./{name}: PATH or LEASEHOLD has to say where");
                assert!(answer.stderr.contains(&told), "{words:?}: {}", answer.stderr);
            }
        }
    }
}

/// No pipe can be made for leasehold's output, and no process.
#[test]
fn a_shell_at_its_limits_never_says_dead() {
    for (words, options) in settings() {
        let records = Records::new();
        for limit in ["ulimit -n 3", "ulimit -u 0", "PATH=/nonexistent LEASEHOLD=leasehold"] {
            for call in [
                "lh_state dead.lease",
                "lh_may kill dead.lease",
                "lh_pid_state dead.lease",
            ] {
                let text = format!("{limit} 2>/dev/null || exit 3\n{call}\nexit $?");
                let mut command = script(&words, options, records.dir.path(), &text);
                let answer = Answer::from(command.output().unwrap());
                // Root may have as many processes as it likes.
                let dead = i32::from(limit == "ulimit -u 0" && answer.stderr.is_empty());
                assert!(
                    answer.code == dead && dead == 1 || answer.code > 1,
                    "{words:?} {limit} {call}: {answer:?}"
                );
            }
        }
    }
}
