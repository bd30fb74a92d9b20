//! How long a judgement takes inside a program, with the process table asked: `judge_bench DIR [ROUNDS]`. Prints two
//! lines: a `Judge` made once, and one made anew each time; name, median, 10th and 90th percentile in µs.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::{Judge, Judgement, Lease, Reason};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let dir = words.next().unwrap_or_else(|| ".".into());
    let rounds = words.next().map_or(Ok(20_000), |word| word.parse())?;
    let path = Path::new(&dir).join(format!("judge-bench-{}.lease", std::process::id()));
    let lease = Lease::claim(&path)?;
    let here = Judge::here();
    time("judge, identity known", rounds, || here.judge(&path).0);
    time("judge, from scratch", rounds, || leasehold::judge(&path));
    drop(lease);
    // Nobody else uses the path.
    std::fs::remove_file(path)?;
    Ok(())
}

fn time(name: &str, rounds: usize, judge: impl Fn() -> Judgement) {
    let once = || {
        let began = Instant::now();
        let judgement = judge();
        let time = began.elapsed();
        assert_eq!(judgement.reason, Reason::ProcessRunning, "a lease of this process");
        time
    };
    for _ in 0..rounds / 10 {
        once();
    }
    let mut times: Vec<Duration> = (0..rounds).map(|_| once()).collect();
    times.sort();
    let at = |part: f64| times[((rounds - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{name}\t{:.1}\t{:.1}\t{:.1}", at(0.5), at(0.1), at(0.9));
}
