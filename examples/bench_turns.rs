//! Times commands in turn (A B A B …), so that a machine that gets slower or faster meanwhile is so for both.
//!
//! `bench_turns ROUNDS SIDE… `, where a side is a name, its words, and `::` at its end; `;;` separates commands of one
//! side that run one after the other and are timed together. In a word, `@OUT@` stands for what the command before
//! printed, and `@PID@` for this process. Prints a line a side: name, median, 10th and 90th percentile in µs.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

struct Side {
    name: String,
    commands: Vec<Vec<String>>,
    times: Vec<Duration>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let rounds: usize = match words.next().map(|word| word.parse()) {
        Some(Ok(rounds)) if rounds > 0 => rounds,
        _ => {
            eprintln!("usage: bench_turns ROUNDS NAME WORD… [;; WORD…] :: [NAME WORD… ::]…");
            return ExitCode::from(64);
        }
    };
    let words: Vec<String> = words.collect();
    let mut sides: Vec<Side> = words
        .split(|word| word == "::")
        .filter_map(|side| side.split_first())
        .map(|(name, words)| Side {
            name: name.clone(),
            commands: words.split(|word| word == ";;").map(<[String]>::to_vec).collect(),
            times: Vec::with_capacity(rounds),
        })
        .collect();
    // The first rounds fill caches.
    for round in 0..rounds + 5 {
        for side in &mut sides {
            let began = Instant::now();
            if let Err(message) = side.run() {
                eprintln!("bench_turns: {}: {message}", side.name);
                return ExitCode::from(70);
            }
            if round >= 5 {
                side.times.push(began.elapsed());
            }
        }
    }
    for side in &mut sides {
        side.times.sort();
        let at = |part: f64| side.times[((rounds - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
        println!("{}\t{:.0}\t{:.0}\t{:.0}", side.name, at(0.5), at(0.1), at(0.9));
    }
    ExitCode::SUCCESS
}

impl Side {
    fn run(&self) -> Result<(), String> {
        let mut out = String::new();
        for words in &self.commands {
            let given = |word: &String| {
                word.replace("@OUT@", out.trim_end())
                    .replace("@PID@", &std::process::id().to_string())
            };
            let mut words = words.iter().map(given);
            let program = words.next().ok_or("no command")?;
            // Both sides are read to the end, whether they print anything or not.
            let done = Command::new(&program)
                .args(words)
                .stdin(Stdio::null())
                .output()
                .map_err(|error| format!("{program}: {error}"))?;
            if !done.status.success() {
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                return Err(format!("{program}: {}: {said}", done.status));
            }
            out = String::from_utf8_lossy(&done.stdout).into_owned();
        }
        Ok(())
    }
}
