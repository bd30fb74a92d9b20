//! Many that want the same lease, and the checker.

use super::Scenario;
use super::kit::soak::{self, ALL, Fault, Plan, Report};
use super::kit::{Lab, NodeSpec, Result};
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "crowd of three nodes",
        run: crowd,
    },
    Scenario {
        name: "extra: crowd over restarts of the server",
        run: servers,
    },
    Scenario {
        name: "extra: soak, a minute of everything",
        run: everything,
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
        ..Plan::new(seed()?, Duration::from_secs(45))
    };
    let report = run(lab, &plan)?;
    assert!(report.hand_overs >= 10, "{report}");
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
