//! The lease is lost, or cannot be told to be ours: the command ends in time, and nothing on disk is changed by the loser.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Claim, Judge, Run};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use serde_json::Value;

use crate::scene::Scene;
use crate::support::faulty::stand_in::{Call, stand_in};
use crate::support::host::{Host, possible};
use crate::support::{Process, Running, eventually, now};

/// Notes the time of SIGTERM and does not end by it.
const STUBBORN: &str = "trap 'cat /proc/uptime >> termed' TERM; echo $$ > child; while :; do sleep 0.02; done";

fn status(scene: &Scene) -> Value {
    serde_json::from_str(&scene.line("status")).unwrap()
}

/// Everything in the directory that the record is in.
fn disk(scene: &Scene) -> Vec<(OsString, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(scene.dir())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().contains("x.lease"))
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap_or_default()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_record_that_is_another_claims_ends_the_command() {
    let scene = Scene::new();
    let mut run = scene.start("--ttl 5s --kill-grace 1s --status-file status", STUBBORN);
    let child = scene.pid("child");
    scene.take_from_elsewhere();
    let before = disk(&scene);
    assert_eq!(run.code(), 106);
    assert!(!child.is_alive());
    assert!(scene.file("termed").exists(), "SIGTERM came before SIGKILL");
    assert_eq!(disk(&scene), before, "the loser changes nothing");
    let told = scene.stderr();
    for part in ["x.lease: the lease is lost: ", "another token, of epoch ", "has ended"] {
        assert!(told.contains(part), "no `{part}` in {told}");
    }
    let status = status(&scene);
    assert_eq!(
        (&status["by"], &status["code"]),
        (&"leasehold".into(), &106.into()),
        "{status}"
    );
    assert!(status["lost"].as_str().unwrap().contains("another token"), "{status}");
    assert_eq!(status["outlived"], false);
    assert_eq!(status["command"], serde_json::json!({ "signal": 9 }));
}

#[test]
fn a_record_that_is_gone_ends_the_command() {
    let scene = Scene::new();
    let mut run = scene.start("--ttl 5s --conflict-exit-code 8", "echo $$ > child; exec sleep 1000");
    scene.pid("child");
    fs::remove_file(scene.lease()).unwrap();
    assert_eq!(run.code(), 8);
    assert_eq!(disk(&scene), [], "it is not made again");
}

/// Not a record any more, and nobody's: it is not known to be lost, and the lease cannot be kept.
#[test]
fn a_record_that_stays_unreadable_ends_the_command_in_time() {
    let scene = Scene::new();
    let mut run = scene.start("--ttl 5s --status-file status", "echo $$ > child; exec sleep 1000");
    let child = scene.pid("child");
    fs::remove_file(scene.lease()).unwrap();
    fs::create_dir(scene.lease()).unwrap();
    let began = now();
    child.wait_for_end();
    let took = now() - began;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(run.code(), 106);
    assert!(scene.lease().is_dir());
    assert_eq!(status(&scene)["lost"], "no renewal counted within its ttl of 5 s");
}

fn beat(scene: &Scene) -> u64 {
    scene.record().beat
}

fn inode(scene: &Scene) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(scene.lease()).unwrap().ino()
}

/// The record of a run is replaced by its own command: followed, not lost.
#[test]
fn a_note_moves_the_heartbeat_and_the_lock() {
    let scene = Scene::new();
    let go = scene.fifo("go");
    let script = "echo $$ > child; read line < go; \"$L\" note phase=two; read line < go; exit 6";
    let mut run = scene.start("--ttl 5s", script);
    scene.pid("child");
    assert!(scene.record().owner.lock.is_some() && scene.is_locked());
    let (first, began) = (inode(&scene), beat(&scene));
    eventually("the heartbeat goes on in the first file", || beat(&scene) > began);
    assert_eq!(inode(&scene), first);
    fs::write(&go, "\n").unwrap();
    eventually("it is noted", || scene.record().state.get("phase") == Some("two"));
    let second = inode(&scene);
    assert_ne!(second, first);
    let noted = beat(&scene);
    eventually("the heartbeat goes on in the second file", || beat(&scene) > noted);
    assert_eq!(inode(&scene), second);
    assert!(scene.record().owner.lock.is_some());
    eventually("it is locked", || scene.is_locked());
    // Longer than the ttl after the note, it is still ours.
    let later = beat(&scene) + 5000;
    eventually("many heartbeats", || beat(&scene) > later);
    assert_eq!(scene.verdict(), "held/process-running");
    fs::write(&go, "\n").unwrap();
    assert_eq!(run.code(), 6);
    assert_eq!(scene.record().state.get("phase"), Some("two"));
}

/// Everything stands still for longer than the ttl: a machine that was suspended.
fn pause(run: &Running, child: Process) {
    run.signal(Signal::SIGSTOP);
    child.signal(Signal::SIGSTOP);
    eventually("all is stopped", || run.process.is_stopped() && child.is_stopped());
}

/// Until the ttl of 5 s has passed since the last heartbeat.
fn sleep_through_the_ttl(scene: &Scene) {
    let last = Duration::from_millis(beat(scene));
    eventually("the ttl has passed", || now() > last + Duration::from_millis(5200));
}

#[test]
fn after_a_pause_the_lease_is_won_anew_and_the_command_goes_on() {
    let scene = Scene::new();
    let mut run = scene.start(
        "--ttl 5s",
        "echo $$ > child; while ! [ -e go ]; do sleep 0.05; done; exit 7",
    );
    let child = scene.pid("child");
    pause(&run, child);
    sleep_through_the_ttl(&scene);
    let paused = scene.record();
    run.signal(Signal::SIGCONT);
    eventually("it is won by a ballot", || scene.record().owner.seq > paused.owner.seq);
    eventually("the command goes on", || !child.is_stopped());
    let after = scene.record();
    assert_eq!(
        (after.owner.token, after.owner.epoch),
        (paused.owner.token, paused.owner.epoch)
    );
    assert!(after.owner.lock.is_some() && scene.is_locked());
    let beat_now = after.beat;
    eventually("its heart beats", || beat(&scene) > beat_now);
    fs::write(scene.file("go"), "").unwrap();
    assert_eq!(run.code(), 7);
    assert_eq!(scene.verdict(), "free/ended");
}

/// Shortly before the deadline is as good: nothing is lost, and the command must not be ended for it.
#[test]
fn a_pause_that_ends_before_the_deadline_ends_nothing() {
    let scene = Scene::new();
    let mut run = scene.start(
        "--ttl 10s",
        "echo $$ > child; while ! [ -e go ]; do sleep 0.05; done; exit 7",
    );
    let child = scene.pid("child");
    let last = Duration::from_millis(beat(&scene));
    run.signal(Signal::SIGSTOP);
    // SIGTERM is due 7 s after the last heartbeat.
    eventually("SIGTERM is overdue", || now() > last + Duration::from_millis(8300));
    run.signal(Signal::SIGCONT);
    let before = beat(&scene);
    eventually("the heartbeat goes on", || beat(&scene) > before);
    assert!(child.is_alive());
    fs::write(scene.file("go"), "").unwrap();
    assert_eq!(run.code(), 7);
}

#[test]
fn after_a_takeover_in_a_pause_the_command_never_runs_again() {
    let scene = Scene::new();
    let script = "trap 'echo yes >> ran' TERM CONT; echo $$ > child; while :; do sleep 0.05; [ -e taken ] && echo yes >> ran; done";
    let mut run = scene.start("--ttl 5s --status-file status", script);
    let child = scene.pid("child");
    pause(&run, child);
    sleep_through_the_ttl(&scene);
    scene.take_from_elsewhere();
    fs::write(scene.file("taken"), "").unwrap();
    let before = disk(&scene);
    run.signal(Signal::SIGCONT);
    assert_eq!(run.code(), 106);
    assert!(!child.is_alive());
    assert!(!scene.file("ran").exists());
    assert_eq!(disk(&scene), before);
    assert_eq!(status(&scene)["outlived"], false, "it ended at once");
    assert!(!scene.stderr().contains("still runs"), "{}", scene.stderr());
}

/// The same by the rules: another host waits for the lapse and claims it.
#[test]
fn a_paused_run_is_taken_over_by_another_host() {
    if !possible() {
        return;
    }
    let scene = Scene::new();
    let other = Host::named("login-b").pid_namespace(true).operator_id("b").start();
    let mut run = scene.start(
        "--ttl 5s",
        "trap 'echo yes > ran' TERM CONT; echo $$ > child; while :; do sleep 0.05; done",
    );
    let child = scene.pid("child");
    let owner = other.spawn();
    let claim = format!(
        "claim {} --owner {} --take-lapsed --wait 60s",
        scene.lease().display(),
        owner.pid
    );
    // While its heart beats it does not lapse, however long the other waits.
    let early = other.leasehold(&claim.replace("60s", "7s"));
    assert_eq!(early.code, 75, "{early:?}");
    pause(&run, child);
    let token = other.leasehold(&claim).ok();
    run.signal(Signal::SIGCONT);
    assert_eq!(run.code(), 106);
    assert!(!child.is_alive() && !scene.file("ran").exists());
    let record = scene.record();
    assert_eq!((record.owner.token.to_string(), record.owner.epoch), (token, 2));
    assert_eq!(record.owner.ended, None);
}

/// A filesystem that stops answering, as a hard NFS mount does: from the moment that `hang` exists every call, or every one of
/// the kind that it names, waits until it is gone. The first call that `hang-at` names, once the record is there, makes it
/// exist, for all calls.
#[derive(Debug)]
struct Hanging {
    hang: std::path::PathBuf,
}

impl Hanging {
    fn pass<T>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let call = format!("{call:?}");
        let named = || fs::read_to_string("hang-at").is_ok_and(|name| name == call);
        if fs::exists("x.lease")? && named() {
            fs::write("hang-at", "")?;
            fs::rename("hang-at", &self.hang)?;
        }
        while fs::read_to_string(&self.hang).is_ok_and(|kind| kind.is_empty() || kind == call) {
            std::thread::sleep(Duration::from_millis(5));
        }
        make()
    }
}

stand_in!(Hanging);

/// Says which script the process below is to run over a filesystem that can hang; unset, it is an ordinary test run.
const SCRIPT: &str = "LEASEHOLD_TEST_SCRIPT";

/// The supervisor over such a filesystem. `Run` takes the whole process, so this is one of its own.
#[test]
#[ignore = "a process of the tests below"]
fn supervisor_over_a_filesystem_that_hangs() {
    let Some(script) = std::env::var_os(SCRIPT) else { return };
    let fs = Arc::new(Hanging { hang: "hang".into() });
    let claim = Claim::new("x.lease").from(Judge::here().with_fs(fs));
    let words = ["sh".into(), "-c".into(), script];
    let report = Run::new(claim, words.into()).ttl(Duration::from_secs(6)).run().unwrap();
    let ended = now();
    let text = serde_json::json!({
        "lost": report.lost, "outlived": report.outlived, "ended": ended.as_secs_f64(),
        "code": report.ending.map(leasehold::Ending::code), "unreleased": report.unreleased.map(|error| error.to_string()),
    });
    fs::write("report.new", format!("{text}\n")).unwrap();
    fs::rename("report.new", "report").unwrap();
    // As a program would end that has nothing else to do: a thread may hang.
    std::process::exit(0);
}

fn over_hanging(scene: &Scene, script: &str) -> Running {
    let this = std::env::current_exe().unwrap();
    let mut command: Command = scene.command(this.to_str().unwrap());
    command
        .args(["--ignored", "--exact", "loss::supervisor_over_a_filesystem_that_hangs"])
        .env(SCRIPT, script)
        .stdout(File::create(scene.file("stdout")).unwrap())
        .stderr(File::create(scene.file("stderr")).unwrap());
    // The harness runs a test in a thread of its own. A signal for the process must not go to the main thread.
    // SAFETY: async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let mut mask = SigSet::empty();
            mask.add(Signal::SIGCHLD);
            sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
            Ok(())
        });
    }
    Running::start(&mut command)
}

fn report(scene: &Scene) -> Value {
    serde_json::from_str(&scene.line("report")).unwrap()
}

/// Hangs the filesystem now, and gives the beat that stands in the record: when the last heartbeat that counted began.
fn hang(scene: &Scene) -> Duration {
    fs::write(scene.file("hang"), "").unwrap();
    Duration::from_millis(beat(scene))
}

/// The record stands, and what comes before the command may start takes longer than the ttl. Meanwhile another has it.
#[test]
fn a_claim_that_took_too_long_starts_nothing() {
    let scenes = ["Unlink", "StatFile"].map(|call| {
        let scene = Scene::new();
        fs::write(scene.file("hang-at"), call).unwrap();
        let run = over_hanging(&scene, "echo > ran; sleep 60");
        (scene, run)
    });
    for (scene, _) in &scenes {
        eventually("the hang", || scene.file("hang").exists());
        scene.take_from_elsewhere();
    }
    let over = now() + Duration::from_secs(6);
    eventually("the end of the ttl", || now() > over);
    for (scene, mut run) in scenes {
        fs::remove_file(scene.file("hang")).unwrap();
        let before = fs::read(scene.lease()).unwrap();
        assert_eq!(run.code(), 101, "{}", scene.stderr());
        assert!(!scene.file("ran").exists());
        assert_eq!(fs::read(scene.lease()).unwrap(), before);
    }
}

#[test]
fn a_heartbeat_that_never_returns_ends_the_command_before_the_deadline() {
    let scene = Scene::new();
    let mut run = over_hanging(&scene, STUBBORN);
    let child = scene.pid("child");
    let first = beat(&scene);
    eventually("a heartbeat", || beat(&scene) > first);
    let last = hang(&scene);
    child.wait_for_end();
    let dead = now();
    assert!(
        dead < last + Duration::from_secs(6),
        "dead {:?} after the last heartbeat",
        dead - last
    );
    assert!(
        dead > last + Duration::from_secs(4),
        "not without need: {:?}",
        dead - last
    );
    let termed: f64 = scene.line("termed").split(' ').next().unwrap().parse().unwrap();
    assert!(
        termed < dead.as_secs_f64() - 0.5,
        "SIGTERM at {termed}, dead at {dead:?}"
    );
    let report = report(&scene);
    assert_eq!(report["lost"], "no renewal counted within its ttl of 6 s", "{report}");
    assert_eq!(
        (&report["outlived"], &report["code"]),
        (&false.into(), &137.into()),
        "{report}"
    );
    assert!(report["unreleased"].as_str().unwrap().contains("vacate"), "{report}");
    run.status();
    // The record was left as it is; it lapses by its own terms.
    assert_eq!(scene.record().owner.ended, None);
}

/// Whichever call of a heartbeat, or of the look at the record by its name, it is that hangs.
#[test]
fn no_call_that_hangs_puts_off_the_end() {
    std::thread::scope(|scope| {
        for kind in ["Write", "Sync", "IsNamed", "Stat", "Open", "Read"] {
            scope.spawn(move || {
                let scene = Scene::new();
                let mut run = over_hanging(&scene, STUBBORN);
                let child = scene.pid("child");
                let first = beat(&scene);
                eventually("a heartbeat", || beat(&scene) > first);
                fs::write(scene.file("kind"), kind).unwrap();
                fs::rename(scene.file("kind"), scene.file("hang")).unwrap();
                child.wait_for_end();
                let dead = now();
                // The last that was written, be it that it did not count.
                let last = Duration::from_millis(beat(&scene));
                assert!(
                    dead < last + Duration::from_secs(6),
                    "{kind}: dead {:?} after it",
                    dead - last
                );
                let report = report(&scene);
                assert_eq!(
                    (&report["outlived"], &report["code"]),
                    (&false.into(), &137.into()),
                    "{kind}: {report}"
                );
                assert!(
                    report["lost"].as_str().unwrap().contains("no renewal counted"),
                    "{kind}: {report}"
                );
                run.status();
            });
        }
    });
}

/// It comes back after SIGTERM was sent: what has been decided stays, and SIGKILL is not put off by it.
#[test]
fn a_heartbeat_that_returns_late_does_not_put_off_the_end() {
    let scene = Scene::new();
    let mut run = over_hanging(&scene, STUBBORN);
    let child = scene.pid("child");
    let last = hang(&scene);
    scene.line("termed");
    fs::remove_file(scene.file("hang")).unwrap();
    child.wait_for_end();
    let dead = now();
    assert!(
        dead < last + Duration::from_secs(6),
        "dead {:?} after the last heartbeat",
        dead - last
    );
    assert!(report(&scene)["lost"].is_string());
    run.status();
    assert!(scene.record().owner.ended.is_some(), "the lease was ours to the end");
}

/// A short one is no loss.
#[test]
fn a_filesystem_that_comes_back_in_time_is_no_matter() {
    let scene = Scene::new();
    let mut run = over_hanging(
        &scene,
        "echo $$ > child; while ! [ -e go ]; do sleep 0.05; done; exit 7",
    );
    scene.pid("child");
    let last = hang(&scene);
    eventually("a heartbeat is late", || now() > last + Duration::from_millis(2700));
    fs::remove_file(scene.file("hang")).unwrap();
    let before = beat(&scene);
    eventually("the next one", || beat(&scene) > before);
    fs::write(scene.file("go"), "").unwrap();
    let report = report(&scene);
    assert_eq!(
        (&report["lost"], &report["code"]),
        (&Value::Null, &7.into()),
        "{report}"
    );
    run.status();
    assert_eq!(scene.verdict(), "free/ended");
}
