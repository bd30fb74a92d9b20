//! Taking a lease: options, admission by the judge, waiting.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::ballot::{self, Ballot};
use crate::change::{Change, Consent, Ended, Site};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::fs::Stat;
use crate::identity::{FOREIGN_PROC, Process};
use crate::lapse::Watch;
use crate::lease::{Holder, Lease, is_over};
use crate::names::LONGEST_COMPANION;
use crate::observe::{Judge, Sight, directory, payload};
use crate::owner::{FORMAT, Keeper, LOCK, OwnerLine, Pid, SHORTEST_TTL};
use crate::platform::{self, ExitWatch};
use crate::record::{LARGEST, Record};
use crate::run_state::{RunState, STARTS};
use crate::token::Token;
use crate::verdict::{Effect, Judgement, Reason, Verdict};

/// The longest file name that filesystems in use take.
const NAME_MAX: usize = 255;

/// Starts that a record keeps.
const MOST_STARTS: usize = 1000;

/// Between two looks of a waiting claim: from here …
const FIRST_PAUSE: Duration = Duration::from_millis(4);
/// … doubling, up to here.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type OnWait = Box<dyn FnMut(&Judgement) + Send>;

/// A claim to be made: whose, on what terms, and for how long to wait.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use leasehold::Claim;
/// use std::time::Duration;
///
/// let lease = Claim::new(dir.path().join("thread-7.lease"))
///     .ttl(Duration::from_secs(60))
///     .wait(Duration::from_secs(5))
///     .set("phase", "starting")
///     .take()?;
/// assert_eq!(lease.epoch(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a claim does nothing until `take` is called"]
pub struct Claim {
    judge: Judge,
    path: PathBuf,
    owner: Option<Pid>,
    ttl: Option<Duration>,
    wait: Duration,
    take_lapsed: bool,
    accept_in_doubt: bool,
    give_way: bool,
    sole_writer: bool,
    binds: Option<String>,
    budget: Option<Budget>,
    keeper: Option<Process>,
    command: Option<String>,
    state: RunState,
    on_wait: Option<OnWait>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("path", &self.path)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Claim {
    /// A claim on the record at `path`, for this process, without a ttl, that does not wait.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            judge: Judge::here(),
            path: path.into(),
            owner: None,
            ttl: None,
            wait: Duration::ZERO,
            take_lapsed: false,
            accept_in_doubt: false,
            give_way: false,
            sole_writer: false,
            binds: None,
            budget: None,
            keeper: None,
            command: None,
            state: RunState::default(),
            on_wait: None,
        }
    }

    /// For another process of this host.
    pub fn owner(mut self, pid: Pid) -> Self {
        self.owner = Some(pid);
        self
    }

    /// The owner's own terms: not renewed for this long, others may take the lease as lapsed. Whole seconds, at least 5.
    /// Without a ttl a lease never lapses.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Waits for at most this long until the lease can be taken.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Takes a lease whose owner did not renew it within its own ttl, as seen during the wait. The owner may still run.
    pub fn take_lapsed(mut self, yes: bool) -> Self {
        self.take_lapsed = yes;
        self
    }

    /// Takes a lease although the predecessor noted an intent and no outcome: its action may or may not have happened,
    /// and the caller knows what to do about that.
    pub fn accept_in_doubt(mut self, yes: bool) -> Self {
        self.accept_in_doubt = yes;
        self
    }

    /// Ends with [`Error::GaveWay`] when another process is changing the record just now, and does so within half a second,
    /// instead of starting over.
    pub fn give_way(mut self, yes: bool) -> Self {
        self.give_way = yes;
        self
    }

    /// Takes an owner of another host for past, since whoever can write here now is the only one: a volume that is mounted
    /// by one host at a time, as a pod's own disk. Wrong wherever two hosts can see the directory. The new record says
    /// that it was claimed under this policy.
    pub fn sole_writer(mut self, yes: bool) -> Self {
        self.sole_writer = yes;
        self
    }

    /// Binds the record to a pid file that other programs read: the record holds only while that file names the owner.
    /// Relative to the record's directory. The file must name the owner already.
    pub fn binds(mut self, file: impl Into<String>) -> Self {
        self.binds = Some(file.into());
        self
    }

    /// Refuses with [`Error::BudgetSpent`] when the lease has been claimed this often on this host within the time, so
    /// that a loop of respawns cannot go wild. The record keeps the last starts; claims without a budget do not count.
    pub fn budget(mut self, starts: u32, within: Duration) -> Self {
        self.budget = Some(Budget { starts, within });
        self
    }

    /// Names a supervisor of this host that ends with or after the owner: the record stays held until it has ended.
    #[cfg(all(target_os = "linux", not(leasehold_portable)))]
    pub(crate) fn keeper(mut self, keeper: Process) -> Self {
        self.keeper = Some(keeper);
        self
    }

    /// Sets a field of the run state.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.state.set(key, value);
        self
    }

    /// The command line to show to people, where the owner's own does not tell it yet.
    #[cfg(all(target_os = "linux", not(leasehold_portable)))]
    pub(crate) fn command(mut self, line: String) -> Self {
        self.command = Some(platform::shown(&line));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks from there instead of from this process over real files.
    pub fn from(mut self, judge: Judge) -> Self {
        self.judge = judge;
        self
    }

    /// Called once, with why, when the claim begins to wait.
    pub fn on_wait(mut self, call: impl FnMut(&Judgement) + Send + 'static) -> Self {
        self.on_wait = Some(Box::new(call));
        self
    }

    /// Takes the lease.
    ///
    /// # Errors
    /// [`Error::Refused`] with the judgement when somebody holds it or it cannot be told, [`Error::InDoubt`] when the
    /// predecessor's action is in doubt, [`Error::TimedOut`] when the wait ran out, [`Error::GaveWay`] when asked to,
    /// [`Error::BudgetSpent`], [`Error::Invalid`] for a request that cannot be carried out, [`Error::Io`] when the filesystem fails. Unless the
    /// error is [`Error::Uncertain`], the record is as it was.
    pub fn take(self) -> Result<Lease> {
        let site = Site::new(self.judge, &self.path)?;
        let name = site.path.file_name().map_or(0, |name| name.len());
        if name + LONGEST_COMPANION > NAME_MAX {
            let most = NAME_MAX - LONGEST_COMPANION;
            return Err(Error::invalid(
                &site.path,
                format!("the name has {name} bytes; a lease's has at most {most}"),
            ));
        }
        if site.judge.host.observer.proc_is_own == Some(false) {
            return Err(Error::invalid(&site.path, FOREIGN_PROC));
        }
        if let Some(why) = self.state.fields().keys().find_map(|key| RunState::refuses(key)) {
            return Err(Error::invalid(&site.path, why));
        }
        let process = self.owner.map_or_else(Process::current, Process::of)?;
        let mut owner = owner_line(&site, &process, self.ttl, self.binds)?;
        owner.keeper = self.keeper.map(|keeper| Keeper {
            pid: keeper.pid,
            start: keeper.start,
            extra: Map::new(),
        });
        owner.policy = self.sole_writer.then(|| "sole-writer".to_owned());
        owner.cmd = self.command.or(owner.cmd);
        let stays = self.owner.is_none() || self.keeper.is_some();
        let mut candidate = Candidate {
            site: &site,
            take_lapsed: self.take_lapsed,
            accept_in_doubt: self.accept_in_doubt,
            sole_writer: self.sole_writer,
            budget: self.budget,
            keeps: stays && platform::lock_reach(directory(&site.path)).is_seen_by_all(),
            record: Record {
                owner,
                state: self.state,
                beat: 0,
            },
            epoch: 1,
            watch: Watch::default(),
            began: Duration::ZERO,
            verdict: None,
            younger_than_boot: None,
            spent_until: None,
            starts: Vec::new(),
            carried: None,
        };
        candidate.record.owner.seq = u64::MAX;
        if candidate.record.print().len() > LARGEST {
            return Err(Error::invalid(
                &site.path,
                format!("the run state does not fit a record of {LARGEST} bytes"),
            ));
        }
        let mut queue = Queue {
            wait: self.wait,
            on_wait: self.on_wait,
            ..Queue::new(&site)
        };
        loop {
            let token = candidate.record.owner.token;
            candidate.began = site.judge.clock.now();
            let ballot = Ballot::new(ballot::Kind::Claim, token, self.give_way);
            let refusal = match site.change(ballot, &mut candidate)? {
                Ended::Committed { seq, file } => {
                    // Whoever is next will try again.
                    let _ = site.sweep(seq, Some(&file));
                    let (epoch, won) = (candidate.epoch, candidate.began);
                    let ttl = candidate.record.owner.ttl;
                    let holder = Holder::at(site.clone(), token);
                    let mut lease = Lease::new(holder, epoch, won, stays.then_some(file));
                    // The last calls may have hung for longer than the ttl: others may have taken the lease since.
                    let kept = match is_over(ttl, won, site.judge.clock.now()) {
                        true => lease.renew().map(drop),
                        false => Ok(()),
                    };
                    match kept {
                        Ok(()) => return Ok(lease),
                        Err(Error::Lost { .. }) => lease.leave(),
                        Err(error) => return Err(Error::Uncertain(Box::new(error))),
                    };
                    candidate.record.owner.token = Token::from_bits(platform::random());
                    continue;
                }
                Ended::GaveWay => return Err(Error::GaveWay { path: self.path }),
                Ended::Refused => candidate.refusal(),
            };
            queue.pause(refusal)?;
            // A claim's token names one try, so that a commit of this try can be told from every other.
            candidate.record.owner.token = Token::from_bits(platform::random());
        }
    }
}

fn owner_line(site: &Site, process: &Process, ttl: Option<Duration>, binds: Option<String>) -> Result<OwnerLine> {
    let host = &site.judge.host.observer;
    let whole = ttl.is_none_or(|ttl| ttl.subsec_nanos() == 0);
    let ttl = ttl.map(|ttl| ttl.as_secs());
    if !whole || ttl.is_some_and(|ttl| ttl < SHORTEST_TTL) {
        return Err(Error::invalid(
            &site.path,
            format!("a ttl has whole seconds, at least {SHORTEST_TTL}"),
        ));
    }
    if let Some(file) = &binds {
        let found = payload(&*site.judge.fs, &site.path, file);
        if found.pid != Some(process.pid.get().into()) {
            let bound = directory(&site.path).join(file);
            let finding = match (found.exists, found.pid) {
                (Some(false), _) => "does not exist".to_owned(),
                (None, _) => "cannot be read, or is no regular file".to_owned(),
                (_, Some(pid)) => format!("names {pid}"),
                (_, None) => "names no pid".to_owned(),
            };
            let what = format!(
                "the bound file {} {finding}, and has to name the owner {} first (a relative name is meant from the \
                 record's directory)",
                bound.display(),
                process.pid
            );
            return Err(Error::invalid(&site.path, what));
        }
    }
    Ok(OwnerLine {
        leasehold: FORMAT,
        token: Token::from_bits(platform::random()),
        epoch: 1,
        seq: 1,
        change: None,
        host: host.host.clone(),
        machine: host.machine.clone(),
        host_id: host.host_id.clone(),
        boot: host.boot.clone(),
        pid: Some(process.pid),
        start: Some(process.start),
        pidns: host.pidns,
        timens: host.timens,
        pidfd: process.pidfd,
        uid: platform::uid(),
        keeper: None,
        since: Some(timestamp()),
        ttl,
        lock: None,
        cmd: platform::command_line(process.pid),
        adopted: binds.is_some().then_some(true),
        policy: None,
        binds,
        ended: None,
        extra: Default::default(),
    })
}

/// The wall clock, for people only.
pub(crate) fn timestamp() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// A claim in the making.
struct Candidate<'a> {
    site: &'a Site,
    take_lapsed: bool,
    accept_in_doubt: bool,
    sole_writer: bool,
    budget: Option<Budget>,
    /// Whether the descriptor that writes the record is kept, with a lock that all who see the record can see.
    keeps: bool,
    record: Record,
    /// The fencing number of the new claim: above any that was seen.
    epoch: u64,
    watch: Watch,
    began: Duration,
    verdict: Option<(Judgement, Facts, Option<Duration>)>,
    /// The stamp of a record that an earlier try found to be younger than this boot.
    younger_than_boot: Option<Duration>,
    /// When a spent budget allows the next start, by the clock.
    spent_until: Option<Duration>,
    /// Earlier starts of this boot that the budget still counts, and those of other boots.
    starts: Vec<Start>,
    /// The same, as a claim without a budget found them.
    carried: Option<Value>,
}

/// At most so many starts within a time.
#[derive(Clone, Copy, Debug)]
struct Budget {
    starts: u32,
    within: Duration,
}

/// A start that a budget counts: milliseconds of CLOCK_BOOTTIME in a boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Start {
    boot: Option<String>,
    at: u64,
}

impl Candidate<'_> {
    fn refusal(&mut self) -> Error {
        let (judgement, facts, _) = self.verdict.take().expect("a refusal follows a look");
        if let Some(until) = self.spent_until.take() {
            let again_in = until.saturating_sub(self.site.judge.clock.now());
            return Error::BudgetSpent {
                path: self.site.path.clone(),
                again_in,
            };
        }
        if self.is_in_doubt(&judgement) && self.admits(&judgement, &facts) {
            Error::InDoubt(Box::new(judgement))
        } else {
            Error::Refused(Box::new(judgement))
        }
    }

    fn admits(&self, judgement: &Judgement, facts: &Facts) -> bool {
        match judgement.verdict {
            Verdict::Free | Verdict::Dead => true,
            Verdict::Lapsed => self.take_lapsed,
            // Whoever renewed it just now is another writer.
            Verdict::Undetermined => {
                self.sole_writer && is_elsewhere(judgement.reason) && facts.lease.renewal_seen != Some(true)
            }
            Verdict::Held => false,
        }
    }

    /// Whether the budget allows one more start now; if so, it is counted.
    fn affords(&mut self, record: Option<&Record>) -> bool {
        let Some(budget) = self.budget else {
            // For claims that have one.
            self.carried = record.and_then(|record| record.state.fields().get(STARTS)).cloned();
            return true;
        };
        let boot = self.site.judge.host.observer.boot.clone();
        let now = self.site.judge.clock.now();
        let known = record
            .and_then(|record| record.state.fields().get(STARTS))
            .cloned()
            .unwrap_or_default();
        // A list that is none was not written by a claim, and counts nothing.
        self.starts = serde_json::from_value(known).unwrap_or_default();
        let within = |start: &Start| Duration::from_millis(start.at) + budget.within;
        self.starts.retain(|start| start.boot != boot || within(start) > now);
        let here: Vec<Duration> = self
            .starts
            .iter()
            .filter(|start| start.boot == boot)
            .map(within)
            .collect();
        let room = budget
            .starts
            .saturating_sub(u32::try_from(here.len()).unwrap_or(u32::MAX));
        if room == 0 {
            // The next start is allowed when so many have passed that one fewer than the budget is left.
            self.spent_until = here
                .get(here.len().saturating_sub(budget.starts as usize))
                .copied()
                .or(Some(now));
            return false;
        }
        self.starts.push(Start {
            boot,
            at: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        });
        // Other hosts' starts are theirs to count; a bound on how many of them are carried along.
        let surplus = self.starts.len().saturating_sub(MOST_STARTS);
        self.starts.drain(..surplus);
        true
    }

    /// Whether the pid file that contradicts the last owner is the one that this claim binds: it names the new owner, as it
    /// has to by then, and so says nothing of the last one.
    fn is_our_payload(&self, facts: &Facts) -> bool {
        let owner = &self.record.owner;
        let named = facts.payload.as_ref().and_then(|payload| payload.pid);
        owner.binds.is_some() && owner.binds == facts.record.binds && named == owner.pid.map(|pid| pid.get().into())
    }

    fn is_in_doubt(&self, judgement: &Judgement) -> bool {
        judgement.effect == Effect::InDoubt && !self.accept_in_doubt
    }
}

impl Change for Candidate<'_> {
    fn consider(&mut self, sight: &Sight) -> Consent {
        let clock = &self.site.judge.clock;
        let lease = self.watch.saw(sight.mark(), self.began, clock.now());
        self.began = clock.now();
        let (judge, path) = (&self.site.judge, &self.site.path);
        // The policy speaks for what nobody can tell; the server may be able to.
        let (mut judgement, mut facts) = match self.sole_writer {
            true => judge.weigh_with_server(path, sight, lease),
            false => judge.weigh(path, sight, lease),
        };
        if judgement.reason == Reason::PayloadMismatch && self.is_our_payload(&facts) {
            facts.record.binds = None;
            judgement = crate::verdict::judge(&facts);
        }
        let changed = sight.stat.map(|stat| stat.changed);
        if judgement.rests_on_a_reboot() && changed.is_some() && changed == self.younger_than_boot {
            facts.lease.changed_since_boot = Some(true);
            judgement = crate::verdict::judge(&facts);
        }
        let admitted = self.admits(&judgement, &facts)
            && !self.is_in_doubt(&judgement)
            && self.affords(sight.content.as_deref().ok());
        if let Ok(record) = &sight.content {
            self.epoch = self.epoch.max(record.owner.epoch.saturating_add(1));
        }
        self.verdict = Some((judgement, facts, changed));
        if admitted { Consent::Go } else { Consent::Refuse }
    }

    fn keeps(&self) -> bool {
        self.keeps
    }

    fn compose(&mut self, seq: u64, locked: bool) -> Record {
        self.record.owner.seq = seq;
        self.record.owner.lock = locked.then(|| LOCK.to_owned());
        if self.budget.is_some() {
            self.record.state.set(STARTS, json!(self.starts));
        } else if let Some(starts) = self.carried.clone() {
            self.record.state.set(STARTS, starts);
        }
        self.record.owner.epoch = self.epoch;
        self.record.beat = beat(self.site.judge.clock.now(), 0);
        self.record.clone()
    }

    /// A reboot is believed only when the record was not changed since: now known exactly, by two stamps of one clock.
    fn confirm(&mut self, written: &dyn Fn() -> io::Result<Stat>) -> io::Result<bool> {
        let Some((judgement, facts, Some(changed))) = &mut self.verdict else {
            return Ok(true);
        };
        if !judgement.rests_on_a_reboot() {
            return Ok(true);
        }
        let confirmed = self.site.confirm_reboot(judgement, facts, *changed, &written()?);
        self.younger_than_boot = (!confirmed).then_some(*changed);
        Ok(confirmed)
    }
}

/// Whether a reason says no more than that the owner is not of this host.
fn is_elsewhere(reason: Reason) -> bool {
    matches!(reason, Reason::ForeignHost | Reason::OtherPidNamespace)
}

/// The heartbeat of a moment: its milliseconds since boot, and more than the last one.
pub(crate) fn beat(now: Duration, last: u64) -> u64 {
    u64::try_from(now.as_millis())
        .unwrap_or(u64::MAX)
        .max(last.saturating_add(1))
}

/// Waiting in line for a lease.
struct Queue<'a> {
    site: &'a Site,
    wait: Duration,
    began: Duration,
    pause: Duration,
    on_wait: Option<OnWait>,
}

impl<'a> Queue<'a> {
    fn new(site: &'a Site) -> Self {
        let began = site.judge.clock.now();
        Self {
            site,
            wait: Duration::ZERO,
            began,
            pause: FIRST_PAUSE,
            on_wait: None,
        }
    }

    /// Waits a little, or gives the refusal back when waiting is over or will not help.
    fn pause(&mut self, refusal: Error) -> Result<()> {
        let Error::Refused(judgement) = &refusal else {
            return Err(refusal);
        };
        // Whether to take what has lapsed is for the caller to say; waiting does not answer that.
        if self.wait.is_zero() || judgement.reason.is_final() || judgement.verdict == Verdict::Lapsed {
            return Err(refusal);
        }
        let clock = &self.site.judge.clock;
        let waited = clock.now().saturating_sub(self.began);
        let left = self.wait.saturating_sub(waited);
        if left.is_zero() {
            return Err(Error::TimedOut {
                waited,
                last: Box::new(refusal),
            });
        }
        if let Some(mut call) = self.on_wait.take() {
            call(judgement);
        }
        // Between half of it and all of it, so that waiters do not look in step.
        let jittered = self
            .pause
            .mul_f64(0.5 + (platform::random() as u8 as f64) / 512.0)
            .min(left);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        match watch(judgement) {
            // Looked at anew as soon as it ends: the record is then of a dead owner.
            Some(holder) => {
                if holder.wait(jittered) {
                    self.pause = FIRST_PAUSE;
                }
            }
            None => clock.sleep(jittered),
        }
        Ok(())
    }
}

/// The process of this host that holds a lease, to be told of its end.
fn watch(judgement: &Judgement) -> Option<ExitWatch> {
    match judgement.reason {
        Reason::ProcessRunning => judgement.owner.valid_pid().and_then(ExitWatch::open),
        Reason::KeeperRunning => judgement
            .owner
            .keeper
            .as_ref()
            .and_then(|keeper| ExitWatch::open(keeper.pid)),
        _ => None,
    }
}

/// Takes the lease at `path` for this process: [`Claim::new`] and [`Claim::take`].
pub(crate) fn claim(path: &Path) -> Result<Lease> {
    Claim::new(path).take()
}
