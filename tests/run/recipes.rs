//! The recipes on two hosts that share nothing but a directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::scene::Scene;
use crate::support::host::{Host, possible};
use crate::support::{Answer, LEASEHOLD, Running, chmod, eventually};

fn recipe(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/recipes").join(name);
    path.to_str().unwrap().to_owned()
}

/// Two hosts that do not see each other's processes.
fn hosts() -> [Host; 2] {
    ["login-a", "login-b"].map(|name| Host::named(name).pid_namespace(true).operator_id(name).start())
}

fn command(host: &Host, scene: &Scene, words: &[&str]) -> Command {
    // Entering a mount namespace goes to its root.
    let mut command = host.command("sh");
    command
        .args(["-c", "cd \"$0\" && exec bash \"$@\""])
        .arg(scene.dir())
        .args(words)
        .env("LEASEHOLD", LEASEHOLD);
    command
}

fn scene() -> Scene {
    let scene = Scene::new();
    chmod(scene.dir(), 0o777);
    scene
}

/// Serves until it is told to end: counts, so that it can be seen to go on undisturbed.
const BRIDGE: &str = "echo 127.0.0.1:4100; trap 'exit 0' TERM; while :; do echo . >> ticks; sleep 0.02; done";

#[test]
fn a_bridge_is_started_once() {
    if !possible() {
        return;
    }
    let scene = scene();
    let launcher = recipe("bridge-launcher");
    let [a, b] = hosts();
    let run = |host: &Host, words: &[&str]| {
        let all = [&[launcher.as_str()], words].concat();
        Answer::from(command(host, &scene, &all).output().unwrap())
    };
    let start = ["--thread", "thread-7", "web", "--", "sh", "-c", BRIDGE];
    assert_eq!(run(&a, &["web"]).code, 103, "not yet");
    let mut first = Running::start(
        command(&a, &scene, &[&[launcher.as_str()][..], &start].concat())
            .stdout(fs::File::create(scene.file("out")).unwrap()),
    );
    eventually("it serves", || run(&a, &["web"]).stdout == "127.0.0.1:4100\n");
    assert_eq!(scene.line("out"), "127.0.0.1:4100", "what it prints is passed on");
    let elsewhere = run(&b, &["web"]);
    assert_eq!((elsewhere.code, elsewhere.stdout.as_str()), (102, "127.0.0.1:4100\n"));

    let ticks = || fs::read(scene.file("ticks")).unwrap().len();
    let lease = scene.file("bridge%20web.lease");
    let before = fs::read(&lease).unwrap();
    for (host, code, word) in [(&a, 105, "already runs"), (&b, 102, "cannot be told from here")] {
        let second = run(host, &["--thread", "thread-8", "web", "--", "touch", "started"]);
        assert_eq!(second.code, code, "{second:?}");
        for told in [word, "host login-a", "127.0.0.1:4100", "thread-7"] {
            assert!(second.stderr.contains(told), "{told}: {second:?}");
        }
    }
    assert!(!scene.file("started").exists());
    assert_eq!(fs::read(&lease).unwrap(), before);
    let met = ticks();
    eventually("it goes on", || ticks() > met + 3);
    // Another bridge is another lease.
    assert_eq!(run(&b, &["db", "--", "sh", "-c", "echo here; exit 4"]).code, 4);

    let record = leasehold::Record::parse(&before).unwrap();
    assert_eq!(record.state.get("thread"), Some("thread-7"));
    assert_eq!(record.state.get("phase"), Some("serving"));
    let pid = record.owner.keeper.expect("a keeper").pid;
    a.shell(&format!("kill -TERM {pid}")).ok();
    assert_eq!(first.code(), 0);
    // It has ended for all to see.
    assert_eq!(run(&b, &["web", "--", "sh", "-c", "echo there; exit 5"]).code, 5);
}

#[test]
fn a_thread_is_resumed_by_one_host_at_a_time() {
    if !possible() {
        return;
    }
    let scene = scene();
    let guard = recipe("resume-guard");
    let [a, b] = hosts();
    let go = scene.fifo("go");
    let words = |script: &'static str| vec![guard.as_str(), "--dir", ".", "team/7", "--", "sh", "-c", script];
    let mut first = Running::start(&mut command(
        &a,
        &scene,
        &words("echo one; echo x > up; read line < go; echo two; exit 3"),
    ));
    scene.line("up");
    for (host, code) in [(&a, 105), (&b, 102)] {
        let second = Answer::from(
            command(host, &scene, &words("echo rival; touch started"))
                .output()
                .unwrap(),
        );
        assert_eq!(second.code, code, "{second:?}");
        assert!(second.stderr.contains("login-a"), "{second:?}");
    }
    assert!(!scene.file("started").exists());
    fs::write(go, "\n").unwrap();
    assert_eq!(first.code(), 3);
    let next = Answer::from(
        command(&b, &scene, &words("echo \"${TRANSCRIPT##*.}\""))
            .output()
            .unwrap(),
    );
    assert_eq!(next.code, 0, "{next:?}");
    let transcript =
        |epoch: u32| fs::read_to_string(scene.file(&format!("thread%20team%2f7.transcript.{epoch}"))).unwrap();
    assert_eq!((transcript(1).as_str(), transcript(2).as_str()), ("one\ntwo\n", "2\n"));
}

#[test]
fn wrong_words_say_how_it_is_used() {
    let scene = scene();
    for (name, words) in [
        ("bridge-launcher", vec![]),
        ("bridge-launcher", vec!["--dir"]),
        ("bridge-launcher", vec!["web", "--"]),
        ("bridge-launcher", vec!["web", "true"]),
        ("resume-guard", vec![]),
        ("resume-guard", vec!["thread"]),
        ("resume-guard", vec!["thread", "--"]),
        ("resume-guard", vec!["--dir"]),
    ] {
        let mut command = scene.command("bash");
        command.arg(recipe(name)).args(&words).env("LEASEHOLD", LEASEHOLD);
        let answer = Answer::from(command.output().unwrap());
        assert_eq!(answer.code, 164, "{name} {words:?}: {answer:?}");
        assert!(answer.stderr.contains(&format!("{name} [--dir DIR]")), "{answer:?}");
    }
    assert_eq!(fs::read_dir(scene.dir()).unwrap().count(), 0);
}
