//! For `scripts/bench-scan`: makes records to scan, and times a scan over a filesystem that answers slowly.
//!
//!   scan_bench make DIR COUNT PID    COUNT records: half of PID, a quarter of a dead process, a quarter of another host
//!   scan_bench slow DIR MS JOBS…     seconds for a scan of DIR when every call takes MS milliseconds, a line a JOBS

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Claim, Judge, Pid, Record, Scan};

#[path = "../tests/support/stand_in.rs"]
mod stand_in;
use stand_in::{Call, stand_in};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", dir, count, pid] => make(Path::new(dir), count.parse()?, pid.parse()?),
        ["slow", dir, milliseconds, ref jobs @ ..] => {
            let latency = Duration::from_millis(milliseconds.parse()?);
            for jobs in jobs {
                let fs = Arc::new(Slow(latency));
                let began = Instant::now();
                let mut found = 0;
                Scan::new([dir])
                    .from(Judge::here().with_fs(fs))
                    .jobs(jobs.parse::<NonZeroUsize>()?)
                    .run(|_| found += 1);
                println!("{jobs}\t{found}\t{:.3}", began.elapsed().as_secs_f64());
            }
            Ok(())
        }
        _ => Err("usage: scan_bench make DIR COUNT PID | slow DIR MS JOBS…".into()),
    }
}

fn make(dir: &Path, count: usize, pid: i64) -> Result<(), Box<dyn Error>> {
    let owner = Pid::new(pid).ok_or("no pid")?;
    let first = dir.join("0.lease");
    let _ = std::fs::remove_file(&first);
    Claim::new(&first).owner(owner).set("role", "bridge").take()?.leave();
    let held = Record::parse(&std::fs::read(&first)?).map_err(|flaw| flaw.to_string())?;
    let mut dead = held.clone();
    dead.owner.pid = Pid::new(4_194_000);
    let mut foreign = held.clone();
    foreign.owner.host = Some("login-z".into());
    foreign.owner.machine = Some("ffffffffffff4fffbfffffffffffffff".into());
    foreign.owner.boot = Some("00000001-1111-4222-8333-444455556666".into());
    for n in 0..count {
        let record = match n % 4 {
            0 | 2 => &held,
            1 => &dead,
            _ => &foreign,
        };
        std::fs::write(dir.join(format!("{n}.lease")), record.print())?;
    }
    Ok(())
}

/// Real files behind a filesystem that takes its time for every call.
#[derive(Debug)]
struct Slow(Duration);

impl Slow {
    fn pass<T>(&self, _: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        std::thread::sleep(self.0);
        make()
    }
}

stand_in!(Slow);
