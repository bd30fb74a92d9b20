//! Two login nodes, one home directory: what the project was made for.

use super::Scenario;
use super::kit::{Lab, Result};
use super::product::{BOTH, SOON, claim, each, ended, ends, field, judge, stay};
use nix::sys::signal::Signal;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "founding story",
        run: founding,
    },
    Scenario {
        name: "legacy pid files",
        run: legacy,
    },
    Scenario {
        name: "break while the holder runs",
        run: broken,
    },
    Scenario {
        name: "ask over ssh",
        run: ask,
    },
];

/// A launcher on a has a bridge running. What b does about it must change nothing.
fn founding(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("story")?);
    for mount in BOTH {
        let home = format!("{mount}/{dir}");
        let (bridge, thread) = (
            format!("{home}/bridge{}.lease", &mount[5..]),
            format!("{home}/thread.lease"),
        );
        let job = stay(&a, &bridge, &["--set", "appserver=10.0.0.1:4100"])?;
        let token = claim(&a, &thread, &[])?;
        assert_eq!(judge(&a, &bridge, &[])?, "held/process-running");

        // The pids of a are free numbers, or strangers, on b.
        let state = format!("head -2 {bridge}; stat -c %i {bridge}; cat {thread}; stat -c %i {thread}; ls -A {home}");
        let before = b.ok(&state)?;
        let verdict = judge(&b, &bridge, &[])?;
        assert!(
            verdict == "undetermined/foreign-host" || (mount == "/mnt/v4" && verdict == "held/server-attested"),
            "{verdict}"
        );
        assert_eq!(judge(&b, &thread, &[])?, "undetermined/foreign-host");
        let next = ends(&b, &["leasehold", "judge", "--json", &thread], 2)?;
        assert!(next.contains("ssh a "), "it says whom to ask: {next}");
        assert_eq!(b.run(&["leasehold", "claim", &bridge, "--owner", "1"])?.code, 2);
        // The guard in front of "resume this thread", and the launcher's second bridge.
        for lease in [&thread, &bridge] {
            let done = b.run(&["leasehold", "run", lease, "--", "touch", &format!("{home}/second")])?;
            assert_eq!(done.code, 102, "{}", done.err());
        }
        assert_eq!(field(&b, &bridge, "appserver")?, "10.0.0.1:4100");
        // Orphan scans: on b there is nothing that is certainly an orphan, and nothing to settle.
        ends(
            &b,
            &[
                "leasehold",
                "scan",
                &home,
                "--where",
                "appserver=10.0.0.1:4100",
                "--stop-orphans",
            ],
            0,
        )?;
        ends(&b, &["leasehold", "settle", &home], 0)?;
        assert_eq!(b.ok(&state)?, before, "nothing has changed");

        // On a, the dead one is found, and only that; b still cannot know.
        let owner = field(&a, &thread, "pid")?;
        a.ok(&format!("kill -9 {owner}"))?;
        let dead = a.run(&["leasehold", "scan", &home, "--only", "dead"])?.out();
        assert!(dead.contains("thread.lease") && !dead.contains("bridge"), "{dead}");
        assert_eq!(judge(&b, &thread, &[])?, "undetermined/foreign-host");
        let second = claim(&a, &thread, &[])?;
        assert_eq!(field(&b, &thread, "epoch")?, "2");
        assert_eq!(b.run(&["leasehold", "verify", &thread, "--token", &token])?.code, 6);
        ends(&b, &["leasehold", "release", &thread, "--token", &second], 0)?;
        assert_eq!(judge(&b, &thread, &[])?, "free/ended");

        job.kill(Signal::SIGTERM)?;
        ended(&job, SOON)?;
        assert_eq!(judge(&b, &bridge, &[])?, "free/ended");
        claim(&b, &bridge, &[])?;
        assert_eq!(field(&a, &bridge, "epoch")?, "2");
        b.ok(&format!("rm -r {home}/*"))?;
    }
    Ok(())
}

fn legacy(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("legacy")?);
    for mount in BOTH {
        let (pid, lease) = (format!("{mount}/{dir}/x.pid"), format!("{mount}/{dir}/x.pid.lease"));
        // pid 1 lives everywhere: a hostless number is nobody's here.
        a.ok(&format!("echo 1 > {pid}"))?;
        let verdict = judge(&b, &pid, &[])?;
        assert!(verdict.starts_with("undetermined/"), "{verdict}");
        assert_eq!(b.run(&["leasehold", "claim", &pid, "--owner", "1"])?.code, 2);
        assert_eq!(b.ok(&format!("cat {pid}"))?, "1");

        let owner = a.start(&["sleep", "1000"])?.pid.to_string();
        a.ok(&format!("echo {owner} > {pid}"))?;
        ends(
            &a,
            &["leasehold", "claim", &lease, "--owner", &owner, "--binds", "x.pid"],
            0,
        )?;
        assert_eq!(
            b.ok(&format!("cat {pid}"))?,
            owner,
            "its bytes are as other programs read them"
        );
        assert_eq!(judge(&a, &lease, &[])?, "held/process-running");
        assert_eq!(judge(&b, &lease, &[])?, "undetermined/foreign-host");
        b.ok(&format!("echo 1 > {pid}"))?;
        for node in [&a, &b] {
            assert_eq!(judge(node, &lease, &[])?, "undetermined/payload-mismatch");
        }
        a.ok(&format!("rm {pid} {lease}"))?;
    }
    Ok(())
}

/// An operator on b decides; the holder on a finds out, and stops.
fn broken(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("break")?);
    each(&BOTH, |mount| {
        let lease = format!("{mount}/{dir}/{}.lease", &mount[5..]);
        let job = stay(&a, &lease, &["--ttl", "6s"])?;
        let (token, pid) = (field(&b, &lease, "token")?, field(&b, &lease, "pid")?);
        let wrong = "0".repeat(32);
        let told = |token: &str, code| {
            ends(
                &b,
                &["leasehold", "break", &lease, "--token", token, "--reason", "x", "--yes"],
                code,
            )
        };
        told(&wrong, 6)?;
        let evidence = told(&token, 0)?;
        b.ok(&format!("test -s '{evidence}'"))?;
        assert_eq!(ended(&job, SOON)?, 106);
        assert_ne!(a.sh(&format!("kill -0 {pid}"))?.code, 0, "its command is gone");
        let second = claim(&b, &lease, &[])?;
        // Breaking takes an epoch of its own.
        assert_eq!(field(&a, &lease, "epoch")?, "3");
        assert_eq!(a.run(&["leasehold", "renew", &lease, "--token", &token])?.code, 6);
        assert_eq!(field(&a, &lease, "token")?, second);
        Ok(())
    })?;
    Ok(())
}

fn ask(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("ask")?);
    let home = format!("/mnt/v4/{dir}");
    // A node's root is the host's, read-only: keys and configuration of this run's own.
    b.ok(&format!(
        "ssh-keygen -q -t ed25519 -N '' -f /run/id && cp /run/id.pub {home}/id.pub"
    ))?;
    a.ok(&format!(
        "ssh-keygen -q -t ed25519 -N '' -f /run/hostkey && mkdir -p /run/sshd && cp {home}/id.pub /run/authorized && \
         /usr/sbin/sshd -f /dev/null -h /run/hostkey -o AuthorizedKeysFile=/run/authorized -o StrictModes=no \
         -o UsePAM=no -o PidFile=none -o SetEnv=PATH=/run/lab/bin:/usr/bin:/bin"
    ))?;
    let via =
        "ssh -F /dev/null -i /run/id -oBatchMode=yes -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null {host}";
    let lease = format!("{home}/x.lease");
    let asked = |code| {
        ends(
            &b,
            &["leasehold", "ask", &lease, "--via", via, "--timeout", "20s"],
            code,
        )
    };
    claim(&a, &lease, &[])?;
    assert_eq!(judge(&b, &lease, &[])?, "undetermined/foreign-host");
    let held = asked(0)?;
    assert!(held.starts_with("held\t"), "{held}");
    a.ok(&format!("kill -9 {}", field(&a, &lease, "pid")?))?;
    let dead = asked(1)?;
    assert!(dead.starts_with("dead\t"), "{dead}");
    // Nobody answers: nothing is known.
    lab.cut("a")?;
    let words = ["leasehold", "ask", &lease, "--via", via, "--timeout", "3s"];
    let answer = b.cmd(&words).limit(Duration::from_secs(30)).run()?;
    assert_eq!(answer.code, 2, "{}", answer.out());
    Ok(())
}
