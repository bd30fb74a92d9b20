//! Times commands on a node in turn (A B A B …), so that a machine that gets slower meanwhile is so for all of them.

use super::agent::Node;
use super::{ROLE, Result};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Commands that run one after the other and are timed together. In a word, `@OUT@` stands for what the one before
/// printed.
#[derive(Serialize, Deserialize)]
pub struct Side {
    pub name: String,
    pub commands: Vec<Vec<String>>,
}

impl Side {
    pub fn new(name: &str, commands: &[&[&str]]) -> Self {
        let words = |command: &&[&str]| command.iter().map(|&word| word.into()).collect();
        Self {
            name: name.into(),
            commands: commands.iter().map(words).collect(),
        }
    }
}

/// In milliseconds.
#[derive(Serialize, Deserialize)]
pub struct Time {
    pub name: String,
    pub median: f64,
    pub p10: f64,
    pub p90: f64,
}

pub fn time(node: &Node, agent: &[String], rounds: u32, sides: &[Side]) -> Result<Vec<Time>> {
    let words: Vec<&str> = agent.iter().map(|word| &**word).collect();
    let done = node
        .cmd(&words)
        .env(ROLE, &format!("time={rounds}"))
        .stdin(&serde_json::to_string(sides)?)
        .limit(Duration::from_secs(600))
        .run()?;
    // The test runner's own lines come first.
    let out = done.out();
    let json = out.find("[{").map_or("", |at| &out[at..]);
    serde_json::from_str(json).map_err(|e| format!("{e}: {} {}", done.out(), done.err()).into())
}

/// On the node.
pub fn serve(rounds: &str) -> Result {
    let rounds: usize = rounds.parse()?;
    let sides: Vec<Side> = serde_json::from_reader(std::io::stdin())?;
    let mut times: Vec<Vec<f64>> = sides.iter().map(|_| Vec::new()).collect();
    // The first rounds fill caches.
    for round in 0..rounds + 3 {
        for (side, times) in sides.iter().zip(&mut times) {
            let began = Instant::now();
            let mut out = String::new();
            for words in &side.commands {
                let words: Vec<String> = words.iter().map(|word| word.replace("@OUT@", out.trim())).collect();
                let done = Command::new(&words[0])
                    .args(&words[1..])
                    .stderr(Stdio::null())
                    .output()?;
                if !done.status.success() {
                    return Err(format!("{}: {words:?} ended with {}", side.name, done.status).into());
                }
                out = String::from_utf8_lossy(&done.stdout).into_owned();
            }
            if round >= 3 {
                times.push(began.elapsed().as_secs_f64() * 1000.0);
            }
        }
    }
    let told: Vec<Time> = sides
        .into_iter()
        .zip(times)
        .map(|(side, times)| summary(side.name, times))
        .collect();
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}

pub fn summary(name: String, mut times: Vec<f64>) -> Time {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Time {
        median: at(0.5),
        p10: at(0.1),
        p90: at(0.9),
        name,
    }
}
