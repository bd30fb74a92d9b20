//! The names that stand beside a record `F` while it is being changed: temp files `.F.t-<32 hex>` and ballots
//! `.F.ballot-<number>`.
//!
//! Names are matched whole. For a lease `x.pid`, `.x.pid.` also begins the names that belong to `x.pid.lease`.

use std::ffi::{OsStr, OsString};

use crate::token::parse_hex128;

/// Bytes that the longest companion name adds to the record's own: `.` `.t-` and 32 digits.
pub const LONGEST_COMPANION: usize = 36;

/// The identity of one temp file. It says who wrote it: a digest of the writer's boot and pid namespace, its pid, and a
/// number of its own, so that another process of the same host can see that the writer is gone without opening the file.
///
/// Nothing rests on that being right: a temp file may be taken away from a living writer too, which then starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TempId(u128);

impl TempId {
    /// `scope` names a boot and pid namespace (0: unknown), `nonce` tells the files of one process apart.
    pub const fn new(scope: u64, pid: u32, nonce: u32) -> Self {
        Self((scope as u128) << 64 | (pid as u128) << 32 | nonce as u128)
    }

    /// The writer's boot and pid namespace, digested; 0 when unknown.
    pub const fn scope(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The writer's pid, meaningful only inside its scope.
    pub const fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The name of a temp file of the record `name`.
pub fn temp(name: &OsStr, id: TempId) -> OsString {
    companion(name, format!(".t-{:032x}", id.0))
}

/// The name of ballot `number` of the record `name`.
pub fn ballot(name: &OsStr, number: u64) -> OsString {
    companion(name, format!(".ballot-{number}"))
}

/// What a ballot says: whose it is, and the number of the record that is to be replaced, where there was one.
pub fn ballot_target(name: &OsStr, id: TempId, base: Option<u64>) -> OsString {
    let mut target = temp(name, id);
    if let Some(base) = base {
        target.push(format!("@{base}"));
    }
    target
}

/// Whose ballot of the record `name` this is the content of, and what it is to replace.
pub fn parse_target(name: &OsStr, content: &OsStr) -> Option<(TempId, Option<u64>)> {
    if let Some(id) = parse_temp(name, content) {
        return Some((id, None));
    }
    let (temp, base) = content.to_str()?.rsplit_once('@')?;
    Some((parse_temp(name, temp.as_ref())?, Some(base.parse().ok()?)))
}

/// The name under which a record that an operator broke is kept; `number` from 1 on, for when there is one already.
pub fn broken(name: &OsStr, epoch: u64, number: usize) -> OsString {
    let mut full = name.to_owned();
    full.push(format!(".broken-{epoch}"));
    if number > 1 {
        full.push(format!(".{number}"));
    }
    full
}

fn companion(name: &OsStr, suffix: String) -> OsString {
    let mut full = OsString::with_capacity(1 + name.len() + suffix.len());
    full.push(".");
    full.push(name);
    full.push(suffix);
    full
}

/// Whether `candidate` is what [`broken`] names for some record.
pub fn is_broken(candidate: &OsStr) -> bool {
    let (bytes, mark) = (candidate.as_encoded_bytes(), b".broken-");
    let at = bytes.windows(mark.len()).rposition(|window| window == mark);
    at.is_some_and(|at| {
        let digits = &bytes[at + mark.len()..];
        at > 0 && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    })
}

/// The temp file that `candidate` is for the record `name`, if it is one.
pub fn parse_temp(name: &OsStr, candidate: &OsStr) -> Option<TempId> {
    parse_hex128(suffix(name, candidate, b".t-")?).map(TempId)
}

/// The number of the ballot that `candidate` is for the record `name`, if it is one.
pub fn parse_ballot(name: &OsStr, candidate: &OsStr) -> Option<u64> {
    let digits = std::str::from_utf8(suffix(name, candidate, b".ballot-")?).ok()?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Whether `candidate` belongs to some record as its temp file or ballot: not a record itself.
pub fn is_companion(candidate: &OsStr) -> bool {
    is_temp(candidate) || is_ballot(candidate)
}

/// Whether `candidate` is a temp file of some record.
pub fn is_temp(candidate: &OsStr) -> bool {
    ends(candidate, b".t-", |tail| parse_hex128(tail).is_some())
}

/// Whether `candidate` is a ballot of some record.
pub fn is_ballot(candidate: &OsStr) -> bool {
    ends(candidate, b".ballot-", |tail| {
        !tail.is_empty() && tail.iter().all(u8::is_ascii_digit)
    })
}

fn ends(candidate: &OsStr, mark: &[u8], tail: fn(&[u8]) -> bool) -> bool {
    candidate.as_encoded_bytes().strip_prefix(b".").is_some_and(|rest| {
        rest.windows(mark.len())
            .rposition(|window| window == mark)
            .is_some_and(|at| at > 0 && tail(&rest[at + mark.len()..]))
    })
}

fn suffix<'c>(name: &OsStr, candidate: &'c OsStr, mark: &[u8]) -> Option<&'c [u8]> {
    candidate
        .as_encoded_bytes()
        .strip_prefix(b".")?
        .strip_prefix(name.as_encoded_bytes())?
        .strip_prefix(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        let id = TempId::new(0xabc, 4242, 7);
        let (short, long) = (OsStr::new("x.pid"), OsStr::new("x.pid.lease"));
        assert_eq!(temp(short, id), ".x.pid.t-0000000000000abc0000109200000007");
        assert_eq!(parse_temp(short, &temp(short, id)), Some(id));
        assert_eq!(parse_temp(short, &temp(long, id)), None);
        assert_eq!(parse_temp(long, &temp(short, id)), None);
        assert_eq!((id.scope(), id.pid()), (0xabc, 4242));
        assert_eq!(temp(short, id).len(), short.len() + LONGEST_COMPANION);

        for base in [None, Some(0), Some(u64::MAX)] {
            assert_eq!(parse_target(short, &ballot_target(short, id, base)), Some((id, base)));
            assert_eq!(parse_target(long, &ballot_target(short, id, base)), None);
        }
        let odd = OsStr::new(".x.pid.t-0000000000000abc0000109200000007@");
        assert_eq!(parse_target(short, odd), None);

        assert_eq!(ballot(short, 12), ".x.pid.ballot-12");
        assert_eq!(parse_ballot(short, OsStr::new(".x.pid.ballot-12")), Some(12));
        for odd in [
            ".x.pid.ballot-",
            ".x.pid.ballot-012",
            ".x.pid.ballot-+1",
            ".x.pid.lease.ballot-1",
            "x.pid.ballot-1",
        ] {
            assert_eq!(parse_ballot(short, OsStr::new(odd)), None, "{odd}");
        }
    }

    #[test]
    fn companions_of_any_record_are_told_from_records() {
        let name = OsStr::new("a.t-b");
        assert!(is_companion(&temp(name, TempId::new(1, 2, 3))));
        assert!(is_companion(&ballot(name, u64::MAX)));
        for record in [
            "x",
            ".x",
            ".x.t-12",
            ".x.ballot-",
            ".x.ballot-1a",
            ".t-0000000000000abc0000109200000007",
        ] {
            assert!(!is_companion(OsStr::new(record)), "{record}");
        }
    }
}
