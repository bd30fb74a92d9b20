//! Facts: whatever can be read can be judged, and judged again from what was saved.
#![no_main]

use leasehold::Verdict;
use leasehold::facts::{Facts, RecordState};
use leasehold::verdict::judge;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(facts) = serde_json::from_slice::<Facts>(bytes) else {
        return;
    };
    let judgement = judge(&facts);
    let saved = serde_json::to_string(&facts).expect("facts can be saved");
    let again: Facts = serde_json::from_str(&saved).expect("what was saved can be read");
    assert_eq!(again, facts);
    let text = |judgement| serde_json::to_string(judgement).expect("a judgement can be printed");
    assert_eq!(text(&judge(&again)), text(&judgement));
    assert_eq!(judgement.reason.verdict(), judgement.verdict);
    let _ = judgement.next("run/x.lease");

    let decided = matches!(judgement.verdict, Verdict::Held | Verdict::Dead | Verdict::Lapsed);
    let record = &facts.record;
    if decided {
        assert_eq!(record.state, RecordState::Present, "{judgement:?}");
        let names_host = record.host.as_ref().is_some_and(|host| !host.is_empty());
        // Another program's file may name no host; a boot id that is this host's settles it.
        let of_this_boot =
            record.boot.as_ref().is_some_and(|boot| !boot.is_empty()) && record.boot == facts.observer.boot;
        assert!(names_host || record.legacy.is_some() && of_this_boot, "{judgement:?}");
        assert!(record.valid_pid().is_some(), "{judgement:?}");
    }
    if facts.lease.renewal_seen == Some(true) {
        assert_ne!(judgement.verdict, Verdict::Dead, "{judgement:?}");
    }
    if record.ttl.is_none() {
        assert_ne!(judgement.verdict, Verdict::Lapsed, "{judgement:?}");
    }
});
