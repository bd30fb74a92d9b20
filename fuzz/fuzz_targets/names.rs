//! Names beside a record: what is recognised as one is what would be written, of this record and no other.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use leasehold::names::{TempId, ballot, is_companion, parse_ballot, parse_temp, temp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // No name has a slash.
    let mut parts = bytes.splitn(2, |byte| *byte == b'/');
    let (name, other) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let number = bytes
        .iter()
        .fold(7u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
    let (pid, random) = (number as u32, (number >> 32) as u32);
    let (name, other) = (OsStr::from_bytes(name), OsStr::from_bytes(other));
    if let Some(number) = parse_ballot(name, other) {
        assert_eq!(ballot(name, number), other);
    }
    if let Some(id) = parse_temp(name, other) {
        assert_eq!(temp(name, id), other);
    }
    let id = TempId::new(number, pid, random);
    let (temp, ballot) = (temp(name, id), ballot(name, number));
    assert_eq!(
        (parse_temp(name, &temp), parse_ballot(name, &ballot)),
        (Some(id), Some(number))
    );
    assert_eq!((parse_temp(name, &ballot), parse_ballot(name, &temp)), (None, None));
    if name != other {
        assert_eq!((parse_temp(other, &temp), parse_ballot(other, &ballot)), (None, None));
    }
    if !name.is_empty() {
        assert!(is_companion(&temp) && is_companion(&ballot));
    }
});
