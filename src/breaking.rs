//! Breaking a lease: an operator's decision, recorded as one.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::ballot::{Ballot, Kind};
use crate::change::{Change, Consent, Ended, Site};
use crate::claim::timestamp;
use crate::error::{Error, Result};
use crate::lease::Holder;
use crate::names;
use crate::observe::{Judge, Sight};
use crate::platform;
use crate::record::Record;
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

/// Ends the claim `token` of somebody else, whether its owner lives or not: an operator's decision.
///
/// Only the exact claim that was looked at is broken. The record becomes vacant under the next epoch and a new token, so
/// that its holder, should it still run, has lost it and finds out at its next renewal or `verify`. The broken record is
/// kept beside it as `NAME.broken-EPOCH`.
///
/// # Errors
/// [`Error::Lost`] when the record carries another token by now or is ended, [`Error::Io`], [`Error::Uncertain`].
pub fn break_lease(judge: Judge, path: &Path, token: Token, reason: &str) -> Result<Broken> {
    let holder = Holder::from(judge, path, token)?;
    let site = holder.site();
    let sight = site.look();
    let broken = holder.current(&sight)?.clone();
    let host = &site.judge.host().observer;
    let testimony = json!({
        "epoch": broken.owner.epoch,
        "token": token,
        "when": timestamp(),
        "host": host.host,
        "uid": platform::uid(),
        "reason": reason,
    });
    let evidence = keep_evidence(site, &broken, &testimony)?;
    let successor = Token::from_bits(platform::random());
    let mut change = Break {
        holder: &holder,
        successor,
        testimony,
        next: None,
        refused: None,
    };
    let ended = site.change(Ballot::new(Kind::Claim, successor, false), &mut change);
    let refused = match ended {
        Ok(Ended::Committed { .. }) => {
            let record = change.next.expect("what was committed was composed");
            return Ok(Broken { record, evidence });
        }
        Ok(Ended::Refused | Ended::GaveWay | Ended::Resurrected) => {
            change.refused.expect("a change is refused with the reason why")
        }
        // The evidence stays: the change may have been made.
        Err(error @ Error::Uncertain(_)) => return Err(error),
        Err(error) => error,
    };
    // Nothing was broken; what is left of this is tidied up by hand if it cannot be removed.
    let _ = site.judge.fs.unlink(&evidence);
    Err(refused)
}

/// Writes the record as it was, and a fourth line that says what is being done to it.
fn keep_evidence(site: &Site, broken: &Record, testimony: &Value) -> Result<PathBuf> {
    let path = site.beside(&names::broken(site.name(), broken.owner.epoch));
    let fs = &*site.judge.fs;
    let mut bytes = broken.print();
    bytes.extend_from_slice(format!("{testimony}\n").as_bytes());
    // What an earlier try left, that did not get to breaking anything.
    match fs.unlink(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("replace", &path)(error)),
        _ => {}
    }
    let file = fs.create(&path, None).map_err(Error::io("create", &path))?;
    fs.write_at(&file, &bytes, 0).map_err(Error::io("write", &path))?;
    fs.sync(&file).map_err(Error::io("sync", &path))?;
    Ok(path)
}

struct Break<'a> {
    holder: &'a Holder,
    successor: Token,
    testimony: Value,
    next: Option<Record>,
    refused: Option<Error>,
}

impl Change for Break<'_> {
    fn consider(&mut self, sight: &Sight) -> Consent {
        match self.holder.current(sight) {
            Ok(record) => {
                let mut next = record.clone();
                next.owner.token = self.successor;
                next.owner.epoch += 1;
                next.owner.lock = None;
                next.owner.ended = Some(timestamp());
                next.state.set("broken", self.testimony.clone());
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
