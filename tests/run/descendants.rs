//! What the command leaves behind.

use nix::sys::signal::Signal;

use crate::scene::Scene;
use crate::support::{Process, eventually};

/// Leaves three processes: one in its group, one in a session of its own by a double fork, and one there that does not
/// mind SIGTERM. Each writes its pid once it is as it is to be.
const LEAVES: &str = r#"
    sh -c 'echo $$ > a; exec sleep 1000' &
    setsid sh -c 'sh -c "echo \$\$ > b; exec sleep 1000" & exit'
    setsid sh -c 'trap "" TERM; echo $$ > c; while :; do sleep 0.05; done' &
    for f in a b c; do while ! [ -s $f ]; do sleep 0.01; done; done
    echo $$ > child"#;

fn left(scene: &Scene) -> [Process; 3] {
    ["a", "b", "c"].map(|name| scene.pid(name))
}

#[test]
fn they_are_ended_and_nobody_gets_in_before() {
    let scene = Scene::new();
    let go = scene.fifo("go");
    let mut run = scene.start(
        "--ttl 20s --kill-grace 2s",
        &format!("{LEAVES}; read line < go; exit 4"),
    );
    let [a, b, c] = left(&scene);
    let child = scene.pid("child");
    // Whoever gets in notes who was still there.
    let look = format!(
        "for p in {} {} {}; do kill -0 $p 2>/dev/null && echo $p >> met; done; echo in > in",
        a.pid, b.pid, c.pid
    );
    let mut waiter = scene.start("--wait 60s", &look);
    eventually("it waits", || scene.stderr().contains("waiting for"));
    std::fs::write(go, "\n").unwrap();
    child.wait_for_end();
    a.wait_for_end();
    b.wait_for_end();
    assert!(c.is_alive(), "it has its grace");
    assert_eq!(scene.verdict(), "held/keeper-running");
    assert!(!scene.file("in").exists());
    c.wait_for_end();
    assert_eq!(run.code(), 4, "the command's own code");
    assert_eq!(waiter.code(), 0);
    assert!(!scene.file("met").exists(), "a waiter met what was left");
}

#[test]
fn they_are_waited_for() {
    let scene = Scene::new();
    let mut run = scene.start("--descendants wait", &format!("{LEAVES}; exit 4"));
    let [a, b, c] = left(&scene);
    scene.line("child");
    eventually("the supervisor answers", || scene.verdict() == "held/keeper-running");
    assert!(a.is_alive() && b.is_alive() && c.is_alive());
    assert_eq!(scene.run_to_end("", "exit 0").code, 105);
    c.signal(Signal::SIGKILL);
    a.signal(Signal::SIGKILL);
    eventually("two have ended", || !a.is_alive() && !c.is_alive());
    assert!(run.runs());
    // A signal for the command is for what is left of it.
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 4);
    assert!(!b.is_alive());
    assert_eq!(scene.verdict(), "free/ended");
}

#[test]
fn they_are_left_alone() {
    let scene = Scene::new();
    let mut run = scene.start("--descendants leave", &format!("{LEAVES}; exit 4"));
    let processes = left(&scene);
    assert_eq!(run.code(), 4);
    assert_eq!(scene.verdict(), "free/ended");
    assert!(processes.into_iter().all(Process::is_alive));
}

/// Those that start others while they are being ended.
#[test]
fn a_line_of_forks_does_not_get_away() {
    let scene = Scene::new();
    let chain = r#"cat > chain <<'E'
trap "" TERM
echo $$ >> all
[ "$(wc -l < all)" -gt 200 ] || setsid sh ./chain &
E
        sh ./chain; exit 0"#;
    let mut run = scene.start("--ttl 20s --kill-grace 200ms", chain);
    assert_eq!(run.code(), 0);
    let all = std::fs::read_to_string(scene.file("all")).unwrap();
    for pid in all.lines() {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!line.contains("chain"), "{pid} got away: {line}");
    }
}

#[test]
fn a_loss_ends_them_too() {
    let scene = Scene::new();
    let mut run = scene.start("--ttl 5s --kill-grace 300ms", &format!("{LEAVES}; exec sleep 1000"));
    let processes = left(&scene);
    scene.pid("child");
    scene.take_from_elsewhere();
    assert_eq!(run.code(), 106);
    assert!(processes.into_iter().all(|process| !process.is_alive()));
}
