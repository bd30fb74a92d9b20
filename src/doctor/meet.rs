//! A meeting of hosts: they find each other through files in a directory, agree who takes part, and try in step what
//! matters between hosts.
//!
//! Nothing here rests on locks, or on a name being absent. Each host has one file of its own, which it replaces and the
//! others read afresh. Who has heard of a random name that was made up a moment ago is alive: what an earlier, crashed
//! meeting left never has. When all who are alive say the same of who is, the first by name settles the roster; from then
//! on all follow one programme, and wait for each other before each part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::findings::describe;
use super::meeting::{Account, LOCKS, Note, PRIZES, Plan, ROUNDS, SIGHTS, gap, lock, sight, turn};
use super::watch::Watched;
use super::{SEEN, Unmet, probe, scratch};
use crate::fs::Fs;
use crate::observe::Judge;
use crate::platform;

/// After somebody has come, others may join for that long.
const JOINING: Duration = Duration::from_secs(3);

/// Without a sign of life for that long, a host is gone. Calls that hang are given up before that.
const GONE: Duration = Duration::from_secs(25);

/// A file that is missing for that long is gone: where rename is not atomic, it may be missing for a moment.
const MISSING: Duration = Duration::from_secs(2);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(1);

/// How often each sight is tried with each host's files.
const TIMES: usize = 5;

/// Replacements by each host while the others look, and looks between two questions whether it goes on.
const REPLACEMENTS: usize = 200;
const LOOKS: u32 = 10;

/// Turns of each host in the sequence of stamps.
const TURNS: usize = 4;

/// The longest that all rounds of one prize may take, and the shortest that one may.
const RACING: f64 = 20.0;
const SLOT: f64 = 0.001;

/// A file gets another name at most that often: some filesystems allow no more.
const NAMES: usize = 100;

/// The largest account that is read, and the most that are.
const LARGEST: usize = 256 * 1024;
const MOST: usize = 64;

type Met<T> = Result<T, Unmet>;

fn failed(what: &Path) -> impl FnOnce(io::Error) -> Unmet {
    move |error| Unmet::Io(format!("{}: {error}", what.display()))
}

/// Another host.
#[derive(Debug)]
struct Peer {
    account: Account,
    /// When its account last changed.
    changed: Instant,
    /// Since when its file has been missing.
    missing: Option<Instant>,
}

pub(super) struct Meeting {
    watched: Watched,
    place: PathBuf,
    me: Account,
    peers: BTreeMap<String, Peer>,
    published: Instant,
    /// What this host made and has not removed yet.
    made: BTreeSet<PathBuf>,
}

/// Meets whoever comes to `place` within `wait`; everybody's account, in the order of the roster.
pub(super) fn meet(judge: &Judge, watched: &Watched, dir: &Path, place: PathBuf, wait: Duration) -> Met<Vec<Account>> {
    // A meeting place on a filesystem of another kind would tell nothing: it must be in the directory itself.
    let mount = platform::mount_of(dir);
    let mut meeting = Meeting {
        watched: watched.clone(),
        place,
        me: Account {
            id: format!("{:032x}", platform::random()),
            host: judge.host().observer.clone(),
            pid: std::process::id(),
            mount: mount.map_or_else(String::new, |mount| describe(&mount, (judge.reach)(dir))),
            ..Account::default()
        },
        peers: BTreeMap::new(),
        published: Instant::now(),
        made: BTreeSet::new(),
    };
    let met = meeting.hold(wait);
    meeting.leave();
    met
}

impl Meeting {
    fn hold(&mut self, wait: Duration) -> Met<Vec<Account>> {
        self.gather(wait)?;
        self.clock();
        self.together()?;
        for whose in 0..self.me.roster.len() {
            self.sights(whose)?;
            self.gaps(whose)?;
        }
        for prize in PRIZES {
            self.race(prize)?;
        }
        for kind in LOCKS {
            for whose in 0..self.me.roster.len() {
                self.locks(kind, whose)?;
            }
        }
        self.stamps()?;
        self.together()?;
        // Without what still changes, so that all have the same.
        let accounts = self.me.roster.iter().map(|id| Account {
            beat: 0,
            step: 0,
            heard: BTreeSet::new(),
            alive: BTreeSet::new(),
            ..self.account(id).clone()
        });
        let accounts = accounts.collect();
        self.part();
        Ok(accounts)
    }

    fn fs(&self) -> &dyn Fs {
        &self.watched
    }

    fn account(&self, id: &str) -> &Account {
        self.peers.get(id).map_or(&self.me, |peer| &peer.account)
    }

    fn own_index(&self) -> usize {
        let at = self.me.roster.iter().position(|id| *id == self.me.id);
        at.expect("a roster that this host accepts has its id")
    }

    fn leads(&self) -> bool {
        self.own_index() == 0
    }

    /// The file in which a host keeps its account.
    fn file(&self, id: &str) -> PathBuf {
        self.place.join(format!("{PERSON}{id}"))
    }

    /// A name for something of this host's, which is removed at the end.
    fn own(&mut self, name: &str) -> PathBuf {
        let path = self.place.join(name);
        self.made.insert(path.clone());
        path
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.made.remove(path);
        self.fs().unlink(path)
    }

    /// A file with this in it, safe.
    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<File> {
        let file = self.fs().create(path, None)?;
        self.fs().write_at(&file, content, 0)?;
        self.fs().sync(&file)?;
        Ok(file)
    }

    /// Reads a file as every look does: the directory first, so that no cached name is trusted.
    fn look(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.fs().stat(&self.place.join("."))?;
        self.fs().stat(path)?;
        let file = self.fs().open(path)?;
        self.fs().read(&file, LARGEST)
    }

    fn publish(&mut self) -> Met<()> {
        self.me.beat += 1;
        let json = serde_json::to_vec(&self.me).expect("an account is plain data");
        let file = self.file(&self.me.id);
        for again in [true, false] {
            let temp = self.own(&format!("new-{}-{}", self.me.id, self.me.beat));
            let written = self.write(&temp, &json).and_then(|_| self.fs().rename(&temp, &file));
            self.made.remove(&temp);
            match written {
                Ok(()) => break,
                // The last to leave an earlier meeting takes the place away.
                Err(error) if error.kind() == ErrorKind::NotFound && again && self.me.roster.is_empty() => {
                    self.enter()?
                }
                Err(error) => {
                    let _ = self.fs().unlink(&temp);
                    return Err(failed(&file)(error));
                }
            }
        }
        self.published = Instant::now();
        Ok(())
    }

    fn note(&mut self, place: String, note: Note) -> Met<()> {
        self.me.notes.insert(place, note);
        self.publish()
    }

    fn enter(&self) -> Met<()> {
        match self.fs().make_dir(&self.place) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(&self.place)(error)),
            _ => Ok(()),
        }
    }

    /// Reads what the others say.
    fn refresh(&mut self) {
        let ids: Vec<String> = if self.me.roster.is_empty() {
            let names = self
                .fs()
                .stat(&self.place.join("."))
                .and_then(|_| self.fs().list(&self.place, 10_000));
            let ids = names.unwrap_or_default().into_iter().filter_map(|name| {
                let id = name.to_str()?.strip_prefix(PERSON)?;
                (id.len() == 32).then(|| id.to_owned())
            });
            ids.take(MOST).collect()
        } else {
            self.me.roster.clone()
        };
        for id in ids.into_iter().filter(|id| *id != self.me.id) {
            let read = self.look(&self.file(&id));
            let now = Instant::now();
            match read {
                Ok(bytes) => {
                    // What cannot be understood is of another version, or somebody's mischief.
                    let Ok(account) = serde_json::from_slice::<Account>(&bytes) else {
                        continue;
                    };
                    let known = self.peers.entry(id).or_insert_with(|| Peer {
                        account: Account::default(),
                        changed: now,
                        missing: None,
                    });
                    if account.beat != known.account.beat {
                        known.changed = now;
                    }
                    known.account = account;
                    known.missing = None;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if let Some(peer) = self.peers.get_mut(&id) {
                        peer.missing.get_or_insert(now);
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Looks again and again until a condition is met, for at most that long; whether it was.
    fn until(&mut self, limit: Duration, met: impl Fn(&Self) -> bool) -> Met<bool> {
        let end = Instant::now() + limit;
        loop {
            self.refresh();
            if met(self) {
                return Ok(true);
            }
            for id in self.me.roster.iter().filter(|id| **id != self.me.id) {
                let Some(peer) = self.peers.get(id) else { continue };
                if peer.changed.elapsed() > GONE || peer.missing.is_some_and(|since| since.elapsed() > MISSING) {
                    return Err(Unmet::Gone(peer.account.name()));
                }
            }
            if self.watched.is_stopped() {
                return Err(Unmet::Io("interrupted".into()));
            }
            if Instant::now() > end {
                return Ok(false);
            }
            if self.published.elapsed() > BEAT {
                self.publish()?;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits for something that all the others will say; who does not is gone before the limit.
    fn all(&mut self, says: impl Fn(&Account) -> bool) -> Met<()> {
        let said = self.until(GONE * 4, |meeting| meeting.others().all(&says))?;
        if said { Ok(()) } else { Err(Unmet::Disagreed) }
    }

    fn others(&self) -> impl Iterator<Item = &Account> {
        let ids = self.me.roster.iter().filter(|id| **id != self.me.id);
        ids.filter_map(|id| self.peers.get(id)).map(|peer| &peer.account)
    }

    /// Waits until all have come to the same point of the programme.
    fn together(&mut self) -> Met<()> {
        self.me.step += 1;
        let step = self.me.step;
        self.publish()?;
        self.all(|account| account.step >= step)
    }

    /// Finds the others, and agrees with them who takes part.
    fn gather(&mut self, wait: Duration) -> Met<()> {
        let end = Instant::now() + wait;
        let mut same = Instant::now();
        self.enter()?;
        self.publish()?;
        loop {
            self.refresh();
            let own = self.me.id.clone();
            let lives = |peer: &Peer| peer.changed.elapsed() < GONE && peer.missing.is_none();
            let heard: BTreeSet<String> = self.peers.keys().cloned().collect();
            let living = self.peers.iter().filter(|(_, peer)| lives(peer));
            let alive: BTreeSet<String> = living
                .filter(|(_, peer)| peer.account.heard.contains(&own))
                .map(|(id, _)| id.clone())
                .chain([own.clone()])
                .collect();
            if alive != self.me.alive {
                same = Instant::now();
            }
            if heard != self.me.heard || alive != self.me.alive {
                (self.me.heard, self.me.alive) = (heard, alive);
                self.publish()?;
            }
            let alive = &self.me.alive;
            let first = alive.first().expect("this host itself is alive");
            let settled = if *first == own {
                let agreed = |id: &String| *id == own || self.peers[id].account.alive == *alive;
                let long = same.elapsed() > JOINING;
                (alive.len() > 1 && long && alive.iter().all(agreed)).then(|| alive.iter().cloned().collect())
            } else {
                // Only one can have been settled, since it takes everybody's agreement.
                let rosters = self
                    .peers
                    .values()
                    .filter(|peer| lives(peer))
                    .map(|peer| &peer.account.roster);
                rosters.into_iter().find(|roster| roster.contains(&own)).cloned()
            };
            if let Some(roster) = settled {
                self.me.roster = roster;
                break;
            }
            // Somebody who goes on, with others: told from what a crash left by a change that was seen.
            let busy = |peer: &Peer| {
                lives(peer)
                    && peer.account.beat > 1
                    && !peer.account.roster.is_empty()
                    && !peer.account.roster.contains(&own)
            };
            let seen_to_go_on = |peer: &Peer| peer.changed.elapsed() < BEAT && same.elapsed() > BEAT * 2;
            if self.peers.values().any(|peer| busy(peer) && seen_to_go_on(peer)) {
                return Err(Unmet::Late);
            }
            if Instant::now() > end {
                return Err(if self.me.alive.len() > 1 {
                    Unmet::Disagreed
                } else {
                    Unmet::Nobody
                });
            }
            if self.watched.is_stopped() {
                return Err(Unmet::Io("interrupted".into()));
            }
            if self.published.elapsed() > BEAT {
                self.publish()?;
            }
            std::thread::sleep(PAUSE * 5);
        }
        let roster = self.me.roster.clone();
        self.publish()?;
        // Everybody in it has to accept the very same one.
        let accepted = self.until(GONE, |meeting| {
            meeting.others().count() + 1 == roster.len() && meeting.others().all(|account| account.roster == roster)
        })?;
        if accepted { Ok(()) } else { Err(Unmet::Disagreed) }
    }

    /// Compares the clock of the files with this host's, and sees what a new name costs, at best.
    fn clock(&mut self) {
        self.me.cost = f64::INFINITY;
        for number in 0..5 {
            let path = self.own(&format!("clock-{}-{number}", self.me.id));
            if let Ok((offset, uncertainty, _)) = probe::stamp(self.fs(), &path) {
                let uncertainty = uncertainty + probe::TICK;
                if self.me.clock.is_none_or(|(_, least)| uncertainty < least) {
                    self.me.clock = Some((offset, uncertainty));
                }
            }
            let _ = self.remove(&path);
            let path = self.own(&format!("cost-{}-{number}", self.me.id));
            let began = Instant::now();
            let _ = self.fs().create(&path, None);
            self.me.cost = self.me.cost.min(began.elapsed().as_secs_f64());
            let _ = self.remove(&path);
        }
    }

    /// A file that one host makes, the next one replaces, and the first removes: all others look until they see it.
    fn sights(&mut self, whose: usize) -> Met<()> {
        let (own, count) = (self.own_index(), self.me.roster.len());
        let mut open = None;
        for time in 0..TIMES {
            let path = self.place.join(format!("seen-{}-{whose}-{time}", self.me.roster[0]));
            for what in SIGHTS {
                let place = sight(whose, time, what);
                let actor = if what == "replace" { (whose + 1) % count } else { whose };
                if own != actor {
                    let note = self.sees(&path, what)?;
                    self.note(place, note)?;
                    self.together()?;
                    continue;
                }
                let began = Instant::now();
                let done = match what {
                    "create" => {
                        self.made.insert(path.clone());
                        self.write(&path, b"create").map(|file| open = Some(file))
                    }
                    "replace" => {
                        let temp = self.own(&format!("replace-{}-{whose}-{time}", self.me.id));
                        self.write(&temp, b"replace")
                            .and_then(|_| self.fs().rename(&temp, &path))
                    }
                    _ => self.remove(&path),
                };
                if let Err(error) = done {
                    self.note(place, Note::Failed(error.to_string()))?;
                    self.together()?;
                    continue;
                }
                self.all(|account| account.notes.contains_key(&place))?;
                let all_saw = self.others().all(|account| account.notes[&place] == Note::Yes);
                if all_saw {
                    self.note(place, Note::Took(began.elapsed().as_secs_f64()))?;
                }
                self.together()?;
            }
            // The owner of the file that was replaced asks what a holder asks at a heartbeat.
            if let Some(file) = open.take() {
                let beat = self
                    .fs()
                    .write_at(&file, b"beat", 0)
                    .and_then(|()| self.fs().sync(&file));
                let note = match beat.and_then(|()| self.fs().stat_file(&file)) {
                    Ok(stat) if stat.links == 0 => Note::Yes,
                    Ok(_) => Note::No,
                    Err(error) if platform::is_stale(&error) || error.kind() == ErrorKind::NotFound => Note::Yes,
                    Err(error) => Note::Failed(error.to_string()),
                };
                self.me.notes.insert(format!("learns {whose}.{time}"), note);
            }
        }
        Ok(())
    }

    /// Looks until another host's change is seen.
    fn sees(&mut self, path: &Path, what: &str) -> Met<Note> {
        let end = Instant::now() + SEEN;
        loop {
            let seen = match self.look(path) {
                Ok(bytes) => bytes == what.as_bytes(),
                Err(error) if error.kind() == ErrorKind::NotFound => what == "remove",
                // Stale: replaced while it was looked at.
                Err(_) => false,
            };
            if seen {
                return Ok(Note::Yes);
            }
            if Instant::now() > end {
                return Ok(Note::No);
            }
            // Whether the others are still there, and went on for want of success.
            self.until(Duration::ZERO, |_| false)?;
        }
    }

    /// One host replaces a file again and again, and the others look for a moment in which it is missing.
    fn gaps(&mut self, whose: usize) -> Met<()> {
        let path = self.place.join(format!("gap-{whose}"));
        let [begun, looking, done] = ["begun", "looking", "done"].map(|what| gap(whose, what));
        if whose == self.own_index() {
            self.made.insert(path.clone());
            let made = self.write(&path, b"0");
            let works = made.is_ok();
            self.note(
                begun,
                made.map_or_else(|error| Note::Failed(error.to_string()), |_| Note::Yes),
            )?;
            self.all(|account| account.notes.contains_key(&looking))?;
            for number in 0..REPLACEMENTS {
                let temp = self.own(&format!("gap-{}-{number}", self.me.id));
                let replaced = self
                    .fs()
                    .create(&temp, None)
                    .and_then(|_| self.fs().rename(&temp, &path));
                if replaced.is_err() || !works {
                    break;
                }
                self.made.remove(&temp);
                if self.published.elapsed() > BEAT {
                    self.publish()?;
                }
            }
            self.note(done, Note::Yes)?;
        } else {
            let holder = self.me.roster[whose].clone();
            let says = |meeting: &Self, what: &str| meeting.account(&holder).notes.get(what).cloned();
            self.until(GONE, |meeting| says(meeting, &begun).is_some())?;
            let works = says(self, &begun) == Some(Note::Yes);
            self.note(looking, Note::Yes)?;
            let (mut looks, mut missed) = (0_u32, 0_u32);
            while !self.until(Duration::ZERO, |meeting| says(meeting, &done).is_some())? {
                for _ in 0..LOOKS {
                    let gone = self.look(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
                    looks += 1;
                    missed += u32::from(works && gone);
                }
            }
            self.me.notes.insert(gap(whose, "looked"), Note::Took(looks.into()));
            self.me.notes.insert(gap(whose, "missed"), Note::Took(missed.into()));
        }
        self.together()?;
        if whose == self.own_index() {
            let _ = self.remove(&path);
        }
        Ok(())
    }

    /// Rounds in which all try to take the same name at the same time.
    fn race(&mut self, prize: &'static str) -> Met<()> {
        self.together()?;
        if self.leads() {
            let cost = self.others().map(|account| account.cost).fold(self.me.cost, f64::max);
            let slot = cost.max(SLOT);
            let rounds = ((RACING / slot) as usize).clamp(1, ROUNDS);
            let plan = Plan {
                start: self.files_now() + 0.5,
                slot,
                rounds,
            };
            self.me.plans.insert(prize.into(), plan);
            self.publish()?;
        }
        let leader = self.me.roster[0].clone();
        let planned = |meeting: &Self| meeting.account(&leader).plans.get(prize).copied();
        if !self.until(GONE, |meeting| planned(meeting).is_some())? {
            return Err(Unmet::Disagreed);
        }
        let plan = planned(self).expect("it was seen just now");
        let rounds = plan.rounds.min(ROUNDS);
        let mut won = Vec::new();
        let mut letters = String::with_capacity(rounds);
        let mut source = PathBuf::new();
        let mut failure = None;
        // Clocks are known to a few milliseconds: who wins more than its share comes later, so that all come at once.
        let mut lead = 0.0;
        let rivals = (self.me.roster.len() - 1) as f64;
        for round in 0..rounds {
            if prize == "link" && round % NAMES == 0 {
                source = self.own(&format!("source-{}-{round}", self.me.id));
                if let Err(error) = self.write(&source, b"source\n") {
                    failure = Some(error);
                }
            }
            // Where clocks cannot be trusted, as fast as it goes.
            let wait = plan.start + round as f64 * plan.slot.clamp(0.0, 1.0) - lead - self.files_now();
            if (0.0..3.0).contains(&wait) {
                std::thread::sleep(Duration::from_secs_f64(wait));
            }
            let path = self.place.join(format!("{prize}-{round}"));
            let taken = match prize {
                "link" => self.fs().link(&source, &path),
                _ => self.fs().create(&path, None).map(drop),
            };
            let letter = match taken {
                Ok(()) => {
                    self.made.insert(path.clone());
                    won.push(path);
                    'w'
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => '-',
                Err(error) => {
                    failure = Some(error);
                    '?'
                }
            };
            letters.push(letter);
            lead += plan.slot / 8.0 * if letter == 'w' { -rivals } else { 1.0 };
            if self.watched.is_stopped() {
                return Err(Unmet::Io("interrupted".into()));
            }
            if self.published.elapsed() > BEAT {
                self.publish()?;
            }
        }
        match failure {
            // The filesystem does not have it: that is one answer, not as many as there are rounds.
            Some(error) if won.is_empty() && letters.bytes().all(|letter| letter == b'?') => {
                self.me.notes.insert(prize.into(), Note::Failed(error.to_string()));
                letters.clear();
            }
            _ => {}
        }
        self.me.rounds.insert(prize.into(), letters);
        // Nobody removes a name that another has yet to try.
        self.together()?;
        for path in won {
            let _ = self.remove(&path);
            if self.published.elapsed() > BEAT {
                self.publish()?;
            }
        }
        Ok(())
    }

    /// Now, by the clock of the files, as far as it is known.
    fn files_now(&self) -> f64 {
        let own = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        own + self.me.clock.map_or(0.0, |(offset, _)| offset)
    }

    /// One host has a lock, and the others try to get it, and ask for it.
    fn locks(&mut self, kind: &'static str, whose: usize) -> Met<()> {
        let path = self.place.join(format!("{kind}-{whose}"));
        let take = |fs: &dyn Fs, file: &File| match kind {
            "flock" => fs.lock(file),
            _ => fs.lock_range(file),
        };
        let held = lock(kind, whose, "held");
        let mut kept = None;
        if whose == self.own_index() {
            self.made.insert(path.clone());
            let taken = self.write(&path, b"lock\n").and_then(|file| {
                take(self.fs(), &file)?;
                kept = Some(file);
                Ok(())
            });
            self.note(
                held,
                taken.map_or_else(|error| Note::Failed(error.to_string()), |()| Note::Yes),
            )?;
        } else {
            let holder = self.me.roster[whose].clone();
            self.until(GONE * 2, |meeting| meeting.account(&holder).notes.contains_key(&held))?;
            if self.account(&holder).notes.get(&held) == Some(&Note::Yes) {
                let opened = self.look(&path).and_then(|_| self.fs().reopen(&path));
                let (told, refused) = match opened {
                    Ok(file) => (
                        self.fs()
                            .is_locked(&file)
                            .map(|told| if told { Note::Yes } else { Note::No }),
                        match take(self.fs(), &file) {
                            Ok(()) => Note::No,
                            Err(error) if error.kind() == ErrorKind::WouldBlock => Note::Yes,
                            Err(error) => Note::Failed(error.to_string()),
                        },
                    ),
                    Err(error) => (Err(io::Error::from(error.kind())), Note::Failed(error.to_string())),
                };
                let told = told.unwrap_or_else(|error| Note::Failed(error.to_string()));
                self.me.notes.insert(lock(kind, whose, "told"), told);
                self.me.notes.insert(lock(kind, whose, "refused"), refused);
            }
        }
        self.together()?;
        if kept.take().is_some() {
            let _ = self.remove(&path);
        }
        Ok(())
    }

    /// Hosts make files in turn.
    fn stamps(&mut self) -> Met<()> {
        let count = self.me.roster.len();
        for number in 0..count * TURNS {
            let place = turn(number);
            if number % count == self.own_index() {
                let path = self.own(&format!("turn-{number}"));
                let stamped = probe::stamp(self.fs(), &path);
                let _ = self.remove(&path);
                let note = stamped.map_or_else(
                    |error| Note::Failed(error.to_string()),
                    |(.., stamp)| Note::Took(stamp.as_secs_f64()),
                );
                self.note(place, note)?;
            } else {
                let whose = self.me.roster[number % count].clone();
                if !self.until(GONE * 2, |meeting| meeting.account(&whose).notes.contains_key(&place))? {
                    return Err(Unmet::Disagreed);
                }
            }
        }
        Ok(())
    }

    /// Waits until the others have all the accounts, too. Who has them may be gone already.
    fn part(&mut self) {
        self.me.step += 1;
        let step = self.me.step;
        if self.publish().is_err() {
            return;
        }
        let ids = self.me.roster.clone();
        let has_all = |peer: &Peer| peer.account.step >= step || peer.missing.is_some();
        let _ = self.until(GONE, |meeting| {
            ids.iter().filter_map(|id| meeting.peers.get(id)).all(has_all)
        });
    }

    /// Takes away what this host made; the last to leave, everything.
    fn leave(&mut self) {
        for path in std::mem::take(&mut self.made) {
            let _ = self.fs().unlink(&path);
        }
        let _ = self.fs().unlink(&self.file(&self.me.id));
        let gone = |id: &str| {
            self.peers
                .get(id)
                .is_some_and(|peer| peer.changed.elapsed() > GONE || peer.missing.is_some())
        };
        let left = self.fs().list(&self.place, 10_000).unwrap_or_default();
        let mut others = left.iter().filter_map(|name| name.to_str()?.strip_prefix(PERSON));
        if others.all(gone) {
            scratch::clear(self.fs(), &self.place);
        }
    }
}

/// Begins the name of the file in which a host keeps its account.
const PERSON: &str = "host-";
