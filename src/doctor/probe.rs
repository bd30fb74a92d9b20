//! Finding out: what this host says of itself, and what a directory does when it is tried.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::facts::{Clock, HostFacts, LeaseFacts, Place, Trial, Tried};
use super::scratch::{self, Scratch};
use crate::fs::{Fs, Kind};
use crate::names;
use crate::observe::Judge;
use crate::owner::Pid;
use crate::platform;
use crate::scan::{Scan, Tally};
use crate::verdict::{Effect, Reason};

/// Stamps that are taken to see in which steps they come.
const STAMPS: usize = 5;

/// Kernels stamp a file with the time of their last timer tick.
pub(super) const TICK: f64 = 0.01;

/// Replacements during which a name must not be missing, and how long they may take in all.
const REPLACED: usize = 100;
const REPLACING: Duration = Duration::from_secs(2);

/// More than any scratch file holds.
const LIMIT: usize = 64;

pub(super) fn host(judge: &Judge) -> HostFacts {
    let host = judge.host();
    let probe = |pid: u32, pidfd| {
        Pid::new(pid.into())
            .map(|pid| judge.table.probe(pid, pidfd))
            .unwrap_or_default()
    };
    HostFacts {
        observer: host.observer.clone(),
        host_id_source: host.host_id_source.map(str::to_owned),
        weaknesses: host.weaknesses(),
        machine_id_on: platform::mount_of(Path::new("/etc/machine-id")).map(|mount| mount.kind),
        static_name: platform::static_host_name(),
        pidfs: probe(std::process::id(), true).pidfd.is_some(),
        // The first process is root's, here or in this container.
        others_hidden: probe(1, false).start_readable == Some(false),
    }
}

/// What can be seen without a change.
pub(super) fn look(judge: &Judge, dir: &Path) -> Place {
    let mut place = Place::default();
    match judge.fs.stat(&dir.join(".")) {
        Ok(stat) if stat.kind == Kind::Directory => {
            (place.mode, place.gid) = (Some(stat.mode).filter(|_| stat.inode != 0), Some(stat.gid));
        }
        Ok(_) => place.unusable = Some("it is no directory".into()),
        Err(error) => place.unusable = Some(error.to_string()),
    }
    if place.unusable.is_none() {
        // After the first call that may hang, none of these is likely to.
        place.mount = platform::mount_of(dir);
        place.locks = (judge.reach)(dir);
        place.space = judge.fs.space(dir).ok();
    }
    place
}

/// Tries what changes something, with files that are removed again. The last stamp that the filesystem gave comes back.
pub(super) fn attempt(judge: &Judge, dir: &Path, place: &mut Place) -> Option<Duration> {
    let tries = Tries {
        fs: &*judge.fs,
        scratch: Scratch::new(judge, dir),
    };
    let mut tried = |trial, outcome: Outcome| {
        let tried = outcome.unwrap_or_else(|tried| tried);
        let works = tried == Tried::Works;
        place.trials.push((trial, tried));
        works
    };
    if !tried(Trial::Create, tries.create()) || !tried(Trial::Write, tries.write()) {
        return None;
    }
    if tried(Trial::Link, tries.link()) {
        tried(Trial::LinkCount, tries.link_count());
    }
    if tried(Trial::Rename, tries.rename()) {
        tried(Trial::AtomicRename, tries.atomic());
        tried(Trial::Inode, tries.identity());
    }
    tried(Trial::Beat, tries.beat());
    tried(Trial::Futimens, tries.touch());
    tried(Trial::Flock, tries.excludes(|file| tries.fs.lock(file)));
    if tried(Trial::FcntlLock, tries.excludes(|file| tries.fs.lock_range(file))) {
        tried(Trial::Getlk, tries.ask_lock());
    }
    if let Some(space) = place.space {
        tried(Trial::LongName, tries.long_name(space.longest_name));
    }
    let (clock, now) = tries.clock().ok()?;
    place.clock = Some(clock);
    Some(now)
}

type Outcome = Result<Tried, Tried>;

impl From<io::Error> for Tried {
    fn from(error: io::Error) -> Self {
        if platform::is_unsupported(&error) {
            Self::Missing(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

fn wrong(what: impl Into<String>) -> Outcome {
    Err(Tried::Wrong(what.into()))
}

/// A second exclusive creation of a name must say that it is taken.
fn exclusive(second: io::Result<()>) -> Outcome {
    match second {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Tried::Works),
        Err(error) => Err(error.into()),
        Ok(()) => wrong("a name can be taken twice"),
    }
}

struct Tries<'a> {
    fs: &'a dyn Fs,
    scratch: Scratch<'a>,
}

impl Tries<'_> {
    /// A file with this in it, safe.
    fn file(&self, path: &Path, content: &[u8]) -> io::Result<std::fs::File> {
        let file = self.fs.create(path, None)?;
        self.fs.write_at(&file, content, 0)?;
        self.fs.sync(&file)?;
        Ok(file)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.fs.read(&self.fs.open(path)?, LIMIT)
    }

    fn create(&self) -> Outcome {
        let path = self.scratch.name();
        self.fs.create(&path, None)?;
        exclusive(self.fs.create(&path, None).map(drop))
    }

    fn write(&self) -> Outcome {
        let path = self.scratch.name();
        self.file(&path, b"written\n")?;
        match &*self.read(&path)? {
            b"written\n" => Ok(Tried::Works),
            _ => wrong("other bytes"),
        }
    }

    fn link(&self) -> Outcome {
        let (from, to) = (self.scratch.name(), self.scratch.name());
        self.file(&from, b"linked\n")?;
        self.fs.link(&from, &to)?;
        exclusive(self.fs.link(&from, &to))
    }

    fn link_count(&self) -> Outcome {
        let (from, to) = (self.scratch.name(), self.scratch.name());
        self.file(&from, b"linked\n")?;
        self.fs.link(&from, &to)?;
        let (one, other) = (self.fs.stat(&from)?, self.fs.stat(&to)?);
        if one.inode != other.inode {
            return wrong(format!("inodes {} and {}", one.inode, other.inode));
        }
        match other.links {
            2 => Ok(Tried::Works),
            links => wrong(format!("link count {links}")),
        }
    }

    fn rename(&self) -> Outcome {
        // FUSE moves an open file out of the way first, so that only one that is not open tells what the server can do.
        for open in [false, true] {
            let (old, new) = (self.scratch.name(), self.scratch.name());
            let kept = Some(self.file(&old, b"old\n")?).filter(|_| open);
            self.file(&new, b"new\n")?;
            self.fs.rename(&new, &old)?;
            let read = self.read(&old)?;
            drop(kept);
            if read != b"new\n" {
                return wrong("the old content is still read");
            }
        }
        Ok(Tried::Works)
    }

    /// While one thread replaces a file again and again, another looks for it.
    fn atomic(&self) -> Outcome {
        let name = self.scratch.name();
        self.file(&name, b"old\n")?;
        let (done, missed, looks) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        // The looking thread has no use for the scratch names.
        let fs = self.fs;
        let replaced = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let gone = fs.stat(&name).is_err_and(|error| error.kind() == ErrorKind::NotFound);
                    missed.fetch_add(usize::from(gone), Ordering::Relaxed);
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
            let replace = || -> io::Result<()> {
                let began = std::time::Instant::now();
                let mut count = 0;
                // On a machine that is busy, the other thread may start late.
                while (count < REPLACED || looks.load(Ordering::Relaxed) < REPLACED) && began.elapsed() < REPLACING {
                    let new = self.scratch.name();
                    fs.create(&new, None)?;
                    fs.rename(&new, &name)?;
                    count += 1;
                }
                Ok(())
            };
            let replaced = replace();
            done.store(true, Ordering::Relaxed);
            replaced
        });
        replaced?;
        match missed.into_inner() {
            0 => Ok(Tried::Works),
            missed => wrong(format!("in {missed} of {} looks", looks.into_inner())),
        }
    }

    fn identity(&self) -> Outcome {
        let (from, to) = (self.scratch.name(), self.scratch.name());
        let file = self.file(&from, b"one\n")?;
        let before = self.fs.stat(&from)?.inode;
        self.fs.rename(&from, &to)?;
        let (by_name, by_file) = (self.fs.stat(&to)?.inode, self.fs.stat_file(&file)?.inode);
        match (by_name, by_file) {
            // A system that does not number its files.
            (0, 0) => Err(Tried::Missing("files have no numbers".into())),
            (name, file) if name == before && file == before => Ok(Tried::Works),
            (name, file) => wrong(format!("from {before} to {name} by name and {file} by descriptor")),
        }
    }

    fn beat(&self) -> Outcome {
        let path = self.scratch.name();
        let file = self.file(&path, b"beat 1\n")?;
        self.read(&path)?;
        self.fs.write_at(&file, b"beat 2\n", 0)?;
        self.fs.sync(&file)?;
        match &*self.read(&path)? {
            b"beat 2\n" => Ok(Tried::Works),
            _ => wrong("the bytes before are read"),
        }
    }

    fn touch(&self) -> Outcome {
        let file = self.file(&self.scratch.name(), b"touched\n")?;
        let before = self.fs.stat_file(&file)?.changed;
        self.fs.touch(&file)?;
        if self.fs.stat_file(&file)?.changed < before {
            return wrong("they went back");
        }
        Ok(Tried::Works)
    }

    /// Whether a lock by one open description refuses another one's.
    fn excludes(&self, lock: impl Fn(&std::fs::File) -> io::Result<()>) -> Outcome {
        let path = self.scratch.name();
        let one = self.file(&path, b"locked\n")?;
        let other = self.fs.reopen(&path)?;
        lock(&one)?;
        match lock(&other) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Tried::Works),
            Err(error) => Err(error.into()),
            Ok(()) => wrong("two have it at once"),
        }
    }

    fn ask_lock(&self) -> Outcome {
        let path = self.scratch.name();
        let one = self.file(&path, b"locked\n")?;
        let other = self.fs.reopen(&path)?;
        if self.fs.is_locked(&other)? {
            return wrong("it tells of one that nobody has");
        }
        self.fs.lock_range(&one)?;
        match self.fs.is_locked(&other)? {
            true => Ok(Tried::Works),
            false => wrong("it says that there is none"),
        }
    }

    fn long_name(&self, longest: u64) -> Outcome {
        let path = usize::try_from(longest)
            .ok()
            .and_then(|longest| self.scratch.name_of(longest));
        match path {
            Some(path) => self.fs.create(&path, None).map(|_| Tried::Works).map_err(Tried::from),
            None => wrong(format!("it allows {longest} bytes")),
        }
    }

    /// Compares the stamps of new files with this host's clock, and gives the last one.
    fn clock(&self) -> io::Result<(Clock, Duration)> {
        let mut best: Option<(f64, f64)> = None;
        let mut stamps = Vec::with_capacity(STAMPS);
        for _ in 0..STAMPS {
            let (offset, uncertainty, stamp) = stamp(self.fs, &self.scratch.name())?;
            stamps.push(stamp);
            if best.is_none_or(|(_, least)| uncertainty < least) {
                best = Some((offset, uncertainty));
            }
        }
        let (offset, uncertainty) = best.expect("there is at least one stamp");
        let step = step(&stamps);
        let now = *stamps.last().expect("there is at least one stamp");
        Ok((
            Clock {
                offset,
                uncertainty: uncertainty + step.max(TICK),
                step,
            },
            now,
        ))
    }
}

/// A new file's stamp, and how far ahead of this host's clock that is, give or take.
pub(super) fn stamp(fs: &dyn Fs, path: &Path) -> io::Result<(f64, f64, Duration)> {
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64()
    };
    let before = now();
    let file = fs.create(path, None)?;
    fs.write_at(&file, b"now\n", 0)?;
    fs.sync(&file)?;
    let stamp = fs.stat_file(&file)?.changed;
    let after = now();
    let uncertainty = (after - before).abs() / 2.0;
    Ok((stamp.as_secs_f64() - (before + after) / 2.0, uncertainty, stamp))
}

/// The largest decimal step, in seconds, that all the stamps are multiples of.
fn step(stamps: &[Duration]) -> f64 {
    let mut step = 1_000_000_000_u32;
    while step > 1 && stamps.iter().any(|stamp| stamp.subsec_nanos() % step != 0) {
        step /= 10;
    }
    f64::from(step) / 1e9
}

pub(super) fn leases(judge: &Judge, dir: &Path, swept: usize) -> LeaseFacts {
    let mut facts = LeaseFacts {
        swept,
        ..LeaseFacts::default()
    };
    let own = &judge.host().observer;
    let mut tally = Tally::default();
    let add = |list: &mut Vec<String>, name: &Option<String>| {
        let name = name.clone().unwrap_or_else(|| "a host without a name".into());
        if !list.contains(&name) {
            list.push(name);
        }
    };
    let done = Scan::new([dir]).from(judge.clone()).run(|finding| {
        tally.add(&finding.judgement);
        let (record, reason) = (&finding.facts.record, finding.judgement.reason);
        facts.newer += usize::from(reason == Reason::NewerFormat);
        facts.broken += usize::from(matches!(reason, Reason::Torn | Reason::Malformed | Reason::Empty));
        facts.in_doubt += usize::from(finding.judgement.effect == Effect::InDoubt);
        if !finding.was_read() {
            let why = record.detail.as_deref().unwrap_or("it cannot be read");
            facts.failures.push(format!("{}: {why}", finding.path.display()));
        }
        let same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        match (same(&record.boot, &own.boot), same(&record.machine, &own.machine)) {
            (true, false) if record.machine.is_some() && own.machine.is_some() => {
                add(&mut facts.boot_twins, &record.host);
            }
            (true, true) if record.host != own.host => add(&mut facts.former_names, &record.host),
            (false, true) if record.host != own.host => add(&mut facts.twins, &record.host),
            _ => {}
        }
    });
    let failed = |failure: &crate::scan::Failure| format!("{}: {}", failure.path.display(), failure.error);
    facts.failures.extend(done.failures.iter().map(failed));
    facts.counts = Tally::VERDICTS.map(|verdict| (verdict, tally.count(verdict))).to_vec();
    for name in judge.fs.list(dir, 1_000_000).unwrap_or_default() {
        facts.temp_files += usize::from(names::is_temp(&name) && !scratch::is_ours(&name));
        facts.ballots += usize::from(names::is_second(&name));
        facts.kept += usize::from(names::is_broken(&name));
    }
    facts
}
