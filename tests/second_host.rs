//! What hosts that share nothing but a directory say about each other's records: the command on second hosts made of
//! namespaces, with real processes and real files.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::host::{Host, claim, initial, other_users, possible};
use support::{Answer, LEASEHOLD, NOBODY, chmod, edit, eventually, skip, snapshot, verdict};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";
const OTHER_MACHINE: &str = "fedcba9876543210fedcba9876543210";
const BOOT: &str = "11111111-2222-4333-8444-555555555555";
const OTHER_BOOT: &str = "99999999-8888-4777-8666-555555555555";

/// The directory that the hosts share, open to every user, and a record in it.
struct Shared {
    dir: tempfile::TempDir,
}

impl Shared {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), 0o777);
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn lease(&self) -> String {
        self.file("x.lease").to_str().unwrap().to_owned()
    }

    /// Changes the record by hand.
    fn edit(&self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        edit(self.lease(), change);
    }
}

fn judge(host: &Host, lease: &str) -> String {
    verdict(&host.leasehold(&format!("judge {lease}")))
}

/// What the command says to a person about a record.
fn sentence(host: &Host, lease: &str) -> String {
    let json = host.leasehold(&format!("judge --json {lease}")).json();
    json["sentence"].as_str().unwrap().to_owned()
}

/// The fencing number that stands in the record, as any host can read it.
fn epoch(host: &Host, lease: &str) -> u64 {
    host.leasehold(&format!("show {lease} --field epoch"))
        .ok()
        .parse()
        .unwrap()
}

/// A claim that must end like that and leave the directory alone.
#[track_caller]
fn refused(host: &Host, shared: &Shared, pid: i32, code: i32) -> Answer {
    let before = snapshot(shared.dir.path());
    let answer = host.leasehold(&format!("claim {} --owner {pid}", shared.lease()));
    assert_eq!(answer.code, code, "{answer:?}");
    assert_eq!(answer.stdout, "", "no token for a refused claim");
    assert_eq!(snapshot(shared.dir.path()), before, "a refused claim changes nothing");
    answer
}

/// The founding story, on two hosts that either see each other's pids or do not.
fn founding_story(a: &mut Host, b: &Host) {
    let shared = Shared::new();
    let lease = shared.lease();
    let bridge = a.spawn();
    let other = b.spawn();
    claim(a, &lease, bridge.pid);
    assert_eq!(judge(a, &lease), "held/process-running");
    assert_eq!(judge(b, &lease), "undetermined/foreign-host");
    let told = refused(b, &shared, other.pid, 2);
    assert!(
        told.stderr.contains("foreign-host") && told.stderr.contains("ssh login-a leasehold judge"),
        "{told:?}"
    );
    refused(a, &shared, bridge.pid, 5);

    bridge.kill();
    assert_eq!(judge(a, &lease), "dead/no-such-process");
    assert_eq!(judge(b, &lease), "undetermined/foreign-host");
    refused(b, &shared, other.pid, 2);

    let bridge = a.spawn();
    claim(a, &lease, bridge.pid);
    assert_eq!(epoch(b, &lease), 2);
    drop(bridge);
    a.reboot();
    assert_eq!(
        judge(b, &lease),
        "undetermined/foreign-host",
        "that A rebooted is A's to know"
    );
    refused(b, &shared, other.pid, 2);
    assert_eq!(judge(a, &lease), "dead/host-rebooted");
    let bridge = a.spawn();
    claim(a, &lease, bridge.pid);
    assert_eq!(epoch(a, &lease), 3);
    assert_eq!(judge(a, &lease), "held/process-running");
    assert_eq!(judge(b, &lease), "undetermined/foreign-host");
    let left: Vec<_> = fs::read_dir(shared.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["x.lease"], "nothing is left beside the record");
}

#[test]
fn a_login_node_never_takes_what_another_holds() {
    if possible() && initial() {
        founding_story(&mut Host::named("login-a").start(), &Host::named("login-b").start());
    }
}

#[test]
fn the_same_with_process_tables_apart() {
    if possible() {
        let host = |name| Host::named(name).pid_namespace(true).operator_id(name).start();
        founding_story(&mut host("login-a"), &host("login-b"));
    }
}

#[test]
fn a_bare_pid_file_is_nobodys() {
    if !possible() {
        return;
    }
    for apart in [false, true] {
        let shared = Shared::new();
        let hosts = ["login-a", "login-b"].map(|name| Host::named(name).pid_namespace(apart).start());
        let alive = hosts[0].spawn();
        let ended = hosts[0].spawn();
        let pids = [alive.pid, ended.pid];
        ended.kill();
        for pid in pids {
            fs::write(shared.lease(), format!("{pid}\n")).unwrap();
            for host in &hosts {
                assert_eq!(judge(host, &shared.lease()), "undetermined/no-host", "pid {pid}");
                let own = host.spawn();
                refused(host, &shared, own.pid, 2);
            }
        }
    }
}

#[test]
fn names_and_machine_ids_alone_prove_nothing() {
    if !(possible() && initial()) {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let a = Host::named("login-a").machine(MACHINE).start();
    let bridge = a.spawn();
    claim(&a, &lease, bridge.pid);
    for (host, tells) in [
        (Host::named("login-b").machine(MACHINE).start(), "cloned image"),
        (
            Host::named("login-a").machine(OTHER_MACHINE).start(),
            "a default or reused name",
        ),
        (
            Host::named("login-a").machine("").start(),
            "proves nothing without a machine id",
        ),
        (
            Host::named("login-a").machine("uninitialized").start(),
            "proves nothing without a machine id",
        ),
        (
            Host::named("login-a").machine(MACHINE).pid_namespace(true).start(),
            "in a container",
        ),
    ] {
        assert_eq!(judge(&host, &lease), "undetermined/foreign-host", "{tells}");
        assert!(
            sentence(&host, &lease).contains(tells),
            "{tells}: {}",
            sentence(&host, &lease)
        );
        let own = host.spawn();
        refused(&host, &shared, own.pid, 2);
    }
}

#[test]
fn a_name_that_many_hosts_have_proves_no_reboot() {
    if !(possible() && initial()) {
        return;
    }
    for name in ["localhost", "localhost.localdomain"] {
        let shared = Shared::new();
        let mut host = Host::named(name).machine(MACHINE).start();
        claim(&host, &shared.lease(), host.spawn().pid);
        host.reboot();
        assert_eq!(judge(&host, &shared.lease()), "undetermined/foreign-host");
        refused(&host, &shared, host.spawn().pid, 2);
    }
}

#[test]
fn a_live_twin_is_a_conflict_and_not_a_reboot() {
    if !(possible() && initial()) {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let twin = || Host::named("login").machine(MACHINE);
    let a = twin().start();
    // One has been up for long. The other booted just now, so that the record's age by its own clock tells it nothing.
    let long_up = twin().up_for(86_400).start();
    let just_up = twin().start();
    let bridge = a.spawn();
    claim(&a, &lease, bridge.pid);
    assert_eq!(judge(&long_up, &lease), "undetermined/identity-conflict");
    for host in [&long_up, &just_up] {
        let own = host.spawn();
        let before = fs::read(&lease).unwrap();
        let answer = host.leasehold(&format!("claim {lease} --owner {}", own.pid));
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.stderr.contains("identity-conflict"), "{answer:?}");
        assert_eq!(fs::read(&lease).unwrap(), before);
        assert_eq!(
            fs::read_dir(shared.dir.path()).unwrap().count(),
            1,
            "its attempt left something"
        );
    }
    assert_eq!(judge(&a, &lease), "held/process-running");
}

/// The twin's own terms end its lease as anybody's, also where only a claim can tell that it is a twin.
#[test]
fn a_twins_lease_lapses() {
    if !(possible() && initial()) {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let twin = || Host::named("login").machine(MACHINE);
    let (a, b) = (twin().start(), twin().start());
    let bridge = a.spawn();
    a.leasehold(&format!("claim {lease} --owner {} --ttl 5s", bridge.pid))
        .ok();
    let own = b.spawn();
    let asked = Instant::now();
    b.leasehold(&format!("claim {lease} --owner {} --wait 20s --take-lapsed", own.pid))
        .ok();
    assert!(asked.elapsed() >= Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(epoch(&a, &lease), 2);
}

#[test]
fn a_renamed_host_knows_its_own() {
    if !(possible() && initial()) {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let host = Host::named("old-name").start();
    let bridge = host.spawn();
    claim(&host, &lease, bridge.pid);
    host.shell("hostname new-name").ok();
    assert_eq!(
        host.leasehold("id").ok().lines().next(),
        Some("host            new-name")
    );
    assert_eq!(judge(&host, &lease), "held/process-running");
    bridge.kill();
    assert_eq!(judge(&host, &lease), "dead/no-such-process");
}

#[test]
fn a_repeated_boot_id_does_not_make_one_host_of_two() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let a = Host::named("board-a").boot(BOOT).start();
    let bridge = a.spawn();
    claim(&a, &lease, bridge.pid);
    let other_machine = Host::named("board-a").boot(BOOT).start();
    let unknown_machine = Host::named("board-b").boot(BOOT).machine("").start();
    let other_id = Host::named("board-a")
        .boot(BOOT)
        .machine(a.machine_id())
        .operator_id("b")
        .start();
    for host in [&other_machine, &unknown_machine] {
        assert_eq!(judge(host, &lease), "undetermined/identity-conflict");
        refused(host, &shared, host.spawn().pid, 2);
    }
    // An operator id on one side only tells nothing; the clocks do.
    assert_eq!(judge(&other_id, &lease), "undetermined/other-time-namespace");
}

#[test]
fn containers_of_one_boot_do_not_judge_each_other() {
    if !possible() {
        return;
    }
    let host = |own| {
        Host::named("node")
            .machine(MACHINE)
            .boot(BOOT)
            .pid_namespace(own)
            .start()
    };
    let hosts = [host(false), host(true), host(true)];
    for (at, writer) in hosts.iter().enumerate() {
        let shared = Shared::new();
        let lease = shared.lease();
        let bridge = writer.spawn();
        claim(writer, &lease, bridge.pid);
        for (other, observer) in hosts.iter().enumerate() {
            let found = judge(observer, &lease);
            if at == other {
                assert_eq!(found, "held/process-running");
            } else {
                assert_eq!(found, "undetermined/other-pid-namespace");
                refused(observer, &shared, observer.spawn().pid, 2);
            }
        }
        bridge.kill();
    }
}

#[test]
fn an_operator_id_names_a_container_across_boots() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let mut place = Host::named("3f2a9c")
        .pid_namespace(true)
        .operator_id("bridge-7")
        .start();
    claim(&place, &lease, place.spawn().pid);
    let other = Host::named("3f2a9c")
        .machine(place.machine_id())
        .pid_namespace(true)
        .operator_id("bridge-8")
        .start();
    assert_eq!(judge(&other, &lease), "undetermined/foreign-host");
    assert!(
        sentence(&other, &lease).contains("the operator id is not"),
        "{}",
        sentence(&other, &lease)
    );
    refused(&other, &shared, other.spawn().pid, 2);

    // A restart on the same boot: the old process table is out of sight, and nothing says that it is gone.
    place.restart();
    assert_eq!(judge(&place, &lease), "undetermined/other-pid-namespace");
    refused(&place, &shared, place.spawn().pid, 2);

    place.reboot();
    assert_eq!(judge(&place, &lease), "dead/host-rebooted");
    claim(&place, &lease, place.spawn().pid);
    assert_eq!(epoch(&place, &lease), 2);

    // The same without an id: a container's name and machine id prove nothing.
    let shared = Shared::new();
    let mut place = Host::named("3f2a9c").pid_namespace(true).start();
    claim(&place, &shared.lease(), place.spawn().pid);
    place.reboot();
    assert_eq!(judge(&place, &shared.lease()), "undetermined/foreign-host");
}

#[test]
fn operator_ids_that_differ_outweigh_name_and_machine() {
    if !(possible() && initial()) {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let node = |id| Host::named("node").machine(MACHINE).operator_id(id);
    let a = node("rack-1").boot(BOOT).start();
    let bridge = a.spawn();
    claim(&a, &lease, bridge.pid);
    let next_boot = node("rack-2").boot(OTHER_BOOT).start();
    assert_eq!(judge(&next_boot, &lease), "undetermined/foreign-host");
    let same_boot = node("rack-2").boot(BOOT).start();
    assert_eq!(judge(&same_boot, &lease), "undetermined/identity-conflict");
    for host in [&next_boot, &same_boot] {
        refused(host, &shared, host.spawn().pid, 2);
    }
}

#[test]
fn nothing_is_told_or_written_under_another_namespaces_proc() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let host = Host::named("container").pid_namespace(true).start();
    let bridge = host.spawn();
    claim(&host, &lease, bridge.pid);
    assert_eq!(judge(&host, &lease), "held/process-running");

    // In the namespace, with the outer /proc: what `unshare --pid` alone gives.
    let before = snapshot(shared.dir.path());
    let found = host.under_outer_proc(&format!("judge {lease}"));
    assert_eq!(verdict(&found), "undetermined/start-unreadable");
    let free = shared.file("free.lease");
    for path in [lease.as_str(), free.to_str().unwrap()] {
        let answer = host.under_outer_proc(&format!("claim {path} --owner {}", bridge.pid));
        assert_eq!(answer.code, 64, "{answer:?}");
        assert!(answer.stderr.contains("mount this namespace's own /proc"), "{answer:?}");
    }

    // Out of the namespace, with the inner /proc: what `nsenter --mount` alone gives. The number of this very process
    // may be another's there.
    let own = std::process::id();
    let found = host.under_inner_proc(&format!("judge {lease}"));
    assert_eq!(found.code, 2, "{found:?}");
    let answer = host.under_inner_proc(&format!("claim {} --owner {own}", free.display()));
    assert_eq!(answer.code, 64, "{answer:?}");
    assert!(answer.stderr.contains("mount this namespace's own /proc"), "{answer:?}");
    // Number 1 exists in both.
    let answer = host.under_inner_proc(&format!("claim {} --owner 1", free.display()));
    assert_eq!(answer.code, 64, "{answer:?}");
    assert_eq!(snapshot(shared.dir.path()), before);
}

#[test]
fn start_times_of_another_time_namespace_are_not_compared() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let host = Host::named("node").start();
    let bridge = host.spawn();
    claim(&host, &lease, bridge.pid);
    let shifted = |words: &str| {
        let mut all = vec!["unshare", "--time", "--boottime", "5000", LEASEHOLD];
        all.extend(words.split(' '));
        host.run(&all)
    };
    assert_eq!(
        verdict(&shifted(&format!("judge {lease}"))),
        "undetermined/other-time-namespace"
    );
    let before = snapshot(shared.dir.path());
    let answer = shifted(&format!("claim {lease} --owner {}", bridge.pid));
    assert_eq!(answer.code, 2, "{answer:?}");
    assert_eq!(snapshot(shared.dir.path()), before);
    assert_eq!(judge(&host, &lease), "held/process-running");
}

/// The kernel gives the number of an ended time namespace to the next one, whose clock may differ.
#[test]
fn a_recycled_time_namespace_does_not_kill() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let host = Host::named("node").start();
    let bridge = host.spawn();
    let shifted = |by: &str, words: &str| {
        let mut all = vec!["unshare", "--time", "--fork", "--boottime", by, LEASEHOLD];
        all.extend(words.split(' '));
        host.run(&all)
    };
    let mut tries = 0;
    eventually("two namespaces in turn have one number", || {
        tries += 1;
        let lease = shared.file(&format!("{tries}.lease"));
        let lease = lease.to_str().unwrap();
        shifted("5000", &format!("claim {lease} --owner {}", bridge.pid)).ok();
        let answer = shifted("9000", &format!("judge --json {lease}"));
        let found: Value = serde_json::from_str(&answer.stdout).unwrap();
        assert_eq!(answer.code, 2, "the process lives: {found:#}");
        assert_eq!(found["reason"], "other-time-namespace");
        // Without pidfs there is nothing else to tell by.
        found["owner"]["timens"] == found["observer"]["timens"] || found["owner"].get("pidfd").is_none()
    });
}

#[test]
fn a_stopped_process_still_holds() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let host = Host::named("node").pid_namespace(true).start();
    let bridge = host.spawn();
    claim(&host, &shared.lease(), bridge.pid);
    bridge.signal("STOP");
    let state = format!("grep -q '^State:.T' /proc/{}/status", bridge.pid);
    eventually("it is stopped", || host.shell(&state).code == 0);
    assert_eq!(judge(&host, &shared.lease()), "held/process-running");
    refused(&host, &shared, bridge.pid, 5);
}

#[test]
fn an_unreaped_process_is_dead() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let host = Host::named("node").pid_namespace(true).start();
    // The parent becomes a program that reaps nobody.
    let mut parent = host.spawn_command(&["sh", "-c", "sleep 300 & echo $!; exec cat"]);
    let child = parent.line();
    claim(&host, &shared.lease(), child.parse().unwrap());
    assert_eq!(judge(&host, &shared.lease()), "held/process-running");
    host.shell(&format!("kill -s KILL {child}")).ok();
    assert_eq!(
        host.shell(&format!("kill -s 0 {child}")).code,
        0,
        "the number is still taken"
    );
    eventually("it has exited", || judge(&host, &shared.lease()) == "dead/zombie");
    let own = host.spawn();
    claim(&host, &shared.lease(), own.pid);
    assert_eq!(epoch(&host, &shared.lease()), 2);
}

/// Threads: one program whose first thread ends on request, while another goes on until its input ends.
const THREADS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *run(void *unused) {
    char byte;
    printf("%ld\n", (long)syscall(SYS_gettid));
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    exit(0);
}
int main(int argc, char **argv) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    if (argc > 1) pthread_exit(NULL);
    pthread_join(thread, NULL);
}
"#;

#[test]
fn threads_are_not_processes_and_leaders_are_not_all_of_one() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let (source, program) = (shared.file("threads.c"), shared.file("threads"));
    fs::write(&source, THREADS).unwrap();
    let cc = std::process::Command::new("cc")
        .arg("-pthread")
        .arg("-o")
        .args([&program, &source])
        .output();
    if !cc.is_ok_and(|output| output.status.success()) {
        return skip("there is no C compiler, which makes a program with threads");
    }
    let program = program.to_str().unwrap();
    let host = Host::named("node").pid_namespace(true).start();

    let mut whole = host.spawn_command(&[program]);
    let thread = whole.line();
    assert_ne!(thread, whole.pid.to_string());
    let answer = host.leasehold(&format!("claim {lease} --owner {thread}"));
    assert_eq!(answer.code, 64, "{answer:?}");
    assert!(answer.stderr.contains("this is a thread"), "{answer:?}");
    assert!(!shared.file("x.lease").exists());
    claim(&host, &lease, whole.pid);
    assert_eq!(judge(&host, &lease), "held/process-running");
    shared.edit(|owner| drop(owner.insert("pid".into(), thread.parse::<i64>().unwrap().into())));
    assert_eq!(judge(&host, &lease), "dead/not-a-process");
    drop(whole);

    fs::remove_file(&lease).unwrap();
    let mut headless = host.spawn_command(&[program, "exit"]);
    headless.line();
    let state = format!("grep -q '^State:.Z' /proc/{}/status", headless.pid);
    eventually("the first thread has exited", || host.shell(&state).code == 0);
    claim(&host, &lease, headless.pid);
    assert_eq!(judge(&host, &lease), "held/process-running", "a thread of it goes on");
    headless.kill();
    assert_eq!(judge(&host, &lease), "dead/no-such-process");
}

#[test]
fn another_users_process_holds_as_anyones() {
    if !(possible() && other_users()) {
        return;
    }
    let host = Host::named("node").start();
    let others: Vec<&str> = NOBODY.split(' ').chain(["cat"]).collect();
    for owner in [host.spawn(), host.spawn_command(&others)] {
        let shared = Shared::new();
        claim(&host, &shared.lease(), owner.pid);
        let judge = format!("judge {}", shared.lease());
        assert_eq!(verdict(&host.leasehold(&judge)), "held/process-running");
        assert_eq!(verdict(&host.leasehold_as_nobody(&judge)), "held/process-running");
        owner.kill();
        assert_eq!(verdict(&host.leasehold_as_nobody(&judge)), "dead/no-such-process");
    }
}

#[test]
fn a_hidden_process_is_known_by_its_pidfd_or_not_at_all() {
    if !(possible() && other_users()) {
        return;
    }
    let shared = Shared::new();
    let host = Host::named("node").hidepid().start();
    let owner = host.spawn();
    claim(&host, &shared.lease(), owner.pid);
    let judge = format!("judge {}", shared.lease());
    assert_eq!(
        verdict(&host.leasehold(&judge)),
        "held/process-running",
        "root sees everybody"
    );
    let mut pidfs = false;
    shared.edit(|line| pidfs = line.contains_key("pidfd"));
    if pidfs {
        assert_eq!(verdict(&host.leasehold_as_nobody(&judge)), "held/process-running");
    }
    // As a kernel without pidfs would have written it.
    shared.edit(|line| drop(line.remove("pidfd")));
    assert_eq!(
        verdict(&host.leasehold_as_nobody(&judge)),
        "undetermined/start-unreadable"
    );
    assert_eq!(verdict(&host.leasehold(&judge)), "held/process-running");
    owner.kill();
    assert_eq!(verdict(&host.leasehold_as_nobody(&judge)), "dead/no-such-process");
}

#[test]
fn a_recycled_pid_is_not_the_recorded_process() {
    if !possible() {
        return;
    }
    for by_start_time_alone in [false, true] {
        let shared = Shared::new();
        let lease = shared.lease();
        let host = Host::named("node").pid_namespace(true).start();
        let first = host.spawn();
        let pid = first.pid;
        claim(&host, &lease, pid);
        if by_start_time_alone {
            shared.edit(|line| drop(line.remove("pidfd")));
        }
        assert_eq!(judge(&host, &lease), "held/process-running");
        first.kill();
        let last = format!(
            "echo {} > /proc/sys/kernel/ns_last_pid && {{ cat <&3 & }} 3<&0; echo $!; exec cat",
            pid - 1
        );
        let mut parent = host.spawn_command(&["sh", "-c", &last]);
        assert_eq!(parent.line(), pid.to_string(), "the number is given out again");
        assert_eq!(judge(&host, &lease), "dead/pid-reused");
        claim(&host, &lease, pid);
        assert_eq!(judge(&host, &lease), "held/process-running");
        assert_eq!(epoch(&host, &lease), 2);
    }
}

/// The founding mistake: the number is in the other host's process table, too.
#[test]
fn the_same_number_on_another_host_is_a_stranger() {
    if !(possible() && initial()) {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let a = Host::named("login-a").start();
    let b = Host::named("login-b").start();
    // Both count from 1: forty numbers in a row on B are sooner or later met by A.
    let strangers = b.spawn_command(&["sh", "-c", "for i in $(seq 40); do sleep 1000 & done; exec cat"]);
    let mut counted = (0..40).map(|_| a.spawn());
    let bridge = counted.find(|own| own.pid > strangers.pid + 1).expect("A counts on");
    claim(&a, &lease, bridge.pid);
    eventually("B has a process of that number", || {
        b.shell(&format!("kill -s 0 {}", bridge.pid)).code == 0
    });
    assert_eq!(judge(&b, &lease), "undetermined/foreign-host");
    bridge.kill();
    assert_eq!(judge(&b, &lease), "undetermined/foreign-host");
}

#[test]
fn a_lease_lapses_on_its_owners_terms() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let (a, b) = (Host::named("login-a").start(), Host::named("login-b").start());
    let (bridge, successor) = (a.spawn(), b.spawn());
    let token = a
        .leasehold(&format!("claim {lease} --owner {} --ttl 5s", bridge.pid))
        .ok();
    assert_eq!(a.leasehold(&format!("verify {lease} --token {token}")).ok(), "1");
    // One look can never tell.
    assert_eq!(judge(&b, &lease), "undetermined/foreign-host");
    refused(&b, &shared, successor.pid, 2);

    let before = snapshot(shared.dir.path());
    let asked = Instant::now();
    let found = b.leasehold(&format!("judge {lease} --observe 30s"));
    assert_eq!(verdict(&found), "lapsed/not-renewed");
    assert!(asked.elapsed() >= Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(snapshot(shared.dir.path()), before, "watching changes nothing");
    assert_eq!(judge(&a, &lease), "held/process-running", "its own host still sees it");
    assert_eq!(
        a.leasehold(&format!("verify {lease} --token {token}")).code,
        6,
        "its terms are over"
    );

    // Without the flag, or without a wait, it stays whose it was.
    let asked = Instant::now();
    let answer = b.leasehold(&format!("claim {lease} --owner {} --wait 1s", successor.pid));
    assert_eq!(answer.code, 75, "{answer:?}");
    assert!(asked.elapsed() >= Duration::from_secs(1));
    refused(&b, &shared, successor.pid, 2);

    let asked = Instant::now();
    let next = b
        .leasehold(&format!(
            "claim {lease} --owner {} --wait 20s --take-lapsed",
            successor.pid
        ))
        .ok();
    assert!(asked.elapsed() >= Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(epoch(&a, &lease), 2);
    assert_eq!(b.leasehold(&format!("verify {lease} --token {next}")).ok(), "2");
    for verb in ["verify", "renew", "release"] {
        let answer = a.leasehold(&format!("{verb} {lease} --token {token}"));
        assert_eq!(answer.code, 6, "{answer:?}");
        assert!(answer.stderr.contains("epoch 2"), "it says who has it now: {answer:?}");
    }
    assert_eq!(judge(&b, &lease), "held/process-running");
}

#[test]
fn a_renewed_lease_does_not_lapse() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let (a, b) = (Host::named("login-a").start(), Host::named("login-b").start());
    let (bridge, other) = (a.spawn(), b.spawn());
    let token = a
        .leasehold(&format!("claim {lease} --owner {} --ttl 5s", bridge.pid))
        .ok();
    let over = AtomicBool::new(false);
    let claim = format!("claim {lease} --owner {} --wait 10s --take-lapsed", other.pid);
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            let mut times = 0;
            while !over.load(Ordering::Relaxed) {
                a.leasehold(&format!("renew {lease} --token {token}")).ok();
                times += 1;
                let next = Instant::now() + Duration::from_secs(2);
                eventually("the next renewal", || {
                    over.load(Ordering::Relaxed) || Instant::now() >= next
                });
            }
            times
        });
        let mut waiting = b.command(LEASEHOLD);
        let waiting = waiting.args(claim.split(' ')).output().unwrap();
        over.store(true, Ordering::Relaxed);
        let answer = Answer::from(waiting);
        assert_eq!(answer.code, 75, "{answer:?}");
        assert_eq!(
            answer.stderr.matches("waiting for").count(),
            1,
            "it says once for whom: {answer:?}"
        );
        assert!(renewing.join().unwrap() > 3);
    });
    assert_eq!(epoch(&b, &lease), 1);
    assert_eq!(a.leasehold(&format!("verify {lease} --token {token}")).ok(), "1");
    assert_eq!(
        fs::read_dir(shared.dir.path()).unwrap().count(),
        1,
        "waiting left something"
    );
}

/// A token is good on every host, a heartbeat counts on the clock of one.
#[test]
fn what_is_left_of_a_ttl_is_told_by_one_hosts_clock() {
    if !possible() {
        return;
    }
    let shared = Shared::new();
    let lease = shared.lease();
    let long_up = Host::named("login-a").up_for(86_400).start();
    let just_up = Host::named("login-b").start();
    for (a, b) in [(&long_up, &just_up), (&just_up, &long_up)] {
        let _ = fs::remove_file(&lease);
        let (owner, next) = (a.spawn(), b.spawn());
        let token = a
            .leasehold(&format!("claim {lease} --owner {} --ttl 60s", owner.pid))
            .ok();
        let left = |host: &Host, margin| {
            host.leasehold(&format!("verify {lease} --token {token} --margin {margin}"))
                .code
        };
        assert_eq!((left(a, "20s"), left(a, "70s")), (0, 6));
        b.leasehold(&format!("renew {lease} --token {token}")).ok();
        assert_eq!((left(a, "20s"), left(a, "70s")), (0, 6), "renewed by the other host");
        b.leasehold(&format!("hand-over {lease} --token {token} --to {}", next.pid))
            .ok();
        assert_eq!(judge(b, &lease), "held/process-running");
        assert_eq!(
            (left(b, "20s"), left(b, "70s")),
            (0, 6),
            "handed over to the other host"
        );
        assert_eq!(left(a, "20s"), 6, "not known on the host that has it no more");
    }
}

/// The kernel gives the number of a namespace that is gone to the next that is made: the tests' own clearing up must not
/// take that one for the host which it ends.
#[test]
fn to_end_a_host_ends_nobody_else() {
    if !possible() {
        return;
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // So many that each number which becomes free is given to one of them.
                let all = [(); 8].map(|()| {
                    Command::new("unshare")
                        .args(["--user", "--uts", "sleep", "0.02"])
                        .spawn()
                        .unwrap()
                });
                for mut other in all {
                    let end = other.wait().unwrap();
                    assert!(end.success(), "{end}");
                }
            }
        });
        for _ in 0..40 {
            drop(Host::named("brief").start());
            if others.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        others.join().unwrap();
    });
}
