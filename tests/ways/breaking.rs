//! `leasehold break`: one claim, and only that one, and what its holder makes of it.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use leasehold::{Claim, Error, Holder, Judge, Token, break_lease, judge};
use nix::errno::Errno;
use serde_json::Value;

use super::place::{Place, leasehold};
use super::support::faulty::{Counted, Fault, Faulty};
use super::support::host::{Host, claim, possible};
use super::support::{Answer, LEASEHOLD, Running, clean, eventually, names, snapshot};

const OTHER: &str = "0123456789abcdef0123456789abcdef";

/// Claims for a process: the token.
fn claim_for(owner: &Running, place: &Place) -> String {
    leasehold(&["claim", &place.lease(), "--owner", &owner.id()]).ok()
}

fn broken(place: &Place, token: &str) -> Answer {
    leasehold(&[
        "break",
        &place.lease(),
        "--token",
        token,
        "--reason",
        "login-a is scrapped",
        "--yes",
    ])
}

/// A break that must end like that, and leave everything alone.
#[track_caller]
fn refused(place: &Place, token: &str, code: i32, says: &str) {
    let before = snapshot(place.dir());
    let told = broken(place, token);
    assert_eq!((told.code, told.stdout.as_str()), (code, ""), "{told:?}");
    assert!(told.stderr.contains(says), "no `{says}`: {told:?}");
    assert_eq!(snapshot(place.dir()), before);
}

#[test]
fn another_hosts_claim_is_broken_and_recorded() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let (a, b) = (Host::named("login-a").start(), Host::named("login-b").start());
    let bridge = a.spawn();
    let lease = place.lease();
    let token = claim(&a, &lease, bridge.pid);
    a.run(&[LEASEHOLD, "note", &lease, "--token", &token, "intent=push branch"])
        .ok();
    let before = fs::read_to_string(&lease).unwrap();

    let told = b.run(&[
        LEASEHOLD,
        "break",
        &lease,
        "--token",
        &token,
        "--reason",
        "login-a is \"scrapped\"",
        "--yes",
    ]);
    assert_eq!((told.code, told.stderr.as_str()), (0, ""), "{told:?}");
    let evidence = format!("{lease}.broken-1");
    assert_eq!(told.stdout, format!("{evidence}\n"));
    let kept = fs::read_to_string(&evidence).unwrap();
    let (record, testimony) = kept.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(format!("{record}\n"), before, "the record as it was");
    let testimony: Value = serde_json::from_str(testimony).unwrap();
    assert_eq!(testimony["reason"], "login-a is \"scrapped\"");
    assert_eq!(testimony["host"], "login-b");
    assert_eq!(testimony["token"], token);
    assert_eq!(testimony["epoch"], 1);
    assert!(
        testimony["uid"].is_u64() && testimony["when"].as_str().unwrap().ends_with('Z'),
        "{testimony}"
    );

    let now = place.record();
    assert_eq!(now.owner.epoch, 2);
    assert_ne!(now.owner.token.to_string(), token);
    assert!(now.owner.ended.is_some());
    let line: Value = serde_json::from_str(fs::read_to_string(&lease).unwrap().lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["broken"]["reason"], "login-a is \"scrapped\"");
    assert_eq!(line["broken"]["evidence"], "x.lease.broken-1");
    for host in [&a, &b] {
        let told = host.run(&[LEASEHOLD, "judge", &lease]);
        assert!(told.code == 3 && told.stdout.starts_with("free\tended\t"), "{told:?}");
    }

    // The owner runs, and has lost it.
    for verb in [vec!["verify"], vec!["renew"], vec!["release"], vec!["note", "phase=on"]] {
        let words = [&[LEASEHOLD, verb[0], &lease, "--token", &token], &verb[1..]].concat();
        let told = a.run(&words);
        assert_eq!(told.code, 6, "{told:?}");
    }
    assert_eq!(place.record(), now);

    // Nobody repeats by mistake what it was doing.
    let own = b.spawn();
    let pid = own.pid.to_string();
    let told = b.run(&[LEASEHOLD, "claim", &lease, "--owner", &pid]);
    assert_eq!(told.code, 7, "{told:?}");
    b.run(&[LEASEHOLD, "claim", &lease, "--owner", &pid, "--accept-in-doubt"])
        .ok();
    assert_eq!(place.record().owner.epoch, 3);
    assert_eq!(names(place.dir()), ["x.lease", "x.lease.broken-1"]);
}

#[test]
fn nothing_but_that_claim_is_broken() {
    let place = Place::new();
    refused(&place, OTHER, 6, "the record is gone");
    let owner = Running::idle();
    let token = claim_for(&owner, &place);
    refused(&place, OTHER, 6, "another token");
    leasehold(&["release", &place.lease(), "--token", &token]).ok();
    refused(&place, &token, 6, "ended");
    let second = claim_for(&owner, &place);
    refused(&place, &token, 6, "another token");
    broken(&place, &second).ok();
    refused(&place, &second, 6, "another token");
    for odd in ["4242\n", "not a record\n", "", "{\"leasehold\":9}\n{}\n{}\n"] {
        fs::write(place.lease(), odd).unwrap();
        refused(&place, &token, 2, "x.lease");
    }
    fs::remove_file(place.lease()).unwrap();
    std::os::unix::fs::symlink("y", place.lease()).unwrap();
    let told = broken(&place, &token);
    assert_eq!(told.code, 2, "{told:?}");
    fs::remove_file(place.lease()).unwrap();
    fs::create_dir(place.lease()).unwrap();
    assert_eq!(broken(&place, &token).code, 2);
}

#[test]
fn a_decision_needs_a_reason_and_somebody_who_makes_it() {
    let place = Place::new();
    let token = claim_for(&Running::idle(), &place);
    let lease = place.lease();
    let before = snapshot(place.dir());
    for (words, says) in [
        (vec!["--token", &token, "--yes"], "--reason"),
        (vec!["--reason", "x", "--yes"], "--token"),
        (vec!["--token", "4242", "--reason", "x", "--yes"], "token"),
        (vec!["--token", &token, "--reason", " ", "--yes"], "a reason has words"),
        (vec!["--token", &token, "--reason", "x"], "say --yes"),
    ] {
        let told = leasehold(&[&["break", lease.as_str()], &words[..]].concat());
        assert_eq!((told.code, told.stdout.as_str()), (64, ""), "{told:?}");
        assert!(told.stderr.contains(says), "no `{says}`: {told:?}");
        assert_eq!(snapshot(place.dir()), before);
    }
    let told = leasehold(&["break", &lease, "--token", &token, "--reason", "x", "--yes", "--json"]);
    assert_eq!(told.code, 0, "{told:?}");
    let json = told.json();
    assert_eq!((&json["path"], &json["epoch"]), (&lease.as_str().into(), &2.into()));
    assert_eq!(json["evidence"], format!("{lease}.broken-1"));
    let told = leasehold(&["break", &lease, "--token", &token, "--reason", "x", "--yes", "--json"]);
    let json = told.json();
    assert_eq!((told.code, &json["exit"]), (6, &6.into()));
}

/// On a terminal, with an answer typed.
fn on_a_terminal(place: &Place, token: &str, typed: &str) -> Answer {
    let line = format!("{LEASEHOLD} break {} --token {token} --reason scrapped", place.lease());
    let mut script = clean("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    script.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    script.wait_with_output().unwrap().into()
}

#[test]
fn on_a_terminal_it_asks() {
    let place = Place::new();
    let owner = Running::idle();
    let token = claim_for(&owner, &place);
    let before = snapshot(place.dir());
    for no in ["n\n", "\n", "never\n"] {
        let told = on_a_terminal(&place, &token, no);
        assert_eq!(told.code, 2, "{told:?}");
        for part in [
            "held (process-running)",
            "Break the claim of epoch 1? [y/N]",
            "nothing was changed",
        ] {
            assert!(told.stdout.contains(part), "no `{part}`: {told:?}");
        }
        assert_eq!(snapshot(place.dir()), before);
    }
    // A claim that is not there is no question.
    let told = on_a_terminal(&place, OTHER, "y\n");
    assert!(told.code == 6 && !told.stdout.contains("[y/N]"), "{told:?}");
    assert_eq!(snapshot(place.dir()), before);
    let told = on_a_terminal(&place, &token, "y\n");
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.contains("x.lease.broken-1"), "{told:?}");
    assert_eq!(place.record().owner.epoch, 2);
}

#[test]
fn what_has_the_evidences_name_stays() {
    let place = Place::new();
    let owner = Running::idle();
    let token = claim_for(&owner, &place);
    fs::write(place.file("x.lease.broken-1"), "mine\n").unwrap();
    fs::create_dir(place.file("x.lease.broken-1.2")).unwrap();
    let told = broken(&place, &token).ok();
    assert_eq!(told, format!("{}.broken-1.3", place.lease()));
    assert_eq!(fs::read(place.file("x.lease.broken-1")).unwrap(), b"mine\n");
    assert!(fs::read_to_string(&told).unwrap().contains(&token));
    assert_eq!(place.record().owner.epoch, 2);
}

#[test]
fn a_full_record_is_broken_too_and_stays_one() {
    let place = Place::new();
    let owner = Running::idle();
    let token = claim_for(&owner, &place);
    let length = fs::metadata(place.lease()).unwrap().len() as usize;
    let fill = "x".repeat(leasehold::LARGEST - length - 200);
    leasehold(&["note", &place.lease(), "--token", &token, &format!("fill={fill}")]).ok();
    let reason = "é".repeat(2000);
    leasehold(&["break", &place.lease(), "--token", &token, "--reason", &reason, "--yes"]).ok();
    assert_eq!(judge(place.lease()).reason.word(), "ended");
    assert!(
        fs::read_to_string(place.file("x.lease.broken-1"))
            .unwrap()
            .contains(&reason)
    );
    let second = claim_for(&owner, &place);
    let long = "x".repeat(5000);
    let told = leasehold(&["break", &place.lease(), "--token", &second, "--reason", &long, "--yes"]);
    assert_eq!(told.code, 64, "{told:?}");
}

#[test]
fn a_running_holder_finds_out_and_stops() {
    for stopped in [false, true] {
        let place = Place::new();
        let lease = place.lease();
        let pid_file = place.own("pid");
        let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", pid_file.display());
        let mut run = clean(LEASEHOLD)
            .args(["run", &lease, "--ttl", "5s", "--", "sh", "-c", &script])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("the command runs", || pid_file.exists());
        let child: i32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        let number = nix::unistd::Pid::from_raw(run.id().try_into().unwrap());
        if stopped {
            nix::sys::signal::kill(number, nix::sys::signal::Signal::SIGSTOP).unwrap();
        }
        let token = place.record().owner.token.to_string();
        broken(&place, &token).ok();
        let next = Running::idle();
        let successor = claim_for(&next, &place);
        assert_eq!(place.record().owner.epoch, 3);
        let bytes = fs::read(&lease).unwrap();
        if stopped {
            nix::sys::signal::kill(number, nix::sys::signal::Signal::SIGCONT).unwrap();
        }
        eventually("the holder has ended", || run.try_wait().unwrap().is_some());
        let told: Answer = run.wait_with_output().unwrap().into();
        assert_eq!(told.code, 106, "{told:?}");
        assert!(told.stderr.contains("another token"), "{told:?}");
        let gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), None);
        assert_eq!(gone, Err(Errno::ESRCH), "its command was stopped");
        assert_eq!(fs::read(&lease).unwrap(), bytes, "the new record is left alone");
        leasehold(&["verify", &lease, "--token", &successor]).ok();
        assert_eq!(names(place.dir()), ["x.lease", "x.lease.broken-1"]);
    }
}

/// Stopped at any call that changes something, and nothing after it was done: what a crash leaves.
#[test]
fn a_crash_leaves_the_lease_whole_or_broken() {
    let mut outcomes = [0, 0];
    for at in 1.. {
        let place = Place::new();
        let lease = Claim::new(place.lease()).take().unwrap();
        let token = lease.leave();
        let faulty = Arc::new(Faulty::new(Some(Fault::Fails(Errno::EIO)), at, Counted::Changes).lasting());
        let crashed = break_lease(
            Judge::here().with_fs(faulty.clone()),
            place.lease().as_ref(),
            token,
            "x",
        );
        if !faulty.reached() {
            crashed.unwrap();
            break;
        }
        let record = place.record();
        let whole = record.owner.token == token;
        outcomes[usize::from(whole)] += 1;
        if whole {
            assert!(crashed.is_err(), "call {at}: it is not broken");
            assert_eq!(Holder::new(place.lease(), token).unwrap().verify(None).unwrap(), 1);
            let broken = break_lease(Judge::here(), place.lease().as_ref(), token, "again").unwrap();
            assert_eq!(broken.record.owner.epoch, 2, "call {at}");
            assert!(fs::read_to_string(&broken.evidence).unwrap().contains("again"));
        } else {
            assert_eq!(
                (record.owner.epoch, record.owner.ended.is_some()),
                (2, true),
                "call {at}"
            );
            assert!(place.file("x.lease.broken-1").exists(), "call {at}");
            let again = break_lease(Judge::here(), place.lease().as_ref(), token, "again");
            assert!(matches!(again, Err(Error::Lost { .. })), "call {at}: {again:?}");
        }
        let successor = Claim::new(place.lease()).take().unwrap();
        assert_eq!(successor.epoch(), 3, "call {at}");
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 3, "{outcomes:?}");
}

/// The holder changes its record between the evidence and the ballot: what is kept is what was broken.
#[test]
fn the_evidence_is_of_what_was_broken() {
    let place = Place::new();
    let token = Claim::new(place.lease()).take().unwrap().leave();
    let (path, noted) = (place.lease(), std::sync::atomic::AtomicBool::new(false));
    let faulty = Faulty::new(None, 0, Counted::All).meanwhile(move |call| {
        use super::support::faulty::Call;
        if call == Call::Link && !noted.swap(true, std::sync::atomic::Ordering::SeqCst) {
            Holder::new(&path, token).unwrap().note(&[("phase", "late")]).unwrap();
        }
    });
    let judge = Judge::here().with_fs(Arc::new(faulty));
    let broken = break_lease(judge, place.lease().as_ref(), token, "x").unwrap();
    assert!(fs::read_to_string(&broken.evidence).unwrap().contains("late"));
    assert_eq!(names(place.dir()), ["x.lease", "x.lease.broken-1"]);
}

#[test]
fn breaks_renewals_and_claims_have_one_order() {
    let mut taken = 0;
    for round in 0..15 {
        let place = Place::new();
        let path = place.file("x.lease");
        let token = Claim::new(&path).take().unwrap().leave();
        let start = Barrier::new(5);
        let (path, start) = (&path, &start);
        let (breaks, renewed, claims) = std::thread::scope(|scope| {
            let breakers = ["one", "two"].map(|who| {
                scope.spawn(move || {
                    start.wait();
                    loop {
                        match break_lease(Judge::here(), path, token, who) {
                            Err(Error::Contended { .. }) => {}
                            ended => return ended.map(|broken| (who, broken)),
                        }
                    }
                })
            });
            let renewer = scope.spawn(move || {
                let holder = Holder::new(path, token).unwrap();
                start.wait();
                let mut renewed = 0;
                // Until it is told.
                loop {
                    match holder.renew() {
                        Ok(_) => renewed += 1,
                        Err(Error::Lost { .. }) => return renewed,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            let claimers = [(), ()].map(|()| {
                scope.spawn(move || {
                    start.wait();
                    Claim::new(path).wait(Duration::from_millis(700)).take()
                })
            });
            (
                breakers.map(|thread| thread.join().unwrap()),
                renewer.join().unwrap(),
                claimers.map(|thread| thread.join().unwrap()),
            )
        });
        let won: Vec<_> = breaks.iter().flatten().collect();
        assert_eq!(won.len(), 1, "round {round}, {renewed} renewals: {breaks:?}");
        let lost = breaks.iter().find_map(|broken| broken.as_ref().err()).unwrap();
        assert!(matches!(lost, Error::Lost { .. }), "{lost}");
        let (who, broken) = won[0];
        let kept = fs::read_to_string(&broken.evidence).unwrap();
        assert!(kept.lines().nth(3).unwrap().contains(who), "round {round}: {kept}");
        let held: Vec<_> = claims.iter().flatten().collect();
        assert!(held.len() <= 1, "round {round}: one holder: {claims:?}");
        let record = place.record();
        // Where the break came after they had stopped waiting, there is none.
        let epoch = held.first().map_or(2, |lease| lease.epoch());
        assert_eq!(record.owner.epoch, epoch, "round {round}");
        for lease in held {
            taken += 1;
            assert_eq!((record.owner.token, lease.epoch()), (lease.token(), 3));
            assert_eq!(lease.holder().verify(None).unwrap(), 3);
        }
        // A ballot of one that came too late may stand until its number is reached.
        let names = names(place.dir());
        let evidence = names.iter().filter(|name| name.to_string_lossy().contains(".broken-"));
        assert_eq!(evidence.count(), 1, "round {round}: {names:?}");
    }
    assert!(taken > 0, "no claim ever came after a break");
}

#[test]
fn a_token_is_looked_up_as_the_help_says() {
    let place = Place::new();
    let token = claim_for(&Running::idle(), &place);
    let shown = leasehold(&["show", &place.lease(), "--field", "token"]).ok();
    assert_eq!(shown, token);
    assert!(shown.parse::<Token>().is_ok());
    for (verb, does) in [("ask", "Ask the owner's host"), ("break", "Break somebody's lease")] {
        let help = leasehold(&[verb, "--help"]).ok();
        assert!(help.starts_with(does), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        assert!(help.contains("Examples:") && help.contains("Exit"), "{help}");
        assert!(help.matches(&format!("\n  leasehold {verb} ")).count() >= 2, "{help}");
    }
}
