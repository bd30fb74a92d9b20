//! lh_pid_state: what it costs, and when it asks leasehold.

use std::fs;
use std::time::{Duration, Instant};

use crate::shells::{Records, everywhere, script, settings, shells, skip};
use crate::support::{Answer, clean};

/// System calls that make a process, as strace counts them over a script.
fn forks(words: &[String], records: &Records, text: &str) -> usize {
    let plain = script(words, "", records.dir.path(), text);
    let mut traced = clean("strace");
    traced
        .args([
            "-f",
            "--seccomp-bpf",
            "-e",
            "trace=clone,clone3,fork,vfork",
            "-o",
            "trace",
        ])
        .arg(plain.get_program())
        .args(plain.get_args())
        .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(records.dir.path());
    Answer::from(traced.output().unwrap()).ok();
    let trace = fs::read_to_string(records.file("trace")).unwrap();
    let begun = |line: &&str| line.contains("clone") || line.contains("fork");
    trace
        .lines()
        .filter(begun)
        .filter(|line| !line.contains("resumed>"))
        .count()
}

#[test]
fn a_tick_makes_no_process() {
    if !clean("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("strace is missing, or may not trace here");
    }
    for words in shells() {
        let records = Records::new();
        let ticks = |count: u32, call: &str| {
            format!(
                "lh_pid_state held.lease; lh_pid_state bound.lease; i=0\n\
                 while [ $i -lt {count} ]; do i=$((i + 1)); {call}; done; exit 0"
            )
        };
        let both = "lh_pid_state held.lease; lh_pid_state bound.lease; [ $lh_verdict = probably-held ] || exit 9";
        let without = forks(&words, &records, &ticks(0, ":"));
        assert_eq!(
            forks(&words, &records, &ticks(500, both)),
            without,
            "{words:?}: 1000 ticks"
        );
        // That it would be seen.
        assert!(
            forks(&words, &records, &ticks(5, "lh_state held.lease")) >= without + 5,
            "{words:?}"
        );
    }
}

/// What has changed since the last tick is leasehold's to judge.
#[test]
fn whatever_else_is_there_is_judged() {
    for (change, answer) in [
        ("cp foreign.lease tmp; mv tmp x.lease", "2 undetermined foreign-host"),
        ("cp dead.lease tmp; mv tmp x.lease", "1 dead no-such-process"),
        ("cp free.lease tmp; mv tmp x.lease", "3 free ended"),
        ("cp torn.lease x.lease", "2 undetermined torn"),
        ("cp crlf.lease x.lease", "2 undetermined malformed"),
        ("cp bare.pid x.lease", "2 undetermined no-host"),
        ("rm x.lease", "3 free no-record"),
        (": > x.lease", "2 undetermined empty"),
        ("rm x.lease; mkfifo x.lease", "2 undetermined not-a-file"),
        ("rm x.lease; mkdir x.lease", "2 undetermined not-a-file"),
        ("rm x.lease; ln -s held.lease x.lease", "2 undetermined symlink"),
        ("head -c 100000 /dev/urandom > x.lease", "2 undetermined too-large"),
        ("printf 'a\\000b\\n' > x.lease", "2 undetermined torn"),
        (
            "sed 's/\"leasehold\":1/\"leasehold\":2/' held.lease > x.lease",
            "2 undetermined newer-format",
        ),
        (
            "sed '1s/\"pid\":/\"pid\":0/' held.lease > x.lease",
            "2 undetermined malformed",
        ),
        (
            "sed '1s/\"pidns\":/\"pidns\":1/' held.lease > x.lease",
            "2 undetermined other-pid-namespace",
        ),
        (":", "0 probably-held pid-exists"),
        (
            "sed '1s/\"seq\":1,/\"seq\":2,/' held.lease > x.lease",
            "0 probably-held pid-exists",
        ),
    ] {
        everywhere(
            &format!(
                "cp held.lease x.lease; lh_pid_state x.lease; lh_pid_state x.lease; [ $lh_verdict = probably-held ]\n\
                 {change}\ncode lh_pid_state x.lease; echo $code $lh_verdict $lh_reason"
            ),
            &format!("{answer}\n"),
            0,
        );
    }
}

#[test]
fn a_bound_file_is_read_at_each_tick() {
    for (change, answer) in [
        ("echo 1 > bound.pid", "2 undetermined payload-mismatch"),
        ("rm bound.pid", "2 undetermined payload-mismatch"),
        (": > bound.pid", "2 undetermined payload-mismatch"),
        ("rm bound.pid; mkfifo bound.pid", "2 undetermined payload-mismatch"),
        ("echo \" $lh_pid \" > bound.pid", "0 probably-held pid-exists"),
        ("printf '%s login-a' $lh_pid > bound.pid", "0 probably-held pid-exists"),
    ] {
        everywhere(
            &format!(
                r#"paths="bound.lease ./bound.lease $PWD/bound.lease"
                for f in $paths; do lh_pid_state $f; lh_pid_state $f; [ $lh_verdict = probably-held ]; done
                {change}
                for f in $paths; do code lh_pid_state $f; echo $code $lh_verdict $lh_reason; done"#
            ),
            &format!("{answer}\n").repeat(3),
            0,
        );
    }
}

#[test]
fn an_owner_that_ends_is_dead_at_the_next_tick() {
    everywhere(
        "sleep 1000 & pid=$!; lh_claim x.lease --owner $pid\n\
         lh_pid_state x.lease; lh_pid_state x.lease; echo $lh_verdict $((lh_pid - pid))\n\
         kill $pid; wait $pid || :\n\
         code lh_pid_state x.lease; echo $code $lh_verdict",
        "probably-held 0\n1 dead\n",
        0,
    );
}

/// Its number alone: identity is not looked at, which is why it is only probable.
#[test]
fn another_process_under_the_number_is_only_probably_the_owner() {
    everywhere(
        "cp held.lease x.lease; lh_pid_state x.lease\n\
         sed '1s/\"start\":[0-9]*/\"start\":7/; 1s/\"pidfd\":[0-9]*,//' held.lease > x.lease\n\
         lh_pid_state x.lease; echo $lh_verdict; code lh_state x.lease; echo $code $lh_reason",
        "probably-held\n1 pid-reused\n",
        0,
    );
}

/// In place of a record from the beginning: a gigabyte without a newline, and a file that nobody ever writes to.
#[test]
fn nothing_at_its_path_makes_a_tick_hang() {
    for (words, options) in settings() {
        let records = Records::new();
        fs::File::create(records.file("huge"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let text = "mkfifo fifo; for f in huge fifo /dev/zero huge fifo; do\n\
                    code lh_pid_state $f; echo $code $lh_reason; done";
        let begun = Instant::now();
        let answer = Answer::from(script(&words, options, records.dir.path(), text).output().unwrap());
        let huge = "2 too-large\n2 not-a-file\n";
        assert_eq!(
            answer.stdout,
            format!("{huge}2 not-a-file\n{huge}"),
            "{words:?}: {}",
            answer.stderr
        );
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{words:?}: {:?}",
            begun.elapsed()
        );
    }
}
