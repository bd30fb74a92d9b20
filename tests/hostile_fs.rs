//! Every verb, over a filesystem that at each call in turn fails, lies about what it did, hangs, or shows what was.
//!
//! A process that ends at each call is the business of `tests/kill.rs`, a heartbeat that hangs that of `tests/run/loss.rs`.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::names::{self, TempId};
use leasehold::{
    Claim, Error, Holder, Judge, Lease, Pid, Reason, Record, Scan, Settlement, Token, Verdict, break_lease,
};
use nix::errno::Errno;
use support::faulty::{Call, Counted, Fault, Faulty};

mod support;

/// More calls than any change makes.
const CALLS: usize = 300;

/// Cases that are tried at once.
const AT_ONCE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    ClaimAbsent,
    ClaimVacant,
    ClaimDead,
    ClaimLapsed,
    Renew,
    Note,
    Release,
    HandOver,
    Break,
    Settle,
}

const CHANGES: [Change; 10] = [
    Change::ClaimAbsent,
    Change::ClaimVacant,
    Change::ClaimDead,
    Change::ClaimLapsed,
    Change::Renew,
    Change::Note,
    Change::Release,
    Change::HandOver,
    Change::Break,
    Change::Settle,
];

impl Change {
    fn is_claim(self) -> bool {
        use Change::{ClaimAbsent, ClaimDead, ClaimLapsed, ClaimVacant};
        matches!(self, ClaimAbsent | ClaimVacant | ClaimDead | ClaimLapsed)
    }
}

/// What NFS servers, quotas, permissions and broken disks answer.
const ERRNOS: [Errno; 11] = [
    Errno::EIO,
    Errno::ESTALE,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EROFS,
    Errno::EACCES,
    Errno::EINTR,
    Errno::ETIMEDOUT,
    Errno::ENOLCK,
    Errno::EMLINK,
    Errno::EOPNOTSUPP,
];

#[derive(Clone, Copy, Debug)]
struct Case {
    change: Change,
    fault: Fault,
    at: usize,
    lasting: bool,
    kind: Kind,
}

/// What a filesystem is like when it does not fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Whole,
    NoLinks,
    TornRename,
}

const KINDS: [Kind; 3] = [Kind::Whole, Kind::NoLinks, Kind::TornRename];

#[test]
fn a_call_fails() {
    each(&ERRNOS.map(Fault::Fails), &[false], &[Kind::Whole]);
}

#[test]
fn a_call_fails_where_something_lacks() {
    each(&[Fault::Fails(Errno::EIO)], &[false], &KINDS[1..]);
}

#[test]
fn all_calls_fail_from_one_on() {
    each(
        &[Fault::Fails(Errno::EIO), Fault::Fails(Errno::ESTALE)],
        &[true],
        &KINDS,
    );
}

#[test]
fn a_call_is_made_and_its_answer_lost() {
    each(
        &[Fault::Denies(Errno::EIO), Fault::Denies(Errno::ETIMEDOUT)],
        &[false],
        &KINDS,
    );
}

#[test]
fn a_call_is_made_twice() {
    each(&[Fault::Twice, Fault::Repeated], &[false, true], &KINDS);
}

/// The call that matters was made, its answer was lost, and now nothing can be read: neither "done" nor "failed" is true.
#[test]
fn what_cannot_be_read_afterwards_is_uncertain() {
    // How often what may lapse is looked at differs from run to run.
    for change in CHANGES.into_iter().filter(|change| *change != Change::ClaimLapsed) {
        let plain = Arc::new(Faulty::new(None, 0, Counted::All));
        Scene::set(change)
            .act(here().with_fs(plain.clone()), change)
            .expect("a healthy filesystem");
        let decisive = match change {
            Change::ClaimAbsent => Call::Link,
            _ => Call::Rename,
        };
        let at = plain
            .made()
            .iter()
            .rposition(|call| *call == decisive)
            .expect("it is made")
            + 1;
        for answer in [Errno::EIO, Errno::ENOENT] {
            if (decisive, answer) == (Call::Link, Errno::ENOENT) {
                continue;
            }
            let scene = Scene::set(change);
            let mut fs = Faulty::new(Some(Fault::Denies(answer)), at, Counted::All);
            fs.blinding = true;
            let result = scene.act(here().with_fs(Arc::new(fs)), change);
            assert_ne!(support::record(&scene.path), scene.before, "{change:?}");
            assert!(
                matches!(result, Err(Error::Uncertain(_))),
                "{change:?} {answer}: {result:?}"
            );
        }
    }
}

/// An operator deletes the record just before the holder asks the server about it. Whatever the answer, a holder does
/// not recreate a record: it has lost.
#[test]
fn a_holder_does_not_bring_back_a_deleted_record() {
    for (no_links, lost) in [
        (false, None),
        (false, Some(Errno::EIO)),
        (false, Some(Errno::EEXIST)),
        (true, None),
    ] {
        for change in [Change::Renew, Change::Note, Change::Release, Change::HandOver] {
            let scene = Scene::set(change);
            let plain = Arc::new(Faulty::new(None, 0, Counted::All));
            Scene::set(change)
                .act(here().with_fs(plain.clone()), change)
                .expect("a healthy filesystem");
            let at = plain
                .made()
                .iter()
                .position(|call| *call == Call::Ask)
                .expect("it is made")
                + 1;
            let mut fs = Faulty::new(lost.map(Fault::Denies), at, Counted::All);
            fs.no_links = no_links;
            let (path, gone) = (scene.path.clone(), AtomicUsize::new(0));
            fs.meanwhile.0 = Box::new(move |call| {
                if call == Call::Ask && gone.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::fs::remove_file(&path).expect("the record was there");
                }
            });
            let result = scene.act(here().with_fs(Arc::new(fs)), change);
            assert!(
                matches!(result, Err(Error::Lost { .. })),
                "{change:?} {lost:?}: {result:?}"
            );
            assert_eq!(support::record(&scene.path), None, "{change:?} {lost:?}");
        }
    }
}

/// A call hangs, as on a hard mount whose server is away, while somebody else goes on. Whoever waits there is a rival like
/// any other: it blocks nobody, and when its call returns at last, it has what it was given before, or finds out.
#[test]
fn a_call_hangs_while_others_go_on() {
    // They wait for most of their time, one of them for longer, so that the calls are shared out.
    let rows = CHANGES.iter().flat_map(|change| {
        let parts = if *change == Change::ClaimLapsed { 16 } else { 4 };
        (1..=parts).map(move |first| (*change, first, parts))
    });
    support::in_parallel(AT_ONCE, &rows.collect::<Vec<_>>(), |(change, first, step)| {
        let mut calls = (*first..=CALLS).step_by(*step);
        let end = calls.find(|at| !hangs(*change, *at));
        assert!(end.is_some_and(|end| end > 10), "{change:?}: {end:?}");
    });
}

/// Whether the call was reached.
fn hangs(change: Change, at: usize) -> bool {
    let scene = Scene::set(change);
    let (told, arrived) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let (calls, gate, ended) = (AtomicUsize::new(0), Mutex::new(gate), told.clone());
    let mut fs = Faulty::new(None, 0, Counted::All).meanwhile(move |_| {
        if calls.fetch_add(1, Ordering::SeqCst) + 1 == at {
            let _ = told.send(true);
            let _ = gate.lock().expect("one thread waits here").recv();
        }
    });
    fs.unsynced = true;
    std::thread::scope(|scope| {
        // Gone with a panic in here, which lets the other thread go on.
        let go = go;
        let mut judge = here().with_fs(Arc::new(fs));
        if change == Change::ClaimLapsed {
            judge = judge.with_clock(Arc::new(Hasty::default()));
        }
        let scene = &scene;
        let slow = scope.spawn(move || {
            let result = scene.act(judge, change);
            let _ = ended.send(false);
            result
        });
        let context = |what: &dyn std::fmt::Debug| format!("{change:?} at {at}: {what:?}");
        if !arrived.recv().expect("the other thread says how it is") {
            let result = slow.join().expect("no panic");
            assert!(matches!(result, Ok(true)), "{}", context(&result));
            return false;
        }
        let committed = support::record(&scene.path) != scene.before;
        match change {
            Change::Renew | Change::Note | Change::Release | Change::HandOver => {
                // Odd calls: the same claim is changed meanwhile. Even ones: it is over, and another holds.
                let holder = Holder::from(here(), &scene.path, scene.token.expect("a claim")).expect("a path");
                if at % 2 == 1 {
                    let noted = holder.note(&[("other", "noted")]);
                    let over = change == Change::Release && committed;
                    assert!(noted.is_ok() || over, "{}", context(&noted));
                    let _ = go.send(());
                    let result = slow.join().expect("no panic");
                    assert!(matches!(result, Ok(true)), "{}", context(&result));
                    let now = support::record(&scene.path).expect("a record");
                    assert!(now.state.get("other").is_some() || over, "{}", context(&now));
                    assert_eq!(now.state.get("kept"), Some("yes"));
                    holder.release(None).expect("it is held, or was released");
                } else {
                    holder.release(None).expect("it is held");
                    let next = Claim::new(&scene.path).from(here()).take().expect("it is free");
                    let held = support::record(&scene.path);
                    let _ = go.send(());
                    let result = slow.join().expect("no panic");
                    let told = matches!(
                        (&result, committed),
                        (Ok(true), true) | (Err(Error::Lost { .. }), false)
                    );
                    assert!(told, "{}", context(&result));
                    assert_eq!(support::record(&scene.path), held, "{}", context(&result));
                    next.release(None).expect("it is held");
                }
            }
            _ => {
                let other = match change {
                    Change::ClaimLapsed if !committed => scene.claim_lapsed(here()),
                    _ => Claim::new(&scene.path).from(here()).take(),
                };
                let held = support::record(&scene.path);
                let _ = go.send(());
                let result = slow.join().expect("no panic");
                match (change, &other) {
                    // Its owner lives, so that it is refused until it is broken.
                    (Change::Break, _) => {
                        assert!(
                            other.is_ok() == committed && matches!(result, Ok(true)),
                            "{}",
                            context(&result)
                        );
                    }
                    (Change::Settle, Ok(_)) => assert!(result.is_ok(), "{}", context(&result)),
                    (_, Ok(_)) => assert!(result.is_err(), "two hold: {}", context(&result)),
                    (_, Err(error)) => {
                        assert!(matches!(error, Error::Refused(_)), "{}", context(error));
                        assert!(committed, "{}", context(error));
                        assert!(matches!(result, Ok(true)), "{}", context(&result));
                    }
                }
                match other {
                    Ok(lease) => {
                        assert_eq!(support::record(&scene.path), held, "{}", context(&result));
                        lease.release(None).expect("it is held");
                    }
                    Err(_) if change != Change::Break => {
                        let token = support::record(&scene.path).expect("a record").owner.token;
                        scene.release(token, &|| context(&result));
                    }
                    Err(_) => {}
                }
            }
        }
        let lease = Claim::new(&scene.path).from(here()).take().expect("whoever is next");
        lease.release(None).expect("it is held");
        true
    })
}

/// Reads give what stood there before, as an NFS client's caches do: from one call on, until a link that is refused has
/// made the client look anew. What is true is that somebody else holds the lease by now, or that its holder has changed it.
#[test]
fn an_old_version_is_read() {
    let mut cases: Vec<(Change, bool)> = CHANGES.iter().map(|change| (*change, true)).collect();
    cases.extend([Change::Renew, Change::Note, Change::Release, Change::HandOver].map(|change| (change, false)));
    support::in_parallel(AT_ONCE, &cases, |(change, successor)| {
        for at in 1..=CALLS {
            if !old_is_read(*change, *successor, at) {
                assert!(at > 3, "{change:?}: {at}");
                return;
            }
        }
        panic!("{change:?}: more than {CALLS} calls");
    });
}

fn old_is_read(change: Change, successor: bool, at: usize) -> bool {
    let scene = Scene::set(change);
    let old = scene.before.as_ref().map(Record::print);
    // The truth.
    if successor {
        if scene.before.is_some() {
            std::fs::remove_file(&scene.path).expect("it was there");
        }
        Claim::new(&scene.path)
            .from(here())
            .take()
            .expect("nobody holds it")
            .leave();
        let mut record = support::record(&scene.path).expect("a record");
        if let Some(before) = &scene.before {
            (record.owner.epoch, record.owner.seq) = (before.owner.epoch + 1, before.owner.seq + 1);
            if change == Change::ClaimLapsed {
                // Elsewhere too: for the end of a process of this host it would be waited in real time.
                record.owner.host.clone_from(&before.owner.host);
                record.owner.boot.clone_from(&before.owner.boot);
            }
        }
        std::fs::write(&scene.path, record.print()).expect("the record can be written");
    } else {
        let holder = Holder::from(here(), &scene.path, scene.token.expect("a claim")).expect("a path");
        holder.note(&[("other", "noted")]).expect("it is held");
    }
    let truth = support::record(&scene.path);
    let cache = Arc::new(Mutex::new(Cache::new(&scene, old)));
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, counted) = (cache.clone(), calls.clone());
    let mut fs = Faulty::new(None, 0, Counted::All).meanwhile(move |call| {
        let due = counted.fetch_add(1, Ordering::SeqCst) + 1 >= at;
        seen.lock().expect("one thread").before(call, due);
    });
    fs.unsynced = true;
    let result = scene.act(here().with_fs(Arc::new(fs)), change);
    cache.lock().expect("one thread").show(false);
    let now = support::record(&scene.path);
    let context = || format!("{change:?} over a successor: {successor}, at {at}: {result:?}\n{now:?}");
    if successor {
        let documented = match &result {
            Ok(done) => change == Change::Settle && !done,
            Err(Error::Refused(_)) => change.is_claim(),
            Err(Error::TimedOut { .. }) => change == Change::ClaimLapsed,
            Err(Error::Lost { .. }) => !change.is_claim(),
            Err(_) => false,
        };
        assert!(documented, "{}", context());
        assert_eq!(now, truth, "{}", context());
    } else {
        assert!(matches!(result, Ok(true)), "{}", context());
        let now = now.as_ref().expect("a record");
        assert_eq!(now.state.get("other"), Some("noted"), "{}", context());
    }
    calls.load(Ordering::SeqCst) >= at
}

/// What a client shows of one name: what it remembers, or what is there.
struct Cache {
    path: PathBuf,
    /// Where the one waits while the other is shown.
    aside: PathBuf,
    old: Option<PathBuf>,
    shown: bool,
    /// A link was refused since the last temp file was written.
    asked: bool,
    _dir: tempfile::TempDir,
}

impl Cache {
    fn new(scene: &Scene, old: Option<Vec<u8>>) -> Self {
        // Within the same filesystem, for renames.
        let dir = tempfile::tempdir().expect("a directory");
        let remembered = dir.path().join("old");
        let old = old.map(|bytes| {
            std::fs::write(&remembered, bytes).expect("it can be written");
            remembered
        });
        Self {
            path: scene.path.clone(),
            aside: dir.path().join("aside"),
            old,
            shown: false,
            asked: false,
            _dir: dir,
        }
    }

    fn before(&mut self, call: Call, due: bool) {
        match call {
            Call::Create => self.asked = false,
            Call::Link => self.asked = true,
            _ => {}
        }
        self.show(due && !self.asked && matches!(call, Call::Stat | Call::Open | Call::Reopen));
    }

    /// Lets the name lead to what is remembered, or to what is there.
    fn show(&mut self, old: bool) {
        let rename = |from: &Path, to: &Path| std::fs::rename(from, to).expect("one filesystem");
        match (self.shown, old, &self.old) {
            (false, true, remembered) => {
                rename(&self.path, &self.aside);
                remembered.iter().for_each(|remembered| rename(remembered, &self.path));
            }
            (true, false, remembered) => {
                remembered.iter().for_each(|remembered| rename(&self.path, remembered));
                rename(&self.aside, &self.path);
            }
            _ => {}
        }
        self.shown = old;
    }
}

/// Who only looks says what is true, or that it cannot be read; and changes nothing.
#[test]
fn who_looks_tells_the_truth_or_nothing() {
    let faults: Vec<Fault> = (ERRNOS
        .iter()
        .flat_map(|errno| [Fault::Fails(*errno), Fault::Denies(*errno)]))
    .chain([Fault::Twice])
    .collect();
    let changes = [
        Change::ClaimAbsent,
        Change::ClaimVacant,
        Change::ClaimDead,
        Change::ClaimLapsed,
        Change::Note,
    ];
    support::in_parallel(AT_ONCE, &changes, |change| {
        let scene = Scene::set(*change);
        let before = support::snapshot(scene.dir());
        let truth = here().judge(&scene.path).0;
        for fault in &faults {
            for lasting in [false, true] {
                let reached = (1..=CALLS).take_while(|at| {
                    let over = |look: &dyn Fn(Judge)| {
                        let mut fs = Faulty::new(Some(*fault), *at, Counted::All);
                        fs.lasting = lasting;
                        let fs = Arc::new(fs);
                        look(here().with_fs(fs.clone()));
                        fs.reached()
                    };
                    let is_true = |verdict: Verdict, reason: Reason| {
                        let told = (verdict, reason) == (truth.verdict, truth.reason);
                        assert!(
                            told || (verdict, reason) == (Verdict::Undetermined, Reason::Unreadable),
                            "{change:?} {fault:?} {lasting} at {at}: {verdict}/{reason}"
                        );
                    };
                    let judged = over(&|judge| {
                        let told = judge.judge(&scene.path).0;
                        is_true(told.verdict, told.reason);
                    });
                    let observed = over(&|judge| {
                        let told = judge.observe(&scene.path, Duration::from_secs(1)).0;
                        is_true(told.verdict, told.reason);
                    });
                    let read = over(&|judge| match judge.read(&scene.path) {
                        Ok(found) => assert_eq!(found, scene.before),
                        Err(error) => assert!(matches!(error, Error::Unreadable { .. }), "{error:?}"),
                    });
                    let verified = over(&|judge| {
                        let token = scene.token.unwrap_or(Token::from_bits(1));
                        let verified = Holder::from(judge, &scene.path, token).expect("a path").verify(None);
                        match (verified, scene.token) {
                            (Ok(epoch), Some(_)) => assert_eq!(epoch, 1),
                            (Err(Error::Lost { .. }), None) | (Err(Error::Unreadable { .. }), _) => {}
                            (other, _) => panic!("{change:?} {fault:?} at {at}: {other:?}"),
                        }
                    });
                    let swept = over(&|judge| {
                        let mut told = Vec::new();
                        let swept = Scan::new([scene.path.clone()])
                            .from(judge)
                            .run(|finding| told.push(finding.judgement));
                        assert_eq!(told.len() + swept.failures.len(), 1, "{fault:?} at {at}");
                        told.iter().for_each(|told| is_true(told.verdict, told.reason));
                    });
                    judged || observed || read || verified || swept
                });
                assert!(reached.count() >= 2, "{change:?} {fault:?}");
            }
        }
        assert_eq!(support::snapshot(scene.dir()), before, "{change:?}");
    });
}

fn each(faults: &[Fault], lasting: &[bool], kinds: &[Kind]) {
    let mut rows = Vec::new();
    for change in CHANGES {
        for fault in faults {
            for lasting in lasting {
                rows.extend(kinds.iter().map(|kind| (change, *fault, *lasting, *kind)));
            }
        }
    }
    support::in_parallel(AT_ONCE, &rows, |(change, fault, lasting, kind)| {
        let calls = (1..=CALLS).find(|at| {
            let case = Case {
                change: *change,
                fault: *fault,
                at: *at,
                lasting: *lasting,
                kind: *kind,
            };
            !Scene::set(*change).check(case)
        });
        assert!(calls.is_some_and(|calls| calls > 10), "{change:?}: {calls:?}");
    });
}

/// A directory with a record as it is before a change, and files that are none of its business.
struct Scene {
    _dir: tempfile::TempDir,
    path: PathBuf,
    token: Option<Token>,
    before: Option<Record>,
    strangers: BTreeMap<PathBuf, Vec<u8>>,
}

impl Scene {
    fn set(change: Change) -> Self {
        let (dir, path) = support::directory();
        let beside = |name: &str| path.with_file_name(name);
        let longer = std::ffi::OsStr::new("x.lease.lease");
        let mut strangers = BTreeMap::new();
        for name in [
            beside("x"),
            beside("x.leas"),
            beside("x.lease.lease"),
            beside(".x.lease.t-0123"),
            beside(".x.lease.ballot-01"),
            path.with_file_name(names::temp(longer, TempId::new(0, 1, 1))),
            path.with_file_name(names::ballot(longer, 1)),
        ] {
            let bytes = name.as_os_str().as_encoded_bytes().to_vec();
            std::fs::write(&name, &bytes).expect("the directory takes files");
            strangers.insert(name, bytes);
        }
        let token = match change {
            Change::ClaimAbsent => None,
            Change::ClaimVacant => {
                let lease = Claim::new(&path).from(here()).take().expect("nobody holds it");
                lease.release(None).expect("it is held");
                None
            }
            Change::ClaimDead | Change::Settle => {
                let lease = Claim::new(&path).from(here()).take().expect("nobody holds it");
                let mut record = support::record(&path).expect("a record");
                // This pid, but of a process that started earlier.
                record.owner.start = record.owner.start.map(|start| start - 1);
                record.owner.pidfd = None;
                std::fs::write(&path, record.print()).expect("the record can be written");
                lease.leave();
                None
            }
            Change::ClaimLapsed => {
                let claim = Claim::new(&path).from(here()).ttl(Duration::from_secs(5));
                claim.take().expect("nobody holds it").leave();
                let mut record = support::record(&path).expect("a record");
                record.owner.host = Some("login-z".into());
                record.owner.boot = Some("00000001-1111-4222-8333-444455556666".into());
                record.owner.machine = Some("ffffffffffffffffffffffffffffffff".into());
                std::fs::write(&path, record.print()).expect("the record can be written");
                None
            }
            _ => Some(
                Claim::new(&path)
                    .from(here())
                    .set("kept", "yes")
                    .take()
                    .expect("nobody holds it")
                    .leave(),
            ),
        };
        Self {
            _dir: dir,
            before: support::record(&path),
            path,
            token,
            strangers,
        }
    }

    /// Makes the change; whether it was made, or found needless.
    fn act(&self, judge: Judge, change: Change) -> Result<bool, Error> {
        let holder = self
            .token
            .map(|token| Holder::from(judge.clone(), &self.path, token).expect("a path of a record"));
        let holder = || holder.as_ref().expect("the test owns the record");
        match change {
            Change::ClaimAbsent | Change::ClaimVacant | Change::ClaimDead => {
                Claim::new(&self.path).from(judge).take().map(|lease| _ = lease.leave())
            }
            Change::ClaimLapsed => self.claim_lapsed(judge).map(|lease| _ = lease.leave()),
            Change::Renew => holder().renew().map(drop),
            Change::Note => holder().note(&[("phase", "noted")]).map(drop),
            Change::Release => holder().release(None).map(drop),
            Change::HandOver => holder().hand_over(parent()).map(drop),
            Change::Break => break_lease(judge, &self.path, holder().token(), "a test").map(drop),
            Change::Settle => {
                return judge
                    .settle(&self.path)
                    .map(|settled| matches!(settled, Settlement::Vacated(..)));
            }
        }
        .map(|()| true)
    }

    fn claim_lapsed(&self, judge: Judge) -> Result<Lease, Error> {
        // Time for a few: a look that fails makes an observer begin anew.
        let claim = Claim::new(&self.path).from(judge).take_lapsed(true);
        claim.wait(Duration::from_secs(40)).take()
    }

    /// Makes the change over the faulty filesystem and looks at everything. Whether the fault was met.
    fn check(self, case: Case) -> bool {
        let mut fs = Faulty::new(Some(case.fault), case.at, Counted::All);
        fs.unsynced = true;
        fs.lasting = case.lasting;
        (fs.no_links, fs.torn_rename) = (case.kind == Kind::NoLinks, case.kind == Kind::TornRename);
        let fs = Arc::new(fs);
        let result = self.act(here().with_fs(fs.clone()), case.change);
        let made = fs.made();
        let at = made.get(case.at - 1).copied();
        let context = || {
            format!(
                "{case:?} at {at:?}: {result:?}\n{made:?}\n{:?}",
                support::names(self.dir())
            )
        };

        self.is_documented(case, at, &result, &context);
        let now = match std::fs::read(&self.path) {
            // Without hard links an absent record is created empty first, and that is as good as none.
            Ok(bytes) if bytes.is_empty() && case.kind == Kind::NoLinks && self.before.is_none() => None,
            Ok(bytes) => Some(Record::parse(&bytes).unwrap_or_else(|flaw| panic!("{flaw}: {}", context()))),
            // It may have only its second name.
            Err(_) if case.kind == Kind::TornRename => here().read(&self.path).expect("it can be read"),
            Err(_) => None,
        };
        let is_new = self.is_new(case.change, now.as_ref(), &context);
        match &result {
            Ok(true) => assert!(is_new, "said to be done: {}", context()),
            Err(Error::Uncertain(_)) => {}
            Ok(false) | Err(_) => assert!(!is_new, "said to have failed: {}", context()),
        }
        let spares_strangers = || {
            for (name, bytes) in &self.strangers {
                let found = std::fs::read(name).ok();
                assert_eq!(found.as_ref(), Some(bytes), "{}: {}", name.display(), context());
            }
        };
        spares_strangers();
        if at == Some(Call::Create) && !case.lasting {
            let is_temp = |name: &OsString| names::parse_temp("x.lease".as_ref(), name.as_ref()).is_some();
            assert!(!support::names(self.dir()).iter().any(is_temp), "{}", context());
        }
        if !fs.reached() {
            // Nothing went wrong, and the owner lives: neither a leftover nor a second name of the record.
            let evidence = usize::from(case.change == Change::Break);
            assert_eq!(
                support::names(self.dir()).len(),
                self.strangers.len() + 1 + evidence,
                "{}",
                context()
            );
            let links = std::fs::metadata(&self.path).expect("a record").nlink();
            assert_eq!(links, 1, "{}", context());
        }

        // The filesystem is well again.
        match (self.token, is_new) {
            (_, true) if case.change == Change::Break => {}
            (None, false) => {}
            (None, true) => self.release(now.expect("a new record").owner.token, &context),
            (Some(token), _) => {
                let again = self.act(here(), case.change);
                assert!(matches!(again, Ok(true)), "it is tried again: {again:?}: {}", context());
                if case.change != Change::Break {
                    self.release(token, &context);
                }
            }
        }
        let lease = match (case.change, is_new) {
            (Change::ClaimLapsed, false) => self.claim_lapsed(here()),
            _ => Claim::new(&self.path).take(),
        };
        let lease = lease.unwrap_or_else(|error| panic!("{error}: {}", context()));
        let before = self.before.as_ref().map_or(0, |before| before.owner.epoch);
        assert!(lease.epoch() > before, "{}", context());
        lease
            .release(None)
            .unwrap_or_else(|error| panic!("{error}: {}", context()));
        spares_strangers();
        fs.reached()
    }

    fn release(&self, token: Token, context: &dyn Fn() -> String) {
        Holder::from(here(), &self.path, token)
            .and_then(|holder| holder.release(None))
            .unwrap_or_else(|error| panic!("the holder releases: {error}: {}", context()));
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("it lies in a directory")
    }

    /// Nobody else is there: the lease is neither refused for another reason than that it cannot be read, nor lost.
    fn is_documented(&self, case: Case, at: Option<Call>, result: &Result<bool, Error>, context: &dyn Fn() -> String) {
        let unreadable = |error: &Error| matches!(error, Error::Refused(told) if told.reason == Reason::Unreadable);
        let documented = match result {
            Ok(true) | Err(Error::Io { .. } | Error::Uncertain(_)) => true,
            Ok(false) => case.change == Change::Settle,
            Err(error @ Error::Refused(_)) => case.change.is_claim() && unreadable(error),
            Err(Error::TimedOut { last, .. }) => case.change == Change::ClaimLapsed && unreadable(last),
            Err(Error::Unreadable { .. }) => !case.change.is_claim(),
            Err(_) => false,
        };
        assert!(documented, "{}", context());
        // A late duplicate does no harm at all, and neither does a lost answer to an exclusive call.
        if matches!(case.fault, Fault::Twice | Fault::Repeated) || at.is_none() {
            assert!(matches!(result, Ok(true)), "{}", context());
        }
    }

    /// Whether the record is the new one; otherwise it is the old one, to the byte.
    fn is_new(&self, change: Change, now: Option<&Record>, context: &dyn Fn() -> String) -> bool {
        if now == self.before.as_ref() {
            return false;
        }
        let now = now.unwrap_or_else(|| panic!("the record is gone: {}", context()));
        let epoch = self.before.as_ref().map_or(0, |before| before.owner.epoch);
        let seq = self.before.as_ref().map_or(0, |before| before.owner.seq);
        assert!(now.owner.seq > seq, "{now:?}: {}", context());
        let mine = now.owner.pid == Pid::new(std::process::id().into());
        let whole = match (change, &self.before) {
            (change, _) if change.is_claim() => mine && now.owner.epoch == epoch + 1 && now.owner.ended.is_none(),
            (_, None) => false,
            (Change::Break, Some(before)) => {
                now.owner.token != before.owner.token && now.owner.epoch == epoch + 1 && now.owner.ended.is_some()
            }
            (Change::Settle, Some(before)) => {
                now.owner.token == before.owner.token && now.owner.epoch == epoch && now.owner.ended.is_some()
            }
            (change, Some(before)) => {
                let kept = now.owner.token == before.owner.token
                    && now.owner.epoch == epoch
                    && now.state.get("kept") == Some("yes");
                kept && match change {
                    Change::Renew => mine && now.beat > before.beat && now.owner.ended.is_none(),
                    Change::Note => mine && now.state.get("phase") == Some("noted") && now.owner.ended.is_none(),
                    Change::Release => now.owner.ended.is_some(),
                    _ => now.owner.pid == Some(parent()) && now.owner.ended.is_none(),
                }
            }
        };
        assert!(whole, "{now:?}: {}", context());
        true
    }
}

/// A clock that is ahead by more whenever it is asked: what waits for the end of a process, in real time, soon gives up.
#[derive(Debug, Default)]
struct Hasty(support::Quick);

impl Clock for Hasty {
    fn now(&self) -> Duration {
        self.0.sleep(Duration::from_millis(200));
        self.0.now()
    }

    fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }
}

/// From this process, which does not wait.
fn here() -> Judge {
    let mut fs = Faulty::new(None, 0, Counted::All);
    fs.unsynced = true;
    Judge::here()
        .with_fs(Arc::new(fs))
        .with_clock(Arc::new(support::Quick::default()))
}

fn parent() -> Pid {
    Pid::new(std::os::unix::process::parent_id().into()).expect("a parent in this namespace")
}
