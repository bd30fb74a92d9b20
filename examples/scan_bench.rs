//! For `scripts/bench-scan`: makes records to scan, and times a scan over a filesystem that answers slowly.
//!
//!   scan_bench make DIR COUNT PID    COUNT records: half of PID, a quarter of a dead process, a quarter of another host
//!   scan_bench slow DIR MS JOBS…     seconds for a scan of DIR when every call takes MS milliseconds, a line a JOBS

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::fs::{Disk, Fs, Stat};
use leasehold::{Claim, Judge, Pid, Record, Scan};

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
    fn later<T>(&self, answer: T) -> T {
        std::thread::sleep(self.0);
        answer
    }
}

impl Fs for Slow {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.later(Disk.stat(path))
    }
    fn stat_file(&self, file: &File) -> io::Result<Stat> {
        self.later(Disk.stat_file(file))
    }
    fn open(&self, path: &Path) -> io::Result<File> {
        self.later(Disk.open(path))
    }
    fn reopen(&self, path: &Path) -> io::Result<File> {
        self.later(Disk.reopen(path))
    }
    fn read(&self, file: &File, limit: usize) -> io::Result<Vec<u8>> {
        self.later(Disk.read(file, limit))
    }
    fn create(&self, path: &Path, like: Option<&Stat>) -> io::Result<File> {
        self.later(Disk.create(path, like))
    }
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.later(Disk.write_at(file, bytes, offset))
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.later(Disk.sync(file))
    }
    fn is_locked(&self, file: &File) -> io::Result<bool> {
        self.later(Disk.is_locked(file))
    }
    fn lock(&self, file: &File) -> io::Result<()> {
        self.later(Disk.lock(file))
    }
    fn symlink(&self, target: &OsStr, link: &Path) -> io::Result<()> {
        self.later(Disk.symlink(target, link))
    }
    fn read_link(&self, link: &Path) -> io::Result<OsString> {
        self.later(Disk.read_link(link))
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.later(Disk.link(from, to))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.later(Disk.rename(from, to))
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.later(Disk.unlink(path))
    }
    fn list(&self, dir: &Path, limit: usize) -> io::Result<Vec<OsString>> {
        self.later(Disk.list(dir, limit))
    }
}
