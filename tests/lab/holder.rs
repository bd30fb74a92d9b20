//! The holder's node loses power, is cut off, stands still, or has its clock stepped.

use super::Scenario;
use super::kit::lab::SERVER;
use super::kit::witness::Witness;
use super::kit::{Lab, Result, until};
use super::product::{
    BOTH, LONG, SOON, TAKEOVER, claim, each, ended, ends, field, held_by, judge, keep, look, must_be_right, runs,
};
use nix::sys::signal::Signal;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "holder: power cut and reboot",
        run: power_cut,
    },
    Scenario {
        name: "holder: power cut, taken when lapsed",
        run: power_cut_lapsed,
    },
    Scenario {
        name: "holder: cut off for less than the ttl",
        run: cut_shortly,
    },
    Scenario {
        name: "holder: cut off for longer, v4.2",
        run: |lab| cut_long(lab, BOTH[0]),
    },
    Scenario {
        name: "holder: cut off for longer, v3",
        run: |lab| cut_long(lab, BOTH[1]),
    },
    Scenario {
        name: "holder: paused past the ttl, v4.2",
        run: |lab| paused(lab, BOTH[0]),
    },
    Scenario {
        name: "holder: paused past the ttl, v3",
        run: |lab| paused(lab, BOTH[1]),
    },
    Scenario {
        name: "clock steps change no verdict",
        run: clocks,
    },
];

/// Without a ttl nothing lapses: only the rebooted host itself may say that its process is gone.
fn power_cut(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("power")?);
    let leases = BOTH.map(|mount| format!("{mount}/{dir}/{}.lease", &mount[5..]));
    let settled = BOTH.map(|mount| format!("{mount}/{dir}/settled{}.lease", &mount[5..]));
    for lease in leases.iter().chain(&settled) {
        claim(&a, lease, &[])?;
    }
    lab.crash("a")?;
    let elsewhere = |when: &str| -> Result {
        for lease in &leases {
            assert_eq!(judge(&b, lease, &[])?, "undetermined/foreign-host", "{when}");
            let done = b.run(&[
                "leasehold",
                "claim",
                lease,
                "--owner",
                "1",
                "--wait",
                "2s",
                "--take-lapsed",
            ])?;
            assert!([2, 75].contains(&done.code), "{when}: {} {}", done.code, done.err());
        }
        Ok(())
    };
    elsewhere("while it is off")?;
    lab.boot("a")?;
    elsewhere("when it is back")?;
    // What another host's records need is not this host's to settle.
    let other = format!("{}/{dir}/other.lease", BOTH[0]);
    claim(&b, &other, &[])?;
    for lease in &settled {
        ends(&b, &["leasehold", "settle", lease], 0)?;
        ends(&a, &["leasehold", "settle", lease, &other], 0)?;
        assert_eq!(judge(&b, lease, &[])?, "free/ended");
    }
    assert_eq!(judge(&b, &other, &[])?, "held/process-running");
    for lease in &leases {
        assert_eq!(judge(&a, lease, &[])?, "dead/host-rebooted");
        claim(&a, lease, &[])?;
        assert_eq!(field(&b, lease, "epoch")?, "2");
        assert_eq!(judge(&a, lease, &[])?, "held/process-running");
    }
    Ok(())
}

fn power_cut_lapsed(lab: &mut Lab) -> Result {
    let witness = Witness::listen(lab.run())?;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("lapse")?);
    let leases = BOTH.map(|mount| format!("{mount}/{dir}/{}.lease", &mount[5..]));
    for lease in &leases {
        keep(lab, &witness, &a, lease, LONG, &[])?;
        held_by(&witness, lease, "a", SOON)?;
    }
    lab.crash("a")?;
    witness.crashed("a");
    for lease in &leases {
        let verdict = look(&witness, &b, lease)?;
        assert!(
            ["undetermined/foreign-host", "held/server-attested"].contains(&&*verdict),
            "{verdict}"
        );
    }
    // Over v4.2 the server attests the lock until the dead client's NFS lease has ended; then, and over v3 at once, the
    // record's own terms decide.
    let here = &*lab;
    each(&leases, |lease| {
        until("it lapses", TAKEOVER, || {
            let verdict = judge(&b, lease, &["--observe", "10s"])?;
            assert!(
                !verdict.starts_with("dead") && !verdict.starts_with("free"),
                "{verdict}"
            );
            Ok((verdict == "lapsed/not-renewed").then_some(()))
        })?;
        assert_eq!(
            b.run(&["leasehold", "claim", lease, "--owner", "1", "--wait", "9s"])?
                .code,
            4,
            "not unless asked"
        );
        let wait = ["--take-lapsed", "--wait", "60s"];
        keep(here, &witness, &b, lease, Duration::from_secs(1), &wait)?;
        assert_eq!(held_by(&witness, lease, "b", TAKEOVER)?.epoch, 2);
        Ok(())
    })?;
    lab.boot("a")?;
    for lease in &leases {
        let verdict = look(&witness, &a, lease)?;
        assert!(
            ["free/ended", "undetermined/foreign-host", "held/server-attested"].contains(&&*verdict),
            "{verdict}"
        );
        must_be_right(lab, &witness, lease)?;
    }
    Ok(())
}

fn cut_shortly(lab: &mut Lab) -> Result {
    let witness = Witness::listen(lab.run())?;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("blip")?);
    let leases = BOTH.map(|mount| format!("{mount}/{dir}/{}.lease", &mount[5..]));
    let jobs = leases
        .iter()
        .map(|lease| keep(lab, &witness, &a, lease, LONG, &["--ttl", "20s"]));
    let jobs: Vec<_> = jobs.collect::<Result<_>>()?;
    for lease in &leases {
        held_by(&witness, lease, "a", SOON)?;
    }
    lab.cut("a")?;
    for lease in &leases {
        let verdict = look(&witness, &b, lease)?;
        assert!(
            ["undetermined/foreign-host", "held/server-attested"].contains(&&*verdict),
            "{verdict}"
        );
        let done = b.run(&[
            "leasehold",
            "claim",
            lease,
            "--owner",
            "1",
            "--wait",
            "2s",
            "--take-lapsed",
        ])?;
        assert_eq!(done.code, 75, "{}", done.err());
    }
    let cut = witness.now();
    lab.mend("a")?;
    for (lease, job) in leases.iter().zip(&jobs) {
        let writes = || {
            witness
                .history()
                .writes
                .iter()
                .filter(|w| w.asked > cut && lease.ends_with(&w.path))
                .count()
        };
        until("a goes on", TAKEOVER, || Ok((writes() > 2).then_some(())))?;
        runs(job)?;
        assert_eq!(field(&b, lease, "epoch")?, "1");
        must_be_right(lab, &witness, lease)?;
    }
    Ok(())
}

/// The command is gone before anybody else gets in, and the old holder changes nothing afterwards.
fn cut_long(lab: &mut Lab, mount: &str) -> Result {
    let witness = Witness::listen(lab.run())?;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("cut")?);
    let lease = format!("{mount}/{dir}/x.lease");
    let status = "/run/status.json";
    let old = keep(lab, &witness, &a, &lease, LONG, &["--status-file", status])?;
    held_by(&witness, &lease, "a", SOON)?;
    // Beside the worker, which syncs: bytes that a's kernel has accepted and not sent when the network goes.
    let late = format!("{lease}.late.1");
    // (Not by a shell: each of its redirections ends with a close, and a close sends what was accepted.)
    let script = "open F, '>', shift; syswrite F, 'late'; syswrite STDOUT, 'in'; sleep 1000";
    let writer = a.start(&["perl", "-e", script, &late])?;
    writer.prints("in", SOON)?;
    lab.cut("a")?;
    assert_eq!(b.ok(&format!("cat {late}"))?, "");
    let new = keep(
        lab,
        &witness,
        &b,
        &lease,
        LONG,
        &["--take-lapsed", "--wait", "60s", "--ttl", "30s"],
    )?;
    let second = held_by(&witness, &lease, "b", TAKEOVER)?;
    assert_eq!(second.epoch, 2);
    // The very same look: the command of a was silent before b came in.
    let first = held_by(&witness, &lease, "a", SOON)?;
    assert!(first.to < second.from, "{first:?} {second:?}");
    assert!(
        first.ended.is_some_and(|ended| ended < second.from),
        "its process had ended: {first:?} {second:?}"
    );
    lab.mend("a")?;
    assert_eq!(ended(&old, TAKEOVER)?, 106);
    let told = a.ok(&format!("cat {status}"))?;
    assert!(told.contains("\"by\":\"leasehold\"") && told.contains("lost"), "{told}");
    assert_eq!(
        a.run(&["leasehold", "verify", &lease, "--token", &first.token])?.code,
        6
    );
    assert_eq!(
        a.run(&["leasehold", "release", &lease, "--token", &first.token])?.code,
        6
    );
    assert_eq!(field(&a, &lease, "token")?, second.token, "the old one changes nothing");
    runs(&new)?;
    writer.kill(Signal::SIGKILL)?;
    until("what was accepted arrives late", TAKEOVER, || {
        Ok((b.ok(&format!("cat {late}"))? == "late").then_some(()))
    })?;
    assert_eq!(
        b.ok(&format!("ls {lease}.late.*"))?,
        late,
        "in the old epoch's file, and nowhere else"
    );
    must_be_right(lab, &witness, &lease)?;
    super::say(&format!(
        "  {mount}: last sign of the old one {} ms before the first of the new one",
        second.from - first.to
    ));
    Ok(())
}

fn paused(lab: &mut Lab, mount: &str) -> Result {
    let witness = Witness::listen(lab.run())?;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("sleep")?);
    let lease = format!("{mount}/{dir}/x.lease");
    let old = keep(lab, &witness, &a, &lease, LONG, &[])?;
    let first = held_by(&witness, &lease, "a", SOON)?;
    let from = witness.now();
    lab.pause("a")?;
    let new = keep(lab, &witness, &b, &lease, LONG, &["--take-lapsed", "--wait", "60s"])?;
    let second = held_by(&witness, &lease, "b", TAKEOVER)?;
    assert_eq!(second.epoch, 2);
    lab.resume("a")?;
    witness.stalled("a", from, witness.now());
    assert_eq!(ended(&old, TAKEOVER)?, 106);
    let gone = witness.hold("the old command is gone", SOON, |hold| {
        hold.node == "a" && hold.ended.is_some()
    })?;
    assert_eq!(
        a.run(&["leasehold", "verify", &lease, "--token", &first.token])?.code,
        6
    );
    assert_eq!(
        field(&a, &lease, "token")?,
        second.token,
        "no beat of the old one counts"
    );
    runs(&new)?;
    must_be_right(lab, &witness, &lease)?;
    let woke = witness.history().stalls[0].to;
    super::say(&format!(
        "  {mount}: awake {} ms until the old command was dead",
        gone.ended.unwrap_or(woke).saturating_sub(woke)
    ));
    Ok(())
}

/// Wall clocks are for people: whoever's is wrong, by however much, nothing follows.
fn clocks(lab: &mut Lab) -> Result {
    let witness = Witness::listen(lab.run())?;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("clock")?);
    let mut kept = Vec::new();
    for mount in BOTH {
        let run = format!("{mount}/{dir}/run{}.lease", &mount[5..]);
        let job = keep(lab, &witness, &a, &run, LONG, &[])?;
        held_by(&witness, &run, "a", SOON)?;
        let plain = format!("{mount}/{dir}/plain{}.lease", &mount[5..]);
        let token = claim(&a, &plain, &["--ttl", "300s"])?;
        kept.push((run, job, plain, token));
    }
    let verdicts = |witness: &Witness| -> Result<Vec<String>> {
        let mut all = Vec::new();
        for (run, job, plain, token) in &kept {
            runs(job)?;
            for node in [&a, &b] {
                all.push(look(witness, node, run)?);
                all.push(look(witness, node, plain)?);
            }
            ends(
                &a,
                &["leasehold", "verify", plain, "--token", token, "--margin", "100s"],
                0,
            )?;
        }
        Ok(all)
    };
    let before = verdicts(&witness)?;
    for (node, step) in [
        ("a", 90_000),
        ("a", -180_000),
        ("b", -90_000),
        ("b", 180_000),
        (SERVER, 90_000),
        (SERVER, -180_000),
    ] {
        lab.clock(node, step)?;
        // Until it has been renewed since.
        let beat = field(&b, &kept[0].0, "beat")?;
        until("a heartbeat", SOON, || {
            Ok((field(&b, &kept[0].0, "beat")? != beat).then_some(()))
        })?;
        assert_eq!(verdicts(&witness)?, before, "after a step of {step} s on {node}");
    }
    for (run, _, plain, token) in &kept {
        ends(&a, &["leasehold", "renew", plain, "--token", token], 0)?;
        assert_eq!(field(&b, run, "epoch")?, "1");
        must_be_right(lab, &witness, run)?;
    }
    Ok(())
}
