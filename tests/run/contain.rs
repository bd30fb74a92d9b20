//! `--contain`: nothing is left behind, whatever happens to the supervisor.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::scene::Scene;
use crate::support::host::other_users;
use crate::support::{Answer, LEASEHOLD, NOBODY, Process, Running, eventually, skip};

/// Double-forked, in a session of its own, and deaf to everything but SIGKILL.
const DAEMON: &str = r#"setsid sh -c "sh -c 'trap \"\" TERM HUP INT; echo \$\$ > daemon; while :; do sleep 0.05; done' &"
    while ! [ -s daemon ]; do sleep 0.01; done
    sed -n 's/^0:://p' /proc/self/cgroup > cgroup; echo $$ > child"#;

/// Whether a cgroup can be made here; if not, says so.
fn possible() -> bool {
    let scene = Scene::new();
    let tried = scene.run_to_end("--contain", "exit 0");
    if tried.code == 0 {
        return true;
    }
    assert_eq!(tried.code, 174, "{tried:?}");
    assert!(tried.stderr.contains("--contain needs a cgroup"), "{tried:?}");
    skip(&format!("no cgroup can be made here: {}", tried.stderr.trim()));
    false
}

/// Where the cgroup of that name is.
fn directories(name: &str) -> Vec<PathBuf> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(|mount| PathBuf::from(mount).join(name.trim_start_matches('/')))
        .filter(|dir| dir.exists())
        .collect()
}

#[test]
fn a_killed_supervisor_leaves_nobody() {
    if !possible() {
        return;
    }
    let scene = Scene::new();
    let mut run = scene.start("--contain", &format!("{DAEMON}; exec sleep 1000"));
    let (child, daemon) = (scene.pid("child"), scene.pid("daemon"));
    let cgroup = scene.line("cgroup");
    assert!(cgroup.contains("leasehold-"), "{cgroup}");
    // The sentinel cannot act yet: so that what holds meanwhile can be seen.
    let sentinel = Process::find(scene.record().owner.keeper.expect("a keeper").pid.get());
    assert_ne!(sentinel, run.process);
    sentinel.signal(Signal::SIGSTOP);
    eventually("it is stopped", || sentinel.is_stopped());
    run.signal(Signal::SIGKILL);
    run.status();
    child.wait_for_end();
    assert!(daemon.is_alive());
    eventually("the sentinel answers", || scene.verdict() == "held/keeper-running");
    assert_eq!(scene.run_to_end("", "exit 0").code, 105);
    sentinel.signal(Signal::SIGCONT);
    daemon.wait_for_end();
    sentinel.wait_for_end();
    assert!(scene.verdict().starts_with("dead/"), "{}", scene.verdict());
    assert_eq!(directories(&cgroup), Vec::<PathBuf>::new());
}

#[test]
fn a_command_of_another_user_does_not_get_away() {
    if !possible() || !other_users() {
        return;
    }
    // Without it, a change of credentials takes the parent-death signal away.
    for contain in [false, true] {
        let scene = Scene::new();
        let script = format!("exec {NOBODY} sh -c 'echo $$; exec sleep 1000'");
        let options = if contain { "--contain" } else { "" };
        let mut command = scene.run(options, &script);
        command.stdout(fs::File::create(scene.file("child")).unwrap());
        let mut run = Running::start(&mut command);
        let child = scene.pid("child");
        run.signal(Signal::SIGKILL);
        run.status();
        if contain {
            child.wait_for_end();
        } else {
            assert!(child.is_alive(), "documented as not covered");
            assert_eq!(scene.verdict(), "held/process-running");
            child.signal(Signal::SIGKILL);
        }
    }
}

#[test]
fn at_a_normal_end_nothing_remains() {
    if !possible() {
        return;
    }
    let scene = Scene::new();
    let mut run = scene.start("--contain --kill-grace 300ms", &format!("{DAEMON}; exit 3"));
    let daemon = scene.pid("daemon");
    let sentinel = Process::find(scene.record().owner.keeper.expect("a keeper").pid.get());
    assert_eq!(run.code(), 3);
    assert!(!daemon.is_alive() && !sentinel.is_alive());
    assert_eq!(directories(&scene.line("cgroup")), Vec::<PathBuf>::new());
    assert_eq!(scene.verdict(), "free/ended");
}

#[test]
fn a_refused_claim_removes_its_cgroup() {
    if !possible() {
        return;
    }
    let scene = Scene::new();
    let _first = scene.start("", "echo $$ > first; exec sleep 1000");
    scene.pid("first");
    let second = scene.start("--contain --wait 60s", "exit 0");
    eventually("it waits", || scene.stderr().contains("waiting for"));
    let name = format!("leasehold-{}-", second.process.pid);
    let mine = || {
        let parents = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let all = parents
            .iter()
            .flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name))
            .count()
    };
    second.signal(Signal::SIGTERM);
    drop(second);
    eventually("it is removed", || mine() == 0);
}

/// Who may not make one is told where, why and what to do, and nothing starts.
#[test]
fn without_a_delegated_cgroup_it_refuses() {
    if !other_users() {
        return;
    }
    let scene = Scene::new();
    let mut command = scene.command("env");
    command.args(NOBODY.split(' ')).arg(LEASEHOLD);
    command.args(["run", "x.lease", "--contain", "--", "true"]);
    let ended = Answer::from(command.output().unwrap());
    assert_eq!(ended.code, 174, "{ended:?}");
    for told in ["cgroup", "/", "systemd-run --user --scope -p Delegate=yes"] {
        assert!(ended.stderr.contains(told), "{told}: {ended:?}");
    }
    assert!(!scene.lease().exists());
}

/// It waits for what is left, too, and a pipe's reader does not wait for the sentinel.
#[test]
fn the_sentinel_keeps_no_pipe_open() {
    if !possible() {
        return;
    }
    let scene = Scene::new();
    let script = "sleep 0.3 & echo done";
    assert_eq!(scene.run_to_end("--contain --descendants wait", script).ok(), "done");
    assert_eq!(scene.verdict(), "free/ended");
    let contradiction = scene.run_to_end("--contain --descendants leave", "touch started");
    assert_eq!(contradiction.code, 164, "{contradiction:?}");
    assert!(!scene.file("started").exists());
}
