//! Owner lines: what is read is printed and read back as the same, unknown keys included.
#![no_main]

use leasehold::OwnerLine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let Ok(owner) = serde_json::from_str::<OwnerLine>(line) else {
        return;
    };
    let printed = serde_json::to_string(&owner).expect("it can be printed");
    assert!(!printed.contains('\n'));
    let again: OwnerLine = serde_json::from_str(&printed).expect("what was printed is an owner line");
    assert_eq!(again, owner);
    assert!(owner.pid.is_none_or(|pid| pid.get() > 0));
    assert!(owner.ttl.is_none_or(|ttl| ttl >= leasehold::SHORTEST_TTL));
});
