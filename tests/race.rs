//! Sixteen processes want one lease, 2,000 times in all, and a third of them are killed on the way.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::Random;

mod support;

const WORKERS: u64 = 16;
const CLAIMS: u64 = 2_000;
/// On filesystems that lack something; the difference is inside each claim.
const FEWER: u64 = 400;

/// The log's lines are all this long.
const LINE: u64 = 24;

/// Without a claim for this long, somebody has wedged the lease. The longest that the protocol itself ever waits is half
/// a second for each living rival.
const WEDGED: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Ends,
    /// Killed at one of its calls that change something on disk.
    KilledInside,
    /// Killed from outside, at any time.
    KilledOutside,
}

#[test]
fn claims_that_pass_over_rivals() {
    race(CLAIMS, &["--wait", "1"]);
}

#[test]
fn claims_that_give_way() {
    race(CLAIMS, &["--give-way"]);
}

#[test]
fn claims_without_hard_links() {
    race(FEWER, &["--no-links"]);
}

#[test]
fn claims_that_rename_in_two_steps() {
    race(FEWER, &["--torn-rename"]);
}

fn race(claims: u64, options: &[&str]) {
    let (dir, record) = support::directory();
    let beside = tempfile::tempdir().expect("a temporary directory");
    let (log, side) = (beside.path().join("log"), beside.path().join("side"));
    let [log_name, side_name] = [&log, &side].map(|path| path.to_str().expect("a plain name"));
    let until = claims.to_string();
    let given = [&["--log", log_name, "--side", side_name, "--until", &until], options].concat();

    let race = Race {
        record: &record,
        log: &log,
        given: &given,
        claims,
        next: AtomicU64::new(0),
        progress: Mutex::new((0, Instant::now())),
    };
    let slots: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let slots: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| race.slot())).collect();
        slots
            .into_iter()
            .map(|slot| slot.join().expect("a slot without a panic"))
            .collect()
    });
    let (ran, killed) = slots.iter().fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1));
    assert!(killed * 4 > ran, "{killed} of {ran} workers were killed");

    let text = std::fs::read_to_string(&log).expect("the log can be read");
    let epochs: Vec<u64> = text
        .lines()
        .map(|line| {
            line.split_whitespace()
                .next()
                .and_then(|epoch| epoch.parse().ok())
                .expect("an epoch")
        })
        .collect();
    assert!(epochs.len() as u64 >= claims);
    for pair in epochs.windows(2) {
        assert!(pair[0] < pair[1], "epoch {} was followed by {}", pair[0], pair[1]);
    }

    // Nobody is left: one quiet claim tidies up.
    let last = [&["--log", log_name, "--side", side_name, "--claims", "1"], options].concat();
    let (status, said) = support::run(&mut support::contend(&record, &last));
    assert!(status.success(), "{status}: {said}");
    assert_eq!(support::names(dir.path()), ["x.lease"]);
    let left = support::record(&record).expect("a record");
    assert!(left.owner.ended.is_some());
    assert!(left.owner.epoch > epochs[epochs.len() - 1]);
}

struct Race<'a> {
    record: &'a Path,
    log: &'a Path,
    given: &'a [&'a str],
    claims: u64,
    next: AtomicU64,
    progress: Mutex<(u64, Instant)>,
}

impl Race<'_> {
    /// One worker after the other, until there are enough claims: how many there were, and how many were killed.
    fn slot(&self) -> (u64, u64) {
        let (mut ran, mut killed) = (0, 0);
        while !self.is_over() {
            ran += 1;
            killed += u64::from(self.worker());
        }
        (ran, killed)
    }

    /// Whether it was killed.
    fn worker(&self) -> bool {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let mut random = Random(number);
        let fate = match number % 6 {
            0 => Fate::KilledInside,
            3 => Fate::KilledOutside,
            _ => Fate::Ends,
        };
        // A claim and its release make about twenty calls that change something.
        let kill = format!(
            "kill-{}:{}",
            ["before", "after"][random.below(2) as usize],
            1 + random.below(120)
        );
        let fault = match fate {
            Fate::KilledInside => vec!["--fault", &kill],
            _ => vec![],
        };
        let seed = number.to_string();
        let own = ["--seed", &seed, "--claims", "12"];
        let mut child = support::contend(self.record, &[self.given, &own, &fault].concat())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let mut kill_in = (fate == Fate::KilledOutside).then(|| Duration::from_micros(random.below(400_000)));
        let status = loop {
            let time = kill_in.unwrap_or(Duration::from_secs(1));
            if let Some(status) = support::wait_at_most(&mut child, time) {
                break status;
            }
            if kill_in.take().is_some() || self.is_wedged() {
                support::signal(&child, nix::sys::signal::Signal::SIGKILL);
            }
        };
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().expect("it was piped"), &mut said).expect("text");
        assert!(!self.is_wedged(), "no claim for {WEDGED:?}");
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
        assert!(status.success() || killed && fate != Fate::Ends, "{status}: {said}");
        killed
    }

    fn lines(&self) -> u64 {
        std::fs::metadata(self.log).map_or(0, |data| data.len() / LINE)
    }

    fn is_over(&self) -> bool {
        self.lines() >= self.claims
    }

    fn is_wedged(&self) -> bool {
        let lines = self.lines();
        let mut progress = self.progress.lock().expect("no panic while it is held");
        if lines > progress.0 {
            *progress = (lines, Instant::now());
        }
        progress.1.elapsed() > WEDGED && lines < self.claims
    }
}
