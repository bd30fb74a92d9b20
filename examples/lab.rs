//! The lab for a person: `scripts/lab` builds and starts this. It is also the agent inside its nodes.

#[cfg(target_os = "linux")]
#[path = "../tests/lab/kit/mod.rs"]
mod kit;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("lab: it takes Linux");
    std::process::exit(125);
}

#[cfg(target_os = "linux")]
fn main() {
    kit::play_role();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match person::command(&args) {
        Ok(code) => std::process::exit(code),
        Err(e) => {
            eprintln!("lab: {e}");
            // Not a code that a command on a node commonly ends with.
            std::process::exit(125);
        }
    }
}

#[cfg(target_os = "linux")]
mod person {
    use super::kit::lab::{Power, base};
    use super::kit::soak::{self, Plan};
    use super::kit::{Helper, Lab, Mount, NodeSpec, Result, Setup, needs};
    use std::io::Write;
    use std::path::PathBuf;
    use std::time::Duration;

    const USAGE: &str = "usage: lab up [NODE[:MOUNT-OPTIONS]…] | exec NODE CMD… | crash NODE | boot NODE | cut NODE | \
        mend NODE | pause NODE | resume NODE | clock NODE ±SECONDS | status | down | soak [--minutes N] [--seed S]";

    pub fn command(args: &[&str]) -> Result<i32> {
        match args {
            ["up", nodes @ ..] => up(nodes)?,
            ["exec", node, cmd @ ..] if !cmd.is_empty() => return exec(node, cmd),
            ["crash", node] => alone()?.crash(node)?,
            ["boot", node] => alone()?.boot(node)?,
            ["cut", node] => alone()?.cut(node)?,
            ["mend", node] => alone()?.mend(node)?,
            ["pause", node] => alone()?.pause(node)?,
            ["resume", node] => alone()?.resume(node)?,
            ["clock", node, seconds] => {
                alone()?.clock(
                    node,
                    seconds
                        .parse()
                        .map_err(|e| format!("{seconds}: {e}; give seconds like +5 or -5"))?,
                )?;
            }
            ["status"] => status()?,
            ["down"] => alone()?.down()?,
            ["soak", options @ ..] => return soak(options),
            _ => return Err(USAGE.into()),
        }
        Ok(0)
    }

    fn lab() -> Result<Lab> {
        Lab::attach(&base())
    }

    fn alone() -> Result<Lab> {
        Lab::attach_alone(&base())
    }

    fn up(words: &[&str]) -> Result {
        if let Some(reason) = needs::missing() {
            return Err(reason.into());
        }
        if let Ok(lab) = lab() {
            return Err(format!("lab {} is up; `down` ends it", lab.run()).into());
        }
        let mut nodes: Vec<NodeSpec> = Vec::new();
        for word in if words.is_empty() { &["a", "b"] } else { words } {
            let (name, options) = word.split_once(':').map_or((*word, None), |(n, o)| (n, Some(o)));
            let mount = options.map(Mount::asked);
            match (nodes.iter_mut().find(|n| n.name == name), mount) {
                (Some(known), Some(mount)) => known.mounts.push(mount),
                (Some(_), None) => return Err(format!("node {name} is named twice").into()),
                (None, Some(mount)) => nodes.push(NodeSpec::client(name).mounts(vec![mount])),
                (None, None) => nodes.push(NodeSpec::client(name)),
            }
        }
        start(nodes)?.detach()
    }

    fn start(nodes: Vec<NodeSpec>) -> Result<Lab> {
        let helper = Helper::this_program(&[])?;
        // This is target/PROFILE/examples/lab.
        let beside = helper.exe.ancestors().nth(2).map(|dir| dir.join("leasehold"));
        let product = std::env::var_os("LEASEHOLD_BIN")
            .map(PathBuf::from)
            .or(beside.filter(|p| p.exists()));
        let programs = product.into_iter().map(|p| ("leasehold".into(), p)).collect();
        Lab::up(Setup {
            base: base(),
            helper,
            programs,
            nodes,
        })
    }

    /// A lab of its own, with three login nodes; 1 when the checker has found something.
    fn soak(mut options: &[&str]) -> Result<i32> {
        let (mut minutes, mut seed) = (10, u64::from(std::process::id()));
        while let [option, value, rest @ ..] = options {
            let number = value.parse().map_err(|e| format!("{option} {value}: {e}"))?;
            match *option {
                "--minutes" => minutes = number,
                "--seed" => seed = number,
                _ => return Err(USAGE.into()),
            }
            options = rest;
        }
        if !options.is_empty() {
            return Err(USAGE.into());
        }
        if let Some(reason) = needs::missing() {
            return Err(reason.into());
        }
        println!("seed {seed}, {minutes} minutes");
        let mut lab = start(["a", "b", "c"].map(NodeSpec::client).into())?;
        let report = soak::soak(&mut lab, &Plan::new(seed, Duration::from_secs(60 * minutes)))?;
        lab.down()?;
        println!("{report}");
        Ok(i32::from(!report.violations.is_empty()))
    }

    fn exec(node: &str, cmd: &[&str]) -> Result<i32> {
        let done = lab()?.node(node)?.cmd(cmd).limit(Duration::from_secs(3600)).run()?;
        std::io::stdout().write_all(&done.stdout)?;
        std::io::stderr().write_all(&done.stderr)?;
        Ok(done.code)
    }

    fn status() -> Result {
        let lab = lab()?;
        let mut out = std::io::stdout().lock();
        for name in lab.names() {
            let power = match lab.power(&name)? {
                Power::Up => "up",
                Power::Paused => "paused",
                Power::Off => "off",
            };
            writeln!(
                out,
                "{name}\t{power}\t{}",
                if lab.is_cut(&name)? { "cut" } else { "connected" }
            )?;
        }
        Ok(())
    }
}
