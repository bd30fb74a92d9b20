//! What the file server says of a lock: asked only where its answer can mean something, and believed as far as it goes.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold::mount::LockReach;
use leasehold::verdict::Liveness;
use leasehold::{Claim, Facts, Judge, Judgement};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::place::Place;
use super::support::faulty::{Call, Counted, Fault, Faulty};
use super::support::{LEASEHOLD, clean, record, skip, snapshot};

/// Takes a lock that F_OFD_GETLK sees on a local filesystem too, as it sees the flock of another NFS client.
pub fn lock(file: &File) {
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).unwrap();
}

/// A record of another host whose owner promised a lock, and the file.
fn promised() -> (Place, File) {
    let place = Place::new();
    Claim::new(place.lease()).take().unwrap().leave();
    place.make_foreign();
    place.edit(|owner| {
        owner.insert("lock".into(), "flock".into());
    });
    let file = File::options().read(true).write(true).open(place.lease()).unwrap();
    (place, file)
}

fn look(place: &Place, fs: &Arc<Faulty>, reach: fn(&Path) -> LockReach) -> (Judgement, Facts) {
    Judge::here()
        .with_fs(fs.clone())
        .with_lock_reach(reach)
        .judge(place.lease().as_ref())
}

fn calm() -> Arc<Faulty> {
    Arc::new(Faulty::new(None, 0, Counted::All))
}

fn word(judgement: &Judgement) -> String {
    let lock = judgement.evidence.iter().find(|row| row.what == "lock at the server");
    let found = lock.and_then(|row| row.found.as_deref()).unwrap_or("-");
    format!("{}/{}, {found}", judgement.verdict, judgement.reason)
}

#[test]
fn only_what_nfs4_says_is_held_changes_a_verdict() {
    type Reach = fn(&Path) -> LockReach;
    let cases: [(Reach, &str, &str); 6] = [
        (
            |_| LockReach::Nfs4,
            "held/server-attested, held (nfs4)",
            "undetermined/foreign-host, not held (nfs4)",
        ),
        (
            |_| LockReach::Nfs3,
            "undetermined/foreign-host, held (nfs3)",
            "undetermined/foreign-host, not held (nfs3)",
        ),
        (
            |_| LockReach::Cluster,
            "undetermined/foreign-host, held (cluster)",
            "undetermined/foreign-host, not held (cluster)",
        ),
        (
            |_| LockReach::Local,
            "undetermined/foreign-host, not asked (local)",
            "undetermined/foreign-host, not asked (local)",
        ),
        (
            |_| LockReach::NotShared,
            "undetermined/foreign-host, not asked (not-shared)",
            "undetermined/foreign-host, not asked (not-shared)",
        ),
        (
            |_| LockReach::Unknown,
            "undetermined/foreign-host, not asked (unknown)",
            "undetermined/foreign-host, not asked (unknown)",
        ),
    ];
    for (reach, held, free) in cases {
        let (place, file) = promised();
        assert_eq!(word(&look(&place, &calm(), reach).0), free);
        lock(&file);
        let before = snapshot(place.dir());
        let (judgement, facts) = look(&place, &calm(), reach);
        assert_eq!(word(&judgement), held);
        assert_eq!(snapshot(place.dir()), before, "judging changes nothing");
        let attested = held.starts_with("held");
        assert_eq!(judgement.liveness == Liveness::Attested, attested);
        // The same facts say the same anywhere.
        let saved = serde_json::to_vec(&facts).unwrap();
        let again = leasehold::verdict::judge(&serde_json::from_slice(&saved).unwrap());
        assert_eq!(word(&again), held);
    }
}

#[test]
fn a_server_that_does_not_answer_says_nothing() {
    for errno in [
        Errno::EIO,
        Errno::ENOLCK,
        Errno::EOPNOTSUPP,
        Errno::ESTALE,
        Errno::EBADF,
        Errno::EINVAL,
    ] {
        let (place, file) = promised();
        lock(&file);
        let calls = calm();
        look(&place, &calls, |_| LockReach::Nfs4);
        let at = calls.made().iter().position(|call| *call == Call::IsLocked).unwrap() + 1;
        let faulty = Arc::new(Faulty::new(Some(Fault::Fails(errno)), at, Counted::All));
        let (judgement, _) = look(&place, &faulty, |_| LockReach::Nfs4);
        assert_eq!(
            word(&judgement),
            "undetermined/foreign-host, no answer (nfs4)",
            "{errno}"
        );
    }
}

/// The answer is about the file that was opened, which is not the record any more.
#[test]
fn an_answer_about_a_record_that_is_gone_is_none() {
    let (place, file) = promised();
    lock(&file);
    let (lease, seq) = (place.lease(), place.record().owner.seq);
    let meanwhile = move |call| {
        if call == Call::IsLocked {
            let mut record = record(&lease).expect("a record");
            (record.owner.seq, record.owner.epoch) = (seq + 1, 2);
            record.owner.token = "0123456789abcdef0123456789abcdef".parse().unwrap();
            fs::write(format!("{lease}.new"), record.print()).unwrap();
            fs::rename(format!("{lease}.new"), &lease).unwrap();
        }
    };
    let faulty = Arc::new(Faulty::new(None, 0, Counted::All).meanwhile(meanwhile));
    let (judgement, facts) = look(&place, &faulty, |_| LockReach::Nfs4);
    assert_eq!(judgement.reason.word(), "foreign-host");
    assert_eq!((judgement.owner.epoch, facts.lock.held), (Some(2), None));

    // … or is no record at all.
    let (place, file) = promised();
    lock(&file);
    let lease = place.lease();
    let faulty = Arc::new(Faulty::new(None, 0, Counted::All).meanwhile(move |call| {
        if call == Call::IsLocked {
            fs::remove_file(&lease).unwrap();
        }
    }));
    let (judgement, _) = look(&place, &faulty, |_| LockReach::Nfs4);
    assert_eq!(judgement.reason.word(), "no-record");
}

#[test]
fn nobody_is_asked_without_need() {
    let nfs4 = |_: &Path| LockReach::Nfs4;
    let panics: fn(&Path) -> LockReach = |_| panic!("the mount was looked at");
    // No promise.
    let (place, _file) = promised();
    place.edit(|owner| {
        owner.remove("lock");
    });
    let calls = calm();
    let (judgement, _) = look(&place, &calls, panics);
    assert_eq!(judgement.reason.word(), "foreign-host");
    let one_look = calls.made();
    assert!(!one_look.contains(&Call::IsLocked));

    // A promise on a mount whose locks do not reach a server: one look, as without.
    let (place, _file) = promised();
    let calls = calm();
    look(&place, &calls, |_| LockReach::Local);
    assert_eq!(calls.made(), one_look);

    // Where it can be asked: opened, asked, and looked at again.
    let calls = calm();
    look(&place, &calls, nfs4);
    let asked = [&one_look[..], &[Call::Open, Call::IsLocked], &one_look[..]].concat();
    assert_eq!(calls.made(), asked);

    // A record of this boot, with a promise.
    let place = Place::new();
    let lease = Claim::new(place.lease()).take().unwrap();
    place.edit(|owner| {
        owner.insert("lock".into(), "flock".into());
    });
    let calls = calm();
    let (judgement, _) = look(&place, &calls, panics);
    assert_eq!(judgement.reason.word(), "process-running");
    assert!(!calls.made().contains(&Call::IsLocked));
    lease.leave();
}

/// What the server attests is an answer: nobody has to watch for longer.
#[test]
fn an_attested_lease_is_not_watched_for_a_lapse() {
    let (place, file) = promised();
    place.edit(|owner| {
        owner.insert("ttl".into(), 5.into());
    });
    lock(&file);
    let judge = Judge::here().with_lock_reach(|_| LockReach::Nfs4);
    let began = std::time::Instant::now();
    let (judgement, _) = judge.observe(place.lease().as_ref(), Duration::from_secs(60));
    assert_eq!(judgement.reason.word(), "server-attested");
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// The command on a local filesystem, by its system calls.
#[test]
fn on_a_local_filesystem_no_mount_table_is_read() {
    let (place, _file) = promised();
    let log = place.own("calls");
    let traced = clean("strace")
        .args(["-f", "-e", "trace=openat,open,fcntl,statfs", "-o"])
        .arg(&log)
        .args([LEASEHOLD, "judge", &place.lease()])
        .output();
    let calls = match traced {
        Ok(_) => fs::read_to_string(&log).unwrap_or_default(),
        Err(_) => String::new(),
    };
    if !calls.contains("exited with 2") {
        return skip(&format!("strace is missing, or may not trace here: {calls}"));
    }
    assert!(calls.contains("x.lease") && calls.contains("statfs"), "{calls}");
    assert!(!calls.contains("mountinfo") && !calls.contains("GETLK"), "{calls}");
}
