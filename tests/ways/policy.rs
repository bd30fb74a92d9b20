//! `--sole-writer`: an owner that is elsewhere counts as past, and nothing else does.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::mount::LockReach;
use leasehold::{Claim, Error, Judge, Reason};

use super::place::Place;
use super::support::faulty::{Call, Counted, Faulty};
use super::support::host::{Host, claim, initial, possible};
use super::support::{LEASEHOLD, snapshot};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn an_owner_elsewhere_counts_as_past_and_the_record_says_why() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let lease = place.lease();
    let a = Host::named("pod-0").pid_namespace(true).start();
    let b = Host::named("pod-1").pid_namespace(true).start();
    // Another container of the same boot.
    let c = Host::named("pod-2")
        .machine(b.machine_id())
        .boot(b.boot_id())
        .pid_namespace(true)
        .start();
    let bridge = a.spawn();
    claim(&a, &lease, bridge.pid);
    for (host, epoch) in [(&b, 2), (&c, 3)] {
        let own = host.spawn();
        let pid = own.pid.to_string();
        let before = snapshot(place.dir());
        let told = host.run(&[LEASEHOLD, "claim", &lease, "--owner", &pid]);
        assert_eq!(told.code, 2, "{told:?}");
        assert_eq!(snapshot(place.dir()), before);
        host.run(&[LEASEHOLD, "claim", &lease, "--owner", &pid, "--sole-writer"])
            .ok();
        let record = place.record();
        assert_eq!(
            (record.owner.epoch, record.owner.policy.as_deref()),
            (epoch, Some("sole-writer"))
        );
        // Held here is held, whatever the policy.
        let told = host.run(&[LEASEHOLD, "claim", &lease, "--owner", &pid, "--sole-writer"]);
        assert_eq!(told.code, 5, "{told:?}");
        assert_eq!(place.record(), record);
    }
    let own = b.spawn();
    let pid = own.pid.to_string();
    b.run(&[LEASEHOLD, "run", &lease, "--sole-writer", "--", "true"]).ok();
    b.run(&[LEASEHOLD, "claim", &lease, "--owner", &pid]).ok();
    assert_eq!(
        place.record().owner.policy,
        None,
        "a claim without it says nothing of it"
    );
}

#[test]
fn nothing_else_is_taken() {
    if !possible() || !initial() {
        return;
    }
    let place = Place::new();
    let lease = place.lease();
    let a = Host::named("pod-0").machine(MACHINE).start();
    let b = Host::named("pod-1").start();
    let bridge = a.spawn();
    let token = claim(&a, &lease, bridge.pid);
    let own = b.spawn();
    let pid = own.pid.to_string();
    let words = [LEASEHOLD, "claim", &lease, "--owner", &pid, "--sole-writer"];
    let refused = |host: &Host, code, reason: &str| {
        let before = fs::read(&lease).unwrap();
        let told = host.run(&words);
        assert_eq!(told.code, code, "{reason}: {told:?}");
        assert!(told.stderr.contains(reason), "{reason}: {told:?}");
        assert_eq!(fs::read(&lease).unwrap(), before);
    };
    // A host that looks like the owner's is no other host.
    let twin = Host::named("pod-0").machine(MACHINE).up_for(86_400).start();
    let theirs = twin.spawn();
    let told = twin.run(&[
        LEASEHOLD,
        "claim",
        &lease,
        "--owner",
        &theirs.pid.to_string(),
        "--sole-writer",
    ]);
    assert!(told.code == 2 && told.stderr.contains("identity-conflict"), "{told:?}");
    let good = fs::read(&lease).unwrap();
    a.run(&[LEASEHOLD, "note", &lease, "--token", &token, "intent=push"])
        .ok();
    refused(&b, 7, "in doubt");
    fs::write(&lease, &good).unwrap();
    place.edit(|owner| {
        owner.remove("host");
    });
    refused(&b, 2, "no-host");
    for (bytes, reason) in [
        (&b"4242\n"[..], "no-host"),
        (b"what\n", "malformed"),
        (b"", "empty"),
        (&good[..40], "torn"),
    ] {
        fs::write(&lease, bytes).unwrap();
        refused(&b, 2, reason);
    }
}

/// The record of another host, and a claim of ours that finds something happening to it at a call of our choice.
fn claim_while(place: &Place, at: Call, happens: impl Fn() + Send + Sync + 'static) -> Result<u64, Error> {
    let calls = AtomicUsize::new(0);
    let faulty = Faulty::new(None, 0, Counted::All).meanwhile(move |call| {
        if call == at && calls.fetch_add(1, Ordering::SeqCst) == 0 {
            happens();
        }
    });
    Claim::new(place.lease())
        .from(Judge::here().with_fs(Arc::new(faulty)))
        .sole_writer(true)
        .take()
        .map(|lease| {
            let epoch = lease.epoch();
            lease.leave();
            epoch
        })
}

fn foreign() -> Place {
    let place = Place::new();
    Claim::new(place.lease()).take().unwrap().leave();
    place.make_foreign();
    place
}

#[test]
fn a_renewal_seen_meanwhile_is_respected() {
    let place = foreign();
    let lease = place.lease();
    let before = fs::read(&lease).unwrap();
    let at = before.windows(9).position(|window| window == b"{\"beat\":\"").unwrap() as u64 + 9;
    // It takes its ballot.
    let claimed = claim_while(&place, Call::Link, move || {
        let file = fs::File::options().write(true).open(&lease).unwrap();
        file.write_all_at(b"7", at).unwrap();
    });
    match claimed {
        Err(Error::Refused(judgement)) => assert_eq!(judgement.reason, Reason::ForeignHost),
        other => panic!("{other:?}"),
    }
    let record = place.record();
    assert!(
        record.owner.epoch == 1 && record.beat > 0,
        "it was replaced: {record:?}"
    );
    // Its ballot stands until a later claim has reached that number, with the temp file that was disarmed.
    let left = || -> Vec<_> {
        let all = fs::read_dir(place.dir())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        all.filter(|name| name != "x.lease").collect()
    };
    assert_eq!(left().len(), 2, "{:?}", left());
    assert!(left().contains(&".x.lease.ballot-2".into()), "{:?}", left());
    assert_eq!(claim_while(&place, Call::List, || {}).unwrap(), 2);
    assert!(!left().contains(&".x.lease.ballot-2".into()), "{:?}", left());

    let place = foreign();
    assert_eq!(claim_while(&place, Call::Link, || {}).unwrap(), 2);
}

/// What the server attests is held, and the policy does not speak for it.
#[test]
fn a_lock_that_the_server_attests_is_respected() {
    for attested in [true, false] {
        let place = foreign();
        place.edit(|owner| {
            owner.insert("lock".into(), "flock".into());
        });
        let file = fs::File::options().read(true).write(true).open(place.lease()).unwrap();
        if attested {
            super::server::lock(&file);
        }
        let claimed = Claim::new(place.lease())
            .from(Judge::here().with_lock_reach(|_| LockReach::Nfs4))
            .sole_writer(true)
            .take();
        match (attested, claimed) {
            (true, Err(Error::Refused(judgement))) => assert_eq!(judgement.reason, Reason::ServerAttested),
            (false, Ok(lease)) => assert_eq!(lease.epoch(), 2),
            (_, other) => panic!("{other:?}"),
        }
    }
}
