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
use crate::names::{self, TempId};
use crate::observe::{Judge, Sight, armed, ballot_content, directory, look, names_directory};
use crate::platform;
use crate::record::Record;
use crate::verdict::Judgement;

/// How long a living rival gets to finish before it is passed over.
const PATIENCE: Duration = Duration::from_millis(500);

/// Records that were put aside are completed this often in a row.
const ROUNDS: usize = 8;

/// Names of a directory that are looked through for leftovers.
const LISTED: usize = 100_000;

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
    /// The last word, now that the file server has stamped the new record.
    fn confirm(&mut self, _written: &Stat) -> bool {
        true
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
    Resurrected,
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
            if self.judge.fs.stat(&self.ballot(1)).is_err() {
                // It may have been removed since the file was empty.
                return look(&*self.judge.fs, &self.path);
            }
            **facts = RecordFacts {
                state: RecordState::Absent,
                ..RecordFacts::default()
            };
        }
        sight
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
            half_done: false,
            failure: None,
        }
        .run()
    }

    /// Looks, and where the record has been put aside, puts what was to replace it in its place.
    fn look_whole(&self) -> Sight {
        for _ in 0..ROUNDS {
            let sight = self.look();
            if !sight.halfway {
                return sight;
            }
            self.complete();
        }
        self.look()
    }

    /// Completes the replacement of a record that has been put aside, as whoever began it would have, or still will: its
    /// temp file is linked to the record's name. What was seen last is what counts, and of those who have seen it the
    /// highest ballot; the others are disarmed, as that one would have done.
    fn complete(&self) {
        let fs = &*self.judge.fs;
        if let Some((last, others)) = armed(fs, &self.path).split_last() {
            let disarmed = others.iter().all(|other| match fs.unlink(&self.temp(other.temp)) {
                Err(error) => error.kind() == io::ErrorKind::NotFound,
                Ok(()) => true,
            });
            if disarmed {
                // Whatever comes of it, the next look tells.
                let _ = fs.link(&self.temp(last.temp), &self.path);
            }
        }
    }

    /// Whether the record is not there now.
    fn is_absent(&self) -> bool {
        self.is_missing(&self.path)
    }

    fn is_missing(&self, path: &Path) -> bool {
        let found = self.judge.fs.stat(path);
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Removes what crashed contenders left: ballots that the record has reached, and temp files without a writer.
    /// `fresh` is a file of the same filesystem that was just written; its stamp is asked for only where it is needed.
    pub fn sweep(&self, seq: u64, fresh: &File) {
        let fs = &*self.judge.fs;
        let now = std::cell::OnceCell::new();
        let now = || *now.get_or_init(|| fs.stat_file(fresh).map_or(Duration::ZERO, |stat| stat.changed));
        let Ok(names) = fs.list(directory(&self.path), LISTED) else {
            return;
        };
        for name in names {
            let path = self.beside(&name);
            let spent = match (
                names::parse_ballot(&self.name, &name),
                names::parse_temp(&self.name, &name),
            ) {
                (Some(number), _) => number <= seq,
                (_, Some(temp)) => {
                    self.is_gone(temp)
                        || fs
                            .stat(&path)
                            .is_ok_and(|stat| now().saturating_sub(stat.changed) > ABANDONED)
                }
                _ => false,
            };
            if spent {
                // Whoever is next will try again.
                let _ = fs.unlink(&path);
            }
        }
    }

    fn is_gone(&self, temp: TempId) -> bool {
        self.judge.has_ended(self.scope, temp)
    }
}

struct Driver<'a> {
    site: &'a Site,
    ballot: Ballot,
    change: &'a mut dyn Change,
    sight: Option<Sight>,
    file: Option<File>,
    /// The file that was written last.
    written: Option<Stat>,
    /// Since when the present rival is waited for, and for how long the next pause is.
    waited: Option<(Duration, Duration)>,
    /// A ballot file that does not name its temp file yet.
    unsigned: Option<File>,
    /// A rename failed, and may have put the record aside.
    half_done: bool,
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
            Outcome::Resurrected => Ok(Ended::Resurrected),
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
                let taken = fs.symlink(&self.target(temp), &ballot);
                self.reply(
                    "create the ballot",
                    &ballot,
                    taken,
                    &[Reply::Exists, Reply::Unsupported],
                )
            }
            Action::TakeFile { number } => {
                let ballot = site.ballot(number);
                let created = fs.create(&ballot, None).map(|file| self.unsigned = Some(file));
                self.reply("create the ballot", &ballot, created, &[Reply::Exists])
            }
            Action::Sign { number, temp } => {
                let ballot = site.ballot(number);
                let name = self.target(temp);
                let file = self.unsigned.take().expect("a ballot is created before it is signed");
                let signed = fs.write_at(&file, name.as_encoded_bytes(), 0);
                self.reply("write the ballot", &ballot, signed, &[])
            }
            Action::Inspect { number } => self.inspect(number),
            Action::Pause { rival } => self.pause(rival),
            Action::Disarm { temp } => self.unlink("remove the temp file", &site.temp(temp)),
            Action::Withdraw { temp } => {
                // Our own rename may have done its first half. Then the second half is what remains to be done.
                if std::mem::take(&mut self.half_done) && site.is_absent() {
                    let _ = fs.link(&site.temp(temp), &site.path);
                }
                self.unlink("remove the temp file", &site.temp(temp))
            }
            Action::DisarmAll { but } => self.disarm_all(but),
            Action::Link { temp } => self.link(temp),
            Action::Create => {
                let created = fs.create(&site.path, None).map(drop);
                self.reply("create", &site.path, created, &[Reply::Exists])
            }
            Action::Recheck => {
                let sight = site.look_whole();
                let reply = match &sight.content {
                    // Without hard links it cannot be completed.
                    _ if sight.halfway => Reply::Missing,
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
            Action::Rename { temp } => {
                // An NFS client puts the record aside before it asks whether there is anything to put in its place: whoever
                // was disarmed meanwhile must not try.
                let gone = match fs.stat(&site.temp(temp)) {
                    Ok(stat) => stat.links == 0,
                    Err(error) => error.kind() == io::ErrorKind::NotFound || platform::is_stale(&error),
                };
                if gone {
                    return Reply::Missing;
                }
                let renamed = fs.rename(&site.temp(temp), &site.path);
                let reply = self.reply("rename the temp file onto", &site.path, renamed, &[Reply::Missing]);
                self.half_done = reply == Reply::Failed;
                reply
            }
            Action::Remove { number } => self.unlink("remove the ballot", &site.ballot(number)),
            Action::Finish(_) => unreachable!("the loop ends on it"),
        }
    }

    /// Asks the server about the record's name, and links to it where there is nothing.
    fn link(&mut self, temp: TempId) -> Reply {
        let (site, fs) = (self.site, self.site.judge.fs.clone());
        if self.ballot.seen().is_some() {
            // Nothing can be linked to a directory, so nothing is made; but to make a name the client has to ask anew whether
            // it is taken. With T in its place, the link would succeed while somebody else has put the record aside.
            let asked = fs.link(Path::new("/"), &site.path);
            let exists = |error: io::Error| error.kind() == io::ErrorKind::AlreadyExists;
            if asked.is_err_and(exists) || !site.is_absent() {
                return Reply::Exists;
            }
        }
        if armed(&*fs, &site.path).iter().any(|armed| armed.temp != temp) {
            if site.is_absent() {
                site.complete();
            }
            return Reply::Exists;
        }
        let linked = fs.link(&site.temp(temp), &site.path);
        self.reply(
            "link to",
            &site.path,
            linked,
            &[Reply::Exists, Reply::Missing, Reply::Unsupported],
        )
    }

    fn target(&self, temp: TempId) -> OsString {
        names::ballot_target(&self.site.name, temp, self.ballot.seen().map(|seen| seen.seq))
    }

    fn look(&mut self) -> Reply {
        let sight = self.site.look_whole();
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
        let is_written = |stat: Stat| {
            self.written
                .is_some_and(|written| (written.device, written.inode) == (stat.device, stat.inode))
        };
        Reply::Seen {
            stamp,
            twin: sight.stat.is_some_and(|stat| stat.links > 1),
            own: sight.stat.is_some_and(is_written),
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
            let bytes = self.change.compose(seq, locked).print();
            // Nothing is published that could not be read back, as a count too large or JSON too deep.
            let readable = Record::parse(&bytes)
                .map_err(|flaw| Error::invalid(&site.path, format!("the record cannot be written: {flaw}")));
            let written = readable
                .and_then(|_| {
                    fs.write_at(&file, &bytes, 0)
                        .map_err(Error::io("write the temp file", &path))
                })
                .and_then(|()| fs.sync(&file).map_err(Error::io("sync the temp file", &path)))
                .and_then(|()| fs.stat_file(&file).map_err(Error::io("stat the temp file", &path)));
            let reply = match written {
                Ok(stat) if self.change.confirm(&stat) => {
                    (self.file, self.written) = (Some(file), Some(stat));
                    return Reply::Written(id);
                }
                Ok(_) => Reply::Refused,
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

    /// Reads whom a ballot names: the content of the link, or of the file where there are no links.
    fn inspect(&mut self, number: u64) -> Reply {
        let site = self.site;
        let (fs, ballot) = (&*site.judge.fs, site.ballot(number));
        let named = match ballot_content(fs, &ballot) {
            Err(error) if error.kind() == io::ErrorKind::NotFound || platform::is_stale(&error) => {
                return Reply::Missing;
            }
            Err(error) => return self.fail("read the ballot", &ballot, error),
            Ok(named) => named,
        };
        let temp = named.and_then(|named| Some(names::parse_target(&site.name, &named)?.0));
        Reply::Rival {
            temp,
            gone: temp.is_some_and(|temp| self.is_out(temp)),
        }
    }

    /// Whether a rival cannot commit any more: its process has ended, or its temp file is gone.
    fn is_out(&self, temp: TempId) -> bool {
        self.site.is_gone(temp) || self.site.is_missing(&self.site.temp(temp))
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
        } else if rival.is_some_and(|rival| self.is_out(rival)) || clock.now().saturating_sub(since) >= PATIENCE {
            Reply::Expired
        } else {
            Reply::Still
        }
    }

    fn disarm_all(&mut self, but: TempId) -> Reply {
        let site = self.site;
        let others = |_: &Path, temp: TempId| temp != but;
        self.unlink_temps(site, others)
    }

    /// Removes the temp file that shares its inode with the record.
    fn untwin(&mut self) -> Reply {
        let site = self.site;
        let Some(record) = self.sight.as_ref().and_then(|sight| sight.stat) else {
            return Reply::Done;
        };
        let twins = |path: &Path, _: TempId| {
            site.judge
                .fs
                .stat(path)
                .is_ok_and(|stat| stat.inode == record.inode && stat.device == record.device)
        };
        self.unlink_temps(site, twins)
    }

    fn unlink_temps(&mut self, site: &Site, which: impl Fn(&Path, TempId) -> bool) -> Reply {
        let dir = directory(&site.path);
        // All of them: one that is overlooked could still be published.
        let names = match site.judge.fs.list(dir, usize::MAX) {
            Ok(names) => names,
            Err(error) => return self.fail("list", dir, error),
        };
        for name in names {
            let path = site.beside(&name);
            if names::parse_temp(&site.name, &name).is_some_and(|temp| which(&path, temp))
                && self.unlink("remove the temp file", &path) != Reply::Done
            {
                return Reply::Failed;
            }
        }
        Reply::Done
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
