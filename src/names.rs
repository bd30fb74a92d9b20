//! The names that stand beside a record `F` while it is being changed: temp files `.F.t-<32 hex>`, or `.F.v-<32 hex>` once
//! a rival has seen to it that they are not published, or `.F.w-<32 hex>` once their writer has given them up, ballots
//! `.F.ballot-<number>`, and a second name of the record that is about to be replaced, `.F.kept-<number>`.
//!
//! Names are matched whole. For a lease `x.pid`, `.x.pid.` also begins the names that belong to `x.pid.lease`.

use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::token::parse_hex128;

/// Bytes that the longest companion name adds to the record's own: `.` `.t-` and 32 digits.
pub const LONGEST_COMPANION: usize = 36;

/// The identity of one temp file. It says who wrote it: a digest of the writer's boot and pid namespace, its pid, and a
/// number of its own, so that another process of the same host can see that the writer is gone without opening the file.
///
/// A temp file may be taken away from a living writer too, which then starts over. Where a filesystem is one host's alone, a
/// writer that is gone has no call under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TempId(u128);

impl Serialize for TempId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for TempId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bits = parse_hex128(text.as_bytes());
        bits.map(Self)
            .ok_or_else(|| de::Error::custom("a temp file is named by 32 lower-case hex digits"))
    }
}

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

/// The name that a temp file of the record `name` gets from a rival, or where the rename that was to publish it failed: from
/// then on nobody can publish it, and who finds its ballot sees that it was not published. Its writer may not know, and its
/// rename may still be half made.
pub fn void(name: &OsStr, id: TempId) -> OsString {
    companion(name, format!(".v-{:032x}", id.0))
}

/// The same from its writer, who will not try any more.
pub fn withdrawn(name: &OsStr, id: TempId) -> OsString {
    companion(name, format!(".w-{:032x}", id.0))
}

/// The three, in the order in which a temp file can come by them.
pub(crate) fn of_change(name: &OsStr, id: TempId) -> [OsString; 3] {
    [temp(name, id), void(name, id), withdrawn(name, id)]
}

/// The second name of record `number` of `name` while it is being replaced.
pub fn kept(name: &OsStr, number: u64) -> OsString {
    companion(name, format!(".kept-{number}"))
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

/// The temp file that a rival made `candidate`, if that is one of the record `name`.
pub fn parse_void(name: &OsStr, candidate: &OsStr) -> Option<TempId> {
    parse_hex128(suffix(name, candidate, b".v-")?).map(TempId)
}

/// The temp file that its writer made `candidate`, if that is one of the record `name`.
pub fn parse_withdrawn(name: &OsStr, candidate: &OsStr) -> Option<TempId> {
    parse_hex128(suffix(name, candidate, b".w-")?).map(TempId)
}

/// Whether `candidate` is one of [`of_change`] for some temp file of the record `name`.
pub(crate) fn is_of_change(name: &OsStr, candidate: &OsStr) -> bool {
    [parse_temp, parse_void, parse_withdrawn]
        .iter()
        .any(|parse| parse(name, candidate).is_some())
}

/// The number of the ballot that `candidate` is for the record `name`, if it is one.
pub fn parse_ballot(name: &OsStr, candidate: &OsStr) -> Option<u64> {
    number(suffix(name, candidate, b".ballot-")?)
}

/// The number of the record of `name` whose second name `candidate` is, if it is one.
pub fn parse_kept(name: &OsStr, candidate: &OsStr) -> Option<u64> {
    number(suffix(name, candidate, b".kept-")?)
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Whether `candidate` belongs to some record as its temp file, ballot or second name: not a record itself.
pub fn is_companion(candidate: &OsStr) -> bool {
    is_temp(candidate) || is_second(candidate)
}

/// Whether `candidate` is a temp file of some record, withdrawn or not.
pub fn is_temp(candidate: &OsStr) -> bool {
    let id = |tail: &[u8]| parse_hex128(tail).is_some();
    [b".t-", b".v-", b".w-"]
        .iter()
        .any(|mark| before(candidate, *mark, id).is_some())
}

/// Whether `candidate` may be the second name of some record: a ballot, or what [`kept`] names.
pub fn is_second(candidate: &OsStr) -> bool {
    first_of(candidate).is_some()
}

/// The name of the record whose second name `candidate` may be.
pub fn first_of(candidate: &OsStr) -> Option<&[u8]> {
    let number = |tail: &[u8]| !tail.is_empty() && tail.iter().all(u8::is_ascii_digit);
    before(candidate, b".ballot-", number).or_else(|| before(candidate, b".kept-", number))
}

/// The name of the record that `candidate` stands beside, if what follows the mark is as it should be.
fn before<'c>(candidate: &'c OsStr, mark: &[u8], tail: fn(&[u8]) -> bool) -> Option<&'c [u8]> {
    let rest = candidate.as_encoded_bytes().strip_prefix(b".")?;
    let at = rest.windows(mark.len()).rposition(|window| window == mark)?;
    (at > 0 && tail(&rest[at + mark.len()..])).then(|| &rest[..at])
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

        assert_eq!(void(short, id), ".x.pid.v-0000000000000abc0000109200000007");
        assert_eq!(parse_void(short, &void(short, id)), Some(id));
        assert_eq!(parse_void(short, &temp(short, id)), None);
        assert_eq!(parse_withdrawn(short, &withdrawn(short, id)), Some(id));
        assert_eq!(parse_withdrawn(short, &void(short, id)), None);

        assert_eq!(ballot(short, 12), ".x.pid.ballot-12");
        assert_eq!(parse_ballot(short, OsStr::new(".x.pid.ballot-12")), Some(12));
        assert_eq!(kept(short, 12), ".x.pid.kept-12");
        assert_eq!(parse_kept(short, &kept(short, 12)), Some(12));
        assert_eq!(parse_kept(short, &kept(long, 12)), None);
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
        assert!(is_companion(&void(name, TempId::new(1, 2, 3))));
        assert!(is_companion(&withdrawn(name, TempId::new(1, 2, 3))));
        assert!(is_companion(&ballot(name, u64::MAX)));
        assert!(is_companion(&kept(name, u64::MAX)));
        assert_eq!(first_of(&ballot(name, 7)), Some(name.as_encoded_bytes()));
        assert_eq!(
            first_of(&kept(&ballot(name, 7), 1)),
            Some(ballot(name, 7).as_encoded_bytes())
        );
        assert_eq!(first_of(&temp(name, TempId::new(1, 2, 3))), None);
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
