//! Looking: from a path to facts, and from facts to a judgement. Reading changes nothing on disk.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ballot::Stamp;
use crate::clock::{BootClock, Clock};
use crate::error::{Error, Result};
use crate::facts::{Facts, LeaseFacts, LegacyFacts, LockFacts, PayloadFacts, ProcessFacts, RecordFacts, RecordState};
use crate::fs::{Disk, Fs, Kind, Stat};
use crate::identity::Host;
use crate::lapse::{Mark, Watch};
use crate::legacy::{self, Content, FAMILIES};
use crate::mount::LockReach;
use crate::names::{self, TempId};
use crate::owner::Pid;
use crate::platform;
use crate::record::{Flaw, LARGEST, Record};
use crate::verdict::{Judgement, Question, Reason, Verdict, examine};

/// How often a look is taken again when the server says that the file is stale: replaced while we looked.
const STALE_TRIES: usize = 8;

/// Beyond this a stamp later than this host's boot is no matter of clocks that differ a little.
const BOOT_CLOCK_SLACK: Duration = Duration::from_secs(300);

/// The largest bound pid file that is read.
const LARGEST_PAYLOAD: usize = 4096;

/// How a record begins.
const MARK: &[u8] = b"{\"leasehold\"";

/// Judges the record at `path` as seen from this host and process. Changes nothing.
///
/// What cannot be read is [`Verdict::Undetermined`] with the reason, never an error and never "dead".
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let judgement = leasehold::judge(dir.path().join("bridge.lease"));
/// assert_eq!(judgement.verdict, leasehold::Verdict::Free);
/// assert_eq!(judgement.reason, leasehold::Reason::NoRecord);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn judge(path: impl AsRef<Path>) -> Judgement {
    Judge::here().judge(path.as_ref()).0
}

/// Answers about processes of this host.
pub trait ProcessTable: fmt::Debug + Send + Sync {
    /// What is known of one pid of this pid namespace; with `pidfd` also its pidfs inode.
    fn probe(&self, pid: Pid, pidfd: bool) -> ProcessFacts;
}

/// The kernel's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelTable;

impl ProcessTable for KernelTable {
    fn probe(&self, pid: Pid, pidfd: bool) -> ProcessFacts {
        platform::probe(pid, pidfd)
    }
}

/// Finds out what the rules ask for, and nothing else, and judges.
pub fn resolve(facts: &mut Facts, table: &dyn ProcessTable) -> Judgement {
    loop {
        match examine(facts) {
            Ok(judgement) => return judgement,
            Err(Question::Process { pid, pidfd }) => facts.process = Some(table.probe(pid, pidfd)),
            Err(Question::Keeper(pid)) => {
                let keeper = table.probe(pid, false);
                facts.process.get_or_insert_default().keeper = Some(Box::new(keeper));
            }
        }
    }
}

/// Where one looks from: this host, with its filesystem, process table and clock.
#[derive(Clone, Debug)]
pub struct Judge {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) table: Arc<dyn ProcessTable>,
    pub(crate) host: Arc<Host>,
    /// How far the locks of a directory's files reach.
    pub(crate) reach: fn(&Path) -> LockReach,
}

impl Judge {
    /// From this process, over real files.
    pub fn here() -> Self {
        Self {
            fs: Arc::new(Disk),
            clock: Arc::new(BootClock),
            table: Arc::new(KernelTable),
            host: Arc::new(Host::here()),
            reach: platform::lock_reach,
        }
    }

    /// With another filesystem.
    pub fn with_fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// With another clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// With another answer to how far the locks of a directory's files reach.
    #[doc(hidden)]
    pub fn with_lock_reach(mut self, reach: fn(&Path) -> LockReach) -> Self {
        self.reach = reach;
        self
    }

    /// With another process table.
    pub fn with_table(mut self, table: Arc<dyn ProcessTable>) -> Self {
        self.table = table;
        self
    }

    /// This host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Whether the writer of a temp file was a process of this boot and pid namespace, `scope`, that has ended.
    pub(crate) fn has_ended(&self, scope: u64, temp: TempId) -> bool {
        scope != 0
            && temp.scope() == scope
            && Pid::new(temp.pid().into()).is_some_and(|pid| {
                let found = self.table.probe(pid, false);
                // What has exited and only waits to be reaped makes no more calls.
                found.exists == Some(false) || found.threads_alive == Some(false)
            })
    }

    /// Reads a record without judging it; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when it cannot be read, [`Error::NotARecord`] when it is something else.
    pub fn read(&self, path: &Path) -> Result<Option<Record>> {
        let sight = look(&*self.fs, path);
        match sight.content {
            Ok(record) => Ok(Some(*record)),
            Err(facts) if facts.state == RecordState::Absent => Ok(None),
            Err(facts) => Err(not_a_record(path, &facts)),
        }
    }

    /// Looks once and judges. The facts can be saved and judged again elsewhere.
    pub fn judge(&self, path: &Path) -> (Judgement, Facts) {
        self.weigh_with_server(path, &look(&*self.fs, path), LeaseFacts::default())
    }

    /// The same, with the testimony of the file server about a lock that another host's owner promised to keep.
    pub(crate) fn weigh_with_server(&self, path: &Path, sight: &Sight, lease: LeaseFacts) -> (Judgement, Facts) {
        let (judgement, mut facts) = self.weigh(path, sight, lease);
        if judgement.reason != Reason::ForeignHost || facts.record.lock.is_none() {
            return (judgement, facts);
        }
        let reach = (self.reach)(directory(path));
        facts.lock = LockFacts {
            asked: Some(false),
            held: None,
            reaches_server: Some(reach.can_be_asked()),
            protocol: Some(reach.word().to_owned()),
        };
        if !reach.can_be_asked() {
            return (crate::verdict::judge(&facts), facts);
        }
        let held = self.fs.open(path).and_then(|file| self.fs.is_locked(&file)).ok();
        // The answer is about the file that was opened: it must still be the record that was read.
        let now = look(&*self.fs, path);
        if now.stamp().map(|stamp| (stamp.token, stamp.seq)) != sight.stamp().map(|stamp| (stamp.token, stamp.seq)) {
            return self.weigh(path, &now, LeaseFacts::default());
        }
        (facts.lock.asked, facts.lock.held) = (Some(true), held);
        (crate::verdict::judge(&facts), facts)
    }

    /// Looks again and again for at most `time`, so that a lapse can be told: until a verdict cannot change by waiting,
    /// a foreign lease was renewed, or it lapsed.
    pub fn observe(&self, path: &Path, time: Duration) -> (Judgement, Facts) {
        let end = self.clock.now().saturating_add(time);
        let mut watch = Watch::default();
        loop {
            let began = self.clock.now();
            let sight = look(&*self.fs, path);
            let lease = watch.saw(sight.mark(), began, self.clock.now());
            let (judgement, facts) = self.weigh_with_server(path, &sight, lease);
            let settled = match judgement.verdict {
                Verdict::Undetermined => judgement.reason.is_final() || facts.lease.renewal_seen == Some(true),
                // A renewal would contradict it.
                Verdict::Dead => judgement.reason != Reason::HostRebooted || facts.record.ttl.is_none(),
                _ => true,
            };
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() || settled {
                return (judgement, facts);
            }
            self.clock.sleep(left.min(Duration::from_millis(500)));
        }
    }

    /// Judges what a look found, asking the process table only where the rules need it.
    pub(crate) fn weigh(&self, path: &Path, sight: &Sight, lease: LeaseFacts) -> (Judgement, Facts) {
        let record = match &sight.content {
            Ok(record) => RecordFacts::from(&**record),
            Err(facts) => (**facts).clone(),
        };
        let mut observer = self.host.observer.clone();
        observer.uptime = Some(platform::since_boot().as_secs_f64());
        let mut facts = Facts {
            payload: record.binds.as_ref().map(|file| payload(&*self.fs, path, file)),
            lease: LeaseFacts {
                changed_since_boot: changed_since_boot(&record, &observer.boot, sight),
                ..lease
            },
            record,
            observer,
            ..Facts::default()
        };
        let judgement = resolve(&mut facts, &*self.table);
        match birth(&facts) {
            None => (judgement, facts),
            born => {
                facts.record.legacy.get_or_insert_default().born = born;
                (resolve(&mut facts, &*self.table), facts)
            }
        }
    }
}

/// When the process that has the pid now was born, as a reading of the wall clock: asked where a record of this boot
/// gives such a reading.
fn birth(facts: &Facts) -> Option<i64> {
    let (record, start) = (&facts.record, facts.process.as_ref()?.start?);
    let here = record.boot.is_some() && record.boot == facts.observer.boot;
    record.legacy.as_ref().filter(|_| here)?.started?;
    platform::born(start)
}

/// Why what was found is no record that could be read.
pub(crate) fn not_a_record(path: &Path, facts: &RecordFacts) -> Error {
    let family = |legacy: &LegacyFacts| {
        let known = FAMILIES.iter().find(|family| family.name == legacy.family);
        known.map_or_else(|| legacy.family.clone(), |family| family.about.to_owned())
    };
    let why = facts.detail.clone().or_else(|| facts.legacy.as_ref().map(family));
    let why = why.unwrap_or_else(|| "it names no host".into());
    let path = path.to_owned();
    match facts.state {
        RecordState::Unreadable => Error::Unreadable { path, why },
        _ => Error::NotARecord { path, why },
    }
}

/// Whether the record's stamp lies clearly after this host's boot by this host's clock. Only asked of records of
/// another boot; a claim, which has a stamp of the same filesystem to compare with, asks again exactly.
fn changed_since_boot(record: &RecordFacts, boot: &Option<String>, sight: &Sight) -> Option<bool> {
    let stat = sight.stat.filter(|_| record.boot.is_some() && record.boot != *boot)?;
    let booted = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()?
        .checked_sub(platform::since_boot())?;
    Some(stat.changed > booted + BOOT_CLOCK_SLACK)
}

/// What one look at a path found.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    /// The record, or why there is none.
    pub content: std::result::Result<Box<Record>, Box<RecordFacts>>,
    /// The file, where there is one.
    pub stat: Option<Stat>,
    /// Whether its first bytes are those of a record, be it a broken one.
    pub ours: bool,
}

impl Sight {
    fn flawed(state: RecordState, detail: impl fmt::Display) -> Self {
        Self {
            content: Err(Box::new(RecordFacts::flawed(state, detail))),
            stat: None,
            ours: false,
        }
    }

    /// What makes this state of the record; `None` without a record.
    pub fn stamp(&self) -> Option<Stamp> {
        let record = self.content.as_ref().ok()?;
        Some(Stamp {
            token: record.owner.token,
            seq: record.owner.seq,
            beat: record.beat,
        })
    }

    /// The same with when it was written.
    pub fn mark(&self) -> Option<Mark> {
        let written = self.stat.map_or(Duration::ZERO, |stat| stat.changed);
        self.stamp().map(|stamp| Mark { stamp, written })
    }

    /// Whether there is nothing at the path.
    pub fn is_absent(&self) -> bool {
        self.content
            .as_ref()
            .is_err_and(|facts| facts.state == RecordState::Absent)
    }
}

/// One look at a record, bounded in time and size by whatever the path turns out to be.
pub(crate) fn look(fs: &dyn Fs, path: &Path) -> Sight {
    look_again(fs, path, true)
}

/// The same where the file server has just been asked, for the directory's names or for this one.
pub(crate) fn look_listed(fs: &dyn Fs, path: &Path) -> Sight {
    look_again(fs, path, false)
}

fn look_again(fs: &dyn Fs, path: &Path, mut freshen: bool) -> Sight {
    let mut last = Sight::flawed(RecordState::Unreadable, "");
    for _ in 0..STALE_TRIES {
        match try_look(fs, path, std::mem::replace(&mut freshen, true)) {
            Ok(sight) if sight.is_absent() => match by_second_name(fs, path) {
                Ok(Some(kept)) => return kept,
                Ok(None) => return sight,
                Err(error) if platform::is_stale(&error) => last = Sight::flawed(RecordState::Unreadable, error),
                Err(error) => return Sight::flawed(RecordState::Unreadable, format!("its other names: {error}")),
            },
            Ok(sight) => return sight,
            Err(error) if platform::is_stale(&error) => last = Sight::flawed(RecordState::Unreadable, error),
            Err(error) => return Sight::flawed(RecordState::Unreadable, error),
        }
    }
    last
}

/// What stands in the place of a ballot.
#[derive(Debug)]
pub(crate) enum Slip {
    /// The second name of a record.
    Record {
        record: Box<Record>,
        /// The temp file that the record was written to, if it says so.
        temp: Option<TempId>,
        stat: Stat,
    },
    /// A file of its own, where there are no hard links, and whom it names; or what somebody else put there.
    File(Option<TempId>),
}

/// Reads a ballot of the record at `path`.
pub(crate) fn read_ballot(fs: &dyn Fs, path: &Path, number: u64) -> io::Result<Slip> {
    let name = path.file_name().unwrap_or_default();
    read_slip(fs, name, &path.with_file_name(names::ballot(name, number)))
}

fn read_slip(fs: &dyn Fs, name: &OsStr, slip: &Path) -> io::Result<Slip> {
    let stat = fs.stat(slip)?;
    if stat.kind != Kind::File {
        return Ok(Slip::File(None));
    }
    let file = fs.open(slip)?;
    let bytes = fs.read(&file, LARGEST + 1)?;
    if let Ok(record) = Record::parse(&bytes) {
        let (temp, record) = (record.owner.change, Box::new(record));
        return Ok(Slip::Record { record, temp, stat });
    }
    let named = std::str::from_utf8(&bytes).ok();
    Ok(Slip::File(
        named.and_then(|named| names::parse_temp(name, named.as_ref())),
    ))
}

/// The record by its second name, where its own is not there. An NFS client renames in two steps onto a file that it has
/// open: it puts that file aside as `.nfs…` first (`nfs_rename` in the kernel's fs/nfs/dir.c), and does so too when there
/// is nothing any more to put in its place. So a record that is being replaced is kept under a second name, and one keeps
/// its ballot while rivals that were disarmed may still try to replace it.
pub(crate) fn by_second_name(fs: &dyn Fs, path: &Path) -> io::Result<Option<Sight>> {
    let Some(name) = path.file_name() else {
        return Ok(None);
    };
    let listed = match fs.list(directory(path), usize::MAX) {
        // Names can be made in such a directory, and not be found.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        listed => listed?,
    };
    let mut last: Option<(Box<Record>, Stat)> = None;
    for other in &listed {
        let kept = names::parse_kept(name, other).is_some();
        if !kept && names::parse_ballot(name, other).is_none() {
            continue;
        }
        let second = path.with_file_name(other);
        let slip = match read_slip(fs, name, &second) {
            // It was removed since: the record has its name again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(io::ErrorKind::StaleNetworkFileHandle.into());
            }
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied && is_unpublished(fs, path, &second, &listed) =>
            {
                continue;
            }
            slip => slip?,
        };
        let Slip::Record { record, temp, stat } = slip else {
            continue;
        };
        let published = match temp {
            _ if kept => true,
            Some(temp) => is_published(fs, path, &second, temp, &stat)?,
            None => false,
        };
        if published && last.as_ref().is_none_or(|(last, _)| last.owner.seq < record.owner.seq) {
            last = Some((record, stat));
        }
    }
    Ok(last.map(|(record, stat)| Sight {
        content: Ok(record),
        stat: Some(stat),
        ours: true,
    }))
}

/// Whether a record that may not be read is still the temp file of somebody, or was disarmed.
fn is_unpublished(fs: &dyn Fs, path: &Path, second: &Path, listed: &[OsString]) -> bool {
    let name = path.file_name().unwrap_or_default();
    let file = |path: &Path| fs.stat(path).map(|stat| stat.file()).ok();
    let found = file(second);
    let mut temps = listed.iter().filter(|other| names::is_of_change(name, other));
    found.is_some() && temps.any(|temp| file(&path.with_file_name(temp)) == found)
}

/// Whether a change was carried through: renaming its temp file is what publishes it, and what gives it up, so that one of
/// the two happens. The order of the questions matters: a temp file that is given up gets its other name at once, and loses
/// that only after the ballot is gone.
fn is_published(fs: &dyn Fs, path: &Path, ballot: &Path, temp: TempId, stat: &Stat) -> io::Result<bool> {
    let name = path.file_name().unwrap_or_default();
    let found = |path: &Path| match fs.stat(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    for other in names::of_change(name, temp) {
        if found(&path.with_file_name(other))?.is_some() {
            return Ok(false);
        }
    }
    match found(ballot)? {
        Some(still) if still.file() == stat.file() => Ok(true),
        _ => Err(io::ErrorKind::StaleNetworkFileHandle.into()),
    }
}

fn try_look(fs: &dyn Fs, path: &Path, freshen: bool) -> io::Result<Sight> {
    if names_directory(path) {
        return Ok(Sight::flawed(RecordState::NotAFile, "the path names a directory"));
    }
    // An NFS client may go on trusting a name whose record has been replaced until it learns that the directory changed.
    if freshen {
        // With the dot also where the directory's name is a link; one that is removed and still open has no name left.
        let missing = match fs.stat(&directory(path).join(".")) {
            Ok(dir) if dir.links > 0 => None,
            Ok(_) => Some("it has been removed".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = missing {
            return Ok(Sight::flawed(RecordState::Unreadable, format!("its directory: {why}")));
        }
    }
    let stat = match fs.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Sight {
                content: Err(Box::new(RecordFacts {
                    state: RecordState::Absent,
                    ..RecordFacts::default()
                })),
                stat: None,
                ours: false,
            });
        }
        found => found?,
    };
    let flawed = |state, detail: &str| {
        Ok(Sight {
            stat: Some(stat),
            ..Sight::flawed(state, detail)
        })
    };
    match stat.kind {
        Kind::File if stat.size > LARGEST as u64 => {
            return flawed(RecordState::TooLarge, &format!("{} bytes", stat.size));
        }
        Kind::File => {}
        Kind::Symlink => {
            return match link(fs, path) {
                Some(facts) => Ok(Sight {
                    content: Err(Box::new(facts)),
                    stat: Some(stat),
                    ours: false,
                }),
                None => flawed(RecordState::Symlink, "a symbolic link"),
            };
        }
        Kind::Directory => return flawed(RecordState::NotAFile, "a directory"),
        Kind::Other => return flawed(RecordState::NotAFile, "a FIFO, socket or device"),
    }
    let file = match fs.open(path) {
        Err(error) if platform::is_symlink_refusal(&error) => return flawed(RecordState::Symlink, "a symbolic link"),
        // Replaced and removed between the two calls: as good as stale.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(io::ErrorKind::StaleNetworkFileHandle.into());
        }
        opened => opened?,
    };
    let bytes = fs.read(&file, LARGEST + 1)?;
    if bytes.len() > LARGEST {
        return flawed(RecordState::TooLarge, "it grew while it was read");
    }
    let ours = bytes.starts_with(MARK) || !bytes.is_empty() && MARK.starts_with(&bytes);
    let content = Record::parse(&bytes).map(Box::new).map_err(|flaw| {
        Box::new(match &flaw {
            Flaw::Empty => RecordFacts {
                detail: starting(fs, path).or(Some(flaw.to_string())),
                ..RecordFacts::from(&flaw)
            },
            Flaw::Torn | Flaw::Malformed(_) | Flaw::BarePid(_) if !ours => std::str::from_utf8(&bytes)
                .ok()
                .and_then(|text| legacy::recognise(Content::Text(text)))
                .unwrap_or_else(|| RecordFacts::from(&flaw)),
            _ => RecordFacts::from(&flaw),
        })
    });
    Ok(Sight {
        content,
        stat: Some(stat),
        ours,
    })
}

/// What a symbolic link says in which another program keeps a lock. One that leads somewhere is a link and nothing else.
fn link(fs: &dyn Fs, path: &Path) -> Option<RecordFacts> {
    let target = fs.read_link(path).ok()?;
    let facts = legacy::recognise(Content::Link(target.to_str()?))?;
    let nowhere = fs.stat(&directory(path).join(&target)).is_err();
    nowhere.then_some(facts)
}

/// What to say of an empty pid file beside which a lock file stands: its program may be about to write it. The lock is
/// looked up, never tried.
fn starting(fs: &dyn Fs, path: &Path) -> Option<String> {
    let mut name = path.file_name()?.to_owned();
    name.push(".lock");
    let stat = fs.stat(&path.with_file_name(&name)).ok()?;
    let name = name.to_string_lossy();
    Some(match platform::has_local_lock(&stat) {
        Some(true) => format!("{name} beside it is locked: its program is starting"),
        _ => format!("{name} stands beside it: its program may be starting, or ended while it did"),
    })
}

/// Whether a path can only name a directory, whatever is there: it ends in `/`, `.` or `..`. [`Path::file_name`] gives
/// the component before a trailing `/` or `/.`, while the system calls follow a link there.
pub(crate) fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    matches!(bytes.rsplit(|byte| *byte == b'/').next(), Some(b"" | b"." | b"..")) && !bytes.is_empty()
}

/// The directory of a path, `.` for a bare name.
pub(crate) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// What stands in the pid file that a record is bound to.
pub(crate) fn payload(fs: &dyn Fs, record: &Path, file: &str) -> PayloadFacts {
    let path: PathBuf = directory(record).join(file);
    let named = fs.stat(&path).and_then(|stat| match stat.kind {
        Kind::File => fs.open(&path).and_then(|file| fs.read(&file, LARGEST_PAYLOAD)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    });
    match named {
        Ok(bytes) => PayloadFacts {
            exists: Some(true),
            pid: first_number(&bytes),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => PayloadFacts {
            exists: Some(false),
            pid: None,
        },
        Err(_) => PayloadFacts::default(),
    }
}

fn first_number(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes)
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}
