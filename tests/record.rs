//! Records as bytes: what is printed is read back, and whatever stands in a file has a name.

use leasehold::facts::{Facts, Observer, RecordFacts};
use leasehold::verdict::judge;
use leasehold::{Flaw, Keeper, OwnerLine, Pid, Record, RunState, Token, Verdict};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// As it stands in a file. Whoever changes this changes what every other host reads.
const GOLDEN: &str = concat!(
    r#"{"leasehold":1,"token":"0123456789abcdef0123456789abcdef","epoch":3,"seq":9,"host":"login-a","#,
    r#""machine":"b8314ca970404444802a34789b9fcaa2","host_id":"kiosk-7","boot":"00000001-1111-4222-8333-444455556666","#,
    r#""pid":4242,"start":181470,"pidns":4026531836,"timens":4026531834,"pidfd":77001,"uid":1000,"#,
    r#""keeper":{"pid":4200,"start":181000,"kind":"run"},"since":"2026-01-02T03:04:05Z","ttl":60,"lock":"flock","#,
    r#""cmd":"bridge --listen","binds":"bridge.pid","adopted":true,"ended":"2026-01-02T04:04:05Z","later":[1,null]}"#,
    "\n",
    r#"{"phase":"draining","intent":"push branch","outcome":"completed"}"#,
    "\n",
    r#"{"beat":"0000000000000042"}"#,
    "\n",
);

fn golden() -> Record {
    let mut state = RunState::default();
    state.set("phase", "draining");
    state.set("intent", "push branch");
    state.set("outcome", "completed");
    let extra = |key: &str, value| Map::from_iter([(key.to_owned(), value)]);
    Record {
        owner: OwnerLine {
            change: None,
            leasehold: 1,
            token: Token::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            epoch: 3,
            seq: 9,
            host: Some("login-a".into()),
            machine: Some("b8314ca970404444802a34789b9fcaa2".into()),
            host_id: Some("kiosk-7".into()),
            boot: Some("00000001-1111-4222-8333-444455556666".into()),
            pid: Pid::new(4242),
            start: Some(181_470),
            pidns: Some(4_026_531_836),
            timens: Some(4_026_531_834),
            pidfd: Some(77_001),
            uid: Some(1000),
            keeper: Some(Keeper {
                pid: Pid::new(4200).expect("a pid"),
                start: 181_000,
                extra: extra("kind", json!("run")),
            }),
            since: Some("2026-01-02T03:04:05Z".into()),
            ttl: Some(60),
            lock: Some("flock".into()),
            cmd: Some("bridge --listen".into()),
            binds: Some("bridge.pid".into()),
            adopted: Some(true),
            policy: None,
            ended: Some("2026-01-02T04:04:05Z".into()),
            extra: extra("later", json!([1, null])),
        },
        state,
        beat: 42,
    }
}

/// The shortest record.
fn bare() -> Record {
    let line = r#"{"leasehold":1,"token":"000000000000000000000000000000ff","epoch":1,"seq":1,"pid":7}"#;
    let text = format!("{line}\n{{}}\n{{\"beat\":\"0000000000000000\"}}\n");
    Record::parse(text.as_bytes()).expect("a record")
}

#[test]
fn a_record_is_these_bytes() {
    assert_eq!(String::from_utf8(golden().print()).expect("UTF-8"), GOLDEN);
    assert_eq!(Record::parse(GOLDEN.as_bytes()), Ok(golden()));
}

/// The keys of line 1 in the order that is documented, whatever the record knows.
#[test]
fn what_is_unknown_is_absent() {
    let text = String::from_utf8(bare().print()).expect("UTF-8");
    let line = r#"{"leasehold":1,"token":"000000000000000000000000000000ff","epoch":1,"seq":1,"pid":7}"#;
    assert_eq!(text.lines().next(), Some(line));
    assert_eq!(text.lines().nth(1), Some("{}"));
}

fn flaw(text: impl AsRef<[u8]>) -> Flaw {
    Record::parse(text.as_ref()).expect_err("not a record")
}

fn is_malformed(text: &str) {
    let flaw = flaw(text);
    assert!(matches!(flaw, Flaw::Malformed(_)), "{flaw:?}: {text}");
}

#[test]
fn every_key_of_the_owner_line_may_stand_once() {
    let line: Map<String, Value> = serde_json::from_str(GOLDEN.lines().next().expect("a line")).expect("JSON");
    let known: Vec<&String> = line.keys().filter(|key| *key != "later").collect();
    assert!(known.len() >= 22);
    for key in known {
        let twice = format!("{{\"{key}\":{},", line[key]);
        is_malformed(&GOLDEN.replacen('{', &twice, 1));
    }
    is_malformed(&GOLDEN.replacen(r#""later""#, r#""later":2,"later""#, 1));
    let keeper = r#""keeper":{"pid":4200,"pid":4201,"#;
    is_malformed(&GOLDEN.replacen(r#""keeper":{"pid":4200,"#, keeper, 1));
}

/// An action that is noted twice, with one word or two, is not settled by the later one.
#[test]
fn a_key_of_the_run_state_may_stand_once() {
    for twice in [
        r#"{"intent":"push branch","intent":"nothing","#,
        r#"{"outcome":"failed","#,
        r#"{"phase":"starting","#,
    ] {
        let (owner, state) = GOLDEN.split_once('\n').expect("lines");
        is_malformed(&format!("{owner}\n{}", state.replacen('{', twice, 1)));
    }
}

#[test]
fn values_that_mean_nothing_are_malformed() {
    for (good, bad) in [
        (r#""pid":4242"#, r#""pid":0"#),
        (r#""pid":4242"#, r#""pid":-1"#),
        (r#""pid":4242"#, r#""pid":2147483648"#),
        (r#""pid":4242"#, r#""pid":4294967297"#),
        (r#""pid":4242"#, r#""pid":4242.0"#),
        (r#""pid":4242"#, r#""pid":4e3"#),
        (r#""pid":4242"#, r#""pid":"4242""#),
        (r#""pid":4200"#, r#""pid":0"#),
        (r#""ttl":60"#, r#""ttl":4"#),
        (r#""ttl":60"#, r#""ttl":-60"#),
        (r#""seq":9"#, r#""seq":18446744073709551615"#),
        (r#""epoch":3"#, r#""epoch":18446744073709551615"#),
        (r#""epoch":3"#, r#""epoch":-3"#),
        (r#""start":181470"#, r#""start":18446744073709551616"#),
        (r#""leasehold":1"#, r#""leasehold":0"#),
        (r#""leasehold":1"#, r#""leasehold":"1""#),
        (r#""leasehold":1"#, r#""format":1"#),
        ("0123456789abcdef", "0123456789ABCDEF"),
        (r#""beat":"0000000000000042""#, r#""beat":"42""#),
        (r#""beat":"0000000000000042""#, r#""beat":"000000000000+042""#),
        (r#"{"phase""#, r#"["phase""#),
        (r#""adopted":true"#, r#""adopted":"yes""#),
    ] {
        assert!(GOLDEN.contains(good), "{good}");
        is_malformed(&GOLDEN.replacen(good, bad, 1));
    }
    is_malformed(&format!("{GOLDEN}\n"));
    is_malformed(&format!("{GOLDEN}x"));
    let pidless = GOLDEN.replacen(r#""pid":4242,"#, "", 1);
    Record::parse(pidless.as_bytes()).expect("a vacant record needs no pid");
    is_malformed(&pidless.replacen(r#""ended":"2026-01-02T04:04:05Z","#, "", 1));
}

#[test]
fn a_later_format_is_told_from_a_broken_one() {
    let later = r#"{"leasehold":2,"token":{"kind":"new"}}"#;
    assert_eq!(flaw(format!("{later}\nanything\n")), Flaw::NewerFormat(2));
    assert_eq!(flaw(later), Flaw::Torn);
}

#[test]
fn a_pid_file_from_before_owner_lines_is_a_bare_pid() {
    for (text, pid) in [
        ("4242", 4242),
        ("4242\n", 4242),
        (" 7 \r\n", 7),
        ("2147483647", i32::MAX),
    ] {
        assert_eq!(Some(flaw(text)), Pid::new(pid.into()).map(Flaw::BarePid), "{text:?}");
    }
    for text in [
        "0",
        "-1",
        "+7",
        "7 8",
        "0x10",
        "1.5",
        "2147483648",
        "seven",
        "\n",
        " ",
        "99999999999999999999999",
    ] {
        is_malformed(text);
    }
}

#[test]
fn zeros_are_what_a_crash_left() {
    for text in [&b"\0"[..], &[0; 4096], b"{\"leasehold\":1,\0\0\0", b"4242\0"] {
        assert_eq!(flaw(text), Flaw::Torn);
    }
    assert_eq!(flaw(""), Flaw::Empty);
}

/// The parser gives up at a depth; it does not run out of stack.
#[test]
fn deep_nesting_is_malformed() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let deep = format!("{}0{}", open.repeat(20_000), close.repeat(20_000));
        let (owner, state) = GOLDEN.split_once('\n').expect("lines");
        is_malformed(&format!("{owner}\n{}", state.replacen("\"draining\"", &deep, 1)));
        is_malformed(&GOLDEN.replacen("[1,null]", &deep, 1));
        is_malformed(&GOLDEN.replacen("\"run\"", &deep, 1));
        let half = GOLDEN.replacen("[1,null]", &open.repeat(20_000), 1);
        is_malformed(&half);
    }
}

/// A heartbeat keeps its width, since it is written over the old one.
#[test]
fn a_beat_has_sixteen_digits() {
    for beat in [0, 1, 9_999_999_999_999_999, 10_000_000_000_000_000, u64::MAX] {
        let printed = Record { beat, ..bare() }.print();
        assert_eq!(printed.len(), bare().print().len(), "{beat}");
        Record::parse(&printed).expect("a record");
    }
    let last = Record {
        beat: 9_999_999_999_999_999,
        ..bare()
    };
    let next = Record {
        beat: last.beat + 1,
        ..bare()
    };
    assert_ne!(last.print(), next.print(), "a beat after the last is still a change");
}

/// On disk as the command sees it: one byte too many is no record, whatever its first lines say.
#[test]
fn a_record_has_at_most_64_kib() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.lease");
    let mut record = golden();
    (record.owner.ended, record.owner.binds) = (None, None);
    record.state.set("pad", "");
    let room = leasehold::LARGEST - record.print().len();
    for (pad, reason) in [(room, "foreign-host"), (room + 1, "too-large")] {
        record.state.set("pad", "x".repeat(pad));
        std::fs::write(&path, record.print()).expect("written");
        assert_eq!(leasehold::judge(&path).reason.word(), reason, "{pad} bytes of padding");
    }
}

/// JSON as anybody may put it there: numbers of every kind, any text, a few levels.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("JSON has no such number", |n| n.is_finite().then(|| Value::from(n))),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

const KNOWN: &[&str] = &[
    "leasehold",
    "token",
    "epoch",
    "seq",
    "host",
    "machine",
    "host_id",
    "boot",
    "pid",
    "start",
    "pidns",
    "timens",
    "pidfd",
    "uid",
    "keeper",
    "since",
    "ttl",
    "lock",
    "cmd",
    "binds",
    "adopted",
    "ended",
];

fn unknown_keys() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec(("[a-zA-Z_\u{e9}\u{4e2d}\"\\\\\n]{0,6}", value()), 0..4)
        .prop_map(|fields| fields.into_iter().filter(|(key, _)| !KNOWN.contains(&&**key)).collect())
}

fn pid() -> impl Strategy<Value = Pid> {
    (1..=i32::MAX).prop_map(|pid| Pid::new(pid.into()).expect("a pid"))
}

fn record() -> impl Strategy<Value = Record> {
    let text = || prop::option::of(any::<String>());
    let number = || prop::option::of(any::<u64>());
    let keeper = (pid(), any::<u64>(), unknown_keys()).prop_map(|(pid, start, extra)| Keeper { pid, start, extra });
    let identity = (
        text(),
        text(),
        text(),
        text(),
        pid(),
        number(),
        number(),
        number(),
        number(),
    );
    let terms = (
        prop::option::of(any::<u32>()),
        prop::option::of(keeper),
        text(),
        prop::option::of(5..=u64::MAX),
        text(),
        text(),
        text(),
        prop::option::of(any::<bool>()),
        text(),
    );
    let count = || 0..=i64::MAX as u64;
    let head = (
        any::<u128>(),
        count(),
        count(),
        0..10_000_000_000_000_000u64,
        any::<bool>(),
    );
    let state = prop::collection::vec((any::<String>(), value()), 0..5);
    (head, identity, terms, unknown_keys(), state).prop_map(
        |((token, epoch, seq, beat, has_pid), identity, terms, extra, state)| {
            let (host, machine, host_id, boot, pid, start, pidns, timens, pidfd) = identity;
            let (uid, keeper, since, ttl, lock, cmd, binds, adopted, ended) = terms;
            Record {
                owner: OwnerLine {
                    change: None,
                    leasehold: 1,
                    token: Token::from_bits(token),
                    epoch,
                    seq,
                    host,
                    machine,
                    host_id,
                    boot,
                    pid: Some(pid).filter(|_| has_pid || ended.is_none()),
                    start,
                    pidns,
                    timens,
                    pidfd,
                    uid,
                    keeper,
                    since,
                    ttl,
                    lock,
                    cmd,
                    binds,
                    adopted,
                    policy: None,
                    ended,
                    extra,
                },
                state: state.into_iter().collect::<Map<_, _>>().into(),
                beat,
            }
        },
    )
}

/// What a crash, an editor or a bad disk makes of a record.
#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Delete(prop::sample::Index, usize),
    Double(prop::sample::Index, usize),
    Zero(prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        at().prop_map(Damage::Cut),
        (at(), 1..40usize).prop_map(|(at, length)| Damage::Delete(at, length)),
        (at(), 1..40usize).prop_map(|(at, length)| Damage::Double(at, length)),
        (at(), 1..40usize).prop_map(|(at, length)| Damage::Zero(at, length)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        let span = |at: &prop::sample::Index, length: usize| {
            let start = at.index(bytes.len());
            start..(start + length).min(bytes.len())
        };
        match damage {
            Damage::Flip(at, bits) => {
                let at = at.index(bytes.len());
                bytes[at] ^= bits;
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Delete(at, length) => drop(bytes.drain(span(at, *length))),
            Damage::Double(at, length) => {
                let chunk = bytes[span(at, *length)].to_vec();
                let at = at.index(bytes.len());
                bytes.splice(at..at, chunk);
            }
            Damage::Zero(at, length) => {
                let span = span(at, *length);
                bytes[span].fill(0);
            }
        }
    }
    bytes
}

/// What stands in the file decides nothing about a process unless it is a record.
fn judged_by_nobody(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Record::parse(bytes) {
        Ok(record) => {
            let again = Record::parse(&record.print());
            prop_assert_eq!(again, Ok(record), "what was read once is kept by every change");
        }
        Err(flaw) => {
            let facts = Facts {
                record: RecordFacts::from(&flaw),
                observer: Observer {
                    host: Some("login-a".into()),
                    boot: Some("00000001-1111-4222-8333-444455556666".into()),
                    ..Observer::default()
                },
                ..Facts::default()
            };
            let verdict = judge(&facts).verdict;
            prop_assert_eq!(verdict, Verdict::Undetermined, "{:?}", flaw);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_and_parsed_is_the_same(record in record()) {
        let printed = record.print();
        prop_assert_eq!(printed.iter().filter(|byte| **byte == b'\n').count(), 3);
        prop_assert_eq!(Record::parse(&printed), Ok(record));
    }

    #[test]
    fn every_key_stands_where_it_is_documented(record in record()) {
        let printed = String::from_utf8(record.print()).expect("UTF-8");
        let line: Map<String, Value> = serde_json::from_str(printed.lines().next().expect("a line")).expect("JSON");
        let places: Vec<usize> =
            line.keys().map(|key| KNOWN.iter().position(|known| known == key).unwrap_or(KNOWN.len())).collect();
        prop_assert!(places.is_sorted(), "{}", printed);
    }

    #[test]
    fn every_beginning_of_a_record_is_torn(record in record()) {
        let printed = record.print();
        for length in 0..printed.len() {
            let flaw = Record::parse(&printed[..length]).expect_err("cut short");
            let want = if length == 0 { Flaw::Empty } else { Flaw::Torn };
            prop_assert_eq!(flaw, want, "{:?}", String::from_utf8_lossy(&printed[..length]));
        }
    }

    #[test]
    fn any_bytes_are_something(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        judged_by_nobody(&bytes)?;
    }

    #[test]
    fn any_text_in_three_lines_is_something(
        first in any::<String>(), second in any::<String>(), third in "\\PC{0,30}",
    ) {
        judged_by_nobody(format!("{{{first}\n{second}\n{third}\n").as_bytes())?;
    }

    #[test]
    fn a_damaged_record_is_something(record in record(), damages in prop::collection::vec(damage(), 1..5)) {
        judged_by_nobody(&damaged(record.print(), &damages))?;
    }

    #[test]
    fn an_action_that_was_noted_is_in_doubt_until_an_outcome_is(intent in value(), settled in any::<bool>()) {
        let mut record = golden();
        record.owner.ended = None;
        record.owner.binds = None;
        record.state = RunState::default();
        record.state.set("intent", intent.clone());
        if settled {
            record.state.set("outcome", "failed");
        }
        let facts = Facts { record: RecordFacts::from(&record), ..Facts::default() };
        let effect = serde_json::to_value(judge(&facts).effect).expect("a word");
        let want = match (settled, intent.is_null()) {
            (true, _) => "failed",
            (false, true) => "unrecorded",
            (false, false) => "in-doubt",
        };
        prop_assert_eq!(effect, want);
    }
}
