//! From the claim to the program: order, what the program is given, and what it is not.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use serde_json::Value;

use crate::scene::Scene;
use crate::support::{Answer, LEASEHOLD, Process, Running, eventually, record};

/// The program finds itself named as owner and its parent as keeper: both were written before it began.
#[test]
fn the_record_names_the_command_before_it_runs() {
    let scene = Scene::new();
    let script = r#"cp "$LEASEHOLD_PATH" seen; echo "$$ $PPID $LEASEHOLD_TOKEN $LEASEHOLD_EPOCH $LEASEHOLD_PATH""#;
    let told = scene.run_to_end("--ttl 30s --set role=bridge", script).ok();
    let seen = record(scene.file("seen")).expect("a record");
    let owner = seen.owner;
    let keeper = owner.keeper.expect("a keeper");
    let words: Vec<&str> = told.split(' ').collect();
    assert_eq!(words[0], owner.pid.unwrap().to_string());
    assert_eq!(words[1], keeper.pid.to_string());
    assert_eq!(words[2], owner.token.to_string());
    assert_eq!(words[3], "1");
    assert_eq!(words[4], scene.lease().to_str().unwrap(), "as an absolute path");
    assert_eq!(owner.ttl, Some(30));
    assert_eq!(owner.ended, None);
    assert_eq!(seen.state.get("role"), Some("bridge"));
    assert!(
        owner.cmd.unwrap().starts_with("sh -c cp"),
        "what people are shown is the command"
    );
}

#[test]
fn while_it_runs_the_lease_is_held_by_the_command() {
    let scene = Scene::new();
    let script = r#""$L" judge "$LEASEHOLD_PATH" | cut -f 1,2"#;
    assert_eq!(scene.run_to_end("", script).ok(), "held\tprocess-running");
}

#[test]
fn a_refused_claim_starts_nothing() {
    let scene = Scene::new();
    let mut first = scene.start("", "echo $$ > first; exec sleep 1000");
    scene.pid("first");
    let before = fs::read(scene.lease()).unwrap();
    let second = scene.run_to_end("", "touch started");
    assert_eq!((second.code, second.stdout.as_str()), (105, ""));
    assert!(second.stderr.contains("process-running"), "{second:?}");
    assert!(!scene.file("started").exists());
    assert_eq!(fs::read(scene.lease()).unwrap(), before);

    // One that waits has forked, and has not begun.
    let mut third = scene.start("--wait 60s", "touch started");
    eventually("it waits", || scene.stderr().contains("waiting for"));
    assert!(!scene.file("started").exists());
    first.signal(Signal::SIGTERM);
    assert_eq!(first.code(), 143);
    assert_eq!(third.code(), 0);
    assert!(scene.file("started").exists());
}

/// A supervisor that is ended in line takes the process with it that waits to become the program.
#[test]
fn one_that_is_ended_in_line_leaves_nothing() {
    let scene = Scene::new();
    let _first = scene.start("", "echo $$ > first; exec sleep 1000");
    scene.pid("first");
    let mut second = scene.start("--wait 60s", "touch started");
    eventually("it waits", || scene.stderr().contains("waiting for"));
    let gate = fs::read_to_string(format!("/proc/{0}/task/{0}/children", second.process.pid)).unwrap();
    let gate = Process::find(gate.trim().parse().unwrap());
    second.signal(Signal::SIGKILL);
    assert_eq!(second.status().code(), None);
    gate.wait_for_end();
    assert!(!scene.file("started").exists());
}

/// What waits to become the program may be killed in line: then nothing runs, and nobody waits for it for ever.
#[test]
fn a_command_that_is_killed_in_line_has_ended() {
    let scene = Scene::new();
    let mut first = scene.start("", "echo $$ > first; exec sleep 1000");
    scene.pid("first");
    let mut second = scene.start("--wait 60s", "touch started");
    eventually("it waits", || scene.stderr().contains("waiting for"));
    let gate = fs::read_to_string(format!("/proc/{0}/task/{0}/children", second.process.pid)).unwrap();
    Process::find(gate.trim().parse().unwrap()).signal(Signal::SIGKILL);
    first.signal(Signal::SIGTERM);
    assert_eq!(first.code(), 143);
    assert_eq!(second.code(), 137);
    assert!(!scene.file("started").exists());
    assert_eq!(scene.verdict(), "free/ended");
}

#[test]
fn the_codes_are_the_commands_own() {
    let scene = Scene::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 105", 105),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -INT $$", 130),
        // A real-time signal, for which most wrappers have no name.
        ("kill -40 $$", 168),
    ] {
        let ended = scene.run_to_end("--status-file status", script);
        assert_eq!(ended.code, code, "{script}: {ended:?}");
        assert_eq!(ended.stderr, "", "{script}");
        let status = status(&scene);
        assert_eq!(status["by"], "command", "{script}: {status}");
        assert_eq!(status["code"], code, "{script}: {status}");
        assert_eq!(status["path"], "x.lease");
        assert_eq!(scene.verdict(), "free/ended");
    }
}

fn status(scene: &Scene) -> Value {
    serde_json::from_str(&scene.line("status")).unwrap()
}

#[test]
fn what_cannot_be_started_is_126_or_127() {
    let scene = Scene::new();
    fs::write(scene.file("no-program"), "not a program").unwrap();
    for (program, code) in [
        ("no-such-program-anywhere", 127),
        ("./no-such-program", 127),
        ("./no-program", 126),
        ("/", 126),
    ] {
        let mut command = scene.leasehold("run x.lease --status-file status --");
        let ended = Answer::from(command.arg(program).output().unwrap());
        assert_eq!(ended.code, code, "{program}: {ended:?}");
        assert!(ended.stderr.contains(&format!("cannot run `{program}`: ")), "{ended:?}");
        let status = status(&scene);
        assert_eq!(
            (&status["by"], &status["code"]),
            (&"leasehold".into(), &code.into()),
            "{status}"
        );
        let record = scene.record();
        assert!(record.owner.ended.is_some());
        assert_eq!(record.state.fields()["exit"], code);
        assert_eq!(record.state.get("outcome"), Some("failed"));
    }
    // As execvp(3) does, and every shell: a script without a first line that names its interpreter.
    fs::write(scene.file("script"), "echo \"$0 $1\"\n").unwrap();
    let mut command = scene.command("sh");
    command.args(["-c", "chmod +x script; exec \"$L\" run x.lease -- ./script one"]);
    let ended = Answer::from(command.env("L", LEASEHOLD).output().unwrap());
    assert_eq!(ended.ok(), "./script one");
}

#[test]
fn its_own_outcomes_lie_above_a_hundred_or_are_one_code() {
    let scene = Scene::new();
    let _first = scene.start("", "echo $$ > first; exec sleep 1000");
    scene.pid("first");
    let refused = scene.run_to_end("--status-file status", "exit 1");
    assert_eq!(refused.code, 105, "{refused:?}");
    assert_eq!(status(&scene)["by"], "leasehold");
    let refused = scene.run_to_end("--status-file status --conflict-exit-code 9", "exit 1");
    assert_eq!(refused.code, 9, "{refused:?}");
    assert_eq!(status(&scene)["code"], 9);
    let waited = scene.run_to_end("--wait 100ms", "exit 1");
    assert_eq!(waited.code, 175, "{waited:?}");
    for wrong in ["--ttl 1s", "--ttl nonsense", "--budget 0/3s", "--no-such-option"] {
        let ended = scene.run_to_end(wrong, "touch started");
        assert_eq!(ended.code, 164, "{wrong}: {ended:?}");
        assert!(!ended.stderr.is_empty());
    }
    assert!(!scene.file("started").exists());
    let mut nowhere = scene.leasehold("run no/such/directory/x.lease -- true");
    assert_eq!(nowhere.output().unwrap().status.code(), Some(174));
    fs::write(scene.file("x.lease"), "not a record").unwrap();
    assert_eq!(scene.run_to_end("", "exit 1").code, 102);
}

/// At the end it would be too late: the command would have run, and nobody could tell how it ended.
#[test]
fn a_status_file_that_cannot_be_written_is_told_before_anything_starts() {
    let scene = Scene::new();
    fs::create_dir(scene.file("dir")).unwrap();
    for file in ["nowhere/status", "dir", "x.lease/status"] {
        let refused = scene.run_to_end(&format!("--status-file {file}"), "touch started");
        assert_eq!(refused.code, 174, "{file}: {refused:?}");
        let told = [&format!("cannot write {file}: "), "nothing was started"];
        assert!(told.iter().all(|told| refused.stderr.contains(*told)), "{refused:?}");
        assert!(!scene.file("started").exists() && !scene.lease().exists(), "{file}");
    }
    // Nothing is left of the try, and what stands there is not touched by it.
    fs::write(scene.file("status"), "old\n").unwrap();
    scene
        .run_to_end("--status-file status", "cp status seen; ls > names")
        .ok();
    assert_eq!(scene.line("seen"), "old");
    assert_eq!(scene.line("names"), "dir\nnames\nseen\nstatus\nx.lease");
}

/// It would be cut without a word otherwise, and the command ended sooner than it was told.
#[test]
fn a_grace_that_the_ttl_has_no_room_for_is_refused() {
    let scene = Scene::new();
    let refused = scene.run_to_end("--ttl 10s --kill-grace 6s", "touch started");
    assert_eq!(refused.code, 164, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("a kill grace of 6 s is more than half of the ttl of 10 s"),
        "{refused:?}"
    );
    assert!(!scene.file("started").exists() && !scene.lease().exists());
    scene.run_to_end("--ttl 10s --kill-grace 5s", "touch started").ok();
}

#[test]
fn standard_input_passes_through() {
    let scene = Scene::new();
    let mut command = scene.run("", "cat; echo end");
    command
        .stdin(Stdio::piped())
        .stdout(fs::File::create(scene.file("out")).unwrap());
    let mut run = Running::start(&mut command);
    let mut input = run.input();
    input.write_all(b"one\n").unwrap();
    assert_eq!(scene.line("out"), "one", "at once, not at the end");
    drop(input);
    assert_eq!(run.code(), 0);
    assert_eq!(scene.line("out"), "one\nend");
}

/// The lines of a process's status that tell how it takes signals.
fn signal_lines(status: &str) -> Vec<&str> {
    status
        .lines()
        .filter(|line| line.starts_with("Sig") && !line.starts_with("SigQ"))
        .collect()
}

/// Nothing of ours is open in the command, and it takes signals as it would alone: with a mask and dispositions that its
/// parent chose, and with the usual ones.
#[test]
fn it_has_the_descriptors_and_signals_that_it_would_have_alone() {
    let script = "cd /proc/self/fd && for fd in *; do echo \"$fd $(readlink $fd)\"; done; cat /proc/self/status";
    for odd in [false, true] {
        let scene = Scene::new();
        let look = |alone: bool| {
            let mut command = if alone {
                let mut command = scene.command("sh");
                command.args(["-c", script]);
                command
            } else {
                scene.run("", script)
            };
            if odd {
                // SAFETY: both calls are async-signal-safe; the descriptor is left open on purpose.
                unsafe {
                    command.pre_exec(|| {
                        for ignored in [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGTSTP] {
                            signal(ignored, SigHandler::SigIgn)?;
                        }
                        let mut mask = SigSet::empty();
                        mask.add(Signal::SIGUSR1);
                        mask.add(Signal::SIGTERM);
                        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
                        nix::libc::dup2(0, 17);
                        Ok(())
                    });
                }
            }
            let answer = Answer::from(command.stderr(Stdio::null()).output().unwrap());
            let text = answer.ok();
            let descriptors: Vec<String> = text
                .lines()
                .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
                // A pipe's number, and the process whose descriptors they are, differ from run to run.
                .map(|line| line.split(":[").next().unwrap().to_owned())
                .filter(|line| !line.contains("/proc/"))
                .collect();
            let signals: Vec<String> = signal_lines(&text).into_iter().map(str::to_owned).collect();
            (descriptors, signals)
        };
        let (alone, under) = (look(true), look(false));
        assert_eq!(under, alone);
        assert_eq!(alone.1.len(), 4, "pending, blocked, ignored, caught: {alone:?}");
        assert_eq!(alone.0.iter().any(|line| line.starts_with("17 ")), odd);
    }
}

/// SIGPIPE ends it, which Rust programs ignore.
#[test]
fn a_closed_pipe_ends_the_command() {
    let scene = Scene::new();
    let mut command = scene.command("bash");
    command.env("L", LEASEHOLD);
    command.args(["-c", "\"$L\" run x.lease -- yes | head -1; echo \"${PIPESTATUS[0]}\""]);
    let ended = Answer::from(command.output().unwrap());
    assert_eq!(ended.ok(), "y\n141");
}

/// A parent that ignores SIGCHLD makes the kernel reap by itself; the end must be noticed all the same.
#[test]
fn an_ignored_sigchld_hides_no_end() {
    let scene = Scene::new();
    let mut command = scene.run("", "exit 7");
    // SAFETY: async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            signal(Signal::SIGCHLD, SigHandler::SigIgn)?;
            Ok(())
        });
    }
    assert_eq!(Running::start(&mut command).code(), 7);
    assert_eq!(scene.verdict(), "free/ended");
}

/// A long command line is cut for people, and is no reason to fail.
#[test]
fn a_long_command_line_fits() {
    let scene = Scene::new();
    let script = format!("true {}", "x".repeat(100_000));
    scene.run_to_end("", &script).ok();
    assert_eq!(scene.record().owner.cmd.unwrap().chars().count(), 256);
}
