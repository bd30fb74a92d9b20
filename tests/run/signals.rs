//! Signals that the supervisor gets, and what becomes of the command when it dies.

use nix::sys::signal::Signal;

use crate::scene::Scene;
use crate::support::{LEASEHOLD, Running, eventually};

/// Notes each signal it gets, and says when it is ready.
const NOTES: &str = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo $s >> got\" $s; done
    echo $$ > child; while :; do sleep 0.05; done";

#[test]
fn signals_reach_the_command_once() {
    let scene = Scene::new();
    let mut run = scene.start("", NOTES);
    let child = scene.pid("child");
    let mut expected = String::new();
    for (name, signal) in [
        ("HUP", Signal::SIGHUP),
        ("INT", Signal::SIGINT),
        ("QUIT", Signal::SIGQUIT),
        ("USR1", Signal::SIGUSR1),
        ("USR2", Signal::SIGUSR2),
        ("TERM", Signal::SIGTERM),
    ] {
        run.signal(signal);
        expected += name;
        expected += "\n";
        eventually(name, || {
            std::fs::read_to_string(scene.file("got")).unwrap_or_default() == expected
        });
    }
    assert!(child.is_alive());
    child.signal(Signal::SIGKILL);
    assert_eq!(run.code(), 137);
    assert_eq!(std::fs::read_to_string(scene.file("got")).unwrap(), expected);
}

/// A signal that is meant for the supervisor goes to the command, and not to all of its group.
#[test]
fn a_signal_for_the_supervisor_is_for_the_command_alone() {
    let scene = Scene::new();
    let script = "sh -c 'trap \"touch helper-got\" TERM; echo $$ > helper; while :; do sleep 0.05; done' &
        trap 'echo yes > got' TERM; echo $$ > child; while :; do sleep 0.05; done";
    let run = scene.start("", script);
    let (_, helper) = (scene.pid("child"), scene.pid("helper"));
    run.signal(Signal::SIGTERM);
    scene.line("got");
    // The helper would have had it by now: a later signal is noted.
    assert!(helper.is_alive());
    assert!(!scene.file("helper-got").exists());
}

#[test]
fn sigterm_ends_an_ordinary_command() {
    let scene = Scene::new();
    let mut run = scene.start("", "echo $$ > child; exec sleep 1000");
    let child = scene.pid("child");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 143);
    assert!(!child.is_alive());
    assert_eq!(scene.verdict(), "free/ended");
}

/// What is sent to every process at once, as service managers do, must not end the supervisor before it has written down
/// what became of the command.
#[test]
fn signals_to_all_leave_a_vacated_record() {
    for _ in 0..20 {
        let scene = Scene::new();
        let mut run = scene.start("", "echo $$ > child; exec sleep 1000");
        let child = scene.pid("child");
        child.signal(Signal::SIGTERM);
        for _ in 0..50 {
            run.signal(Signal::SIGTERM);
        }
        eventually("the supervisor has ended", || {
            run.signal(Signal::SIGINT);
            !run.runs()
        });
        let record = scene.record();
        assert!(record.owner.ended.is_some(), "{record:?}");
        assert_eq!(record.state.fields()["exit"], 143);
    }
}

#[test]
fn sigkill_of_the_supervisor_takes_the_command_with_it() {
    let scene = Scene::new();
    let mut run = scene.start(
        "",
        "echo $$ > child; trap '' TERM HUP INT; while :; do sleep 0.05; done",
    );
    let child = scene.pid("child");
    assert_eq!(scene.verdict(), "held/process-running");
    run.signal(Signal::SIGKILL);
    // At no moment is it free while the command runs.
    eventually("the command has ended", || {
        let verdict = scene.verdict();
        let alive = child.is_alive();
        assert!(!alive || verdict.starts_with("held/"), "{verdict}");
        !alive
    });
    assert_eq!(run.status().code(), None);
    eventually("it is dead for all to see", || scene.verdict().starts_with("dead/"));
    let record = scene.record();
    assert_eq!((record.owner.ended, record.state.fields().get("exit")), (None, None));
    assert_eq!(scene.run_to_end("", "echo next").ok(), "next");
    assert_eq!(scene.record().owner.epoch, 2);
}

/// Between the end of the command and the release the supervisor answers for the record.
#[test]
fn the_keeper_holds_the_record_until_it_is_vacated() {
    let scene = Scene::new();
    let mut run = scene.start("", "echo $$ > child; exec sleep 1000");
    let child = scene.pid("child");
    run.signal(Signal::SIGSTOP);
    eventually("it is stopped", || run.process.is_stopped());
    child.signal(Signal::SIGKILL);
    child.wait_for_end();
    // The supervisor cannot see to it, but it is there as keeper.
    assert_eq!(scene.verdict(), "held/keeper-running");
    assert_eq!(scene.run_to_end("", "exit 0").code, 105);
    run.signal(Signal::SIGCONT);
    assert_eq!(run.code(), 137);
    assert_eq!(scene.verdict(), "free/ended");
}

/// The helpers that a script started before it became the supervisor are not the command's.
#[test]
fn older_children_of_the_process_are_left_alone() {
    let scene = Scene::new();
    let mut command = scene.command("sh");
    command.env("L", LEASEHOLD);
    command.args([
        "-c",
        "sh -c 'echo $$ > helper; exec sleep 1000' & while ! [ -s helper ]; do sleep 0.01; done
         exec \"$L\" run x.lease -- sh -c 'sleep 1000 & echo $! > left'",
    ]);
    let mut run = Running::start(&mut command);
    assert_eq!(run.code(), 0);
    assert!(scene.pid("helper").is_alive());
    let left: i32 = scene.line("left").parse().unwrap();
    assert!(
        std::fs::read(format!("/proc/{left}/cmdline"))
            .unwrap_or_default()
            .is_empty()
    );
}
