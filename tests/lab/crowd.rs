//! Many that want the same lease, and the checker.

use super::Scenario;
use super::kit::agent::Job;
use super::kit::soak::{self, ALL, Fault, Plan, Report};
use super::kit::{Lab, NodeSpec, Result};
use super::product::{BOTH, ended, field};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "soak, a minute of everything",
        run: everything,
    },
    Scenario {
        name: "crowd over restarts of the server",
        run: servers,
    },
];

/// As fast as the machine can.
pub const ALONE: &[Scenario] = &[
    Scenario {
        name: "hundreds of hand-overs",
        run: hundreds,
    },
    Scenario {
        name: "crowd of three nodes",
        run: crowd,
    },
];

fn run(lab: &mut Lab, plan: &Plan) -> Result<Report> {
    lab.add(NodeSpec::client("c"))?;
    lab.boot("c")?;
    let report = soak::soak(lab, plan)?;
    lab.forget("c")?;
    super::say(&format!("  {}", report.to_string().replace('\n', "\n  ")));
    assert!(report.violations.is_empty(), "{report}");
    Ok(report)
}

/// LEASEHOLD_LAB_SEED repeats a run, as far as kernels allow.
fn seed() -> Result<u64> {
    match std::env::var("LEASEHOLD_LAB_SEED") {
        Ok(seed) => Ok(seed.parse()?),
        Err(_) => Ok(u64::from(std::process::id())),
    }
}

/// Three processes on each of three nodes, over both versions, as fast as they can. Each holder makes a file that must not
/// be there, locks it, and removes it again; each node books its epochs.
fn hundreds(lab: &mut Lab) -> Result {
    const EACH: usize = 70;
    lab.put("contend", &super::midway::contend()?)?;
    lab.add(NodeSpec::client("c"))?;
    lab.boot("c")?;
    let dir = lab.fresh_dir("hundreds")?;
    let began = Instant::now();
    let mut jobs: Vec<Job> = Vec::new();
    for node in ["a", "b", "c"] {
        for (i, mount) in [BOTH[0], BOTH[1], BOTH[0]].into_iter().enumerate() {
            let words = format!(
                "contend {mount}/{dir}/x.lease --claims {EACH} --until {EACH} --log /run/{dir}.log --seed {i} --hold 1"
            );
            jobs.push(
                lab.node(node)?
                    .cmd(&["sh", "-c", &format!("mkdir -p /run/home; exec {words}")])
                    .start()?,
            );
        }
    }
    let mut failed = Vec::new();
    for job in &jobs {
        if ended(job, Duration::from_secs(240))? != 0 {
            failed.extend(job.wait(Duration::ZERO)?.map(|done| done.err()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    let (mut epochs, mut lines) = (BTreeSet::new(), 0);
    for node in ["a", "b", "c"] {
        let log = lab.node(node)?.ok(&format!("cat /run/{dir}.log"))?;
        let booked: Vec<u64> = log
            .lines()
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        assert!(booked.len() >= EACH && booked.is_sorted(), "{node}: {booked:?}");
        lines += booked.len();
        epochs.extend(booked);
    }
    assert_eq!(epochs.len(), lines, "an epoch was given twice");
    let last: u64 = field(&lab.node("a")?, &format!("{}/{dir}/x.lease", BOTH[0]), "epoch")?.parse()?;
    assert!(epochs.last() <= Some(&last), "{epochs:?}, then {last}");
    super::say(&format!("  {lines} holders in {:.0} s", began.elapsed().as_secs_f64()));
    lab.forget("c")
}

fn crowd(lab: &mut Lab) -> Result {
    let plan = Plan {
        leases: 1,
        crowd: 3,
        faults: &[],
        longest: 100,
        ..Plan::new(seed()?, Duration::from_secs(30))
    };
    let report = run(lab, &plan)?;
    assert!(report.hand_overs >= 30 && report.between_nodes >= 3, "{report}");
    Ok(())
}

fn servers(lab: &mut Lab) -> Result {
    let plan = Plan {
        faults: &[Fault::ServerPowerCut, Fault::ServerRestart],
        longest: 100,
        ..Plan::new(seed()?, Duration::from_secs(35))
    };
    let report = run(lab, &plan)?;
    // A failure every 5 to 11 s, and grace periods of 10 s: for most of the time nobody can do anything.
    assert!(report.hand_overs >= 3, "{report}");
    Ok(())
}

fn everything(lab: &mut Lab) -> Result {
    let report = run(
        lab,
        &Plan {
            faults: ALL,
            ..Plan::new(seed()?, Duration::from_secs(60))
        },
    )?;
    assert!(report.hand_overs >= 5, "{report}");
    Ok(())
}
