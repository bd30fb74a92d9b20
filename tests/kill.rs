//! A process is killed, or stopped, at every step that changes something on disk, for every change there is.

#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use leasehold::mount::LockReach;
use leasehold::{Claim, Error, Holder, Judge, Lease, Pid, Record, Verdict};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus};

mod support;

/// A claim after a crash takes no longer than this, and none at all is refused.
const SOON: Duration = Duration::from_secs(5);

/// More steps than any change has.
const STEPS: usize = 64;

/// Cases that are tried at once.
const AT_ONCE: usize = 6;

/// What stands at the path before the change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Absent,
    Vacant,
    /// Of a process that is gone.
    Dead,
    /// Nothing but what crashed claims left: two ballots with their temp files, or, where there are no hard links, temp files
    /// and a ballot that names none yet.
    Leftovers,
    /// Of a process of another host, which does not renew it.
    Lapsed,
    /// A record with a second name, as a crash between link and unlink leaves it.
    Twin,
}

/// Who owns the record that is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    /// The process that is killed.
    Worker,
    /// This test, which goes on living.
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Claim(Before),
    Renew(Owner),
    Note(Owner),
    Release(Owner),
    HandOver(Owner),
    /// Of the test's lease.
    Break,
    /// Of a dead owner's.
    Settle,
    /// A supervisor with a command that ends at once.
    Run,
}

const CHANGES: [Change; 16] = [
    Change::Claim(Before::Absent),
    Change::Claim(Before::Vacant),
    Change::Claim(Before::Dead),
    Change::Claim(Before::Leftovers),
    Change::Claim(Before::Twin),
    Change::Renew(Owner::Worker),
    Change::Renew(Owner::Test),
    Change::Note(Owner::Worker),
    Change::Note(Owner::Test),
    Change::Release(Owner::Worker),
    Change::Release(Owner::Test),
    Change::HandOver(Owner::Worker),
    Change::HandOver(Owner::Test),
    Change::Break,
    Change::Settle,
    Change::Run,
];

const CLAIMS: [Change; 5] = [
    Change::Claim(Before::Absent),
    Change::Claim(Before::Vacant),
    Change::Claim(Before::Dead),
    Change::Claim(Before::Leftovers),
    Change::Claim(Before::Twin),
];

/// One place where the process meets its signal.
#[derive(Clone, Copy, Debug)]
struct Case {
    change: Change,
    step: usize,
    side: &'static str,
    options: &'static [&'static str],
}

#[test]
fn killed_at_every_step() {
    each(&CHANGES, &[], killed);
}

#[test]
fn killed_at_every_step_without_hard_links() {
    each(&CHANGES, &["--no-links"], killed);
}

#[test]
fn killed_at_every_step_where_a_rename_has_two_steps() {
    each(&CHANGES, &["--torn-rename"], killed);
}

#[test]
fn killed_at_every_step_of_taking_what_has_lapsed() {
    let lapsed = [Change::Claim(Before::Lapsed)];
    each(&lapsed, &["--lapsed", "--wait", "40"], killed);
    each(&lapsed, &["--lapsed", "--wait", "40", "--no-links"], killed);
    each(&lapsed, &["--lapsed", "--wait", "40", "--torn-rename"], killed);
}

#[test]
fn stopped_claims_are_passed_over() {
    each(&CLAIMS, &[], stopped_claim);
}

/// Who goes on puts the record of its successor aside, and has nothing to put in its place.
#[test]
fn stopped_claims_are_passed_over_where_a_rename_has_two_steps() {
    each(&CLAIMS, &["--torn-rename"], stopped_claim);
}

#[test]
fn stopped_claims_are_passed_over_without_links() {
    let claims = [Before::Absent, Before::Vacant].map(Change::Claim);
    each(&claims, &["--no-links"], stopped_claim);
}

#[test]
fn a_stopped_holder_loses_no_change_of_another() {
    let changes = [Change::Renew, Change::Note, Change::Release, Change::HandOver].map(|change| change(Owner::Test));
    each(&changes, &[], stopped_holder);
    each(&changes, &["--no-links"], stopped_holder);
}

#[test]
fn a_stopped_holder_does_not_touch_a_successor() {
    let changes = [Change::Renew, Change::Note, Change::Release, Change::HandOver].map(|change| change(Owner::Test));
    each(&changes, &[], stopped_before_a_successor);
}

/// A killed process that its parent has not waited for yet is dead all the same: nobody gives way to it.
#[test]
fn nobody_gives_way_to_the_dead() {
    let case = Case {
        change: Change::Claim(Before::Absent),
        step: 4,
        side: "after",
        options: &[],
    };
    let scene = Scene::set(case);
    let child = scene.start(case, "kill");
    assert!(!stops(&child));
    assert!(support::names(scene.dir()).contains(&".x.lease.ballot-1".into()));
    let (status, said) = scene.run(&["--do", "claim", "--give-way"]);
    assert!(status.success(), "{status}: {said}");
    assert_eq!(end(child).0.signal(), Some(9));
}

/// An NFS client makes the first step of a rename, which puts the record aside, also after its process was killed in it, once
/// the server answers. Whoever has passed over that process loses nothing but the name, even with its own next change.
#[test]
fn the_first_step_of_a_rename_outlives_its_process() {
    let mut in_rename = 0;
    for step in 1..=STEPS {
        let case = Case {
            change: Change::Claim(Before::Vacant),
            step,
            side: "before",
            options: &[],
        };
        let scene = Scene::set(case);
        let (status, said) = end(scene.start(case, "kill"));
        if status.success() {
            break;
        }
        assert_eq!(status.signal(), Some(9), "{status}: {said}");
        let kept = scene.beside_record(&leasehold::names::kept(scene.name(), 2));
        if !kept.exists() || support::record(&scene.path) != scene.before {
            continue;
        }
        in_rename += 1;

        let shared = || Judge::here().with_lock_reach(|_| LockReach::Unknown);
        let lease = Claim::new(&scene.path).from(shared()).take();
        let token = lease.expect("nobody holds it").leave();
        let holder = Holder::from(shared(), &scene.path, token).expect("a path of a record");
        for _ in 0..2 {
            std::fs::remove_file(&scene.path).expect("it has its name");
            assert_eq!(leasehold::judge(&scene.path).verdict, Verdict::Held);
            assert_eq!(holder.verify(None).expect("it is held"), 2);
            holder.renew().expect("it is held");
        }
        holder.release(None).expect("it is held");
        // The file is this host's alone: nothing comes late there.
        scene.claim_and_release(case);
        scene.is_clean(case);
    }
    assert_eq!(in_rename, 1);
}

/// Two that pass each other over: the one that commits first is not overwritten by the other, which starts over.
#[test]
fn a_rival_that_was_passed_over_in_turn_starts_over() {
    let case = |step, side| Case {
        change: Change::Claim(Before::Vacant),
        step,
        side,
        options: &[],
    };
    let scene = Scene::set(case(0, ""));
    let [lower, higher] = [3, 4].map(|number| OsString::from(format!(".x.lease.ballot-{number}")));

    let mut first = scene.worker(&["--do", "claim", "--fault", "stop-after:4"]);
    let first = first.stderr(Stdio::piped()).spawn().expect("the worker starts");
    assert!(stops(&first));
    assert!(support::names(scene.dir()).contains(&lower));

    // It outlasts the first, takes the next number and is about to rename.
    let late = scene.start(case(12, "before"), "stop");
    assert!(stops(&late));
    assert!(support::names(scene.dir()).contains(&higher));
    assert_eq!(support::record(&scene.path), scene.before);

    // The first outlasts the second, which has stopped.
    let (status, said) = go_on(first);
    assert!(status.success(), "{status}: {said}");
    let lease = Claim::new(&scene.path).take().expect("the first has ended");
    let (status, said) = go_on(late);
    assert_eq!(status.code(), Some(2), "two hold the lease: {said}");
    assert_eq!(lease.holder().verify(None).expect("it is held"), lease.epoch());
    lease.release(None).expect("it is held");
    scene.claim_and_release(case(0, ""));
    scene.is_clean(case(0, ""));
}

/// Tries every step of every change, before and after it, until a change ends without having reached the step.
fn each(changes: &[Change], options: &'static [&'static str], test: fn(&Scene, Case) -> bool) {
    let rows: Vec<(Change, &str)> = changes
        .iter()
        .flat_map(|change| ["before", "after"].map(|side| (*change, side)))
        .collect();
    support::in_parallel(AT_ONCE, &rows, |&(change, side)| {
        let reached = (1..=STEPS).find(|&step| {
            let case = Case {
                change,
                step,
                side,
                options,
            };
            !test(&Scene::set(case), case)
        });
        let steps = reached.unwrap_or_else(|| panic!("{change:?} has more than {STEPS} steps")) - 1;
        assert!(steps >= 5, "{change:?} met its signal at {steps} steps only");
    });
}

/// A directory with a record as it is before a change.
struct Scene {
    _dir: tempfile::TempDir,
    beside: tempfile::TempDir,
    path: PathBuf,
    /// The guard of a record that the test owns is not kept, only its token.
    holder: Option<Holder>,
    before: Option<Record>,
}

impl Scene {
    fn set(case: Case) -> Self {
        let (dir, path) = support::directory();
        let beside = tempfile::tempdir().expect("a temporary directory");
        let mut scene = Self {
            _dir: dir,
            beside,
            path,
            holder: None,
            before: None,
        };
        match case.change {
            Change::Claim(Before::Absent) => {}
            Change::Claim(Before::Vacant) => {
                let lease = Lease::claim(&scene.path).expect("nobody holds it");
                lease.release(None).expect("it is held");
            }
            Change::Claim(Before::Dead) | Change::Settle => scene.dead_owner(),
            Change::Claim(Before::Lapsed) => {
                scene.dead_owner();
                let mut record = support::record(&scene.path).expect("a record");
                let owner = &mut record.owner;
                owner.host = Some("elsewhere".into());
                owner.machine = Some("fedcba98765443218fedcba987654321".into());
                owner.boot = Some("11111111-2222-4333-8444-555555555555".into());
                owner.ttl = Some(5);
                std::fs::write(&scene.path, record.print()).expect("it can be written");
            }
            Change::Claim(Before::Twin) => {
                scene.dead_owner();
                let record = support::record(&scene.path).expect("a record");
                let id = record.owner.change.expect("it was written to a temp file");
                let twin = scene.beside_record(&leasehold::names::temp(scene.name(), id));
                std::fs::hard_link(&scene.path, twin).expect("a filesystem with hard links");
            }
            Change::Claim(Before::Leftovers) => {
                // A claim is killed right after its ballot, the next after the one that it takes then.
                let faults = match case.options.contains(&"--no-links") {
                    false => ["kill-after:4", "kill-after:9"],
                    true => ["kill-after:4", "kill-before:6"],
                };
                for fault in faults {
                    let (status, said) = scene.run(&[&["--do", "claim", "--fault", fault], case.options].concat());
                    assert_eq!(status.signal(), Some(9), "{status}: {said}");
                }
                assert!(support::names(scene.dir()).len() >= 3);
            }
            Change::Renew(Owner::Test)
            | Change::Note(Owner::Test)
            | Change::Release(Owner::Test)
            | Change::HandOver(Owner::Test)
            | Change::Break => {
                let token = Claim::new(&scene.path)
                    .set("kept", "yes")
                    .take()
                    .expect("nobody holds it")
                    .leave();
                scene.holder = Some(Holder::new(&scene.path, token).expect("a path of a record"));
            }
            _ => {}
        }
        scene.before = support::record(&scene.path);
        scene
    }

    fn dead_owner(&self) {
        let (status, said) = self.run(&["--do", "claim"]);
        assert!(status.success(), "{status}: {said}");
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("it lies in a directory")
    }

    fn name(&self) -> &std::ffi::OsStr {
        self.path.file_name().expect("it has a name")
    }

    fn beside_record(&self, name: &std::ffi::OsStr) -> PathBuf {
        self.path.with_file_name(name)
    }

    fn worker(&self, arguments: &[&str]) -> Command {
        let mut command = support::contend(&self.path, arguments);
        command.arg("--log").arg(self.beside.path().join("log"));
        command.arg("--side").arg(self.beside.path().join("side"));
        command
    }

    fn run(&self, arguments: &[&str]) -> (ExitStatus, String) {
        support::run(&mut self.worker(arguments))
    }

    /// The change, made by another process which gets the signal on its way.
    fn start(&self, case: Case, signal: &str) -> Child {
        let verb = match case.change {
            Change::Claim(_) => "claim",
            Change::Renew(_) => "renew",
            Change::Note(_) => "note",
            Change::Release(_) => "release",
            Change::HandOver(_) => "hand-over",
            Change::Break => "break",
            Change::Settle => "settle",
            Change::Run => "run",
        };
        let fault = format!("{signal}-{}:{}", case.side, case.step);
        let mut command = self.worker(&["--do", verb, "--fault", &fault]);
        command.args(case.options);
        if let Some(holder) = &self.holder {
            command.arg("--token").arg(holder.token().to_string());
        }
        if let Change::HandOver(_) = case.change {
            command.arg("--to").arg(std::process::id().to_string());
        }
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the worker starts")
    }

    /// A fresh process claims and releases, in good time.
    fn claim_and_release(&self, case: Case) {
        let began = Instant::now();
        let mut child = self
            .worker(&[&["--claims", "1"], case.options].concat())
            .spawn()
            .expect("the worker starts");
        let status = support::wait_at_most(&mut child, SOON);
        if status.is_none() {
            support::signal(&child, Signal::SIGKILL);
            let _ = child.wait();
        }
        let names = support::names(self.dir());
        assert!(
            status.is_some_and(|status| status.success()),
            "{case:?}: {status:?} after {:?}; {names:?}",
            began.elapsed()
        );
    }

    fn is_clean(&self, case: Case) {
        let mut names = support::names(self.dir());
        if case.change == Change::Break {
            // Evidence stays, also of a try that was killed.
            names.retain(|name| !name.to_string_lossy().starts_with("x.lease.broken-"));
        }
        // A killed process does not close it.
        names.retain(|name| name != ".nfs0001");
        assert_eq!(names, ["x.lease"], "{case:?}");
        let record = support::record(&self.path).expect("a record");
        assert!(record.owner.ended.is_some(), "{case:?}");
        let before = self
            .before
            .as_ref()
            .map_or((0, 0), |before| (before.owner.epoch, before.owner.seq));
        assert!(
            record.owner.epoch > before.0 && record.owner.seq > before.1,
            "{case:?}: {record:?}"
        );
    }
}

/// The record as a reader finds it; `None` when there is none.
fn standing(path: &Path) -> Option<Record> {
    Judge::here().read(path).expect("it can be read")
}

/// Whether the record's owner is this test.
fn is_mine(record: &Record) -> bool {
    record.owner.ended.is_none() && record.owner.pid == Pid::new(std::process::id().into())
}

fn end(mut child: Child) -> (ExitStatus, String) {
    let status = child.wait().expect("a child can be waited for");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("it was piped"), &mut said).expect("text");
    (status, said)
}

/// Whether the process was killed; it makes its change otherwise.
fn killed(scene: &Scene, case: Case) -> bool {
    let (status, said) = end(scene.start(case, "kill"));
    let reached = status.signal() == Some(9);
    assert!(reached || status.success(), "{case:?}: {status}: {said}");

    // Whole, old or new; `record` refuses anything else.
    let now = match std::fs::read(&scene.path) {
        // Without hard links an absent record is created empty first.
        Ok(bytes) if bytes.is_empty() && case.options.contains(&"--no-links") => None,
        _ => standing(&scene.path),
    };
    if let (Some(before), Some(now)) = (&scene.before, &now) {
        assert!(now == before || now.owner.seq > before.owner.seq, "{case:?}: {now:?}");
    }
    assert!(scene.before.is_none() || now.is_some(), "{case:?}: the record is gone");

    if let Some(now) = now.filter(is_mine) {
        let holder = Holder::new(&scene.path, now.owner.token).expect("a path of a record");
        assert_eq!(holder.verify(None).expect("its owner lives"), now.owner.epoch);
        let began = Instant::now();
        match case.change {
            Change::Renew(_) => holder.renew(),
            Change::Note(_) => holder.note(&[("phase", "noted")]),
            Change::Release(_) => holder.release(None),
            Change::Break => leasehold::break_lease(Judge::here(), &scene.path, now.owner.token, "a test")
                .map(|broken| broken.record),
            _ => holder.hand_over(Pid::new(std::process::id().into()).expect("a pid")),
        }
        .unwrap_or_else(|error| panic!("{case:?}: the holder tries again: {error}"));
        if case.change != Change::Break {
            holder
                .release(None)
                .unwrap_or_else(|error| panic!("{case:?}: the holder releases: {error}"));
        }
        assert!(began.elapsed() < SOON, "{case:?}: {:?}", began.elapsed());
    }
    scene.claim_and_release(case);
    scene.is_clean(case);
    reached
}

/// Waits until a child has stopped (true) or ended.
fn stops(child: &Child) -> bool {
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().expect("a pid"));
    let id = nix::sys::wait::Id::Pid(pid);
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    matches!(
        nix::sys::wait::waitid(id, flags).expect("a child can be waited for"),
        WaitStatus::Stopped(..)
    )
}

fn go_on(child: Child) -> (ExitStatus, String) {
    support::signal(&child, Signal::SIGCONT);
    end(child)
}

/// A claim is stopped; another passes over it and holds; the first goes on and must not get the lease as well.
fn stopped_claim(scene: &Scene, case: Case) -> bool {
    let child = scene.start(case, "stop");
    let reached = stops(&child);
    let began = Instant::now();
    let claimed = Claim::new(&scene.path).take();
    assert!(began.elapsed() < SOON, "{case:?}: {:?}", began.elapsed());
    match claimed {
        Ok(lease) => {
            let held = standing(&scene.path);
            assert_eq!(
                held.as_ref().map(|record| record.owner.token),
                Some(lease.token()),
                "{case:?}"
            );
            let (status, said) = go_on(child);
            // A finished claim whose process has ended may be taken over.
            assert!(status.code() == Some(2) || !reached, "{case:?}: {status}: {said}");
            assert_eq!(standing(&scene.path), held, "{case:?}");
            let verified = lease.holder().verify(None);
            assert_eq!(verified.ok(), Some(lease.epoch()), "{case:?}");
            lease.release(None).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        }
        // It has committed, and lives.
        Err(Error::Refused(_)) if reached => {
            let held = standing(&scene.path).expect("a record");
            assert_eq!(held.owner.pid, Pid::new(child.id().into()), "{case:?}");
            let (status, said) = go_on(child);
            assert!(status.success(), "{case:?}: {status}: {said}");
            assert_eq!(standing(&scene.path), Some(held), "{case:?}");
        }
        Err(error) => panic!("{case:?}: {error}"),
    }
    scene.claim_and_release(case);
    scene.is_clean(case);
    reached
}

/// A change of a holder is stopped; another of the same holder passes over it; the first goes on. Neither is lost.
fn stopped_holder(scene: &Scene, case: Case) -> bool {
    let holder = scene.holder.as_ref().expect("the test owns the record");
    let child = scene.start(case, "stop");
    let reached = stops(&child);
    let began = Instant::now();
    let noted = holder.note(&[("other", "noted")]);
    assert!(began.elapsed() < SOON, "{case:?}: {:?}", began.elapsed());
    let (status, said) = go_on(child);
    assert!(status.success(), "{case:?}: {status}: {said}");

    let now = support::record(&scene.path).expect("a record");
    let before = scene.before.as_ref().expect("a record");
    assert_eq!(
        (now.owner.token, now.owner.epoch),
        (before.owner.token, before.owner.epoch),
        "{case:?}"
    );
    assert_eq!(now.state.get("kept"), Some("yes"), "{case:?}");
    match (case.change, noted) {
        // The release came first.
        (Change::Release(_), Err(Error::Lost { .. })) => {}
        (_, Ok(_)) => assert_eq!(now.state.get("other"), Some("noted"), "{case:?}: {now:?}"),
        (_, Err(error)) => panic!("{case:?}: {error}"),
    }
    match case.change {
        Change::Renew(_) => assert!(now.beat > before.beat, "{case:?}"),
        Change::Note(_) => assert_eq!(now.state.get("phase"), Some("noted"), "{case:?}"),
        Change::Release(_) => assert!(now.owner.ended.is_some(), "{case:?}"),
        _ => assert!(is_mine(&now), "{case:?}"),
    }
    holder.release(None).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    scene.claim_and_release(case);
    scene.is_clean(case);
    reached
}

/// A change of a holder is stopped, the lease is ended and taken by another; the first goes on and must find it lost.
fn stopped_before_a_successor(scene: &Scene, case: Case) -> bool {
    let holder = scene.holder.as_ref().expect("the test owns the record");
    let child = scene.start(case, "stop");
    let reached = stops(&child);
    let committed = support::record(&scene.path) != scene.before;
    holder.release(None).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let successor = Claim::new(&scene.path)
        .take()
        .unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let held = support::record(&scene.path);
    let (status, said) = go_on(child);
    assert_eq!(status.code(), Some(if committed { 0 } else { 2 }), "{case:?}: {said}");
    assert_eq!(support::record(&scene.path), held, "{case:?}");
    successor
        .release(None)
        .unwrap_or_else(|error| panic!("{case:?}: {error}"));
    scene.claim_and_release(case);
    scene.is_clean(case);
    reached
}
