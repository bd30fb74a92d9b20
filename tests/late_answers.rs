//! File servers that answer late: who is told after its ttl that it holds a lease may hold nothing any more.
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Claim, Judge, Lease, Record, break_lease};
use support::Quick;
use support::faulty::{Call, Counted, Faulty};

const TTL: Duration = Duration::from_secs(60);

/// Claims by calls of which one, made when the record stands, takes longer than the ttl.
fn claim(path: &Path, meanwhile: impl Fn(&Path) + Send + Sync + 'static) -> Lease {
    let clock = Arc::new(Quick::default());
    let (late, at) = (clock.clone(), path.to_owned());
    let once = AtomicBool::new(false);
    let fs = Faulty::new(None, 0, Counted::All).meanwhile(move |call| {
        if call == Call::Unlink && at.exists() && !once.swap(true, Ordering::SeqCst) {
            meanwhile(&at);
            late.sleep(TTL);
        }
    });
    let judge = Judge::here().with_fs(Arc::new(fs)).with_clock(clock);
    Claim::new(path).ttl(TTL).from(judge).take().expect("the lease is free")
}

fn read(path: &Path) -> Record {
    Judge::here().read(path).expect("a record").expect("one that is there")
}

#[test]
fn a_claim_that_nobody_took_meanwhile_is_renewed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.lease");
    let lease = claim(&path, |_| {});
    let record = read(&path);
    assert_eq!((record.owner.token, record.owner.epoch), (lease.token(), 1));
    assert_eq!(record.owner.seq, 2);
    assert_eq!(lease.holder().verify(None).expect("it holds"), 1);
}

#[test]
fn a_claim_that_is_over_when_it_is_told_of_is_made_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.lease");
    let lease = claim(&path, |path| {
        let token = read(path).owner.token;
        break_lease(Judge::here(), path, token, "its host does not answer").expect("anybody may");
    });
    assert_eq!(lease.epoch(), 3, "1 was broken, which took 2");
    let record = read(&path);
    assert_eq!((record.owner.token, record.owner.epoch), (lease.token(), 3));
}

#[test]
fn a_renewal_that_took_too_long_is_made_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.lease");
    let clock = Arc::new(Quick::default());
    let late = clock.clone();
    let slow = Arc::new(AtomicBool::new(false));
    let once = slow.clone();
    let fs = Faulty::new(None, 0, Counted::All).meanwhile(move |call| {
        if call == Call::Rename && once.swap(false, Ordering::SeqCst) {
            late.sleep(TTL);
        }
    });
    let judge = Judge::here().with_fs(Arc::new(fs)).with_clock(clock);
    let mut lease = Claim::new(&path).ttl(TTL).from(judge).take().expect("it is free");
    slow.store(true, Ordering::SeqCst);
    let record = lease.renew().expect("nobody else is there");
    assert_eq!(record.owner.seq, 3, "the first renewal was over when it was told of");
    assert_eq!(lease.holder().verify(Some(TTL / 2)).expect("it holds"), 1);
}
