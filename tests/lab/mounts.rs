//! What clients cache, and what locks are worth: by mount option.

use super::Scenario;
use super::kit::agent::Node;
use super::kit::{Lab, NodeSpec, Result, until};
use super::product::{BOTH, SOON, claim, each, ended, ends, field, judge, stay};
use nix::sys::signal::Signal;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "caching options",
        run: caching,
    },
    Scenario {
        name: "records replaced while they are open",
        run: open,
    },
    Scenario {
        name: "locks that stay on their node",
        run: local_locks,
    },
    Scenario {
        name: "what the server attests",
        run: attested,
    },
];

/// Mounts the export once more, with caches of its own.
pub fn mount(node: &Node, at: &str, options: &str) -> Result {
    let source = if options.contains("vers=3") {
        "server:/mnt/export"
    } else {
        "server:/"
    };
    node.ok(&format!(
        "mkdir -p {at} && mount -t nfs -o {options},nosharecache {source} {at}"
    ))
    .map(drop)
}

/// Another node changes the record; whatever is cached here, the next answer is right.
fn caching(lab: &mut Lab) -> Result {
    lab.add(NodeSpec::client("c").mounts(Vec::new()))?;
    lab.boot("c")?;
    let (a, c, dir) = (lab.node("a")?, lab.node("c")?, lab.fresh_dir("cache")?);
    let options = [
        "",
        "lookupcache=all,acdirmin=60",
        "actimeo=60",
        "noac",
        "nocto,actimeo=60",
    ];
    each(&["vers=4.2", "vers=3"], |&vers| {
        for (i, option) in options.into_iter().enumerate() {
            let at = format!("/mnt/o{i}{}", &vers[5..6]);
            mount(&c, &at, format!("{vers},{option}").trim_end_matches(','))?;
            let name = format!("{dir}/{i}{}.lease", &vers[5..6]);
            let (there, here) = (
                format!("/mnt/{}/{name}", if vers == "vers=3" { "v3" } else { "v4" }),
                format!("{at}/{name}"),
            );
            let (with, place) = (|what: &str| format!("{vers},{option}: {what}"), here.clone());
            assert_eq!(judge(&c, &place, &[])?, "free/no-record", "{}", with("absent"));
            let mut epoch = 0;
            for round in 0..1 + u64::from(i == 0) {
                // c has just looked, and a changes it at once.
                let token = claim(&a, &there, &[])?;
                epoch += 1;
                assert_eq!(
                    judge(&c, &here, &[])?,
                    "undetermined/foreign-host",
                    "{}",
                    with("claimed")
                );
                assert_eq!(field(&c, &here, "token")?, token, "{}", with("claimed"));
                assert_eq!(c.run(&["leasehold", "claim", &here, "--owner", "1"])?.code, 2);
                ends(&a, &["leasehold", "release", &there, "--token", &token], 0)?;
                assert_eq!(judge(&c, &here, &[])?, "free/ended", "{}", with("released"));
                let token = claim(&c, &here, &[])?;
                epoch += 1;
                assert_eq!(
                    field(&a, &there, "epoch")?,
                    epoch.to_string(),
                    "{} round {round}",
                    with("by c")
                );
                // The other way round: c's own claim is taken from it, and its token must not pass.
                ends(
                    &a,
                    &[
                        "leasehold",
                        "break",
                        &there,
                        "--token",
                        &token,
                        "--reason",
                        "x",
                        "--yes",
                    ],
                    0,
                )?;
                epoch += 1;
                assert_eq!(
                    c.run(&["leasehold", "verify", &here, "--token", &token])?.code,
                    6,
                    "{}",
                    with("broken")
                );
                assert_eq!(
                    c.run(&["leasehold", "renew", &here, "--token", &token])?.code,
                    6,
                    "{}",
                    with("broken")
                );
            }
        }
        Ok(())
    })?;
    lab.forget("c")
}

/// A record that is open on its own node is renamed over (silly-rename on v3), and one that is read elsewhere goes stale.
fn open(lab: &mut Lab) -> Result {
    let (a, b) = (lab.node("a")?, lab.node("b")?);
    let places = [(BOTH[0], lab.fresh_dir("open")?), (BOTH[1], lab.fresh_dir("open")?)];
    each(&places, |(mount, dir)| {
        let lease = format!("{mount}/{dir}/{}.lease", &mount[5..]);
        let token = claim(&a, &lease, &["--ttl", "60s"])?;
        let reader = a.start(&["sh", "-c", &format!("exec 3<{lease}; echo open; exec sleep 1000")])?;
        reader.prints("open", SOON)?;
        // Far more looks than renewals, so that some fall into the replacement.
        let script = format!(
            "n=0; until test -e {lease}.stop; do n=$((n+1)); leasehold judge {lease} >> /run/seen.{0}; leasehold show {lease} --field token; done | sort | uniq -c; sort -u /run/seen.{0}",
            &mount[5..]
        );
        let looks = b.start(&["sh", "-c", &script])?;
        for _ in 0..40 {
            ends(&a, &["leasehold", "renew", &lease, "--token", &token], 0)?;
        }
        a.ok(&format!("touch {lease}.stop"))?;
        let out = until("the looks end", SOON, || looks.wait(Duration::from_secs(1)))?.out();
        let mut lines = out.lines();
        assert!(lines.next().is_some_and(|line| line.ends_with(&token)), "{out}");
        assert!(
            lines.all(|line| line.starts_with("undetermined\tforeign-host\t")),
            "{out}"
        );
        assert_eq!(field(&b, &lease, "seq")?, "41");
        reader.kill(Signal::SIGKILL)?;
        ended(&reader, SOON)?;
        let names = || b.ok(&format!("cd {mount}/{dir} && rm -f *.stop && ls -A"));
        // Leftovers of the client that had it open go when it is closed; ours never come.
        until("only the record is left", SOON, || {
            Ok((names()? == format!("{}.lease", &mount[5..])).then_some(()))
        })?;
        b.ok(&format!("rm {lease}"))?;
        Ok(())
    })?;
    Ok(())
}

/// Without locks that others see, none is promised, and nothing else changes.
fn local_locks(lab: &mut Lab) -> Result {
    lab.add(NodeSpec::client("c").mounts(Vec::new()))?;
    lab.boot("c")?;
    let (a, c, dir) = (lab.node("a")?, lab.node("c")?, lab.fresh_dir("nolock")?);
    for (i, options) in ["vers=3,nolock", "vers=3,local_lock=all", "vers=3,local_lock=flock"]
        .into_iter()
        .enumerate()
    {
        let at = format!("/mnt/n{i}");
        mount(&c, &at, options)?;
        let (here, there) = (format!("{at}/{dir}/{i}.lease"), format!("/mnt/v3/{dir}/{i}.lease"));
        let job = stay(&c, &here, &["--ttl", "5s"])?;
        ends(&c, &["leasehold", "show", &here, "--field", "lock"], 2)?;
        assert_eq!(judge(&c, &here, &[])?, "held/process-running");
        // A lock of the same kind there would be free to take, and nobody is misled by that.
        assert_eq!(judge(&a, &there, &[])?, "undetermined/foreign-host");
        // Longer than the ttl.
        let wait = if i == 0 { "9s" } else { "1s" };
        let words = [
            "leasehold",
            "claim",
            &there,
            "--owner",
            "1",
            "--take-lapsed",
            "--wait",
            wait,
        ];
        assert_eq!(a.run(&words)?.code, 75);
        let pid = field(&a, &there, "pid")?;
        c.ok(&format!("kill {pid}"))?;
        assert_eq!(ended(&job, SOON)?, 143);
        claim(&a, &there, &[])?;
        assert_eq!(c.run(&["leasehold", "run", &here, "--", "true"])?.code, 102);
        assert_eq!(field(&c, &here, "epoch")?, "2");
    }
    lab.forget("c")
}

/// Over v4.2 the server's word counts while the holder's NFS lease lasts; over v3 it is shown, and decides nothing.
fn attested(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("lock")?);
    let leases = BOTH.map(|mount| format!("{mount}/{dir}/{}.lease", &mount[5..]));
    for lease in &leases {
        stay(&a, lease, &["--ttl", "300s"])?;
        assert_eq!(field(&b, lease, "lock")?, "flock");
    }
    let [v4, v3] = &leases;
    assert_eq!(judge(&b, v4, &[])?, "held/server-attested");
    assert_eq!(judge(&b, v3, &[])?, "undetermined/foreign-host");
    lab.crash("a")?;
    until("the server gives a's lock up", Duration::from_secs(60), || {
        let verdict = judge(&b, v4, &[])?;
        assert_eq!(judge(&b, v3, &[])?, "undetermined/foreign-host");
        Ok((verdict == "undetermined/foreign-host").then_some(()))
    })?;
    Ok(())
}
