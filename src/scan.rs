//! Sweeping directories: every record in them judged, many at a time. Changes nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use crate::facts::{Facts, LeaseFacts, ProcessFacts, RecordState};
use crate::fs::{Kind, Stat};
use crate::lapse::Watch;
use crate::names;
use crate::observe::{Judge, ProcessTable, Sight, directory, look, look_listed};
use crate::owner::Pid;
use crate::platform;
use crate::record::Record;
use crate::verdict::{Judgement, Reason, Verdict};

/// Names that are looked through in one directory.
const LISTED: usize = 1_000_000;

/// Reads that are under way at once, unless told otherwise: a network filesystem answers that many in the time of one.
const JOBS: NonZeroUsize = NonZeroUsize::new(32).expect("32 is not 0");

/// The most that may be asked for.
pub const MOST_JOBS: usize = 1024;

/// How often a dead-looking record that keeps changing is looked at again.
const TRIES: usize = 4;

/// Between two reports of progress.
const TICK: Duration = Duration::from_millis(200);

/// The ending of a name by which a file that cannot be recognised by its content is taken for a record.
const EXTENSION: &str = "lease";

/// A sweep over directories.
///
/// Which files of a directory are records is told by their content: one whose first bytes are those of an owner line is
/// listed, be it broken. Of those without any such content, an empty, overlong or vanished file, a link and whatever is no
/// file are listed only where their name ends in `.lease`. What cannot be read may be a record, and is listed. Temp files,
/// ballots and second names of records, broken records that are kept, and `.nfs*`, are not records; a record that has only
/// a second name for the moment is listed by its own. A path that is named itself is listed whatever it is.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use leasehold::{Lease, Scan, Verdict};
///
/// let lease = Lease::claim(dir.path().join("bridge.lease"))?;
/// let mut held = 0;
/// let swept = Scan::new([dir.path()]).run(|finding| held += usize::from(finding.judgement.verdict == Verdict::Held));
/// assert!(held == 1 && swept.failures.is_empty());
/// # drop(lease);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a scan does nothing until `run` is called"]
#[derive(Debug)]
pub struct Scan<F = fn(usize)> {
    judge: Judge,
    roots: Vec<PathBuf>,
    recursive: bool,
    legacy: bool,
    jobs: NonZeroUsize,
    on_progress: Option<F>,
}

/// One record of a sweep.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Where.
    pub path: PathBuf,
    /// What the judge says.
    pub judgement: Judgement,
    /// What that rests on.
    pub facts: Facts,
    /// The record, where there is a whole one.
    pub record: Option<Record>,
    /// How long ago the claim was made, or, where that is not recorded, the file was changed: by wall clocks of two
    /// hosts, for people only.
    pub age: Option<Duration>,
    /// What runs under the recorded pid now, where the record places it on this host: whatever it is.
    pub now: Option<String>,
}

impl Finding {
    /// Whether all these fields of the run state say this.
    pub fn has(&self, fields: &[(String, String)]) -> bool {
        fields
            .iter()
            .all(|(key, value)| self.record.as_ref().is_some_and(|record| record.state.says(key, value)))
    }

    /// Whether the file could be read, whatever it holds.
    pub fn was_read(&self) -> bool {
        self.facts.record.state != RecordState::Unreadable
    }
}

/// What a sweep could not look through.
#[derive(Debug)]
pub struct Failure {
    /// The directory, or a path that was named.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// How a sweep went.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Swept {
    /// Names that were looked at.
    pub files: usize,
    /// Directories and paths that could not be.
    pub failures: Vec<Failure>,
}

/// How many there are of what, and what to do about them.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: [usize; 5],
    reasons: BTreeSet<&'static str>,
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) in_doubt: usize,
}

impl Tally {
    /// In the order in which they are counted.
    pub const VERDICTS: [Verdict; 5] = [
        Verdict::Held,
        Verdict::Dead,
        Verdict::Lapsed,
        Verdict::Undetermined,
        Verdict::Free,
    ];

    /// Counts one.
    pub fn add(&mut self, judgement: &Judgement) {
        let at = Self::VERDICTS
            .iter()
            .position(|verdict| *verdict == judgement.verdict)
            .expect("every verdict is in the list");
        self.counts[at] += 1;
        self.reasons.insert(judgement.reason.word());
        self.in_doubt += usize::from(judgement.effect == crate::verdict::Effect::InDoubt);
        let foreign = matches!(judgement.reason, Reason::ForeignHost | Reason::ServerAttested);
        let host = judgement.owner.host.as_ref().filter(|_| foreign);
        if let Some(host) = host.filter(|host| !self.hosts.contains(*host)) {
            self.hosts.insert(host.clone());
        }
    }

    /// How many there are of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        Self::VERDICTS
            .iter()
            .zip(self.counts)
            .find_map(|(known, count)| (*known == verdict).then_some(count))
            .unwrap_or_default()
    }

    /// How many there are in all.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Whether any has this reason.
    pub fn has(&self, reason: Reason) -> bool {
        self.reasons.contains(reason.word())
    }
}

impl Scan {
    /// A sweep over these directories, and over single records that are named.
    pub fn new<P: Into<PathBuf>>(roots: impl IntoIterator<Item = P>) -> Self {
        Self {
            judge: Judge::here(),
            roots: roots.into_iter().map(Into::into).collect(),
            recursive: false,
            legacy: false,
            jobs: JOBS,
            on_progress: None,
        }
    }
}

impl<F: FnMut(usize)> Scan<F> {
    /// Looks from there instead of from this process over real files.
    pub fn from(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    /// Also the directories below. Links to directories are not followed.
    pub fn recursive(mut self, yes: bool) -> Self {
        self.recursive = yes;
        self
    }

    /// Also files in which other programs name an owner; see [`crate::legacy`].
    pub fn legacy(mut self, yes: bool) -> Self {
        self.legacy = yes;
        self
    }

    /// How many reads may be under way at once, at most [`MOST_JOBS`]; 32 unless told otherwise.
    pub fn jobs(mut self, jobs: NonZeroUsize) -> Self {
        self.jobs = jobs.min(NonZeroUsize::new(MOST_JOBS).expect("it is not 0"));
        self
    }

    /// Called a few times a second with the number of files looked at so far.
    pub fn on_progress<G: FnMut(usize)>(self, call: G) -> Scan<G> {
        Scan {
            judge: self.judge,
            roots: self.roots,
            recursive: self.recursive,
            legacy: self.legacy,
            jobs: self.jobs,
            on_progress: Some(call),
        }
    }

    /// Looks through the directories and hands over each record, judged, in the order of paths.
    ///
    /// All are read first. Then each pid that matters is asked about once, so that no answer about a process is older
    /// than a record it is used for. What looks dead is read once more: its owner may just have released it and ended.
    pub fn run(self, each: impl FnMut(Finding)) -> Swept {
        self.run_with(|finding| finding, each)
    }

    /// The same, with a part of the work on each record done by the threads that judge: `made` is called by many at once,
    /// and what it gives is handed over in the order of paths.
    pub fn run_with<T: Send>(mut self, made: impl Fn(Finding) -> T + Sync, mut each: impl FnMut(T)) -> Swept {
        let walk = Walk {
            judge: &self.judge,
            recursive: self.recursive,
            legacy: self.legacy,
            queue: Mutex::default(),
            more: Condvar::new(),
            found: Mutex::default(),
            failures: Mutex::default(),
            looked: AtomicUsize::new(0),
            jobs: self.jobs.get(),
        };
        for (root, path) in self.roots.iter().enumerate() {
            walk.start(root, path);
        }
        let on_progress = &mut self.on_progress;
        let mut tick = |files| {
            if let Some(call) = on_progress.as_mut() {
                call(files);
            }
        };
        // A channel to wait on until every worker is done: each holds a sender.
        let (alive, done) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let spawn = |_| {
                let (walk, alive) = (&walk, alive.clone());
                let work = move || {
                    let _alive = alive;
                    walk.work();
                };
                std::thread::Builder::new().spawn_scoped(scope, work)
            };
            // At a limit of processes, as many as there may be; this one, if there may be no other.
            if (0..self.jobs.get()).map_while(|n| spawn(n).ok()).count() == 0 {
                walk.work();
            }
            drop(alive);
            while let Err(RecvTimeoutError::Timeout) = done.recv_timeout(TICK) {
                tick(walk.looked.load(Ordering::Relaxed));
            }
        });
        let files = walk.looked.into_inner();
        let mut found = unpoisoned(walk.found.into_inner());
        let mut failures = unpoisoned(walk.failures.into_inner());
        found.sort_unstable_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
        failures.sort_by(|a, b| a.path.cmp(&b.path));

        let weigher = Weigher {
            cached: self.judge.clone().with_table(Arc::new(Once {
                table: self.judge.table.clone(),
                asked: Mutex::default(),
            })),
            judge: &self.judge,
            names: Mutex::default(),
            now: SystemTime::now(),
        };
        let parts = Mutex::new(parts(found));
        let (out, results) = mpsc::sync_channel(1024);
        let workers = self.jobs.get().min(unpoisoned(parts.lock()).len());
        std::thread::scope(|scope| {
            let next = || {
                let (at, part) = unpoisoned(parts.lock()).pop_front()?;
                let findings: Vec<T> = part.into_iter().map(|seen| made(weigher.weigh(seen))).collect();
                Some((at, findings))
            };
            let spawn = |_| {
                let out = out.clone();
                let work = move || {
                    while let Some(findings) = next() {
                        // The other side takes all there are.
                        let _ = out.send(findings);
                    }
                };
                std::thread::Builder::new().spawn_scoped(scope, work)
            };
            if (0..workers).map_while(|n| spawn(n).ok()).count() == 0 {
                // Alone, they come in order.
                while let Some((_, findings)) = next() {
                    findings.into_iter().for_each(&mut each);
                }
            }
            drop(out);
            let mut early = HashMap::new();
            let mut due = 0;
            loop {
                match results.recv_timeout(TICK) {
                    Ok((at, findings)) => {
                        early.insert(at, findings);
                    }
                    Err(RecvTimeoutError::Timeout) => tick(files),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                while let Some(findings) = early.remove(&due) {
                    findings.into_iter().for_each(&mut each);
                    due += 1;
                }
            }
        });
        Swept { files, failures }
    }
}

/// What a worker judges in one go, numbered: small enough for every worker to get some.
fn parts(mut found: Vec<Seen>) -> VecDeque<(usize, Vec<Seen>)> {
    let size = (found.len() / 256).clamp(1, 32);
    let mut parts = VecDeque::with_capacity(found.len() / size + 1);
    while !found.is_empty() {
        let rest = found.split_off(found.len().saturating_sub(size));
        parts.push_front(rest);
    }
    parts.into_iter().enumerate().collect()
}

fn unpoisoned<T>(result: std::sync::LockResult<T>) -> T {
    result.expect("a worker that panics ends the scan before this")
}

/// A file that may be a record, as it was read.
struct Seen {
    root: usize,
    path: PathBuf,
    sight: Sight,
}

enum Job {
    List { root: usize, dir: PathBuf, named: bool },
    Look { root: usize, paths: Vec<PathBuf>, by: By },
}

/// How a path was come by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// It was named.
    Request,
    /// Its directory lists it.
    Listing,
    /// Its directory does not, but what may be a second name of it.
    SecondName,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Workers that are at a job, which may lead to others.
    busy: usize,
}

/// A worker that is at a job; also when it panics, so that the others do not wait for it.
struct Busy<'a>(&'a Walk<'a>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.busy -= 1;
        if queue.busy == 0 && queue.jobs.is_empty() {
            self.0.more.notify_all();
        }
    }
}

/// The first part of a scan: finding and reading.
struct Walk<'a> {
    judge: &'a Judge,
    recursive: bool,
    legacy: bool,
    queue: Mutex<Queue>,
    more: Condvar,
    found: Mutex<Vec<Seen>>,
    failures: Mutex<Vec<Failure>>,
    looked: AtomicUsize,
    jobs: usize,
}

impl Walk<'_> {
    /// A path that was named: a directory, also through a link, or a file.
    fn start(&self, root: usize, path: &Path) {
        let fs = &*self.judge.fs;
        let found = fs.stat(path).map(|stat| match stat.kind {
            // With this ending the link is followed, if it leads to a directory.
            Kind::Symlink => fs.stat(&path.join(".")).map_or(Kind::Symlink, |stat| stat.kind),
            kind => kind,
        });
        let path = path.to_owned();
        match found {
            Ok(Kind::Directory) => self.push([Job::List {
                root,
                dir: path,
                named: true,
            }]),
            // Unless its name has only been taken away from it for the moment.
            Err(error) if error.kind() != io::ErrorKind::NotFound || look(fs, &path).is_absent() => {
                self.fail(path, error);
            }
            _ => self.push([Job::Look {
                root,
                paths: vec![path],
                by: By::Request,
            }]),
        }
    }

    fn fail(&self, path: PathBuf, error: io::Error) {
        unpoisoned(self.failures.lock()).push(Failure { path, error });
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        unpoisoned(self.queue.lock())
    }

    fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        self.queue().jobs.extend(jobs);
        self.more.notify_all();
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let _busy = Busy(self);
            match job {
                Job::List { root, dir, named } => self.list(root, dir, named),
                Job::Look { root, paths, by } => self.look(root, paths, by),
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.busy += 1;
                return Some(job);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = unpoisoned(self.more.wait(queue));
        }
    }

    fn list(&self, root: usize, dir: PathBuf, named: bool) {
        let fs = &*self.judge.fs;
        // Asked of the server, so that no cached name leads to a record that has been replaced before this.
        let listed = fs.stat(&dir).and_then(|_| fs.list(&dir, LISTED + 1));
        let mut names = match listed {
            Ok(names) => names,
            // A directory below one that was named may vanish, as files do.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !named => return,
            Err(error) => return self.fail(dir, error),
        };
        if names.len() > LISTED {
            names.truncate(LISTED);
            let more = format!("more than {LISTED} names; the others were not looked at");
            self.fail(dir.clone(), io::Error::other(more));
        }
        let mut hidden: BTreeSet<_> = names
            .iter()
            .filter_map(|name| names::first_of(name).map(platform::os_string))
            .filter(|name| !is_other(name))
            .collect();
        names.retain(|name| !is_other(name));
        for name in &names {
            hidden.remove(name);
        }
        self.push_looks(root, &dir, &names, By::Listing);
        let hidden: Vec<_> = hidden.into_iter().collect();
        self.push_looks(root, &dir, &hidden, By::SecondName);
    }

    fn push_looks(&self, root: usize, dir: &Path, names: &[OsString], by: By) {
        // Small enough for every worker to get some.
        let part = (names.len() / (self.jobs * 4)).clamp(1, 16);
        let parts = names.chunks(part).map(|names| Job::Look {
            root,
            paths: names.iter().map(|name| dir.join(name)).collect(),
            by,
        });
        self.push(parts);
    }

    fn look(&self, root: usize, paths: Vec<PathBuf>, by: By) {
        let fs = &*self.judge.fs;
        let mut found = Vec::new();
        for path in paths {
            let sight = match by {
                By::Listing => look_listed(fs, &path),
                By::Request | By::SecondName => look(fs, &path),
            };
            if by == By::SecondName && sight.is_absent() {
                continue;
            }
            self.looked.fetch_add(1, Ordering::Relaxed);
            let directory = sight.stat.is_some_and(|stat| stat.kind == Kind::Directory);
            if by == By::Request || self.is_record(&path, &sight) {
                found.push(Seen { root, path, sight });
            } else if directory && self.recursive {
                self.push([Job::List {
                    root,
                    dir: path,
                    named: false,
                }]);
            }
        }
        unpoisoned(self.found.lock()).extend(found);
    }

    fn is_record(&self, path: &Path, sight: &Sight) -> bool {
        let Err(facts) = &sight.content else { return true };
        if facts.legacy.is_some() {
            return self.legacy;
        }
        let named_so = path.extension() == Some(OsStr::new(EXTENSION));
        match facts.state {
            RecordState::Unreadable | RecordState::NewerFormat => true,
            _ if sight.ours => true,
            RecordState::NotAFile => named_so && sight.stat.is_none_or(|stat| stat.kind != Kind::Directory),
            // A pid file that is about to be written.
            RecordState::Empty => named_so || self.legacy && path.extension() == Some(OsStr::new("pid")),
            _ => named_so,
        }
    }
}

/// What stands beside records and is none: what Leasehold writes there for a moment, broken records that are kept, and
/// what an NFS client keeps of files that are open and removed.
fn is_other(name: &OsStr) -> bool {
    names::is_companion(name) || names::is_broken(name) || name.as_encoded_bytes().starts_with(b".nfs")
}

/// The second part: judging.
struct Weigher<'a> {
    cached: Judge,
    judge: &'a Judge,
    names: Mutex<HashMap<Pid, Option<String>>>,
    now: SystemTime,
}

impl Weigher<'_> {
    fn weigh(&self, seen: Seen) -> Finding {
        let Seen { path, mut sight, .. } = seen;
        let clock = &self.judge.clock;
        let mut watch = Watch::default();
        let mut lease = LeaseFacts::default();
        let _ = watch.saw(sight.mark(), clock.now(), clock.now());
        let (mut judgement, mut facts) = self.cached.weigh_with_server(&path, &sight, lease);
        for _ in 0..TRIES {
            if judgement.verdict != Verdict::Dead || facts.record.legacy.is_some() {
                break;
            }
            let began = clock.now();
            if self.is_as_it_was(&path, &sight) {
                break;
            }
            let again = look(&*self.judge.fs, &path);
            if again.stamp() == sight.stamp() {
                break;
            }
            lease = watch.saw(again.mark(), began, clock.now());
            sight = again;
            // Not from the cache: its answers are older than this.
            (judgement, facts) = self.judge.weigh_with_server(&path, &sight, lease);
        }
        Finding {
            age: self.age(&sight, &facts),
            now: self.running(&facts),
            path,
            record: sight.content.ok().map(|record| *record),
            judgement,
            facts,
        }
    }

    /// Whether the very file that was read has the name still, as far as can be told without reading it again.
    fn is_as_it_was(&self, path: &Path, sight: &Sight) -> bool {
        let fs = &*self.judge.fs;
        // For a client that may go on trusting a name, as in every look.
        let fresh = fs.stat(directory(path)).and_then(|_| fs.stat(path));
        let file = |stat: Stat| (stat.device, stat.inode, stat.size, stat.changed);
        // Not where a system does not number its files.
        fresh.is_ok_and(|now| now.inode != 0 && Some(file(now)) == sight.stat.map(file))
    }

    fn age(&self, sight: &Sight, facts: &Facts) -> Option<Duration> {
        let since = facts.record.since.as_deref();
        let made = match since.and_then(|since| humantime::parse_rfc3339_weak(since.trim_end_matches('Z')).ok()) {
            Some(time) => time,
            None => SystemTime::UNIX_EPOCH.checked_add(sight.stat?.changed)?,
        };
        Some(self.now.duration_since(made).unwrap_or_default())
    }

    /// The command line of what has the pid now; only where a process was asked about, so never under a foreign pid.
    fn running(&self, facts: &Facts) -> Option<String> {
        facts.process.as_ref().filter(|process| process.exists == Some(true))?;
        let pid = facts.record.valid_pid()?;
        let known = unpoisoned(self.names.lock()).get(&pid).cloned();
        known.unwrap_or_else(|| {
            let bracketed = || platform::process_name(pid).map(|name| format!("[{name}]"));
            let command = platform::command_line(pid).or_else(bracketed);
            unpoisoned(self.names.lock()).insert(pid, command.clone());
            command
        })
    }
}

/// A process table that asks about each pid once.
#[derive(Debug)]
struct Once {
    table: Arc<dyn ProcessTable>,
    asked: Mutex<HashMap<Pid, Arc<OnceLock<ProcessFacts>>>>,
}

impl ProcessTable for Once {
    fn probe(&self, pid: Pid, _pidfd: bool) -> ProcessFacts {
        let answer = unpoisoned(self.asked.lock()).entry(pid).or_default().clone();
        // With the inode, which another record of the same pid may need.
        answer.get_or_init(|| self.table.probe(pid, true)).clone()
    }
}
