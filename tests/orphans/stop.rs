//! `leasehold stop`: the recorded process, or nobody.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::facts::ProcessFacts;
use leasehold::identity::Process;
use leasehold::names::{self, TempId};
use leasehold::{Error, Judge, Keeper, KernelTable, Pid, ProcessTable, Reason, Stop};
use nix::sys::signal::Signal;

use crate::leasehold;
use crate::records::*;
use crate::support::*;

#[test]
fn the_owner_is_ended_and_the_record_vacated() {
    let (dir, mut owner) = (Dir::new(), Running::idle());
    let before = with(record_of(owner.pid()), &[("role", "bridge")]);
    let path = dir.put("x.lease", &before);
    let answer = leasehold!("stop", &path);
    assert_eq!(
        (answer.code, answer.stdout.as_str(), answer.stderr.as_str()),
        (0, "", "")
    );
    assert_eq!(owner.ended_by(), Some(15));
    let after = read(&path);
    assert!(after.owner.ended.is_some());
    assert_eq!(
        (after.owner.epoch, after.owner.token),
        (3, before.owner.token),
        "the claim is the same"
    );
    assert_eq!(after.state.get("role"), Some("bridge"));
    let settled = &after.state.fields()["settled"];
    assert_eq!(settled["verdict"], "dead");
    assert_eq!(settled["signal"], "SIGTERM");
    assert!(settled["reason"].is_string() && settled["by"].is_string(), "{settled}");
    assert_eq!(names(dir.path()), ["x.lease"], "nothing is left beside it");
}

#[test]
fn a_process_that_ignores_the_signal_is_killed_after_the_grace() {
    let dir = Dir::new();
    let mut command = clean("sh");
    command
        .args(["-c", "trap '' TERM; echo > ready; exec sleep 1000"])
        .current_dir(dir.path());
    let mut owner = Running::start(&mut command);
    eventually("it ignores the signal", || dir.file("ready").exists());
    let path = dir.put("x.lease", &record_of(owner.pid()));
    let began = Instant::now();
    let answer = leasehold!("stop", &path, "--grace", "300ms", "--json");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(began.elapsed() >= Duration::from_millis(300), "it had its grace");
    assert_eq!(answer.objects()[0]["signal"], "SIGKILL");
    assert_eq!(owner.ended_by(), Some(9));
    assert!(read(&path).owner.ended.is_some());
}

#[test]
fn another_signal_and_a_stopped_process() {
    let (dir, mut owner) = (Dir::new(), Running::idle());
    let path = dir.put("x.lease", &record_of(owner.pid()));
    owner.signal(Signal::SIGSTOP);
    assert_eq!(leasehold!("stop", &path, "--signal", "int").code, 0);
    assert_eq!(
        owner.ended_by(),
        Some(2),
        "it was continued to act on it, and not killed"
    );
    assert_eq!(leasehold!("stop", &path, "--signal", "NONSENSE").code, 64);
}

/// A record that has another name was written for another place; but a change leaves it a second one.
#[test]
fn names_that_a_change_leaves_are_no_other_place() {
    let (dir, mut owner) = (Dir::new(), Running::idle());
    let (mut record, change) = (record_of(owner.pid()), TempId::new(1, 2, 3));
    record.owner.change = Some(change);
    let path = dir.put("x.lease", &record);
    let (name, seq) = (OsStr::new("x.lease"), record.owner.seq);
    let of_change = [names::temp, names::void, names::withdrawn].map(|named| named(name, change));
    for second in [names::ballot(name, seq), names::kept(name, seq)]
        .into_iter()
        .chain(of_change)
    {
        std::fs::hard_link(&path, dir.path().join(second)).unwrap();
    }
    let elsewhere = dir.file("elsewhere");
    std::fs::hard_link(&path, &elsewhere).unwrap();
    let refused = leasehold!("stop", &path);
    assert!(
        refused.code == 64 && refused.stderr.contains("has another name"),
        "{refused:?}"
    );
    assert!(owner.runs());
    std::fs::remove_file(&elsewhere).unwrap();
    let answer = leasehold!("stop", &path);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(owner.ended_by(), Some(15));
    assert!(read(&path).owner.ended.is_some());
}

/// Somebody else's record may name any process, for whoever acts on it to end.
#[test]
fn a_record_that_another_user_wrote_ends_nobody() {
    if !is_root() {
        return skip("only root can write records of other users");
    }
    let (dir, mut victim) = (Dir::new(), Running::idle());
    let path = dir.put("x.lease", &with(record_of(victim.pid()), &[("role", "bridge")]));
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    let refused = leasehold!("stop", &path);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(
        refused.stderr.contains("user 65534") && refused.stderr.contains("nothing was signalled"),
        "{refused:?}"
    );
    let swept = leasehold!("scan", dir.path(), "--where", "role=bridge", "--stop-orphans");
    assert!(swept.stderr.contains("user 65534"), "{swept:?}");
    assert!(victim.runs());
}

/// With which code, and that nothing happens to the process whose number the record names.
#[test]
fn anything_but_a_process_that_runs_here_is_refused() {
    let (dir, mut bystander) = (Dir::new(), Running::idle());
    let pid = bystander.pid();
    let mut reused = record_of(pid);
    reused.owner.start = reused.owner.start.map(|start| start - 1);
    reused.owner.pidfd = reused.owner.pidfd.map(|inode| inode + 1);
    let mut ended = record_of(pid);
    ended.owner.ended = Some("2026-01-02T03:04:05Z".into());
    let mut kept = reused.clone();
    let this = Process::current().expect("this process");
    kept.owner.keeper = Some(Keeper {
        pid: this.pid,
        start: this.start,
        extra: Default::default(),
    });
    let mut container = record_of(pid);
    container.owner.pidns = Some(4_026_539_999);
    dir.put("reused.lease", &reused);
    dir.put("foreign.lease", &foreign(pid));
    dir.put("ended.lease", &ended);
    dir.put("kept.lease", &kept);
    dir.put("container.lease", &container);
    dir.write("bare.pid", format!("{pid}\n"));
    dir.write("torn.lease", "{\"leasehold\":1,");
    let mut odd = record_of(pid).print();
    odd.truncate(odd.len() - 1);
    dir.write("cut.lease", odd);
    let before = snapshot(dir.path());
    for (name, code) in [
        ("reused.lease", 1),
        ("foreign.lease", 2),
        ("container.lease", 2),
        ("bare.pid", 2),
        ("torn.lease", 2),
        ("cut.lease", 2),
        ("ended.lease", 3),
        ("none.lease", 3),
        ("kept.lease", 5),
    ] {
        let answer = leasehold!("stop", dir.file(name), "--grace", "0s");
        assert_eq!(answer.code, code, "{name}: {answer:?}");
        assert!(answer.stderr.contains("next"), "{name} says what to do: {answer:?}");
    }
    assert!(bystander.runs());
    assert_eq!(snapshot(dir.path()), before, "nothing is written either");
}

#[test]
fn a_field_that_says_something_else_saves_the_owner() {
    let (dir, mut owner) = (Dir::new(), Running::idle());
    let path = dir.put(
        "x.lease",
        &with(record_of(owner.pid()), &[("role", "bridge"), ("n", "1")]),
    );
    for condition in ["role=worker", "thread=7", "role="] {
        let answer = leasehold!("stop", &path, "--where", "n=1", "--where", condition);
        assert_eq!(answer.code, 64, "{condition}: {answer:?}");
        assert!(answer.stderr.contains("nothing was signalled"), "{answer:?}");
    }
    assert!(owner.runs());
    let answer = leasehold!("stop", &path, "--where", "n=1", "--where", "role=bridge");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(owner.ended_by(), Some(15));
}

#[test]
fn what_was_intended_stays_in_doubt() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let path = dir.put("x.lease", &with(record_of(owner.pid()), &[("intent", "push branch")]));
    assert_eq!(leasehold!("stop", &path).code, 0);
    let claim = leasehold!("claim", &path, "--owner", std::process::id().to_string());
    assert_eq!(claim.code, 7, "{claim:?}");
    assert!(claim.stderr.contains("push branch"), "{claim:?}");
}

/// The supervisor ends what the command leaves behind, and vacates the record itself.
#[test]
fn a_supervisor_vacates_the_record() {
    let dir = Dir::new();
    let path = dir.file("x.lease");
    let child = dir.file("child");
    let script = format!("sleep 1000 & echo $! > {0}.t; mv {0}.t {0}; wait", child.display());
    let mut run = Running::start(clean(LEASEHOLD).arg("run").arg(&path).args(["--", "sh", "-c", &script]));
    eventually("the command runs", || child.exists());
    let left: i64 = std::fs::read_to_string(&child).unwrap().trim().parse().unwrap();
    let answer = leasehold!("stop", &path);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(run.code(), 128 + 15, "the supervisor ended as its command did");
    let after = read(&path);
    assert!(after.owner.ended.is_some());
    assert_eq!(
        after.state.fields()["exit"],
        143,
        "vacated by the supervisor: {:?}",
        after.state
    );
    assert_eq!(after.state.fields().get("settled"), None);
    let gone = Process::of(Pid::new(left).unwrap());
    assert!(gone.is_err(), "what it had started is ended as well");
}

/// A supervisor that was killed itself vacates nothing.
#[test]
fn a_record_whose_supervisor_was_killed_is_vacated_all_the_same() {
    let (dir, mut owner, mut keeper) = (Dir::new(), Running::idle(), Running::idle());
    let mut record = record_of(owner.pid());
    let supervisor = Process::of(keeper.pid()).expect("it runs");
    record.owner.keeper = Some(Keeper {
        pid: supervisor.pid,
        start: supervisor.start,
        extra: Default::default(),
    });
    let path = dir.put("x.lease", &record);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| leasehold!("stop", &path));
        assert_eq!(owner.ended_by(), Some(15));
        keeper.kill();
        let answer = stopping.join().expect("no panic");
        assert_eq!(answer.code, 0, "{answer:?}");
    });
    assert_eq!(read(&path).state.fields()["settled"]["signal"], "SIGTERM");
}

#[test]
fn another_users_process_is_held_and_cannot_be_stopped() {
    if !is_root() {
        return skip("only root can start processes of other users");
    }
    let (dir, mut owner) = (Dir::new(), Running::idle());
    let path = dir.put("x.lease", &record_of(owner.pid()));
    let command = |words: &[&str]| Answer::from(as_nobody(LEASEHOLD).args(words).arg(&path).output().unwrap());
    let judged = command(&["scan"]);
    assert_eq!(
        judged.verdicts(),
        ["x.lease: held process-running"],
        "it exists: {judged:?}"
    );
    let answer = command(&["stop"]);
    assert_eq!(answer.code, 74, "{answer:?}");
    assert!(answer.stderr.contains("Operation not permitted"), "{answer:?}");
    assert!(owner.runs());
    assert!(read(&path).owner.ended.is_none());
}

/// Answers as the kernel does; after the chosen answer, what has the pid is exchanged.
#[derive(Debug)]
struct Exchange {
    /// The owner, as long as it runs.
    owner: Mutex<Option<Running>>,
    stranger: Mutex<Option<Running>>,
    /// Answers that are given before.
    left: Mutex<usize>,
}

impl ProcessTable for Exchange {
    fn probe(&self, pid: Pid, pidfd: bool) -> ProcessFacts {
        let answer = KernelTable.probe(pid, pidfd);
        let mut left = self.left.lock().unwrap();
        if *left > 0 {
            *left -= 1;
        } else if let Some(mut owner) = self.owner.lock().unwrap().take() {
            owner.kill();
            *self.stranger.lock().unwrap() = Some(start_as(pid));
        }
        answer
    }
}

/// The judge has just said that the recorded process runs; it ends, and another gets its number before the signal is
/// sent.
#[test]
fn a_pid_that_is_recycled_between_check_and_signal_is_not_signalled() {
    if !in_pid_namespace("stop::a_pid_that_is_recycled_between_check_and_signal_is_not_signalled") {
        return;
    }
    for answers_before in [0, 1] {
        let (dir, owner) = (Dir::new(), Running::idle());
        let pid = owner.pid();
        let path = dir.put("x.lease", &record_of(pid));
        let table = Arc::new(Exchange {
            owner: Mutex::new(Some(owner)),
            stranger: Mutex::default(),
            left: Mutex::new(answers_before),
        });
        let stop = Stop::new(&path).from(Judge::here().with_table(table.clone()));
        let stopped = stop.grace(Duration::ZERO).run();
        let mut stranger = table.stranger.lock().unwrap().take().expect("the pid was exchanged");
        assert_eq!(stranger.pid(), pid, "real reuse");
        assert!(stranger.runs(), "a stranger was signalled");
        match (answers_before, stopped) {
            // Exchanged after the first check, before the process was opened: the second check finds out.
            (0, Err(Error::Refused(judgement))) => assert_eq!(judgement.reason, Reason::PidReused),
            // After the second: the owner has ended, and its record is vacated.
            (1, Ok(stopped)) => {
                let record = stopped.record.expect("nobody else took it");
                assert_eq!(record.state.fields()["settled"]["reason"], "pid-reused");
                assert!(read(&path).owner.ended.is_some());
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// And the command, on a number that has gone to somebody else before it starts.
#[test]
fn a_pid_that_was_recycled_before_is_dead() {
    if !in_pid_namespace("stop::a_pid_that_was_recycled_before_is_dead") {
        return;
    }
    let (dir, mut owner) = (Dir::new(), Running::idle());
    let pid = owner.pid();
    let path = dir.file("x.lease");
    let claimed = leasehold!("claim", &path, "--owner", pid.to_string());
    assert_eq!(claimed.code, 0, "{claimed:?}");
    owner.kill();
    let mut stranger = start_as(pid);
    let answer = leasehold!("stop", &path);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("pid-reused"), "{answer:?}");
    let scan = leasehold!("scan", &path);
    assert_eq!(scan.verdicts(), ["x.lease: dead pid-reused"]);
    assert_eq!(scan.rows()[0][5], "sleep 1000", "what has the number now is told");
    assert!(stranger.runs());
}
