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
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use std::vec::IntoIter;

/// Starts on a healthy lab with the server and the login nodes a and b, and may leave it in any state.
struct Scenario {
    name: &'static str,
    run: fn(&mut Lab) -> Result,
}

/// These wait for most of their time, and so run in several labs at once. The longest first.
const TOGETHER: &[&[Scenario]] = &[
    crowd::SCENARIOS,
    midway::SCENARIOS,
    server::SCENARIOS,
    holder::SCENARIOS,
    doctor::SCENARIOS,
    mounts::SCENARIOS,
    smoke::SCENARIOS,
    story::SCENARIOS,
];

/// The server, a and b; what a scenario adds comes after them.
const NODES: usize = 3;

/// These want the machine for themselves.
const ALONE: &[&[Scenario]] = &[cost::ALONE, crowd::ALONE];

/// One test for all scenarios: they share labs, and labs take the whole machine.
/// LEASEHOLD_LAB_ONLY=part,part runs those whose name contains one of the parts; those named `extra: …` only then.
#[test]
fn scenarios() {
    play_role();
    if let Some(reason) = needs::missing() {
        let required = std::env::var("LEASEHOLD_REQUIRE_LAB").is_ok_and(|v| v == "1");
        assert!(!required, "the lab is required: {reason}");
        return say(&format!("SKIP lab: {reason}"));
    }
    let all = TOGETHER.iter().chain(ALONE).copied().flatten();
    assert!(
        all.map(|s| s.name).any(wanted),
        "LEASEHOLD_LAB_ONLY: no scenario has such a name"
    );
    let failed = Mutex::default();
    for (all, labs) in [(TOGETHER, labs()), (ALONE, 1)] {
        let wanted: Vec<&Scenario> = all.iter().copied().flatten().filter(|s| wanted(s.name)).collect();
        let (labs, queue) = (labs.min(wanted.len()), Mutex::new(wanted.into_iter()));
        thread::scope(|scope| {
            let jobs: Vec<_> = (0..labs).map(|_| scope.spawn(|| run(&queue, &failed))).collect();
            for job in jobs {
                if let Err(e) = job.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                    locked(&failed).push(e.to_string());
                }
            }
        });
    }
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n\n"));
}

/// LEASEHOLD_LAB_LABS, or three: most scenarios wait, so it takes no more cores, but up to 1 GB each.
fn labs() -> usize {
    let labs = std::env::var("LEASEHOLD_LAB_LABS").ok().and_then(|n| n.parse().ok());
    labs.unwrap_or(3).max(1)
}

fn wanted(name: &str) -> bool {
    let only = std::env::var("LEASEHOLD_LAB_ONLY").unwrap_or_default();
    only.split(',').any(|part| name.contains(part)) && (!only.is_empty() || !name.starts_with("extra:"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Boots a lab, and runs scenarios in it for as long as there are any.
fn run(queue: &Mutex<IntoIter<&Scenario>>, failed: &Mutex<Vec<String>>) -> Result {
    let started = Instant::now();
    let mut lab = Lab::up(Setup {
        base: base(),
        helper: Helper::this_program(&["scenarios", "--exact", "--nocapture", "--test-threads=1"])?,
        programs: product().into_iter().map(|file| ("leasehold".into(), file)).collect(),
        nodes: vec![NodeSpec::client("a"), NodeSpec::client("b")],
    })?;
    let (run, namespace, dir) = (lab.run().to_owned(), lab.namespace(), lab.dir().to_owned());
    let seconds = |since: Instant| since.elapsed().as_secs_f64();
    say(&format!("lab {run}: up in {:.1} s", seconds(started)));

    loop {
        // Not in the loop's head, where the queue would stay locked for the body.
        let next = locked(queue).next();
        let Some(scenario) = next else { break };
        let started = Instant::now();
        for added in lab.names().iter().skip(NODES) {
            lab.forget(added)?;
        }
        lab.heal()?;
        let (healed, started) = (seconds(started), Instant::now());
        let outcome = catch_unwind(AssertUnwindSafe(|| (scenario.run)(&mut lab)))
            .unwrap_or_else(|panic| Err(message(panic.as_ref()).into()));
        let word = if outcome.is_ok() { "ok    " } else { "FAILED" };
        say(&format!(
            "lab {run}: {word} {:6.1} s  {} (healed in {healed:.1} s)",
            seconds(started),
            scenario.name
        ));
        if let Err(e) = outcome {
            let nodes = lab.names().into_iter().map(|n| {
                let health = lab.health(&n).unwrap_or_else(|e| e.to_string());
                format!("\n--- {n}: {health}\n{}", lab.console(&n))
            });
            locked(failed).push(format!("{}: {e}{}", scenario.name, nodes.collect::<String>()));
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
