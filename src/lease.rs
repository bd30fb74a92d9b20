//! Holding a lease: the guard of a program that keeps one, and what anybody with its token may do.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::ballot::{Ballot, Kind};
use crate::change::{Change, Consent, Ended, Site};
use crate::claim::{beat, claim, timestamp};
use crate::error::{Error, Result};
use crate::identity::Process;
use crate::observe::{Judge, Sight, directory, not_a_record, payload};
use crate::owner::{LOCK, OwnerLine, Pid};
use crate::platform;
use crate::record::{LARGEST, Record};
use crate::run_state::{Outcome, RunState};
use crate::token::Token;

/// Why a claim is lost that was released before.
const ENDED: &str = "the claim is ended";

/// A lease that this program holds. It is released when the guard is dropped, also by a panic that unwinds.
///
/// Whoever dies without that leaves a record that says so to everybody who can tell; see [`crate::judge`].
#[must_use = "the lease is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Lease {
    holder: Holder,
    epoch: u64,
    /// When the claim, or the last renewal, began.
    pub(crate) renewed: Duration,
    /// The record, open and locked, while this process stays with it.
    pub(crate) file: Option<File>,
    armed: bool,
}

impl Lease {
    /// Takes the lease at `path` for this process, without a ttl and without waiting. [`crate::Claim`] has the options.
    ///
    /// # Errors
    /// Those of [`crate::Claim::take`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("bridge.lease");
    /// use leasehold::{Error, Lease, Verdict};
    ///
    /// let lease = Lease::claim(&path)?;
    /// assert_eq!(leasehold::judge(&path).verdict, Verdict::Held);
    /// assert!(matches!(Lease::claim(&path), Err(Error::Refused(_))));
    ///
    /// lease.release(None)?;
    /// assert_eq!(leasehold::judge(&path).verdict, Verdict::Free);
    /// assert_eq!(Lease::claim(&path)?.epoch(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim(path: impl AsRef<Path>) -> Result<Self> {
        claim(path.as_ref())
    }

    pub(crate) fn new(holder: Holder, epoch: u64, renewed: Duration, file: Option<File>) -> Self {
        Self {
            holder,
            epoch,
            renewed,
            file,
            armed: true,
        }
    }

    /// The fencing number: greater than that of every earlier claim on this path. Give it to whatever the lease
    /// protects, and let that refuse smaller numbers.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The name of this claim.
    pub fn token(&self) -> Token {
        self.holder.token
    }

    /// What else the token allows: the fencing check, or handing the lease over.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Renews the lease for another ttl; see [`Holder::renew`].
    ///
    /// # Errors
    /// As [`Holder::renew`].
    pub fn renew(&mut self) -> Result<Record> {
        let (record, file, began) = self.holder.renew_in_time(self.keeps())?;
        self.file = self.file.is_some().then_some(file);
        self.renewed = began;
        Ok(record)
    }

    fn keeps(&self) -> bool {
        self.file.is_some() && self.holder.may_lock()
    }

    /// Sets fields of the run state; see [`Holder::note`].
    ///
    /// # Errors
    /// As [`Holder::renew`].
    pub fn note<K: AsRef<str>, V: AsRef<str>>(&mut self, fields: &[(K, V)]) -> Result<Record> {
        let path = self.holder.path().to_owned();
        self.change(|record| set_fields(&path, record, fields))
    }

    /// A change that keeps the lock: it moves to the new record's inode.
    fn change(&mut self, edit: impl FnMut(&mut Record) -> Result<()>) -> Result<Record> {
        let (record, file) = self.holder.change(self.keeps(), edit)?;
        self.file = self.file.is_some().then_some(file);
        Ok(record)
    }

    /// Ends the claim: the record stays, vacant, so that the fencing number goes on.
    ///
    /// # Errors
    /// As [`Holder::release`]; the guard comes back, still armed, so that the caller can try again.
    pub fn release(mut self, outcome: Option<Outcome>) -> std::result::Result<(), Box<Unreleased>> {
        match self.holder.release(outcome) {
            Ok(_) => {
                self.armed = false;
                Ok(())
            }
            Err(error) => {
                // Nothing is ours any more that a drop could release.
                self.armed = !matches!(error, Error::Lost { .. });
                Err(Box::new(Unreleased { lease: self, error }))
            }
        }
    }

    /// Leaves the record as it is, for whoever carries the token on.
    pub fn leave(mut self) -> Token {
        self.armed = false;
        self.holder.token
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.armed {
            // There is nobody to tell; what remains is judged by what becomes of this process.
            let _ = self.holder.release(None);
        }
    }
}

/// A release that did not happen: the guard, and why.
#[derive(Debug)]
pub struct Unreleased {
    /// The guard.
    pub lease: Lease,
    /// Why.
    pub error: Error,
}

impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unreleased {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// What anybody who carries a claim's token may do with its record. The token is no secret; see [`Token`]. Each change
/// gives back the record as it now stands.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("thread-7.lease");
/// use leasehold::{Claim, Error, Holder, Outcome};
/// use std::time::Duration;
///
/// let lease = Claim::new(&path).ttl(Duration::from_secs(60)).take()?;
/// // In this process or another one: `run` gives its command path and token as LEASEHOLD_PATH and LEASEHOLD_TOKEN.
/// let holder = Holder::new(&path, lease.token())?;
/// holder.note(&[("intent", "push branch")])?;
/// let epoch = holder.verify(Some(Duration::from_secs(10)))?; // right before the write
/// std::fs::write(dir.path().join(format!("transcript.{epoch}")), "…")?;
/// holder.release(Some(Outcome::Completed))?;
/// assert!(matches!(holder.renew(), Err(Error::Lost { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Holder {
    site: Site,
    token: Token,
}

impl Holder {
    /// Acts for the claim `token` on the record at `path`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that cannot be a record.
    pub fn new(path: impl AsRef<Path>, token: Token) -> Result<Self> {
        Self::from(Judge::here(), path, token)
    }

    /// The same from elsewhere than this process over real files.
    ///
    /// # Errors
    /// As [`Holder::new`].
    pub fn from(judge: Judge, path: impl AsRef<Path>, token: Token) -> Result<Self> {
        Ok(Self {
            site: Site::new(judge, path.as_ref())?,
            token,
        })
    }

    pub(crate) fn at(site: Site, token: Token) -> Self {
        Self { site, token }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Whether a lock on the record is seen by everybody who sees the record.
    pub(crate) fn may_lock(&self) -> bool {
        platform::lock_reach(directory(&self.site.path)).is_seen_by_all()
    }

    /// The claim.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The record.
    pub fn path(&self) -> &Path {
        &self.site.path
    }

    /// The fencing check before a write: the epoch, if the claim is current and, where it has a ttl, at least `margin`
    /// of that is left on this boot's clock. With a `margin`, a record that was renewed on another boot fails.
    ///
    /// It tells what was so when it was asked. What must not mix goes into a file of its own epoch, or behind a
    /// resource that checks the epoch itself.
    ///
    /// # Errors
    /// [`Error::Lost`] when the claim is not current, or a file that it is bound to does not name its owner;
    /// [`Error::Expiring`] when it is current and too little of its ttl is left; [`Error::Unreadable`].
    pub fn verify(&self, margin: Option<Duration>) -> Result<u64> {
        let sight = self.site.look();
        let record = self.current(&sight)?;
        if let (Some(file), Some(pid)) = (&record.owner.binds, record.owner.pid) {
            let named = payload(&*self.site.judge.fs, &self.site.path, file).pid;
            if named != Some(pid.get().into()) {
                let named = named.map_or_else(|| "no pid".to_owned(), |pid| pid.to_string());
                return Err(self.lost(format!("the bound file {file} names {named}, and not its owner {pid}")));
            }
        }
        let Some(ttl) = record.owner.ttl else {
            return Ok(record.owner.epoch);
        };
        if !self.beats_on_our_clock(record) {
            return match margin {
                None => Ok(record.owner.epoch),
                Some(_) => {
                    Err(self.expiring("it was renewed on another boot: what is left of its ttl is not known here"))
                }
            };
        }
        let deadline = Duration::from_millis(record.beat).saturating_add(Duration::from_secs(ttl));
        let left = deadline.saturating_sub(self.site.judge.clock.now());
        let margin = margin.unwrap_or_default();
        if left.is_zero() || left < margin {
            return Err(self.expiring(match left.is_zero() {
                true => format!("its ttl of {ttl} s ran out; renew it first"),
                false => format!(
                    "{:.1} s of its ttl are left, {:.1} s are wanted; renew it first",
                    left.as_secs_f64(),
                    margin.as_secs_f64()
                ),
            }));
        }
        Ok(record.owner.epoch)
    }

    /// Renews the lease for another ttl. Always a ballot, so that a lapsed lease which nobody took is re-won.
    ///
    /// # Errors
    /// [`Error::Lost`] when the claim is not current, [`Error::Io`], [`Error::Uncertain`].
    pub fn renew(&self) -> Result<Record> {
        self.renew_in_time(false).map(|(record, ..)| record)
    }

    /// A renewal, and when it began. One whose end took longer than the ttl tells nothing: others may have taken the
    /// lease since, so it is made again.
    fn renew_in_time(&self, keeps: bool) -> Result<(Record, File, Duration)> {
        let clock = &self.site.judge.clock;
        loop {
            let began = clock.now();
            let (record, file) = self.change(keeps, |record| {
                self.renew_beat(record, began);
                Ok(())
            })?;
            if !is_over(record.owner.ttl, began, clock.now()) {
                return Ok((record, file, began));
            }
        }
    }

    /// Sets fields of the run state. `intent` and `outcome` say what the owner is about to do and what became of it; a
    /// new intent takes the outcome of the one before away.
    ///
    /// # Errors
    /// As [`Holder::renew`]; [`Error::Invalid`] for names that the owner line has and those that leasehold writes itself.
    pub fn note<K: AsRef<str>, V: AsRef<str>>(&self, fields: &[(K, V)]) -> Result<Record> {
        self.replace(|record| set_fields(self.path(), record, fields))
    }

    /// Names another process of this host as owner of the same claim: same token, same epoch.
    ///
    /// # Errors
    /// As [`Holder::renew`]; [`Error::Invalid`] when there is no such process, or while a keeper is recorded.
    pub fn hand_over(&self, pid: Pid) -> Result<Record> {
        let process = Process::of(pid)?;
        let host = &self.site.judge.host.observer;
        let now = self.site.judge.clock.now();
        self.replace(|record| {
            let ours = self.beats_on_our_clock(record);
            let owner = &mut record.owner;
            if owner.keeper.is_some() {
                return Err(Error::invalid(
                    &self.site.path,
                    "a keeper is recorded, which would end it with the old owner",
                ));
            }
            if !ours {
                record.beat = beat(now, 0);
            }
            owner.host.clone_from(&host.host);
            owner.machine.clone_from(&host.machine);
            owner.host_id.clone_from(&host.host_id);
            owner.boot.clone_from(&host.boot);
            (owner.pidns, owner.timens) = (host.pidns, host.timens);
            (owner.pid, owner.start, owner.pidfd) = (Some(process.pid), Some(process.start), process.pidfd);
            owner.cmd = platform::command_line(pid);
            // Whoever kept a lock was the old owner's.
            owner.lock = None;
            Ok(())
        })
    }

    /// Ends the claim. Again is fine: a claim that is ended already stays so. Another outcome then is not noted, and is
    /// [`Error::Lost`].
    ///
    /// # Errors
    /// As [`Holder::renew`].
    pub fn release(&self, outcome: Option<Outcome>) -> Result<Record> {
        let ended = self.end(|record| {
            if let Some(outcome) = outcome {
                record.state.set("outcome", outcome.to_string());
            }
        });
        // Looked at only now: nearly every release is the first.
        if let Err(Error::Lost { why, .. }) = &ended
            && why == ENDED
            && let Ok(record) = self.site.look().content
            && record.owner.token == self.token
            && record.owner.ended.is_some()
        {
            return match outcome {
                Some(outcome) if record.state.outcome() != Some(outcome) => {
                    Err(self.lost("the claim is ended already, so its outcome can no longer be noted"))
                }
                _ => Ok(*record),
            };
        }
        ended
    }

    /// Ends the claim, with a last change of the record.
    pub(crate) fn end(&self, mut last: impl FnMut(&mut Record)) -> Result<Record> {
        self.replace(|record| {
            last(record);
            record.owner.ended = Some(timestamp());
            record.owner.lock = None;
            Ok(())
        })
    }

    /// A change by somebody who does not stay with the record.
    fn replace(&self, edit: impl FnMut(&mut Record) -> Result<()>) -> Result<Record> {
        self.change(false, edit).map(|(record, _)| record)
    }

    /// With `keeps`, the new record is locked, and promises that.
    pub(crate) fn change(
        &self,
        keeps: bool,
        mut edit: impl FnMut(&mut Record) -> Result<()>,
    ) -> Result<(Record, File)> {
        let mut step = HolderChange {
            holder: self,
            keeps,
            edit: &mut edit,
            next: None,
            refused: None,
        };
        let ended = self
            .site
            .change(Ballot::new(Kind::Holder, self.token, false), &mut step)?;
        let HolderChange { next, refused, .. } = step;
        match ended {
            Ended::Committed { file, .. } => Ok((next.expect("what was committed was composed"), file)),
            Ended::Refused | Ended::GaveWay => Err(refused.expect("a holder's change is refused with the reason why")),
        }
    }

    /// Moves the heartbeat. On the owner's boot it becomes this moment; the time of another clock would tell the owner's
    /// host of a deadline that is none, so from elsewhere it only changes.
    fn renew_beat(&self, record: &mut Record, now: Duration) {
        let now = if self.beats_on_our_clock(record) {
            now
        } else {
            Duration::ZERO
        };
        record.beat = beat(now, record.beat);
    }

    /// Whether the record's heartbeat is a time of this boot's clock.
    fn beats_on_our_clock(&self, record: &Record) -> bool {
        let (owner, here) = (&record.owner, &self.site.judge.host.observer);
        owner.boot.is_some() && owner.boot == here.boot && owner.timens == here.timens
    }

    /// The record, if it is this claim's and not ended.
    pub(crate) fn current<'s>(&self, sight: &'s Sight) -> Result<&'s Record> {
        match &sight.content {
            Ok(record) if record.owner.token != self.token => Err(self.lost(format!(
                "the record carries another token, {}",
                successor(&record.owner)
            ))),
            Ok(record) if record.owner.ended.is_some() => Err(self.lost(ENDED)),
            Ok(record) => Ok(record),
            Err(_) if sight.is_absent() => Err(self.lost("the record is gone")),
            Err(facts) => Err(not_a_record(&self.site.path, facts)),
        }
    }

    fn expiring(&self, why: impl Into<String>) -> Error {
        Error::Expiring {
            path: self.site.path.clone(),
            why: why.into(),
        }
    }

    pub(crate) fn lost(&self, why: impl Into<String>) -> Error {
        Error::Lost {
            path: self.site.path.clone(),
            why: why.into(),
        }
    }
}

/// Who has the lease instead, in words.
fn successor(owner: &OwnerLine) -> String {
    let mut told = format!("of epoch {}", owner.epoch);
    if owner.ended.is_some() {
        return told + ", and is vacant";
    }
    if let (Some(pid), Some(host)) = (owner.pid, &owner.host) {
        told += &format!(": process {pid} of {host} has it");
    }
    if let Some(since) = &owner.since {
        told += &format!(" since {since}");
    }
    told
}

/// Whether a lease that was renewed by a call that began at `began` may have lapsed by now.
pub(crate) fn is_over(ttl: Option<u64>, began: Duration, now: Duration) -> bool {
    ttl.is_some_and(|ttl| now.saturating_sub(began).as_secs() >= ttl)
}

fn set_fields<K: AsRef<str>, V: AsRef<str>>(path: &Path, record: &mut Record, fields: &[(K, V)]) -> Result<()> {
    if let Some(why) = fields.iter().find_map(|(key, _)| RunState::refuses(key.as_ref())) {
        return Err(Error::invalid(path, why));
    }
    let names = |name| fields.iter().any(|(key, _)| key.as_ref() == name);
    // The outcome of the last action says nothing about the next one.
    if names("intent") && !names("outcome") {
        record.state.remove("outcome");
    }
    for (key, value) in fields {
        record.state.set(key.as_ref(), value.as_ref());
    }
    Ok(())
}

struct HolderChange<'a> {
    holder: &'a Holder,
    keeps: bool,
    edit: &'a mut dyn FnMut(&mut Record) -> Result<()>,
    next: Option<Record>,
    refused: Option<Error>,
}

impl Change for HolderChange<'_> {
    fn consider(&mut self, sight: &Sight) -> Consent {
        let edited = self.holder.current(sight).and_then(|record| {
            let mut next = record.clone();
            (self.edit)(&mut next)?;
            // Room for a longer number.
            if next.print().len() + 20 > LARGEST {
                return Err(Error::invalid(
                    self.holder.path(),
                    format!("the run state does not fit a record of {LARGEST} bytes"),
                ));
            }
            Ok(next)
        });
        match edited {
            Ok(next) => {
                self.next = Some(next);
                Consent::Go
            }
            Err(error) => {
                self.refused = Some(error);
                Consent::Refuse
            }
        }
    }

    fn keeps(&self) -> bool {
        self.keeps
    }

    fn compose(&mut self, seq: u64, locked: bool) -> Record {
        let record = self
            .next
            .as_mut()
            .expect("a record is composed after a look allowed it");
        if self.keeps {
            record.owner.lock = locked.then(|| LOCK.to_owned());
        }
        record.owner.seq = seq;
        record.clone()
    }
}
