//! /proc/PID/stat, proc_pid_stat(5): a command name may hold anything, and takes no part.
#![no_main]

use leasehold::fuzzing::stat_fields;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|name: &[u8]| {
    let _ = stat_fields(name);
    let number = name
        .iter()
        .fold(7u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
    let (parent, group, threads, start) = (number as i32, (number >> 32) as i32, number >> 40, number);
    let mut line = b"42 (".to_vec();
    line.extend_from_slice(name);
    let rest = format!(") S {parent} {group} 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 {threads} 0 {start} 24 25 26");
    line.extend_from_slice(rest.as_bytes());
    assert_eq!(stat_fields(&line), Some(('S', parent, group, threads, start)));
});
