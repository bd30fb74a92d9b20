//! Ending the claim of a dead owner, from its own host: the record stays, vacant, and says on what verdict.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use crate::ballot::{Ballot, Kind};
use crate::change::{Change, Consent, Ended, Site};
use crate::claim::timestamp;
use crate::error::{Error, Result};
use crate::facts::{Facts, LeaseFacts};
use crate::fs::Stat;
use crate::lapse::Watch;
use crate::observe::{Judge, Sight};
use crate::record::{LARGEST, Record};
use crate::run_state::SETTLED;
use crate::token::Token;
use crate::verdict::{Judgement, Reason, Verdict};

/// What came of [`Judge::settle`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Settlement {
    /// The owner was dead, and the record is vacant now. The judgement is the one it rests on.
    Vacated(Box<Record>, Box<Judgement>),
    /// The record is not of a dead owner of this host, and was left alone.
    LeftAlone(Box<Judgement>),
}

impl Judge {
    /// Vacates the record at `path` if its owner was this host's and is verified dead; any other is left alone. Epoch,
    /// token and run state are kept, `settled` says when, where and why, and an intent without an outcome stays in
    /// doubt. Safe to call on any host, any number of times, at once.
    ///
    /// This is how a record that other hosts could only call undetermined becomes free, on the word of the one host
    /// that can tell.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Uncertain`], [`Error::Contended`]; [`Error::Unreadable`] when the record cannot be read.
    pub fn settle(&self, path: impl AsRef<Path>) -> Result<Settlement> {
        self.vacate(path.as_ref(), None, Map::new())
    }

    /// The same for one claim only, with more to say about it.
    pub(crate) fn vacate(&self, path: &Path, only: Option<Token>, note: Map<String, Value>) -> Result<Settlement> {
        let site = Site::new(self.clone(), path)?;
        let sight = site.look();
        let (judgement, facts) = self.weigh(path, &sight, LeaseFacts::default());
        let record = match &sight.content {
            Ok(record) => record,
            Err(_) if judgement.reason == Reason::Unreadable => {
                let why = facts.record.detail.unwrap_or_default();
                let path = path.to_owned();
                return Err(Error::Unreadable { path, why });
            }
            // Another program's file is never touched.
            Err(_) => return Ok(Settlement::LeftAlone(Box::new(judgement))),
        };
        let token = record.owner.token;
        if judgement.verdict != Verdict::Dead || only.is_some_and(|only| only != token) {
            return Ok(Settlement::LeftAlone(Box::new(judgement)));
        }
        let mut change = Settling {
            site: &site,
            token,
            note,
            watch: Watch::default(),
            judged: (judgement, facts),
            changed: None,
            next: None,
        };
        let ended = site.change(Ballot::new(Kind::Settle, token, false), &mut change)?;
        let Settling {
            judged: (judgement, _),
            next,
            ..
        } = change;
        Ok(match ended {
            Ended::Committed { .. } => {
                let record = next.expect("what was committed was composed");
                Settlement::Vacated(Box::new(record), Box::new(judgement))
            }
            Ended::Refused | Ended::GaveWay => Settlement::LeftAlone(Box::new(judgement)),
        })
    }
}

struct Settling<'a> {
    site: &'a Site,
    token: Token,
    note: Map<String, Value>,
    watch: Watch,
    judged: (Judgement, Facts),
    /// The stamp of the record that is to be replaced.
    changed: Option<std::time::Duration>,
    next: Option<Record>,
}

impl Settling<'_> {
    fn note(&self, judgement: &Judgement) -> Value {
        let mut note = self.note.clone();
        note.insert("verdict".into(), judgement.verdict.word().into());
        note.insert("reason".into(), judgement.reason.word().into());
        if let Some(host) = &judgement.observer.host {
            note.insert("by".into(), host.as_str().into());
        }
        note.insert("at".into(), timestamp().into());
        note.into()
    }
}

impl Change for Settling<'_> {
    fn consider(&mut self, sight: &Sight) -> Consent {
        let judge = &self.site.judge;
        let now = judge.clock.now();
        let lease = self.watch.saw(sight.mark(), now, now);
        self.judged = judge.weigh(&self.site.path, sight, lease);
        self.changed = sight.stat.map(|stat| stat.changed);
        let Ok(record) = &sight.content else {
            return Consent::Refuse;
        };
        if self.judged.0.verdict != Verdict::Dead || record.owner.token != self.token {
            return Consent::Refuse;
        }
        let mut next = (**record).clone();
        next.owner.ended = Some(timestamp());
        next.owner.lock = None;
        let silent = next.clone();
        next.state.set(SETTLED, self.note(&self.judged.0));
        // A full record is vacated all the same.
        let fits = next.print().len() + 20 <= LARGEST;
        self.next = Some(if fits { next } else { silent });
        Consent::Go
    }

    fn compose(&mut self, seq: u64, _locked: bool) -> Record {
        let record = self
            .next
            .as_mut()
            .expect("a record is composed after a look allowed it");
        record.owner.seq = seq;
        record.clone()
    }

    /// A reboot is believed only when the record was not changed since, by two stamps of the file server's clock: a
    /// clone of this host may be alive.
    fn confirm(&mut self, written: &dyn Fn() -> io::Result<Stat>) -> io::Result<bool> {
        let (judgement, facts) = &mut self.judged;
        let Some(changed) = self.changed.filter(|_| judgement.rests_on_a_reboot()) else {
            return Ok(true);
        };
        Ok(self.site.confirm_reboot(judgement, facts, changed, &written()?))
    }
}
