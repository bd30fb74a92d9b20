//! Breaking a lease: an operator's decision, recorded as one.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::ballot::{Ballot, Kind};
use crate::change::{Change, Consent, Ended, Site};
use crate::claim::timestamp;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::lease::Holder;
use crate::names;
use crate::observe::{Judge, Sight};
use crate::platform;
use crate::record::{LARGEST, Record};
use crate::run_state::BROKEN;
use crate::token::Token;

/// What a broken lease left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Broken {
    /// The vacant record.
    pub record: Record,
    /// Where the broken record is kept, with who broke it, when, from where and why.
    pub evidence: PathBuf,
}

/// A reason has at most so many bytes: the record has to stay one.
const LONGEST_REASON: usize = 4096;

/// Evidence of one epoch: a crash, or a record that was removed by hand, may have left some.
const MOST_EVIDENCE: usize = 100;

/// Ends the claim `token` of somebody else, whether its owner lives or not: an operator's decision.
///
/// Only the exact claim that was looked at is broken. The record becomes vacant under the next epoch and a new token, so
/// that its holder, should it still run, has lost it and finds out at its next renewal or `verify`. The broken record is
/// kept beside it as `NAME.broken-EPOCH`.
///
/// # Errors
/// [`Error::Lost`] when the record carries another token by now or is ended, [`Error::NotARecord`], [`Error::Invalid`] for
/// a reason that says nothing or too much, [`Error::Io`], [`Error::Uncertain`].
pub fn break_lease(judge: Judge, path: &Path, token: Token, reason: &str) -> Result<Broken> {
    if reason.trim().is_empty() || reason.len() > LONGEST_REASON {
        let what = format!("a reason has words, and at most {LONGEST_REASON} bytes");
        return Err(Error::invalid(path, what));
    }
    let holder = Holder::from(judge, path, token)?;
    let site = holder.site();
    let sight = site.look();
    let broken = holder.current(&sight)?.clone();
    let host = &site.judge.host().observer;
    let mut testimony = json!({
        "epoch": broken.owner.epoch,
        "token": holder.token(),
        "when": timestamp(),
        "host": host.host,
        "uid": platform::uid(),
        "reason": reason,
    });
    let evidence = Evidence::keep(site, &broken, testimony.clone())?;
    testimony["evidence"] = evidence.path.file_name().map(OsStr::to_string_lossy).into();
    let successor = Token::from_bits(platform::random());
    let mut change = Break {
        holder: &holder,
        successor,
        testimony,
        evidence,
        next: None,
        refused: None,
    };
    let ended = site.change(Ballot::new(Kind::Claim, successor, false), &mut change);
    let refused = match ended {
        Ok(Ended::Committed { .. }) => {
            let record = change.next.expect("what was committed was composed");
            return Ok(Broken {
                record,
                evidence: change.evidence.path,
            });
        }
        Ok(Ended::Refused | Ended::GaveWay) => change.refused.expect("a change is refused with the reason why"),
        // The evidence stays: the change may have been made.
        Err(error @ Error::Uncertain(_)) => return Err(error),
        Err(error) => error,
    };
    // Nothing was broken. What cannot be removed stays as evidence of an attempt.
    let _ = site.judge.fs.unlink(&change.evidence.path);
    Err(refused)
}

/// A file of our own that keeps the record as it was, and a fourth line that says what is being done to it.
struct Evidence {
    path: PathBuf,
    /// The state of the record that is kept.
    seq: u64,
    testimony: Value,
}

impl Evidence {
    /// What has the name already is left alone: it may be the evidence of somebody who is breaking the same claim.
    fn keep(site: &Site, broken: &Record, testimony: Value) -> Result<Self> {
        let fs = &*site.judge.fs;
        let mut number = 1;
        let (path, file) = loop {
            let path = site.beside(&names::broken(site.name(), broken.owner.epoch, number));
            match fs.create(&path, None) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_EVIDENCE => number += 1,
                created => break (path.clone(), created.map_err(Error::io("create", &path))?),
            }
        };
        let evidence = Self {
            path,
            seq: broken.owner.seq,
            testimony,
        };
        if let Err(error) = evidence.write(fs, &file, broken) {
            let _ = fs.unlink(&evidence.path);
            return Err(error);
        }
        Ok(evidence)
    }

    /// The holder has changed the record meanwhile.
    fn renew(&mut self, fs: &dyn Fs, broken: &Record) -> Result<()> {
        fs.unlink(&self.path).map_err(Error::io("replace", &self.path))?;
        let file = fs.create(&self.path, None).map_err(Error::io("create", &self.path))?;
        self.seq = broken.owner.seq;
        self.write(fs, &file, broken)
    }

    fn write(&self, fs: &dyn Fs, file: &File, broken: &Record) -> Result<()> {
        let mut bytes = broken.print();
        bytes.extend_from_slice(format!("{}\n", self.testimony).as_bytes());
        fs.write_at(file, &bytes, 0).map_err(Error::io("write", &self.path))?;
        fs.sync(file).map_err(Error::io("sync", &self.path))
    }
}

struct Break<'a> {
    holder: &'a Holder,
    successor: Token,
    testimony: Value,
    evidence: Evidence,
    next: Option<Record>,
    refused: Option<Error>,
}

impl Change for Break<'_> {
    fn consider(&mut self, sight: &Sight) -> Consent {
        let fs = &*self.holder.site().judge.fs;
        let current = self.holder.current(sight).and_then(|record| {
            if record.owner.seq != self.evidence.seq {
                self.evidence.renew(fs, record)?;
            }
            Ok(record)
        });
        match current {
            Ok(record) => {
                let mut next = record.clone();
                next.owner.token = self.successor;
                next.owner.epoch = next.owner.epoch.saturating_add(1);
                next.owner.lock = None;
                next.owner.ended = Some(timestamp());
                next.state.set(BROKEN, self.testimony.clone());
                // Room for a longer number. A full record can be broken too: the evidence has all of it.
                let fits = |record: &Record| record.print().len() + 20 <= LARGEST;
                if !fits(&next) {
                    next.owner.cmd = None;
                    next.state.set(BROKEN, json!({ "epoch": record.owner.epoch }));
                }
                if !fits(&next) {
                    next.state.remove(BROKEN);
                }
                self.next = Some(next);
                Consent::Go
            }
            Err(error) => {
                self.refused = Some(error);
                Consent::Refuse
            }
        }
    }

    fn compose(&mut self, seq: u64, _locked: bool) -> Record {
        let next = self
            .next
            .as_mut()
            .expect("a record is composed after a look allowed it");
        next.owner.seq = seq;
        next.clone()
    }
}
