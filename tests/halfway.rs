//! An NFS client renames onto a file that it has open in two steps: it puts that file aside first. In between, and after a
//! crash in between, the record has only its second name, and is as good as ever.

#![cfg(target_os = "linux")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::{Claim, Error, Holder, Judge, Lease, Reason, Record, Verdict, judge};
use nix::errno::Errno;

mod support;
use support::faulty::stand_in::{Call, stand_in};

/// How the rename goes on once the record is put aside.
#[derive(Clone, Copy)]
enum Next {
    GoesOn,
    Fails,
    /// Nothing is done any more.
    Crashes,
}

struct Aside {
    record: PathBuf,
    /// Done before the first rename onto the record.
    before: Box<dyn Fn(&Path) + Send + Sync>,
    /// Done while the record is put aside by it.
    then: Box<dyn Fn(&Path) -> Next + Send + Sync>,
    reached: AtomicBool,
    crashed: AtomicBool,
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aside")
    }
}

impl Aside {
    fn new(record: &Path, then: impl Fn(&Path) -> Next + Send + Sync + 'static) -> Self {
        Self {
            record: record.to_owned(),
            before: Box::new(|_| {}),
            then: Box::new(then),
            reached: AtomicBool::new(false),
            crashed: AtomicBool::new(false),
        }
    }

    fn before(mut self, before: impl Fn(&Path) + Send + Sync + 'static) -> Self {
        self.before = Box::new(before);
        self
    }

    /// Makes a change from there, and makes sure that it came as far as putting the record aside.
    fn run<T>(self, change: impl FnOnce(Judge) -> T) -> T {
        let aside = Arc::new(self);
        let changed = change(Judge::here().with_fs(aside.clone()));
        assert!(aside.reached.load(Ordering::SeqCst), "nothing was put aside");
        changed
    }

    fn pass<T>(&self, _: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match self.crashed.load(Ordering::SeqCst) {
            true => Err(Errno::EIO.into()),
            false => make(),
        }
    }
}

stand_in! { Aside;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to != self.record || self.reached.load(Ordering::SeqCst) {
            return self.pass(Call::Rename, || std::fs::rename(from, to));
        }
        (self.before)(to);
        let aside = to.with_file_name(".nfs0001");
        std::fs::rename(to, &aside)?;
        self.reached.store(true, Ordering::SeqCst);
        let next = (self.then)(to);
        // As when it is closed.
        std::fs::remove_file(aside)?;
        match next {
            Next::GoesOn => std::fs::rename(from, to),
            Next::Fails => Err(Errno::EIO.into()),
            Next::Crashes => {
                self.crashed.store(true, Ordering::SeqCst);
                Err(Errno::EIO.into())
            }
        }
    }
}

/// The record as a reader finds it.
fn record(path: &Path) -> Record {
    let found = Judge::here().read(path).expect("it can be read");
    found.expect("there is one")
}

/// A claim is refused since the record is held, and changes nothing.
fn is_refused(path: &Path) {
    let dir = path.parent().expect("it lies in a directory");
    let before = (support::names(dir), record(path));
    match Claim::new(path).take() {
        Err(Error::Refused(judgement)) => assert_eq!(judgement.verdict, Verdict::Held),
        other => panic!("{other:?}"),
    }
    assert_eq!((support::names(dir), record(path)), before);
}

fn is_quiet(path: &Path) {
    let dir = path.parent().expect("it lies in a directory");
    assert_eq!(support::names(dir), ["x.lease"]);
}

fn vacated(path: &Path, epochs: u64) {
    for _ in 0..epochs {
        let lease = Lease::claim(path).expect("it is free");
        lease.release(None).expect("it is held");
    }
}

#[test]
fn what_is_put_aside_is_what_it_was() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let aside = Aside::new(&path, move |path| {
        assert!(!path.exists());
        assert_eq!(judge(path).verdict, Verdict::Held);
        let holder = Holder::new(path, token).expect("a path of a record");
        assert_eq!(holder.verify(None).expect("it is held"), 1);
        is_refused(path);
        Next::GoesOn
    });
    let noted = aside.run(|judge| Holder::from(judge, &path, token)?.note(&[("phase", "noted")]));
    noted.expect("it is held");
    assert!(record(&path).state.says("phase", "noted"));
    is_quiet(&path);
}

#[test]
fn a_rename_that_fails_halfway_changes_nothing() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let before = record(&path);
    let noted =
        Aside::new(&path, |_| Next::Fails).run(|judge| Holder::from(judge, &path, token)?.note(&[("phase", "noted")]));
    assert!(matches!(noted, Err(Error::Io { .. })), "{noted:?}");
    assert!(!path.exists());
    assert_eq!(record(&path), before);
    is_refused(&path);
    let holder = Holder::new(&path, token).expect("a path of a record");
    holder.release(None).expect("it is held");
    assert!(path.exists());
    assert_eq!(Lease::claim(&path).expect("it was released").epoch(), 2);
}

/// Its first step is made after all, when another has taken the lease.
#[test]
fn a_rename_that_failed_takes_nothing_but_the_name() {
    let (_dir, path) = support::directory();
    vacated(&path, 1);
    let failed = Aside::new(&path, |path| {
        // Not yet.
        std::fs::hard_link(path.with_file_name(".nfs0001"), path).expect("a filesystem with hard links");
        Next::Fails
    })
    .run(|judge| Claim::new(&path).from(judge).take());
    assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");

    let lease = Lease::claim(&path).expect("it is free");
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(judge(&path).verdict, Verdict::Held);
    assert_eq!(lease.holder().verify(None).expect("it is held"), 2);
    is_refused(&path);
    lease.holder().renew().expect("it is held");
    assert!(path.exists());
    lease.release(None).expect("it is held");
}

#[test]
fn a_crash_halfway_changes_nothing() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let before = record(&path);
    let released = Aside::new(&path, |_| Next::Crashes).run(|judge| Holder::from(judge, &path, token)?.release(None));
    assert!(released.is_err());
    assert!(!path.exists());
    assert_eq!(record(&path), before);
    is_refused(&path);
    let holder = Holder::new(&path, token).expect("a path of a record");
    holder.renew().expect("it is held");
    assert!(path.exists());
}

#[test]
fn after_a_claim_that_crashed_halfway_the_epoch_goes_on() {
    let (_dir, path) = support::directory();
    vacated(&path, 3);
    let crashed = Aside::new(&path, |_| Next::Crashes).run(|judge| Claim::new(&path).from(judge).take());
    assert!(crashed.is_err());
    assert!(!path.exists());
    assert_eq!(judge(&path).verdict, Verdict::Free);
    let next = Lease::claim(&path).expect("it is free");
    assert_eq!(next.epoch(), 4);
    assert!(path.exists());
}

/// A claim comes to its rename late: another has passed over it meanwhile, and holds the lease.
fn late_rival(path: &Path, then: impl Fn(&Path, &Holder) + Send + Sync + 'static) -> Holder {
    vacated(path, 1);
    let token = Arc::new(OnceLock::new());
    let holder = |path: &Path, token| Holder::new(path, token).expect("a path of a record");
    let (set, get) = (token.clone(), token.clone());
    let late = Aside::new(path, move |path| {
        then(path, &holder(path, *get.get().expect("it has claimed")));
        Next::GoesOn
    })
    .before(move |path| {
        let lease = Lease::claim(path).expect("a rival is passed over");
        assert_eq!(lease.epoch(), 2);
        set.set(lease.leave()).expect("it claims once");
    })
    .run(|judge| Claim::new(path).from(judge).take());
    match late {
        Err(Error::Refused(judgement)) => assert_eq!(judgement.verdict, Verdict::Held),
        other => panic!("{other:?}"),
    }
    holder(path, *token.get().expect("it has claimed"))
}

#[test]
fn a_late_rival_takes_nothing_but_the_name() {
    let (_dir, path) = support::directory();
    let holder = late_rival(&path, |path, holder| {
        assert!(!path.exists());
        assert_eq!(judge(path).verdict, Verdict::Held);
        assert_eq!(holder.verify(None).expect("it is held"), 2);
        is_refused(path);
    });
    assert!(!path.exists());
    assert_eq!(judge(&path).verdict, Verdict::Held);
    assert_eq!(holder.verify(None).expect("it is held"), 2);
    is_refused(&path);

    holder.renew().expect("it is held");
    assert!(path.exists());
    is_quiet(&path);
    holder.release(None).expect("it is held");
    assert_eq!(Lease::claim(&path).expect("it was released").epoch(), 3);
    is_quiet(&path);
}

/// The record of the winner is replaced while the first of two late rivals has put it aside: the second may come yet.
#[test]
fn the_second_late_rival_takes_nothing_but_the_name_either() {
    fn is_refused_at_last(claimed: Result<Lease, Error>) {
        assert!(matches!(claimed, Err(Error::Refused(_))), "{claimed:?}");
    }
    let (_dir, path) = support::directory();
    vacated(&path, 1);
    let winner = Arc::new(OnceLock::<Holder>::new());
    let get = winner.clone();
    let second = Aside::new(&path, |_| Next::GoesOn)
        .before(move |path| {
            let set = get.clone();
            let first = Aside::new(path, |_| Next::GoesOn)
                .before(move |path| {
                    let token = Lease::claim(path).expect("both are passed over").leave();
                    let winner = Holder::new(path, token).expect("a path of a record");
                    set.set(winner).expect("it claims once");
                })
                .run(|judge| Claim::new(path).from(judge).take());
            is_refused_at_last(first);
            assert!(!path.exists());
            get.get().expect("it has claimed").renew().expect("it is held");
        })
        .run(|judge| Claim::new(&path).from(judge).take());
    is_refused_at_last(second);
    assert!(!path.exists());
    assert_eq!(judge(&path).verdict, Verdict::Held);
    let winner = winner.get().expect("it has claimed");
    assert_eq!(winner.verify(None).expect("it is held"), 2);
    winner.release(None).expect("it is held");
    is_quiet(&path);
}

#[test]
fn a_holder_changes_its_record_while_a_late_rival_has_put_it_aside() {
    let (_dir, path) = support::directory();
    let holder = late_rival(&path, |path, holder| {
        holder.renew().expect("it is held");
        assert!(path.exists());
    });
    assert_eq!(holder.verify(None).expect("it is held"), 2);
    holder.note(&[("phase", "noted")]).expect("it is held");
    holder.release(None).expect("it is held");
    is_quiet(&path);
}

#[test]
fn a_release_while_a_late_rival_has_put_the_record_aside() {
    let (_dir, path) = support::directory();
    vacated(&path, 1);
    let late = Aside::new(&path, |_| Next::GoesOn)
        .before(|path| {
            let lease = Lease::claim(path).expect("a rival is passed over");
            lease.release(None).expect("it is held");
        })
        .run(|judge| Claim::new(&path).from(judge).take());
    // It begins anew, after the other.
    assert_eq!(late.expect("it was released").epoch(), 3);
    is_quiet(&path);
}

#[test]
fn a_record_that_is_removed_is_gone() {
    let (_dir, path) = support::directory();
    vacated(&path, 2);
    let lease = Lease::claim(&path).expect("it is free");
    is_quiet(&path);
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(judge(&path).reason, Reason::NoRecord);
    let verified = lease.holder().verify(Some(Duration::ZERO));
    assert!(matches!(verified, Err(Error::Lost { .. })), "{verified:?}");
    lease.leave();
    assert_eq!(Lease::claim(&path).expect("there is none").epoch(), 1);
}

/// Unless rivals were passed over that may still be at work: then it goes with its second name.
#[test]
fn a_record_that_rivals_may_put_aside_is_removed_by_both_its_names() {
    let (_dir, path) = support::directory();
    vacated(&path, 1);
    let crashed = Aside::new(&path, |_| Next::Crashes).run(|judge| Claim::new(&path).from(judge).take());
    assert!(crashed.is_err());
    let lease = Lease::claim(&path).expect("it is free");
    let seq = record(&path).owner.seq;
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(judge(&path).verdict, Verdict::Held);
    assert_eq!(lease.holder().verify(None).expect("it is held"), 2);
    let second = path.with_file_name(leasehold::names::ballot("x.lease".as_ref(), seq));
    std::fs::remove_file(second).expect("it is there");
    assert_eq!(judge(&path).reason, Reason::NoRecord);
    lease.leave();
}
