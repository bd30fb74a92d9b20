//! The file server fails: full, read-only, away.

use super::Scenario;
use super::kit::lab::SERVER;
use super::kit::witness::Witness;
use super::kit::{Lab, Mount, NodeSpec, Result, until};
use super::product::{
    BOTH, LONG, SOON, TAKEOVER, claim, each, ended, ends, field, held_by, judge, keep, must_be_right, runs, stay,
};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "server: disk full",
        run: full,
    },
    Scenario {
        name: "server: export turned read-only",
        run: read_only,
    },
    Scenario {
        name: "server: away, soft mounts",
        run: soft,
    },
    Scenario {
        name: "server: power cut under a holder",
        run: power_cut,
    },
];

/// Root's reserve too; the second writer takes what the first one's last block left.
pub fn fill(lab: &mut Lab) -> Result {
    let script = "for i in 1 2 3; do dd if=/dev/zero of=/mnt/export/fill.$i bs=64k 2>/dev/null || true; sync; done; \
                  for i in 4 5; do dd if=/dev/zero of=/mnt/export/fill.$i bs=1k 2>/dev/null || true; sync; done";
    lab.node(SERVER)?.ok(script).map(drop)
}

pub fn make_room(lab: &mut Lab) -> Result {
    lab.node(SERVER)?.ok("rm /mnt/export/fill.*; sync").map(drop)
}

/// `ro` or `rw`, from now on and for files that are open.
pub fn export(lab: &mut Lab, mode: &str) -> Result {
    let script =
        format!("exportfs -i -o {mode},no_root_squash,no_subtree_check,fsid=0,insecure '*:/mnt/export' && exportfs -f");
    lab.node(SERVER)?.ok(&script).map(drop)
}

/// Nothing is lost for want of space: a claim says so, and leaves the record and the directory as they were.
fn full(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("full")?);
    let server = lab.node(SERVER)?;
    let mut kept = Vec::new();
    for mount in BOTH {
        let (held, free) = (
            format!("{mount}/{dir}/held{}.lease", &mount[5..]),
            format!("{mount}/{dir}/free{}.lease", &mount[5..]),
        );
        let job = stay(&a, &held, &["--ttl", "5s"])?;
        let token = claim(&a, &free, &[])?;
        ends(&a, &["leasehold", "release", &free, "--token", &token], 0)?;
        kept.push((held, job, free));
    }
    fill(lab)?;
    let list = format!("ls -A /mnt/export/{dir}; cat /mnt/export/{dir}/free*");
    let before = server.ok(&list)?;
    for (held, _, free) in &kept {
        for node in [&a, &b] {
            let done = node.run(&["leasehold", "claim", free, "--owner", "1"])?;
            assert!(
                done.code == 74 && done.err().contains("space"),
                "{} {}",
                done.code,
                done.err()
            );
        }
        assert_eq!(judge(&b, free, &[])?, "free/ended");
        let beat = field(&b, held, "beat")?;
        until("it is renewed in place all the same", SOON, || {
            Ok((field(&b, held, "beat")? != beat).then_some(()))
        })?;
    }
    assert_eq!(server.ok(&list)?, before);
    make_room(lab)?;
    for (held, job, free) in &kept {
        runs(job)?;
        claim(&b, free, &[])?;
        assert_eq!(
            (field(&a, free, "epoch")?, field(&a, held, "epoch")?),
            ("2".into(), "1".into())
        );
    }
    Ok(())
}

/// The holder cannot renew: its command ends in time, and the record waits for better days.
fn read_only(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("ro")?);
    let mut kept = Vec::new();
    for mount in BOTH {
        let lease = format!("{mount}/{dir}/{}.lease", &mount[5..]);
        let job = stay(&a, &lease, &["--ttl", "6s"])?;
        kept.push((lease, job));
    }
    export(lab, "ro")?;
    let checked = || -> Result {
        for (lease, job) in &kept {
            assert_eq!(ended(job, SOON)?, 106, "it could not renew");
            let done = a.run(&["leasehold", "claim", lease, "--owner", "1"])?;
            assert!(done.code == 74, "{} {}", done.code, done.err());
            let verdict = judge(&a, lease, &[])?;
            assert!(verdict.starts_with("dead/"), "{verdict}");
            assert!(!judge(&b, lease, &[])?.starts_with("dead"));
        }
        Ok(())
    };
    let outcome = checked();
    export(lab, "rw")?;
    outcome?;
    for (lease, _) in &kept {
        claim(&a, lease, &[])?;
        assert_eq!(field(&b, lease, "epoch")?, "2");
    }
    Ok(())
}

/// A soft mount gives errors instead of waiting. None of them is an answer about the lease.
fn soft(lab: &mut Lab) -> Result {
    let soft = |at: &str, vers: &str| Mount::new(at, &format!("vers={vers},soft,timeo=10,retrans=1"));
    lab.add(NodeSpec::client("c").mounts(vec![soft("/mnt/v4", "4.2"), soft("/mnt/v3", "3")]))?;
    lab.boot("c")?;
    let (a, c, dir) = (lab.node("a")?, lab.node("c")?, lab.fresh_dir("soft")?);
    let mut kept = Vec::new();
    for mount in BOTH {
        let held = format!("{mount}/{dir}/held{}.lease", &mount[5..]);
        let ours = format!("{mount}/{dir}/ours{}.lease", &mount[5..]);
        claim(&a, &held, &[])?;
        let status = format!("/run/status{}", &mount[5..]);
        let job = stay(&c, &ours, &["--ttl", "5s", "--status-file", &status])?;
        let pid = field(&c, &ours, "pid")?;
        let free = format!("{mount}/{dir}/free{}.lease", &mount[5..]);
        kept.push((held, ours, free, job, status, pid));
    }
    lab.cut("c")?;
    each(&kept, |(held, ours, free, _, status, pid)| {
        // Its own end may have to wait: the kernel keeps a thread that syncs until the mount answers, soft or not.
        until("it says that it could not renew", SOON, || {
            Ok(c.sh(&format!("cat {status}"))?
                .out()
                .contains("\"code\":106")
                .then_some(()))
        })?;
        assert_ne!(c.sh(&format!("kill -0 {pid}"))?.code, 0, "its command is gone");
        assert_eq!(judge(&c, ours, &[])?, "undetermined/unreadable");
        for lease in [held, free] {
            let done = c
                .cmd(&["leasehold", "claim", lease, "--owner", "1"])
                .limit(TAKEOVER)
                .run()?;
            assert_eq!(done.code, 74, "{}", done.err());
        }
        Ok(())
    })?;
    lab.mend("c")?;
    each(&kept, |(held, ours, free, job, ..)| {
        assert_eq!(ended(job, TAKEOVER)?, 106);
        until("the mount answers", TAKEOVER, || {
            Ok((judge(&c, held, &[])? != "undetermined/unreadable").then_some(()))
        })?;
        assert_eq!(judge(&c, held, &[])?, "undetermined/foreign-host");
        assert_eq!(judge(&c, free, &[])?, "free/no-record");
        let verdict = judge(&c, ours, &[])?;
        assert!(verdict.starts_with("dead/") || verdict == "free/ended", "{verdict}");
        claim(&c, ours, &[]).map(drop)
    })?;
    lab.forget("c")
}

/// A ttl longer than the server takes to come back: nobody loses. The shortest one: who loses, loses properly.
fn power_cut(lab: &mut Lab) -> Result {
    let witness = Witness::listen(lab.run())?;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("server")?);
    let mut kept = Vec::new();
    for mount in BOTH {
        let lease = format!("{mount}/{dir}/{}.lease", &mount[5..]);
        let job = keep(lab, &witness, &a, &lease, LONG, &["--ttl", "120s"])?;
        held_by(&witness, &lease, "a", SOON)?;
        let short = format!("{mount}/{dir}/short{}.lease", &mount[5..]);
        let lost = keep(lab, &witness, &a, &short, LONG, &[])?;
        held_by(&witness, &short, "a", SOON)?;
        kept.push((lease, job, short, lost));
    }
    lab.crash(SERVER)?;
    // Its supervisor can only wait for the server then, in the kernel.
    until("the commands of the short leases are dead", SOON, || {
        let history = witness.history();
        let dead = history.holds.iter().filter(|hold| hold.ended.is_some());
        Ok((dead.count() >= kept.len()).then_some(()))
    })?;
    lab.boot(SERVER)?;
    let here = &*lab;
    each(&kept, |(lease, job, short, lost)| {
        assert_eq!(ended(lost, TAKEOVER)?, 106);
        let wait = ["--take-lapsed", "--wait", "60s"];
        keep(here, &witness, &b, short, Duration::from_secs(1), &wait)?;
        held_by(&witness, short, "b", TAKEOVER)?;
        runs(job)?;
        assert_eq!(field(&b, lease, "epoch")?, "1");
        must_be_right(here, &witness, lease)?;
        must_be_right(here, &witness, short)
    })
    .map(drop)
}
