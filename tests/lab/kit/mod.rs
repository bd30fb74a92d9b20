//! The lab: whole Linux kernels (User Mode Linux) with a kernel NFS server and kernel NFS clients on one machine.
//! docs/lab.md is its manual. The test target and `examples/lab.rs` both include this module; each uses its own part.
#![allow(dead_code)]

pub mod agent;
pub mod history;
pub mod ids;
pub mod lab;
pub mod mountstats;
pub mod needs;
pub mod net;
pub mod soak;
pub mod turns;
pub mod witness;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

pub use lab::{Lab, Mount, NodeSpec, Setup};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ROLE: &str = "LEASEHOLD_LAB_ROLE";

/// How to start this very executable again, as a node's agent or as the guard of a run.
#[derive(Clone)]
pub struct Helper {
    pub exe: PathBuf,
    pub args: Vec<String>,
}

impl Helper {
    pub fn this_program(args: &[&str]) -> Result<Self> {
        let exe = std::env::current_exe().map_err(|e| format!("find this program's own file: {e}"))?;
        Ok(Self {
            exe,
            args: args.iter().map(|&a| a.into()).collect(),
        })
    }
}

/// To be called first by every program that may be a `Helper`. Returns only if it is not one.
pub fn play_role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let ended = match role.split_once('=') {
        Some(("agent", address)) => agent::serve(address),
        Some(("guard", run)) => lab::guard(run.as_ref()),
        Some(("work", address)) => witness::work(address),
        Some(("time", rounds)) => turns::serve(rounds),
        _ => Err(format!("{ROLE}={role}: no such role").into()),
    };
    if let Err(e) = ended {
        eprintln!("lab: {e}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// Polls until the condition yields a value; `what` names it in the error when `limit` is over.
pub fn until<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(format!("waited {limit:?} in vain: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn tool(program: &str, args: &[&str]) -> Result {
    let out = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| format!("start {program}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&out.stderr).trim()
    )
    .into())
}
