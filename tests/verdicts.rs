//! What holds for any facts at all: the principles, over facts that nobody thought of.

use leasehold::facts::{
    Facts, KeeperFacts, LeaseFacts, LegacyFacts, LockFacts, Observer, PayloadFacts, ProcessFacts, RecordFacts,
    RecordState,
};
use leasehold::verdict::{
    Authority, Effect, INITIAL_PIDNS, Judgement, Liveness, Question, Reason, Verdict, examine, judge, lapse_after,
};
use leasehold::{Pid, ProcessTable, resolve};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Few values of each kind, so that facts agree as often as they differ.
fn some<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = Option<T>> + use<T> {
    prop_oneof![1 => Just(None), 6 => prop::sample::select(values.to_vec()).prop_map(Some)]
}

fn text(values: &[&str]) -> impl Strategy<Value = Option<String>> + use<> {
    some(&values.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

fn host() -> impl Strategy<Value = Option<String>> {
    text(&["login-a", "login-a", "login-a", "login-b", "localhost", ""])
}

fn machine() -> impl Strategy<Value = Option<String>> {
    text(&["m1", "m1", "m1", "m2", ""])
}

fn host_id() -> impl Strategy<Value = Option<String>> {
    prop_oneof![3 => Just(None), 1 => text(&["kiosk-7", "kiosk-7", "kiosk-8", ""])]
}

fn boot() -> impl Strategy<Value = Option<String>> {
    text(&["b1", "b1", "b1", "b2", ""])
}

fn pidns() -> impl Strategy<Value = Option<u64>> {
    some(&[INITIAL_PIDNS, INITIAL_PIDNS, INITIAL_PIDNS, 4_026_533_001])
}

fn timens() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        Just(None),
        Just(Some(4_026_531_834)),
        Just(Some(4_026_531_834)),
        Just(Some(4_026_533_777))
    ]
}

fn start() -> impl Strategy<Value = Option<u64>> {
    some(&[100, 100, 100, 200, u64::MAX])
}

fn process() -> impl Strategy<Value = ProcessFacts> {
    let pidfd = prop_oneof![2 => Just(None), 1 => Just(Some(7)), 1 => Just(Some(8))];
    (
        some(&[true, true, true, false]),
        some(&[true, true, true, true, false]),
        start(),
        pidfd,
        text(&["S", "S", "R", "T", "D", "Z", "X"]),
        some(&[true, true, false]),
        some(&[true, true, true, false]),
    )
        .prop_map(
            |(exists, leader, start, pidfd, state, threads_alive, start_readable)| ProcessFacts {
                exists,
                leader,
                start,
                pidfd,
                state,
                threads_alive,
                start_readable,
                keeper: None,
            },
        )
}

fn record() -> impl Strategy<Value = RecordFacts> {
    let state = prop_oneof![
        12 => Just(RecordState::Present),
        1 => prop::sample::select(vec![
            RecordState::Absent, RecordState::Empty, RecordState::Unreadable, RecordState::Torn, RecordState::Malformed,
            RecordState::Symlink, RecordState::NotAFile, RecordState::TooLarge, RecordState::NewerFormat, RecordState::Ended,
        ]),
    ];
    let pid = prop_oneof![
        12 => Just(json!(4242)),
        1 => prop::sample::select(vec![
            Value::Null, json!(0), json!(-1), json!(1.5), json!("4242"), json!(2_147_483_648_u64), json!(u64::MAX), json!([4242]),
        ]),
    ];
    let pidfd = prop_oneof![2 => Just(None), 1 => Just(Some(7))];
    let keeper = prop::option::weighted(0.3, prop_oneof![3 => Just(100), 1 => Just(200)]);
    let ttl = prop_oneof![Just(None), Just(Some(5)), Just(Some(60)), Just(Some(u64::MAX))];
    let place = (
        state,
        host(),
        machine(),
        host_id(),
        boot(),
        pid,
        start(),
        pidns(),
        timens(),
        pidfd,
    );
    let terms = (
        keeper,
        ttl,
        prop::option::of(Just("flock".to_owned())),
        prop::option::weighted(0.2, Just("bridge.pid".to_owned())),
        prop::option::of(Just("push".to_owned())),
        text(&["completed", "failed", "mostly"]),
    );
    (place, terms).prop_map(
        |(
            (state, host, machine, host_id, boot, pid, start, pidns, timens, pidfd),
            (keeper, ttl, lock, binds, intent, outcome),
        )| {
            RecordFacts {
                state,
                host,
                machine,
                host_id,
                boot,
                pid: Some(pid).filter(|pid| !pid.is_null()),
                start,
                pidns,
                timens,
                pidfd,
                keeper: keeper.map(|start| KeeperFacts {
                    pid: Pid::new(4200).expect("a pid"),
                    start: Some(start),
                }),
                ttl,
                lock,
                binds,
                intent,
                outcome,
                ..RecordFacts::default()
            }
        },
    )
}

fn observer() -> impl Strategy<Value = Observer> {
    let uptime = prop_oneof![1 => Just(None), 1 => Just(Some(-1.0)), 1 => Just(Some(0.0)), 1 => Just(Some(1.5)), 4 => Just(Some(900_000.0)), 2 => Just(Some(1e30))];
    let own = prop_oneof![3 => Just(None), 6 => Just(Some(true)), 1 => Just(Some(false))];
    (host(), machine(), host_id(), boot(), pidns(), timens(), uptime, own).prop_map(
        |(host, machine, host_id, boot, pidns, timens, uptime, proc_is_own)| Observer {
            host,
            machine,
            host_id,
            boot,
            pidns,
            timens,
            uptime,
            proc_is_own,
        },
    )
}

fn facts() -> impl Strategy<Value = Facts> {
    let lease = (
        some(&[0.0, 7.09, 7.11, 63.2, 64.0, 1e300, -5.0]),
        some(&[false, false, true]),
        some(&[false, false, true]),
    )
        .prop_map(|(unchanged_for, renewal_seen, changed_since_boot)| LeaseFacts {
            unchanged_for,
            renewal_seen,
            changed_since_boot,
        });
    let lock = (
        some(&[true, false]),
        some(&[true, false]),
        some(&[true, false]),
        text(&["nfs4", "nfs4", "nfs3", "local"]),
    )
        .prop_map(|(asked, held, reaches_server, protocol)| LockFacts {
            asked,
            held,
            reaches_server,
            protocol,
        });
    let payload = (some(&[true, true, false]), some(&[4242, 4242, 4300, -1]))
        .prop_map(|(exists, pid)| PayloadFacts { exists, pid });
    let process = (process(), prop::option::weighted(0.8, process())).prop_map(|(mut process, keeper)| {
        process.keeper = keeper.map(Box::new);
        process
    });
    (
        record(),
        observer(),
        prop::option::weighted(0.9, process),
        lease,
        lock,
        prop::option::of(payload),
    )
        .prop_map(|(record, observer, process, lease, lock, payload)| Facts {
            record,
            observer,
            process,
            lease,
            lock,
            payload,
        })
}

fn known(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|text| !text.is_empty())
}

fn equal(a: &Option<String>, b: &Option<String>) -> bool {
    known(a).is_some() && known(a) == known(b)
}

fn differ(a: &Option<String>, b: &Option<String>) -> bool {
    matches!((known(a), known(b)), (Some(a), Some(b)) if a != b)
}

/// Principle 1, in the words of the design and not of the code: this pid is a number of this process table.
fn is_placed_here(facts: &Facts) -> bool {
    let (record, observer) = (&facts.record, &facts.observer);
    let same_host = equal(&record.host, &observer.host)
        || equal(&record.machine, &observer.machine)
        || equal(&record.host_id, &observer.host_id);
    record.state == RecordState::Present
        && record.valid_pid().is_some()
        && known(&record.host).is_some()
        && equal(&record.boot, &observer.boot)
        && same_host
        && !differ(&record.machine, &observer.machine)
        && !differ(&record.host_id, &observer.host_id)
        && record.pidns.is_some()
        && record.pidns == observer.pidns
        && record.timens == observer.timens
        && observer.proc_is_own != Some(false)
}

/// Rule 4: this is the same host, in a later boot.
fn is_this_host_later(facts: &Facts) -> bool {
    let (record, observer) = (&facts.record, &facts.observer);
    let by_operator = equal(&record.host_id, &observer.host_id);
    let by_name = equal(&record.host, &observer.host)
        && known(&record.host) != Some("localhost")
        && equal(&record.machine, &observer.machine)
        && record.pidns == Some(INITIAL_PIDNS)
        && observer.pidns == Some(INITIAL_PIDNS)
        && !differ(&record.host_id, &observer.host_id);
    known(&record.host).is_some()
        && differ(&record.boot, &observer.boot)
        && (by_operator || by_name)
        && facts.lease.changed_since_boot != Some(true)
}

/// The process is there, is a process, has not exited, and something that tells processes apart agrees.
fn is_seen_running(process: &ProcessFacts, start: Option<u64>, pidfd: Option<u64>) -> bool {
    let found = process.start.filter(|_| process.start_readable != Some(false));
    let exited = matches!(process.state.as_deref(), Some("Z" | "X")) && process.threads_alive == Some(false);
    let same_pidfd = pidfd.is_some() && pidfd == process.pidfd;
    process.exists == Some(true)
        // A thread has no pidfs inode of a process.
        && (process.leader != Some(false) || same_pidfd)
        && !exited
        && start.is_some()
        && (found == start || (found.is_none() && same_pidfd))
        && !(pidfd.is_some() && process.pidfd.is_some() && pidfd != process.pidfd)
}

/// Something about the process says that the recorded one is not there: not mere silence.
fn is_seen_gone(process: &ProcessFacts) -> bool {
    process.exists == Some(false)
        || (process.exists == Some(true)
            && (process.leader == Some(false)
                || process.start.is_some()
                || process.pidfd.is_some()
                || process.threads_alive == Some(false)))
}

/// Answers from the facts and refuses to be asked about what is not placed here.
#[derive(Debug)]
struct Table(Facts);

impl ProcessTable for Table {
    fn probe(&self, pid: Pid, _: bool) -> ProcessFacts {
        assert!(is_placed_here(&self.0), "asked about {pid}");
        let process = self.0.process.clone().unwrap_or_default();
        match pid.get() {
            4242 => ProcessFacts {
                keeper: None,
                ..process
            },
            4200 => process.keeper.map(|keeper| *keeper).unwrap_or_default(),
            other => panic!("asked about {other}"),
        }
    }
}

/// A fact, and how it is forgotten.
type Forget = (&'static str, fn(&mut Facts));

/// Everything that supports an answer. What contradicts one is not here (the other machine or operator id, a renewal, a
/// change since boot, a foreign /proc, an agreeing pidfs inode of a hidden process, a keeper): without such a fact the
/// rules are right to conclude more.
const SUPPORT: &[Forget] = &[
    ("record.host", |f| f.record.host = None),
    ("record.boot", |f| f.record.boot = None),
    ("record.pid", |f| f.record.pid = None),
    ("record.start", |f| f.record.start = None),
    ("record.pidns", |f| f.record.pidns = None),
    ("record.ttl", |f| f.record.ttl = None),
    ("record.lock", |f| f.record.lock = None),
    ("observer.host", |f| f.observer.host = None),
    ("observer.boot", |f| f.observer.boot = None),
    ("observer.pidns", |f| f.observer.pidns = None),
    ("process", |f| f.process = None),
    ("process.exists", |f| f.process.iter_mut().for_each(|p| p.exists = None)),
    ("process.leader", |f| f.process.iter_mut().for_each(|p| p.leader = None)),
    ("process.start", |f| f.process.iter_mut().for_each(|p| p.start = None)),
    ("process.pidfd", |f| f.process.iter_mut().for_each(|p| p.pidfd = None)),
    ("process.state", |f| f.process.iter_mut().for_each(|p| p.state = None)),
    ("process.threads_alive", |f| {
        f.process.iter_mut().for_each(|p| p.threads_alive = None)
    }),
    ("process.keeper", |f| f.process.iter_mut().for_each(|p| p.keeper = None)),
    ("payload", |f| f.payload = None),
    ("payload.pid", |f| f.payload.iter_mut().for_each(|p| p.pid = None)),
    ("lease.unchanged_for", |f| f.lease.unchanged_for = None),
    ("lock", |f| f.lock = LockFacts::default()),
];

/// Properties about a verdict say nothing if no facts lead to it.
#[test]
fn random_facts_reach_every_reason() {
    let mut runner = TestRunner::deterministic();
    let mut left: Vec<Reason> = Reason::ALL.to_vec();
    // What another host said is no fact.
    left.retain(|reason| reason.word() != "asked");
    for _ in 0..20_000 {
        let facts = facts().new_tree(&mut runner).expect("facts").current();
        let reason = judge(&facts).reason;
        left.retain(|other| *other != reason);
        if left.is_empty() {
            return;
        }
    }
    panic!("never reached: {left:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Identity is boot, namespace, pid and start time, and host before boot.
    #[test]
    fn a_pid_is_asked_about_only_where_it_was_given(facts in facts()) {
        let table = Table(facts.clone());
        let unasked = Facts { process: None, ..facts.clone() };
        if let Err(question) = examine(&unasked) {
            prop_assert!(is_placed_here(&facts), "{:?}", question);
            let owner = Question::Process { pid: Pid::new(4242).expect("a pid"), pidfd: facts.record.pidfd.is_some() };
            prop_assert_eq!(question, owner);
        }
        let mut found = unasked;
        let judgement = resolve(&mut found, &table);
        prop_assert_eq!(judge(&found), judgement, "what was found out is all that it rests on");
    }

    #[test]
    fn only_its_own_host_says_that_a_process_is_gone(facts in facts()) {
        let judgement = judge(&facts);
        if judgement.verdict != Verdict::Dead {
            return Ok(());
        }
        prop_assert_ne!(facts.lease.renewal_seen, Some(true), "the dead do not renew");
        let started_later = match (facts.record.start, facts.observer.uptime) {
            (Some(start), Some(uptime)) => start as f64 / 100.0 > uptime + 2.0,
            _ => false,
        };
        let by_probe = facts.process.as_ref().is_some_and(is_seen_gone);
        let here = is_placed_here(&facts) && (started_later || by_probe);
        prop_assert!(here || is_this_host_later(&facts), "{:#?}", judgement.reason);
        if let (Some(_), true) = (&facts.record.keeper, here && !started_later) {
            let keeper = facts.process.as_ref().and_then(|process| process.keeper.as_deref());
            prop_assert!(keeper.is_some_and(is_seen_gone), "nothing is known of its keeper");
        }
    }

    #[test]
    fn nobody_is_held_to_run_without_having_been_seen(facts in facts()) {
        let judgement = judge(&facts);
        if judgement.verdict != Verdict::Held {
            return Ok(());
        }
        let process = facts.process.as_ref();
        let record = &facts.record;
        let sound = match judgement.reason {
            Reason::ProcessRunning => {
                is_placed_here(&facts) && process.is_some_and(|p| is_seen_running(p, record.start, record.pidfd))
            }
            Reason::KeeperRunning => {
                let keeper = process.and_then(|p| p.keeper.as_deref());
                let recorded = record.keeper.as_ref().and_then(|keeper| keeper.start);
                is_placed_here(&facts) && keeper.is_some_and(|keeper| is_seen_running(keeper, recorded, None))
            }
            Reason::ServerAttested => {
                let lock = &facts.lock;
                record.lock.is_some()
                    && (lock.asked, lock.held, lock.reaches_server) == (Some(true), Some(true), Some(true))
                    && lock.protocol.as_deref() == Some("nfs4")
                    && differ(&record.boot, &facts.observer.boot)
            }
            _ => false,
        };
        prop_assert!(sound, "{}", judgement.reason);
        if record.binds.is_some() && judgement.reason != Reason::ServerAttested {
            let named = facts.payload.as_ref().and_then(|payload| payload.pid);
            prop_assert_eq!(named, Some(4242), "the bound file names somebody else, or nobody");
        }
    }

    /// Principle 6, and the last sentence of rule 1.
    #[test]
    fn a_lease_lapses_by_its_own_terms_and_no_other(facts in facts()) {
        let judgement = judge(&facts);
        let without = judge(&Facts { lease: LeaseFacts { unchanged_for: None, ..facts.lease.clone() }, ..facts.clone() });
        if judgement.verdict == Verdict::Lapsed {
            let (Some(ttl), Some(unchanged)) = (facts.record.ttl, facts.lease.unchanged_for) else {
                return Err(TestCaseError::fail("lapsed without terms, or without having been watched"));
            };
            prop_assert!(unchanged > ttl as f64 + 2.0);
            prop_assert!(unchanged > lapse_after(ttl).as_secs_f64());
            prop_assert!(known(&facts.record.host).is_some());
            prop_assert_eq!(facts.record.state, RecordState::Present);
            let undecided = without.verdict == Verdict::Undetermined || without.reason == Reason::ServerAttested;
            prop_assert!(undecided, "{} lapsed", without.reason);
            let longer = LeaseFacts { unchanged_for: Some(unchanged * 2.0), ..facts.lease.clone() };
            let later = judge(&Facts { lease: longer, ..facts.clone() });
            prop_assert_eq!(later.verdict, Verdict::Lapsed, "what has lapsed stays so until it is renewed");
        } else {
            prop_assert_eq!(judgement.reason, without.reason, "time decides nothing else");
        }
    }

    /// Less evidence makes no one dead and nobody's lease free. (Held may appear: it lets nobody in.)
    #[test]
    fn forgetting_kills_nobody(facts in facts()) {
        let before = judge(&facts).verdict;
        let same_pidfd = |p: &ProcessFacts| p.pidfd.is_some() && p.pidfd == facts.record.pidfd;
        let same_pidfd = facts.process.as_ref().is_some_and(same_pidfd);
        for (what, forget) in SUPPORT {
            // An equal pidfs inode is what speaks against a start time that differs.
            if *what == "process.pidfd" && same_pidfd {
                continue;
            }
            let mut less = facts.clone();
            forget(&mut less);
            let after = judge(&less);
            let open = matches!(before, Verdict::Dead | Verdict::Free);
            prop_assert!(
                open || !matches!(after.verdict, Verdict::Dead | Verdict::Free),
                "without {}: {} becomes {} ({})", what, before, after.verdict, after.reason,
            );
        }
    }

    /// Four questions, four answers: the effect and the authority do not follow from there being a process.
    #[test]
    fn the_four_questions_stay_apart(facts in facts()) {
        let Judgement { verdict, reason, liveness, effect, authority, .. } = judge(&facts);
        prop_assert_eq!(reason.verdict(), verdict);
        let want = match (facts.record.intent.is_some(), facts.record.outcome.as_deref()) {
            (_, Some("completed")) => Effect::Completed,
            (_, Some("failed")) => Effect::Failed,
            (false, _) => Effect::Unrecorded,
            (true, _) if verdict == Verdict::Held => Effect::UnderWay,
            (true, _) => Effect::InDoubt,
        };
        prop_assert_eq!(effect, want);
        prop_assert_eq!(liveness == Liveness::Gone, verdict == Verdict::Dead);
        prop_assert_eq!(liveness == Liveness::Running, matches!(reason, Reason::ProcessRunning | Reason::KeeperRunning));
        let vacant = matches!(authority, Authority::Vacant | Authority::Successor);
        prop_assert_eq!(vacant, matches!(verdict, Verdict::Free | Verdict::Dead), "undetermined opens nothing");
    }

    #[test]
    fn facts_that_were_saved_are_judged_the_same(facts in facts()) {
        let saved = serde_json::to_string(&facts).expect("facts are JSON");
        let read: Facts = serde_json::from_str(&saved).expect("facts are read back");
        prop_assert_eq!(judge(&read), judge(&facts));
        prop_assert_eq!(read, facts);
    }
}

/// Another program's file: a name proves nothing, so no start time makes it dead. That it differs is said.
#[test]
fn a_start_that_differs_is_said_of_another_programs_pid() {
    let told = |found| {
        let facts = Facts {
            record: RecordFacts {
                state: RecordState::Present,
                host: Some("a".into()),
                pid: Some(json!(7)),
                start: Some(1),
                legacy: Some(LegacyFacts::default()),
                ..RecordFacts::default()
            },
            observer: Observer {
                host: Some("a".into()),
                ..Observer::default()
            },
            process: Some(ProcessFacts {
                exists: Some(true),
                start: Some(found),
                ..ProcessFacts::default()
            }),
            ..Facts::default()
        };
        let judgement = judge(&facts);
        assert_eq!(judgement.reason, Reason::NoBoot, "{judgement:?}");
        judgement.sentence.contains("has another start time")
    };
    assert!(told(2));
    assert!(!told(1));
}
