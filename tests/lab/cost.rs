//! What it costs on NFS. The figures of docs/performance.md come from here.

use super::Scenario;
use super::kit::agent::Node;
use super::kit::lab::SERVER;
use super::kit::turns::{Side, summary, time};
use super::kit::{Lab, Result, until};
use super::product::{BOTH, SOON, claim, each, ends, field, stay};
use std::time::{Duration, Instant};

pub const ALONE: &[Scenario] = &[
    Scenario {
        name: "RPCs of each verb",
        run: rpcs,
    },
    Scenario {
        name: "extra: latency",
        run: latency,
    },
    Scenario {
        name: "extra: hand-over between nodes",
        run: hand_over,
    },
    Scenario {
        name: "extra: a hundred idle waiters",
        run: waiters,
    },
];

fn rpcs(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("cost")?);
    each(&BOTH, |mount| {
        // Directories of their own: a change by the other mount costs looks.
        let place = |round: u8| format!("{dir}/{}.{round}", &mount[5..]);
        let mut missed = rpcs_over(&a, &b, mount, &place(0))?;
        // On a slow machine caches are over before the next command: what is too dear must be so three times.
        for round in 1..3 {
            if missed.is_empty() {
                break;
            }
            let again = rpcs_over(&a, &b, mount, &place(round))?;
            missed.retain(|(what, _)| again.iter().any(|(same, _)| same == what));
        }
        assert!(missed.is_empty(), "{mount}: {missed:#?}");
        Ok(())
    })
    .map(drop)
}

/// What cost more than it may, with the cost.
fn rpcs_over(a: &Node, b: &Node, mount: &str, dir: &str) -> Result<Vec<(String, String)>> {
    b.ok(&format!("mkdir -p {mount}/{dir}"))?;
    let (mut told, mut missed) = (Vec::new(), Vec::new());
    // What is measured now, and a little for what a kernel happens to have cached.
    let mut note = |what: &str, cost: String, calls: u64, bound: u64| {
        told.push(format!("{what}: {cost}"));
        if calls > bound {
            missed.push((what.to_owned(), format!("{calls}, at most {bound}: {cost}")));
        }
    };
    let lease = format!("{mount}/{dir}/{}.lease", &mount[5..]);
    let counted = |words: &[&str], code: i32| -> Result<(String, u64, String)> {
        let (out, cost) = a.counting(mount, |a| ends(a, words, code))?;
        Ok((out, cost.total(), cost.to_string()))
    };
    // Nothing of a's caches is worth much: first the path as well, then the record only.
    let token = claim(b, &lease, &[])?;
    let (_, n, cost) = counted(&["leasehold", "judge", &lease], 2)?;
    note("judge, never seen before", cost, n, 13);
    let (_, n, cost) = counted(&["leasehold", "judge", &lease], 2)?;
    note("judge, unchanged", cost, n, 5);
    ends(b, &["leasehold", "renew", &lease, "--token", &token], 0)?;
    let (_, n, cost) = counted(&["leasehold", "judge", &lease], 2)?;
    note("judge, replaced by b", cost, n, 9);
    ends(b, &["leasehold", "release", &lease, "--token", &token], 0)?;
    let owner = a.start(&["sleep", "1000"])?.pid.to_string();
    let (token, n, cost) = counted(&["leasehold", "claim", &lease, "--owner", &owner, "--ttl", "60s"], 0)?;
    note("claim", cost, n, 27);
    let (_, n, cost) = counted(&["leasehold", "judge", &lease], 0)?;
    note("judge, one's own", cost, n, 5);
    let (_, n, cost) = counted(&["leasehold", "verify", &lease, "--token", &token], 0)?;
    note("verify", cost, n, 5);
    let (_, n, cost) = counted(&["leasehold", "renew", &lease, "--token", &token], 0)?;
    note("renew", cost, n, 18);
    let (_, n, cost) = counted(&["leasehold", "note", &lease, "--token", &token, "phase=x"], 0)?;
    note("note", cost, n, 22);
    let (_, n, cost) = counted(&["leasehold", "release", &lease, "--token", &token], 0)?;
    note("release", cost, n, 22);
    let new = format!("{mount}/{dir}/new{}.lease", &mount[5..]);
    let (_, n, cost) = counted(&["leasehold", "claim", &new, "--owner", &owner], 0)?;
    note("claim, no record yet", cost, n, 25);

    let kept = format!("{mount}/{dir}/kept{}.lease", &mount[5..]);
    let job = stay(a, &kept, &["--ttl", "6s"])?;
    let before = a.rpcs(mount)?;
    let beats = until("six heartbeats", SOON * 2, || {
        let since = a.rpcs(mount)?.since(&before);
        Ok((since.of("WRITE") >= 6).then_some(since))
    })?;
    // Every third one also looks at the record by its name.
    let each = beats.total() as f64 / beats.of("WRITE") as f64;
    note("heartbeat", format!("{each:.1} of {beats}"), each.round() as u64, 5);
    job.kill(nix::sys::signal::Signal::SIGTERM)?;
    super::say(&format!("  {mount}\n    {}", told.join("\n    ")));
    Ok(missed)
}

fn latency(lab: &mut Lab) -> Result {
    let (a, dir) = (lab.node("a")?, lab.fresh_dir("latency")?);
    let agent = lab.agent_words();
    for mount in BOTH {
        let at = |name: &str| format!("{mount}/{dir}/{name}{}", &mount[5..]);
        let (lease, file, held) = (at("x.lease"), at("flock"), at("held.lease"));
        let token = claim(&a, &held, &["--ttl", "3000s"])?;
        let (dot, made) = (at("dot"), at("made"));
        a.ok(&format!("touch {file}"))?;
        let owner = a.start(&["sleep", "1000"])?.pid.to_string();
        let sides = [
            Side::new("two times true(1)", &[&["true"], &["true"]]),
            Side::new(
                "claim and release",
                &[
                    &["leasehold", "claim", &lease, "--owner", &owner],
                    &["leasehold", "release", &lease, "--token", "@OUT@"],
                ],
            ),
            Side::new(
                "dotlockfile -l and -u",
                &[&["dotlockfile", "-l", &dot], &["dotlockfile", "-u", &dot]],
            ),
            Side::new("mkdir and rmdir", &[&["mkdir", &made], &["rmdir", &made]]),
            Side::new("flock(1) of true(1)", &[&["flock", &file, "true"]]),
            Side::new("judge", &[&["leasehold", "judge", &held]]),
            Side::new("verify", &[&["leasehold", "verify", &held, "--token", &token]]),
            Side::new("renew", &[&["leasehold", "renew", &held, "--token", &token]]),
        ];
        super::say(&format!("  {mount}, ms: median, 10th and 90th percentile of 100"));
        for t in time(&a, &agent, 100, &sides)? {
            super::say(&format!(
                "    {:24} {:7.1} {:7.1} {:7.1}",
                t.name, t.median, t.p10, t.p90
            ));
        }
    }
    Ok(())
}

/// From the end of the command that lets go on a to the end of the one that waits on b.
fn hand_over(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("over")?);
    for mount in BOTH {
        let at = |name: &str| format!("{mount}/{dir}/{name}{}", &mount[5..]);
        let (lease, file, dot, made) = (at("x.lease"), at("flock"), at("dot"), at("made"));
        let mut times = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..5 {
            let token = claim(&a, &lease, &[])?;
            let flock = a.start(&["flock", &file, "sh", "-c", "echo held; exec sleep 1000"])?;
            flock.prints("held", SOON)?;
            a.ok(&format!("dotlockfile -l {dot}; mkdir {made}"))?;
            let waits = [
                format!("leasehold claim {lease} --owner 1 --wait 60s"),
                format!("flock {file} true"),
                format!("until dotlockfile -r 0 -l {dot}; do sleep 0.2; done; dotlockfile -u {dot}"),
                format!("until mkdir {made} 2>/dev/null; do sleep 0.2; done; rmdir {made}"),
            ];
            let goes = [
                format!("leasehold release {lease} --token {token}"),
                format!("kill -9 -{}", flock.pid),
                format!("dotlockfile -u {dot}"),
                format!("rmdir {made}"),
            ];
            for ((wait, go), times) in waits.iter().zip(&goes).zip(&mut times) {
                let waiter = b.start(&["sh", "-c", wait])?;
                // Until its pauses are as long as they get.
                assert!(waiter.wait(Duration::from_millis(2_500))?.is_none(), "{wait}");
                a.ok(go)?;
                let began = Instant::now();
                let done = waiter.wait(SOON)?.ok_or_else(|| format!("{wait}: it still waits"))?;
                assert_eq!(done.code, 0, "{wait}: {}", done.err());
                times.push(began.elapsed().as_secs_f64() * 1000.0);
            }
            let token = field(&b, &lease, "token")?;
            ends(&b, &["leasehold", "release", &lease, "--token", &token], 0)?;
        }
        super::say(&format!("  {mount}, ms: median, 10th and 90th percentile of 5"));
        let names = ["leasehold", "flock(1)", "dotlockfile, each 0.2 s", "mkdir, each 0.2 s"];
        for (name, times) in names.into_iter().zip(times) {
            let t = summary(name.into(), times);
            super::say(&format!(
                "    {:24} {:7.1} {:7.1} {:7.1}",
                t.name, t.median, t.p10, t.p90
            ));
        }
    }
    Ok(())
}

fn waiters(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("wait")?);
    for mount in BOTH {
        let lease = format!("{mount}/{dir}/{}.lease", &mount[5..]);
        claim(&a, &lease, &[])?;
        let all = format!("for i in $(seq 100); do leasehold claim {lease} --owner 1 --wait 60s & done; wait");
        let job = b.start(&["sh", "-c", &all])?;
        // All of them wait, and not for a short time only.
        until("a hundred wait", SOON, || {
            Ok((job
                .look(Duration::ZERO)?
                .2
                .windows(11)
                .filter(|w| w == b"waiting for")
                .count()
                >= 100)
                .then_some(()))
        })?;
        let _ = job.wait(Duration::from_secs(5))?;
        let (began, before, busy) = (Instant::now(), b.rpcs(mount)?, server_ticks(lab)?);
        let _ = job.wait(Duration::from_secs(15))?;
        let cost = b.rpcs(mount)?.since(&before);
        let seconds = began.elapsed().as_secs_f64();
        let each = cost.total() as f64 / seconds;
        let share = (server_ticks(lab)? - busy) as f64 / seconds;
        super::say(&format!(
            "  {mount}: {each:.0} RPCs a second, {share:.0} % of the server's processor: {cost}"
        ));
        job.kill(nix::sys::signal::Signal::SIGKILL)?;
    }
    Ok(())
}

/// Hundredths of a second for which the server's processor was busy.
fn server_ticks(lab: &Lab) -> Result<u64> {
    let stat = lab.node(SERVER)?.ok("head -1 /proc/stat")?;
    let ticks: Vec<u64> = stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let idle = ticks.get(3).ok_or_else(|| format!("/proc/stat: {stat}"))? + ticks[4];
    Ok(ticks.iter().sum::<u64>() - idle)
}
