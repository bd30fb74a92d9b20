//! What stands in the record when a run has ended.

use std::os::unix::fs::FileTypeExt;

use leasehold::verdict::Effect;
use leasehold::{Outcome, judge};
use nix::sys::signal::Signal;

use crate::scene::Scene;
use crate::support::{LEASEHOLD, names};

#[test]
fn the_record_says_how_it_ended() {
    for (script, exit, outcome) in [
        ("exit 0", 0, Some(Outcome::Completed)),
        ("exit 3", 3, Some(Outcome::Failed)),
        ("kill -KILL $$", 137, Some(Outcome::Failed)),
        ("\"$L\" note intent=push; exit 0", 0, Some(Outcome::Completed)),
        ("\"$L\" note intent=push; exit 3", 3, Some(Outcome::Failed)),
        ("\"$L\" note intent=push; kill -TERM $$", 143, None),
        (
            "\"$L\" note intent=push; \"$L\" note outcome=completed; kill -TERM $$",
            143,
            Some(Outcome::Completed),
        ),
        ("\"$L\" note outcome=failed; exit 0", 0, Some(Outcome::Failed)),
        ("\"$L\" note outcome=completed; exit 9", 9, Some(Outcome::Completed)),
    ] {
        let scene = Scene::new();
        let ended = scene.run_to_end("", script);
        assert_eq!(ended.code, exit, "{script}: {ended:?}");
        let record = scene.record();
        assert!(record.owner.ended.is_some(), "{script}");
        assert_eq!(record.owner.lock, None, "{script}");
        assert_eq!(record.state.fields()["exit"], exit, "{script}");
        assert_eq!(record.state.outcome(), outcome, "{script}");
        let next = scene.run_to_end("", "exit 0").code;
        match outcome {
            Some(_) => assert_eq!(next, 0, "{script}"),
            None => {
                assert_eq!(judge(scene.lease()).effect, Effect::InDoubt);
                assert_eq!(next, 107, "{script}");
                assert_eq!(scene.run_to_end("--accept-in-doubt", "exit 0").code, 0);
            }
        }
    }
}

/// A supervisor that is killed leaves the question open, too.
#[test]
fn an_intent_of_a_killed_run_is_in_doubt() {
    let scene = Scene::new();
    let mut run = scene.start("", "\"$L\" note intent=push; echo $$ > child; exec sleep 1000");
    let child = scene.pid("child");
    run.signal(Signal::SIGKILL);
    run.status();
    child.wait_for_end();
    let judgement = judge(scene.lease());
    assert_eq!(judgement.verdict, leasehold::Verdict::Dead);
    assert_eq!(judgement.effect, Effect::InDoubt);
    assert_eq!(scene.run_to_end("", "exit 0").code, 107);
}

/// Nothing but the record is left in its directory.
#[test]
fn nothing_is_left_beside_the_record() {
    let scene = Scene::new();
    std::fs::create_dir(scene.file("d")).unwrap();
    for script in ["exit 0", "\"$L\" note a=b; exit 3", "kill -9 $$"] {
        let mut command = scene.leasehold("run d/x.lease --status-file d/status --");
        command.args(["sh", "-c", script]).env("L", LEASEHOLD);
        command.output().unwrap();
        assert_eq!(names(&scene.file("d")), ["status", "x.lease"], "{script}");
    }
}

/// Nor is the record itself a place for a status.
#[test]
fn a_status_file_that_is_the_record_is_refused() {
    let scene = Scene::new();
    let _first = scene.start("", "echo $$ > first; exec sleep 1000");
    scene.pid("first");
    for name in ["x.lease", "./x.lease"] {
        let refused = scene.run_to_end(&format!("--status-file {name}"), "exit 0");
        assert_eq!(refused.code, 164, "{refused:?}");
    }
    assert_eq!(judge(scene.lease()).verdict, leasehold::Verdict::Held);
}

/// What is no regular file is written to, and not replaced: as root that would be the end of a device.
#[test]
fn a_status_file_that_is_a_fifo_or_a_link_stays_one() {
    let scene = Scene::new();
    let fifo = scene.fifo("fifo");
    let mut run = scene.start("--status-file fifo", "exit 3");
    let told = std::fs::read_to_string(&fifo).unwrap();
    assert_eq!(run.code(), 3);
    assert!(told.contains(r#""code":3"#), "{told}");
    assert!(std::fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());

    std::os::unix::fs::symlink("real", scene.file("link")).unwrap();
    assert_eq!(scene.run_to_end("--status-file link", "exit 4").code, 4);
    assert!(std::fs::symlink_metadata(scene.file("link")).unwrap().is_symlink());
    assert!(scene.line("real").contains(r#""code":4"#));
}
