//! What another host prints: it is believed about the claim that was asked about, and for nothing else.
#![no_main]

use leasehold::facts::Facts;
use leasehold::testimony::{about, may_help, unanswered, weigh};
use leasehold::{Reason, Verdict};
use libfuzzer_sys::fuzz_target;

const FACTS: &str = r#"{
    "record": { "state": "present", "host": "login-a", "machine": "aa", "boot": "b1", "pid": 42, "start": 7,
                "pidns": 4026531836, "timens": 5, "token": "t1", "epoch": 3, "seq": 9 },
    "observer": { "host": "login-b", "machine": "bb", "boot": "b2", "pidns": 4026531836, "timens": 5 } }"#;

fuzz_target!(|output: &[u8]| {
    [false, true].iter().for_each(|renewed| believe(output, *renewed));
});

fn believe(output: &[u8], renewed: bool) {
    let mut facts: Facts = serde_json::from_str(FACTS).expect("facts");
    facts.lease.renewal_seen = Some(renewed);
    let line = match about(output, "/x") {
        Ok(line) => line,
        Err(why) => {
            let told = unanswered(&facts, &why);
            assert!(told.verdict == Verdict::Undetermined && may_help(&told) && told.sentence.len() < 2000);
            return;
        }
    };
    if let Ok(judgement) = weigh(&facts, None, line) {
        let answer: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        assert_eq!(
            (&answer["owner"]["token"], &answer["owner"]["seq"]),
            (&"t1".into(), &9.into())
        );
        assert!(
            matches!(judgement.reason, Reason::AskedHeld | Reason::AskedDead),
            "{judgement:?}"
        );
        assert!(!(renewed && judgement.reason == Reason::AskedDead), "{judgement:?}");
        let observer = &answer["observer"];
        assert!(observer["boot"] == "b1" || observer["host"] == "login-a" && observer["machine"] == "aa");
    }
}
