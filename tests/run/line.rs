//! Waiting in line, and the budget of starts.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Claim, Error, Judge};
use nix::sys::signal::Signal;

use crate::scene::Scene;
use crate::support::faulty::stand_in::{Call, stand_in};
use crate::support::{eventually, make_foreign, now};

/// What a busy machine may add to any bound.
const SLACK: Duration = Duration::from_secs(3);

#[test]
fn the_next_gets_in_when_a_run_of_this_host_ends() {
    let scene = Scene::new();
    let mut run = scene.start("", "echo $$ > child; exec sleep 1000");
    let child = scene.pid("child");
    let mut next = scene.start("--wait 60s", "touch in");
    eventually("it waits", || scene.stderr().contains("waiting for"));
    // Long enough for its looks to be far apart.
    let began = now();
    eventually("it has waited", || now() > began + Duration::from_secs(4));
    child.signal(Signal::SIGTERM);
    let ended = now();
    eventually("it is in", || scene.file("in").exists());
    assert!(now() - ended < SLACK, "{:?}", now() - ended);
    assert_eq!((run.code(), next.code()), (143, 0));
}

#[test]
fn many_wait_and_one_at_a_time_gets_in() {
    let scene = Scene::new();
    let script = "mkdir inside || echo twice >> error; echo \"$LEASEHOLD_EPOCH\" >> epochs; sleep 0.05; rmdir inside";
    let mut runs: Vec<_> = (0..8).map(|_| scene.start("--wait 60s", script)).collect();
    for run in &mut runs {
        assert_eq!(run.code(), 0, "{}", scene.stderr());
    }
    assert!(!scene.file("error").exists());
    let epochs: Vec<u64> = fs::read_to_string(scene.file("epochs"))
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(epochs, (1..=8).collect::<Vec<_>>());
}

#[test]
fn a_release_on_another_host_is_seen_within_a_poll() {
    let scene = Scene::new();
    scene.run_to_end("", "exit 0").ok();
    let mut record = scene.record();
    let ended = record.owner.ended.take();
    let publish = |record: &leasehold::Record| {
        fs::write(scene.file("new"), record.print()).unwrap();
        fs::rename(scene.file("new"), scene.lease()).unwrap();
    };
    make_foreign(&mut record);
    record.owner.ttl = None;
    publish(&record);
    let mut next = scene.start("--wait 60s", "touch in");
    eventually("it waits", || scene.stderr().contains("foreign-host"));
    let began = now();
    eventually("it has waited", || now() > began + Duration::from_secs(4));
    (record.owner.seq, record.owner.ended) = (record.owner.seq + 1, ended);
    publish(&record);
    let released = now();
    eventually("it is in", || scene.file("in").exists());
    assert!(
        now() - released < Duration::from_secs(1) + SLACK,
        "{:?}",
        now() - released
    );
    assert_eq!(next.code(), 0);
}

/// Counts how often the record is read.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Counting {
    fn pass<T>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        if call == Call::Open {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        make()
    }
}

stand_in!(Counting);

/// In the long run each waiter reads the record at most twice a second, whether it is a process of this host that holds
/// it or somebody elsewhere; and all of them still give up in time.
#[test]
fn waiters_read_twice_a_second_at_most() {
    const WAITERS: u64 = 8;
    for elsewhere in [false, true] {
        let scene = Scene::new();
        let _run = scene.start("--ttl 60s", "echo $$ > child; exec sleep 1000");
        scene.pid("child");
        if elsewhere {
            scene.take_from_elsewhere();
        }
        let counting = Arc::new(Counting::default());
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let judge = Judge::here().with_fs(counting.clone());
                let claim = Claim::new(scene.lease()).from(judge).wait(Duration::from_secs(8));
                std::thread::spawn(move || claim.take())
            })
            .collect();
        // The first looks are close together.
        let began = now();
        eventually("they are in their stride", || now() > began + Duration::from_secs(3));
        let (first, from) = (counting.0.load(Ordering::Relaxed), now());
        eventually("some seconds", || now() > from + Duration::from_secs(4));
        let reads = counting.0.load(Ordering::Relaxed) - first;
        let most = WAITERS as f64 * (2.0 * (now() - from).as_secs_f64() + 1.0);
        assert!(reads > 0 && reads as f64 <= most, "{reads} reads, at most {most}");
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(Error::TimedOut { .. })));
        }
    }
}

#[test]
fn a_spent_budget_says_when_the_next_start_is_allowed() {
    let scene = Scene::new();
    for start in 1..=5 {
        assert_eq!(scene.run_to_end("--budget 5/30s", "exit 1").code, 1, "start {start}");
    }
    let before = fs::read(scene.lease()).unwrap();
    let spent = scene.run_to_end("--budget 5/30s --status-file status", "touch started");
    assert_eq!(spent.code, 175, "{spent:?}");
    assert!(!scene.file("started").exists());
    assert_eq!(fs::read(scene.lease()).unwrap(), before);
    let (_, rest) = spent.stderr.split_once("the next start is allowed in ").expect("when");
    let seconds: f64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(seconds > 0.0 && seconds <= 30.0, "{spent:?}");
    // A wait does not help, and is not waited.
    let asked = now();
    assert_eq!(scene.run_to_end("--budget 5/30s --wait 20s", "exit 1").code, 175);
    assert!(now() - asked < Duration::from_secs(10));
    // A larger one, and none at all, allow it. None does not make the others forget.
    assert_eq!(scene.run_to_end("--budget 6/30s", "exit 0").code, 0);
    assert_eq!(scene.run_to_end("", "exit 0").code, 0);
    assert_eq!(scene.run_to_end("--budget 6/30s", "exit 0").code, 175);
}

#[test]
fn a_budget_is_given_back_with_time() {
    let scene = Scene::new();
    let budget = "--budget 2/4s";
    let first = now();
    assert_eq!(scene.run_to_end(budget, "exit 0").code, 0);
    let second = now();
    eventually("a while", || now() > second + Duration::from_secs(1));
    assert_eq!(scene.run_to_end(budget, "exit 0").code, 0);
    eventually("it is allowed again", || {
        match scene.run_to_end(budget, "exit 0").code {
            0 => true,
            code => {
                assert_eq!(code, 175);
                false
            }
        }
    });
    assert!(now() >= first + Duration::from_secs(4), "too early");
}

/// Refused starts do not count: a loop that is refused gets in as soon as the lease is free.
#[test]
fn a_refused_start_spends_nothing() {
    let scene = Scene::new();
    let run = scene.start("--budget 2/600s", "echo $$ > child; exec sleep 1000");
    let child = scene.pid("child");
    for _ in 0..5 {
        assert_eq!(scene.run_to_end("--budget 2/600s", "exit 0").code, 105);
    }
    child.signal(Signal::SIGKILL);
    drop(run);
    eventually("it has ended", || !child.is_alive());
    assert_eq!(scene.run_to_end("--budget 2/600s", "exit 0").code, 0);
    assert_eq!(scene.run_to_end("--budget 2/600s", "exit 0").code, 175);
}
