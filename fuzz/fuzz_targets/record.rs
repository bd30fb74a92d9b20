//! Whole records: whatever is read as one is printed and read back as the same, and nothing but the whole is a record.
#![no_main]

use leasehold::facts::RecordFacts;
use leasehold::{Flaw, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = Record::parse(bytes) else { return };
    let printed = record.print();
    let again = Record::parse(&printed).expect("what was printed is a record");
    assert_eq!(again, record);
    assert_eq!(again.print(), printed);
    assert_eq!(RecordFacts::from(&again), RecordFacts::from(&record));
    if let Some(pid) = record.owner.pid {
        assert!(pid.get() > 0);
    }

    // Of a longer or a shorter file nobody holds anything.
    for whole in [bytes, &printed] {
        let last = [whole[whole.len() - 1]];
        for more in [
            &b"\n"[..],
            b" ",
            b"{}\n",
            b"\0",
            &last,
            bytes,
            &whole[whole.len() / 2..],
        ] {
            assert!(Record::parse(&[whole, more].concat()).is_err(), "{more:?}");
        }
    }
    let cut = bytes
        .iter()
        .fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
        % printed.len();
    let flaw = Record::parse(&printed[..cut]).expect_err("a part");
    assert!(matches!(flaw, Flaw::Empty | Flaw::Torn), "cut at {cut}: {flaw}");
});
