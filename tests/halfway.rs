//! An NFS client renames onto a file that it has open in two steps: it puts that file aside first. In between there is no
//! record, and nobody may take that for a free lease.

#![cfg(target_os = "linux")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::{Claim, Error, Holder, Judge, Lease, Reason, Token, Verdict, judge};
use nix::errno::Errno;

mod support;
use support::faulty::stand_in::{Call, stand_in};

/// Done while the record is put aside.
type Then = Box<dyn Fn(&Path) -> Next + Send + Sync>;

/// How the rename goes on.
#[derive(Clone, Copy)]
enum Next {
    GoesOn,
    Fails,
    /// Nothing is done any more.
    Crashes,
}

struct Aside {
    record: PathBuf,
    then: Then,
    crashed: AtomicBool,
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aside")
    }
}

impl Aside {
    fn pass<T>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        if self.crashed.load(Ordering::SeqCst) {
            return Err(Errno::EIO.into());
        }
        if call != Call::Rename || !self.record.exists() {
            return make();
        }
        std::fs::rename(&self.record, self.record.with_file_name(".nfs0001"))?;
        match (self.then)(&self.record) {
            Next::GoesOn => make(),
            Next::Fails => Err(Errno::EIO.into()),
            Next::Crashes => {
                self.crashed.store(true, Ordering::SeqCst);
                Err(Errno::EIO.into())
            }
        }
    }
}

stand_in!(Aside);

fn aside(record: &Path, then: impl Fn(&Path) -> Next + Send + Sync + 'static) -> Judge {
    Judge::here().with_fs(Arc::new(Aside {
        record: record.to_owned(),
        then: Box::new(then),
        crashed: AtomicBool::new(false),
    }))
}

fn holder(path: &Path, token: Token, then: impl Fn(&Path) -> Next + Send + Sync + 'static) -> Holder {
    Holder::from(aside(path, then), path, token).expect("a path of a record")
}

fn held(path: &Path, token: Token, epoch: u64) {
    assert_eq!(judge(path).verdict, Verdict::Held);
    let record = support::record(path).expect("a record");
    assert_eq!((record.owner.token, record.owner.epoch), (token, epoch));
}

#[test]
fn what_is_put_aside_is_not_free() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let note = holder(&path, token, move |path| {
        let found = judge(path);
        assert_eq!(
            (found.verdict, found.reason),
            (Verdict::Undetermined, Reason::Unreadable)
        );
        let verified = Holder::new(path, token).expect("a path of a record").verify(None);
        assert!(!matches!(verified, Ok(_) | Err(Error::Lost { .. })), "{verified:?}");
        Next::GoesOn
    });
    note.note(&[("phase", "noted")]).expect("it is held");
    held(&path, token, 1);
}

#[test]
fn a_claim_completes_what_is_under_way_and_is_refused() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let note = holder(&path, token, |path| {
        match Claim::new(path).take() {
            Err(Error::Refused(judgement)) => assert_eq!(judgement.verdict, Verdict::Held),
            other => panic!("{other:?}"),
        }
        Next::GoesOn
    });
    note.note(&[("phase", "noted")]).expect("it is held");
    held(&path, token, 1);
    let record = support::record(&path).expect("a record");
    assert!(record.state.says("phase", "noted"));
    let plain = Holder::new(&path, token).expect("a path of a record");
    plain.release(None).expect("it is held");
    let next = Lease::claim(&path).expect("it was released");
    assert_eq!(next.epoch(), 2);
}

#[test]
fn a_rename_that_fails_halfway_loses_no_record() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let note = holder(&path, token, |_| Next::Fails);
    let _ = note.note(&[("phase", "noted")]);
    held(&path, token, 1);
}

#[test]
fn after_a_crash_halfway_the_next_claim_finds_who_holds_it() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let _ = holder(&path, token, |_| Next::Crashes).note(&[("phase", "noted")]);
    assert!(!path.exists());
    assert_eq!(judge(&path).verdict, Verdict::Undetermined);
    match Claim::new(&path).take() {
        Err(Error::Refused(judgement)) => assert_eq!(judgement.verdict, Verdict::Held),
        other => panic!("{other:?}"),
    }
    held(&path, token, 1);
}

#[test]
fn a_claim_that_crashed_halfway_is_the_current_one() {
    let (_dir, path) = support::directory();
    for _ in 0..3 {
        Lease::claim(&path)
            .expect("it is free")
            .release(None)
            .expect("it is held");
    }
    let crashed = Claim::new(&path).from(aside(&path, |_| Next::Crashes)).take();
    assert!(crashed.is_err());
    assert!(!path.exists());
    match Claim::new(&path).take() {
        Err(Error::Refused(judgement)) => assert_eq!(judgement.verdict, Verdict::Held),
        other => panic!("{other:?}"),
    }
    assert_eq!(support::record(&path).expect("a record").owner.epoch, 4);
}

/// Somebody else completed the release, and a third one claimed, before it came back. It cannot be told from a lease that was
/// lost before: the holder is told the worse.
#[test]
fn a_release_that_others_complete_ends_the_lease() {
    let (_dir, path) = support::directory();
    let token = Lease::claim(&path).expect("nobody holds it").leave();
    let release = holder(&path, token, |path| {
        let next = Lease::claim(path).expect("the release is completed");
        assert_eq!(next.epoch(), 2);
        next.leave();
        Next::GoesOn
    });
    let released = release.release(None);
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    assert_eq!(support::record(&path).expect("a record").owner.epoch, 2);
    assert_eq!(judge(&path).verdict, Verdict::Held);
}
