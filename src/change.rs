//! Changing a record: drives the steps of a [`Ballot`] over files. Nothing else in the crate replaces a record.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ballot::{Action, Ballot, Outcome, Reply, Stamp};
use crate::error::{Error, Result};
use crate::facts::{Facts, RecordFacts, RecordState};
use crate::fs::Stat;
use crate::mount::LockReach;
use crate::names::{self, TempId};
use crate::observe::{Judge, Sight, Slip, by_second_name, directory, look, look_listed, names_directory, read_ballot};
use crate::platform;
use crate::record::Record;
use crate::verdict::Judgement;

/// How long a living rival gets to finish before it is passed over.
const PATIENCE: Duration = Duration::from_millis(500);

/// A temp file that lies about for longer than this, by the file server's clock, has no writer that still wants it. A
/// writer that does starts over.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What a change wants, asked at the points where the protocol needs it.
pub(crate) trait Change {
    /// Whether the change is allowed on what was found.
    fn consider(&mut self, sight: &Sight) -> Consent;
    /// Whether the descriptor that writes the record is kept, so that a lock is to be taken on it.
    fn keeps(&self) -> bool {
        false
    }
    /// The new record, under this number. `locked`: the lock was taken.
    fn compose(&mut self, seq: u64, locked: bool) -> Record;
    /// The last word, where it depends on the file server's stamp of the new record, which has to be asked for.
    fn confirm(&mut self, _written: &dyn Fn() -> io::Result<Stat>) -> io::Result<bool> {
        Ok(true)
    }
}

pub(crate) enum Consent {
    Go,
    Refuse,
}

/// How a change ended, where it did not fail.
pub(crate) enum Ended {
    /// The record is ours. The descriptor is the one that wrote it.
    Committed {
        seq: u64,
        file: File,
    },
    Refused,
    GaveWay,
}

/// The place of one record: where it is, and with what to get there.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub judge: Judge,
    pub path: PathBuf,
    name: OsString,
    scope: u64,
}

impl Site {
    pub fn new(judge: Judge, path: &Path) -> Result<Self> {
        let Some(name) = path.file_name().filter(|_| !names_directory(path)) else {
            let what = "this names a directory; name the lease file in it";
            return Err(Error::invalid(path, what));
        };
        let scope = judge.host.scope();
        Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            scope,
            judge,
        })
    }

    /// One look at the record. Where there are no hard links, an absent record is created empty before it is replaced
    /// ([`Action::Create`]): an empty file beside which the very first ballot still stands is what a crash between the
    /// two leaves, and is as good as none. That ballot is removed once a record has been published.
    pub fn look(&self) -> Sight {
        let mut sight = look(&*self.judge.fs, &self.path);
        if let Err(facts) = &mut sight.content
            && facts.state == RecordState::Empty
        {
            match self.judge.fs.stat(&self.ballot(1)) {
                // It may have been removed since the file was empty.
                Err(_) => return look(&*self.judge.fs, &self.path),
                // The second name of a record, which somebody has emptied.
                Ok(ballot) if sight.stat.is_some_and(|stat| stat.file() == ballot.file()) || ballot.links > 1 => {
                    return sight;
                }
                Ok(_) => {}
            }
            **facts = RecordFacts {
                state: RecordState::Absent,
                ..RecordFacts::default()
            };
        }
        sight
    }

    /// The same where the file server has just been asked about the name: then the directory's own stamp adds nothing.
    fn look_asked(&self) -> Sight {
        let sight = look_listed(&*self.judge.fs, &self.path);
        match sight.content {
            Ok(_) => sight,
            Err(_) => self.look(),
        }
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    pub fn beside(&self, name: &OsStr) -> PathBuf {
        self.path.with_file_name(name)
    }

    fn temp(&self, id: TempId) -> PathBuf {
        self.beside(&names::temp(&self.name, id))
    }

    fn void(&self, id: TempId) -> PathBuf {
        self.beside(&names::void(&self.name, id))
    }

    fn withdrawn(&self, id: TempId) -> PathBuf {
        self.beside(&names::withdrawn(&self.name, id))
    }

    fn ballot(&self, number: u64) -> PathBuf {
        self.beside(&names::ballot(&self.name, number))
    }

    /// Judges a reboot anew, with the exact answer to whether the record has been changed since this host booted; whether
    /// it stands.
    pub fn confirm_reboot(&self, judgement: &mut Judgement, facts: &mut Facts, seen: Duration, written: &Stat) -> bool {
        let older = self.is_older_than_boot(seen, written);
        facts.lease.changed_since_boot = Some(!older);
        *judgement = crate::verdict::judge(facts);
        older
    }

    /// Whether the record, last changed at `seen`, has not been changed since this host booted. Exact, since both stamps
    /// are of the file server's clock: `written` is that of a file written just now.
    fn is_older_than_boot(&self, seen: Duration, written: &Stat) -> bool {
        // It may have been replaced between the look at its stamp and that at its content.
        let same = self.judge.fs.stat(&self.path).is_ok_and(|now| now.changed == seen);
        same && written.changed.saturating_sub(seen) >= platform::since_boot()
    }

    /// Carries a change through.
    pub fn change(&self, ballot: Ballot, change: &mut dyn Change) -> Result<Ended> {
        Driver {
            site: self,
            ballot,
            change,
            sight: None,
            file: None,
            written: None,
            waited: None,
            unsigned: None,
            failure: None,
        }
        .run()
    }

    /// Removes what is left beside the record of this number: ballots and second names that it has passed, and temp files
    /// without a writer that would still publish them. Says whether rivals that were disarmed may be at work yet.
    /// `fresh` is a file of the same filesystem that was just written; without one, nothing is too old.
    pub fn sweep(&self, seq: u64, fresh: Option<&File>) -> io::Result<bool> {
        let fs = &*self.judge.fs;
        let now = std::cell::OnceCell::new();
        let stamp = || fresh.and_then(|fresh| fs.stat_file(fresh).ok());
        let now = || *now.get_or_init(|| stamp().map_or(Duration::ZERO, |stat| stat.changed));
        let is_old = |path: &Path| {
            let stat = || fs.stat(path);
            fresh.is_some() && stat().is_ok_and(|stat| now().saturating_sub(stat.changed) > ABANDONED)
        };
        let local = std::cell::OnceCell::new();
        let is_local = || *local.get_or_init(|| self.is_local());
        let mut left = false;
        let (mut ballots, mut temps) = (Vec::new(), Vec::new());
        for name in fs.list(directory(&self.path), usize::MAX)? {
            let number = names::parse_ballot(&self.name, &name).or(names::parse_kept(&self.name, &name));
            match number {
                Some(number) if number < seq => ballots.push(name),
                Some(_) => {}
                None => temps.push(name),
            }
        }
        // Whoever is next will try again what fails. Ballots go first: a temp file that one of them names must stay.
        for ballot in ballots {
            let _ = fs.unlink(&self.beside(&ballot));
        }
        for name in temps {
            let path = self.beside(&name);
            if let Some(temp) = names::parse_temp(&self.name, &name) {
                let void = self.void(temp);
                if (self.is_gone(temp) || is_old(&path)) && fs.rename(&path, &void).is_ok() {
                    self.discard_unnamed(&void);
                }
            } else if let Some(temp) = names::parse_void(&self.name, &name) {
                match self.is_gone(temp) && is_local() || is_old(&path) {
                    true => self.discard_unnamed(&path),
                    false => left = true,
                }
            } else if names::parse_withdrawn(&self.name, &name).is_some() {
                self.discard_unnamed(&path);
            }
        }
        Ok(left)
    }

    /// Removes a temp file that is not to be published, unless a ballot is its second name.
    fn discard_unnamed(&self, path: &Path) {
        let fs = &*self.judge.fs;
        if fs.stat(path).is_ok_and(|stat| stat.links == 1) {
            let _ = fs.unlink(path);
        }
    }

    fn is_gone(&self, temp: TempId) -> bool {
        self.judge.has_ended(self.scope, temp)
    }

    /// Whether what a process began ends with it. An NFS client goes on with the first step of a rename whose process was
    /// killed (`nfs_sillyrename` in fs/nfs/unlink.c).
    fn is_local(&self) -> bool {
        (self.judge.reach)(directory(&self.path)) == LockReach::Local
    }
}

struct Driver<'a> {
    site: &'a Site,
    ballot: Ballot,
    change: &'a mut dyn Change,
    sight: Option<Sight>,
    file: Option<File>,
    /// The temp file that was written last.
    written: Option<TempId>,
    /// Since when the present rival is waited for, and for how long the next pause is.
    waited: Option<(Duration, Duration)>,
    /// A ballot file that does not name its temp file yet.
    unsigned: Option<File>,
    failure: Option<Error>,
}

impl Driver<'_> {
    fn run(mut self) -> Result<Ended> {
        let mut action = self.ballot.start();
        loop {
            if let Action::Finish(outcome) = action {
                return self.finish(outcome);
            }
            let reply = self.perform(&action);
            action = self.ballot.advance(reply);
        }
    }

    fn finish(self, outcome: Outcome) -> Result<Ended> {
        let path = &self.site.path;
        match outcome {
            Outcome::Committed { seq, .. } => {
                let file = self.file.expect("a commit has written a temp file");
                Ok(Ended::Committed { seq, file })
            }
            Outcome::Refused => Ok(Ended::Refused),
            Outcome::GaveWay => Ok(Ended::GaveWay),
            Outcome::Contended => Err(Error::Contended { path: path.clone() }),
            Outcome::Failed => Err(self.failure.expect("a step that failed has left its error")),
            Outcome::Unknown => Err(Error::Uncertain(Box::new(self.failure.expect("as above")))),
        }
    }

    /// Makes one call and says what came of it.
    fn perform(&mut self, action: &Action) -> Reply {
        let (site, fs) = (self.site, self.site.judge.fs.clone());
        if !matches!(action, Action::Pause { .. }) {
            self.waited = None;
        }
        match *action {
            Action::Look => self.look(),
            Action::Write { seq } => self.write(seq),
            Action::Take { number, temp } => {
                let ballot = site.ballot(number);
                let taken = fs.link(&site.temp(temp), &ballot);
                self.reply(
                    "create the ballot",
                    &ballot,
                    taken,
                    &[Reply::Exists, Reply::Missing, Reply::Unsupported],
                )
            }
            Action::TakeFile { number } => {
                let ballot = site.ballot(number);
                let created = fs.create(&ballot, None).map(|file| self.unsigned = Some(file));
                self.reply("create the ballot", &ballot, created, &[Reply::Exists])
            }
            Action::Sign { number, temp } => {
                let ballot = site.ballot(number);
                let name = names::temp(&site.name, temp);
                let file = self.unsigned.take().expect("a ballot is created before it is signed");
                let signed = fs.write_at(&file, name.as_encoded_bytes(), 0);
                self.reply("write the ballot", &ballot, signed, &[])
            }
            Action::Inspect { number } => self.inspect(number),
            Action::Pause { rival } => self.pause(rival),
            Action::Disarm { temp } => self.disarm(temp, &site.void(temp)),
            Action::Retire { temp } => {
                let withdrawn = site.withdrawn(temp);
                let retired = self.disarm(temp, &withdrawn);
                // Where no ballot could be taken, as on a full disk, nothing is left.
                if self.failure.is_some() {
                    site.discard_unnamed(&withdrawn);
                }
                retired
            }
            Action::Withdraw { temp } => self.unlink("remove the temp file", &site.temp(temp)),
            Action::DisarmAll { but } => self.disarm_all(but),
            Action::Ask => {
                let _ = fs.ask(&site.path);
                Reply::Done
            }
            Action::Link { temp } => self.link(temp),
            Action::Create => {
                let created = fs.create(&site.path, None).map(drop);
                self.reply("create", &site.path, created, &[Reply::Exists])
            }
            Action::Recheck => {
                let sight = site.look_asked();
                let reply = match &sight.content {
                    // Whatever stands there now, it is not known: not the same as something that is not ours.
                    Err(facts) if facts.state == RecordState::Unreadable => {
                        let why = facts.detail.clone().unwrap_or_default();
                        self.fail("read", &site.path, io::Error::other(why))
                    }
                    _ if sight.is_absent() && sight.stat.is_none() => Reply::Missing,
                    _ => self.seen(&sight),
                };
                self.sight = Some(sight);
                reply
            }
            Action::Untwin => self.untwin(),
            Action::Keep { number } => {
                let kept = site.beside(&names::kept(&site.name, number));
                let linked = fs.link(&site.path, &kept);
                if linked.as_ref().is_err_and(platform::is_stale) {
                    return Reply::Changed;
                }
                let expected = [Reply::Exists, Reply::Missing, Reply::Unsupported];
                self.reply("link to", &kept, linked, &expected)
            }
            Action::Rename { temp } => {
                let renamed = fs.rename(&site.temp(temp), &site.path);
                self.reply("rename the temp file onto", &site.path, renamed, &[Reply::Missing])
            }
            Action::Remove { number } => self.unlink("remove the ballot", &site.ballot(number)),
            Action::Discard { temp } => match fs.unlink(&site.withdrawn(temp)) {
                Err(_) => self.unlink("remove the temp file", &site.void(temp)),
                Ok(()) => Reply::Done,
            },
            Action::Forget { number } => self.unlink("remove", &site.beside(&names::kept(&site.name, number))),
            Action::Finish(_) => unreachable!("the loop ends on it"),
        }
    }

    /// Links to the record's name, where there is nothing. It may only seem so, as while another change is renamed onto it;
    /// then a ballot stands, and whoever comes later finds ours taken.
    fn link(&mut self, temp: TempId) -> Reply {
        let (site, fs) = (self.site, &*self.site.judge.fs);
        match by_second_name(fs, &site.path) {
            Ok(None) => {}
            Ok(Some(_)) => return Reply::Exists,
            Err(error) if platform::is_stale(&error) => return Reply::Exists,
            Err(error) => return self.fail("look for other names of", &site.path, error),
        }
        let linked = fs.link(&site.temp(temp), &site.path);
        self.reply(
            "link to",
            &site.path,
            linked,
            &[Reply::Exists, Reply::Missing, Reply::Unsupported],
        )
    }

    fn look(&mut self) -> Reply {
        let sight = self.site.look();
        let consent = self.change.consider(&sight);
        let reply = match consent {
            Consent::Go => self.seen(&sight),
            Consent::Refuse => Reply::Refused,
        };
        self.sight = Some(sight);
        reply
    }

    fn seen(&self, sight: &Sight) -> Reply {
        let stamp = sight.stamp();
        if stamp.is_none() && !sight.is_absent() {
            return Reply::Odd;
        }
        let change = sight.content.as_ref().ok().and_then(|record| record.owner.change);
        Reply::Seen {
            stamp,
            twin: sight.stat.is_some_and(|stat| stat.links > 1),
            own: change.is_some() && change == self.written,
        }
    }

    fn write(&mut self, seq: u64) -> Reply {
        let site = self.site;
        let like = self.sight.as_ref().and_then(|sight| sight.stat);
        let fs = &*site.judge.fs;
        // A few tries: another process of this pid may, once in four thousand million, have had the same number.
        for _ in 0..8 {
            let id = TempId::new(site.scope, std::process::id(), platform::random() as u32);
            let path = site.temp(id);
            let file = match fs.create(&path, like.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => {
                    // It may have been created all the same, and gets no ballot that would lead others to it.
                    let _ = fs.unlink(&path);
                    return self.fail("create the temp file", &path, error);
                }
                Ok(file) => file,
            };
            // Taken before anybody can see the record. Where the filesystem has no locks, none is promised.
            let locked = self.change.keeps() && fs.lock(&file).is_ok();
            let mut record = self.change.compose(seq, locked);
            record.owner.change = Some(id);
            let bytes = record.print();
            // Nothing is published that could not be read back, as a count too large or JSON too deep.
            let readable = Record::parse(&bytes)
                .map_err(|flaw| Error::invalid(&site.path, format!("the record cannot be written: {flaw}")));
            let written = readable
                .and_then(|_| {
                    fs.write_at(&file, &bytes, 0)
                        .map_err(Error::io("write the temp file", &path))
                })
                .and_then(|()| fs.sync(&file).map_err(Error::io("sync the temp file", &path)))
                .and_then(|()| {
                    let stamp = || fs.stat_file(&file);
                    self.change
                        .confirm(&stamp)
                        .map_err(Error::io("stat the temp file", &path))
                });
            let reply = match written {
                Ok(true) => {
                    (self.file, self.written) = (Some(file), Some(id));
                    return Reply::Written(id);
                }
                Ok(false) => Reply::Refused,
                // Somebody took it for abandoned: another host, by a clock of the server's that was set forward.
                Err(Error::Io { source, .. }) if platform::is_stale(&source) => continue,
                Err(error) => {
                    self.failure.get_or_insert(error);
                    Reply::Failed
                }
            };
            let _ = fs.unlink(&path);
            return reply;
        }
        let error = io::ErrorKind::AlreadyExists.into();
        self.fail("create the temp file", &site.path, error)
    }

    /// Reads whom a ballot names.
    fn inspect(&mut self, number: u64) -> Reply {
        let site = self.site;
        let temp = match read_ballot(&*site.judge.fs, &site.path, number) {
            Err(error) if error.kind() == io::ErrorKind::NotFound || platform::is_stale(&error) => {
                return Reply::Missing;
            }
            // Whose it is, is not told.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return self.fail("read the ballot", &site.ballot(number), error),
            Ok(Slip::Record { temp, .. }) => temp,
            Ok(Slip::File(temp)) => temp,
        };
        let dead = temp.is_some_and(|temp| site.is_gone(temp));
        let disarmed = temp.is_some_and(|temp| self.is_disarmed(temp));
        let has_given_up = |temp| disarmed && site.judge.fs.stat(&site.withdrawn(temp)).is_ok();
        Reply::Rival {
            temp,
            gone: disarmed || dead,
            ended: dead && site.is_local() || temp.is_some_and(has_given_up),
        }
    }

    /// Whether a rival's temp file is not there any more: published, or given up.
    fn is_disarmed(&self, temp: TempId) -> bool {
        let stat = self.site.judge.fs.stat(&self.site.temp(temp));
        stat.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    fn pause(&mut self, rival: Option<TempId>) -> Reply {
        let clock = &self.site.judge.clock;
        let (since, step) = self.waited.unwrap_or((clock.now(), Duration::from_millis(1)));
        clock.sleep(step);
        self.waited = Some((since, (step * 2).min(Duration::from_millis(50))));
        let sight = self.site.look();
        let (seen, now) = (self.ballot.seen(), sight.stamp());
        let same = |a: Stamp, b: Stamp| a.token == b.token && a.seq == b.seq;
        let unchanged = match (seen, now) {
            (Some(seen), Some(now)) => same(seen, now),
            (None, None) => sight.is_absent(),
            _ => false,
        };
        if !unchanged {
            Reply::Changed
        } else if rival.is_some_and(|rival| self.site.is_gone(rival) || self.is_disarmed(rival))
            || clock.now().saturating_sub(since) >= PATIENCE
        {
            Reply::Expired
        } else {
            Reply::Still
        }
    }

    fn disarm(&mut self, temp: TempId, to: &Path) -> Reply {
        let temp = self.site.temp(temp);
        match self.site.judge.fs.rename(&temp, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.fail("rename the temp file", &temp, error),
            _ => Reply::Done,
        }
    }

    fn disarm_all(&mut self, but: TempId) -> Reply {
        let site = self.site;
        let dir = directory(&site.path);
        // All of them: one that is overlooked could still be published.
        let names = match site.judge.fs.list(dir, usize::MAX) {
            Ok(names) => names,
            Err(error) => return self.fail("list", dir, error),
        };
        let temps = names.iter().filter_map(|name| names::parse_temp(&site.name, name));
        for temp in temps.filter(|temp| *temp != but) {
            if self.disarm(temp, &site.void(temp)) != Reply::Done {
                return Reply::Failed;
            }
        }
        Reply::Done
    }

    /// Removes the name under which the record was written, whatever a rival thought of it: it has been published. Says
    /// whether there are still rivals that were disarmed and may be at work; what those left who are not is removed.
    fn untwin(&mut self) -> Reply {
        let site = self.site;
        let Some(Ok(record)) = self.sight.as_ref().map(|sight| sight.content.as_ref()) else {
            return Reply::Done;
        };
        let seq = record.owner.seq;
        let names = record.owner.change.map(|change| names::of_change(&site.name, change));
        for name in names.into_iter().flatten() {
            if self.unlink("remove the temp file", &site.beside(&name)) != Reply::Done {
                return Reply::Failed;
            }
        }
        match site.sweep(seq, None) {
            Ok(true) => Reply::Exists,
            Ok(false) => Reply::Done,
            Err(error) => self.fail("list", directory(&site.path), error),
        }
    }

    fn unlink(&mut self, operation: &'static str, path: &Path) -> Reply {
        match self.site.judge.fs.unlink(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.fail(operation, path, error),
            _ => Reply::Done,
        }
    }

    /// The reply to a call, if it is one of those that the protocol goes on from; anything else is a failure.
    fn reply(&mut self, operation: &'static str, path: &Path, result: io::Result<()>, expected: &[Reply]) -> Reply {
        let error = match result {
            Ok(()) => return Reply::Done,
            Err(error) => error,
        };
        let reply = match error.kind() {
            io::ErrorKind::AlreadyExists => Reply::Exists,
            io::ErrorKind::NotFound => Reply::Missing,
            _ if platform::is_unsupported(&error) => Reply::Unsupported,
            _ => Reply::Failed,
        };
        if expected.contains(&reply) {
            reply
        } else {
            self.fail(operation, path, error)
        }
    }

    /// The first failure is the one to report; what comes after it is tidying up.
    fn fail(&mut self, operation: &'static str, path: &Path, error: io::Error) -> Reply {
        self.failure.get_or_insert_with(|| Error::io(operation, path)(error));
        Reply::Failed
    }
}
