//! Real kernels, a real NFS server, and what goes wrong between them. docs/lab.md tells how to run it and how to add to it.
#![cfg(target_os = "linux")]

mod cost;
mod crowd;
mod doctor;
mod holder;
mod kit;
mod midway;
mod mounts;
mod product;
mod server;
mod smoke;
mod story;

use kit::lab::base;
use kit::{Helper, Lab, NodeSpec, Result, Setup, ids, needs, net, play_role};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

/// Starts on a healthy lab with the server and the login nodes a and b, and may leave it in any state.
struct Scenario {
    name: &'static str,
    run: fn(&mut Lab) -> Result,
}

/// In the order of their running.
const SCENARIOS: &[&[Scenario]] = &[
    smoke::SCENARIOS,
    story::SCENARIOS,
    holder::SCENARIOS,
    server::SCENARIOS,
    midway::SCENARIOS,
    mounts::SCENARIOS,
    doctor::SCENARIOS,
    cost::SCENARIOS,
    crowd::SCENARIOS,
];

/// One test for all scenarios: they share one lab, and a lab takes the whole machine.
/// LEASEHOLD_LAB_ONLY=part,part runs those whose name contains one of the parts; those named `extra: …` only then.
#[test]
fn scenarios() {
    play_role();
    if let Some(reason) = needs::missing() {
        let required = std::env::var("LEASEHOLD_REQUIRE_LAB").is_ok_and(|v| v == "1");
        assert!(!required, "the lab is required: {reason}");
        return say(&format!("SKIP lab: {reason}"));
    }
    if let Err(e) = run() {
        panic!("{e}");
    }
}

fn run() -> Result {
    let started = Instant::now();
    let mut lab = Lab::up(Setup {
        base: base(),
        helper: Helper::this_program(&["scenarios", "--exact", "--nocapture", "--test-threads=1"])?,
        programs: product().into_iter().map(|file| ("leasehold".into(), file)).collect(),
        nodes: vec![NodeSpec::client("a"), NodeSpec::client("b")],
    })?;
    let (run, namespace, dir) = (lab.run().to_owned(), lab.namespace(), lab.dir().to_owned());
    say(&format!("lab {run}: up in {:.1} s", started.elapsed().as_secs_f64()));

    let mut failed = Vec::new();
    let only = std::env::var("LEASEHOLD_LAB_ONLY").unwrap_or_default();
    let wanted = |s: &&Scenario| {
        let named = only.split(',').any(|part| s.name.contains(part));
        named && (!only.is_empty() || !s.name.starts_with("extra:"))
    };
    for scenario in SCENARIOS.iter().copied().flatten().filter(wanted) {
        lab.heal()?;
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (scenario.run)(&mut lab)))
            .unwrap_or_else(|panic| Err(message(panic.as_ref()).into()));
        let word = if outcome.is_ok() { "ok    " } else { "FAILED" };
        say(&format!(
            "lab {run}: {word} {:6.1} s  {}",
            started.elapsed().as_secs_f64(),
            scenario.name
        ));
        if let Err(e) = outcome {
            let consoles = lab
                .names()
                .into_iter()
                .map(|n| format!("\n--- console of {n}\n{}", lab.console(&n)));
            failed.push(format!("{}: {e}{}", scenario.name, consoles.collect::<String>()));
        }
    }

    lab.down()?;
    let left = namespace.map(ids::inside).unwrap_or_default();
    assert!(left.is_empty(), "{} processes are left", left.len());
    assert!(
        !net::namespace_file(&run).exists(),
        "the namespace is left, with its taps"
    );
    assert!(!dir.exists(), "{} is left", dir.display());
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n\n"));
    Ok(())
}

fn product() -> Option<PathBuf> {
    std::env::var_os("LEASEHOLD_BIN")
        .map(PathBuf::from)
        .or(option_env!("CARGO_BIN_EXE_leasehold").map(PathBuf::from))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}

/// Past the capture of libtest: a skip must be seen, and a run of minutes should show where it is.
fn say(line: &str) {
    // With standard error closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}
