//! Facts in, verdict out: every case of `data/`. `public-reports.json` is what public reports led to; `further.json`
//! covers the rules that no report has touched.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Mutex;

use leasehold::facts::{Facts, ProcessFacts};
use leasehold::verdict::{Reason, examine, judge};
use leasehold::{Judgement, Pid, ProcessTable, resolve};
use serde::Deserialize;
use serde_json::Value;

const FILES: [(&str, &str, usize); 2] = [
    ("public-reports.json", include_str!("data/public-reports.json"), 68),
    ("further.json", include_str!("data/further.json"), 117),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    #[serde(rename = "about")]
    _about: String,
    facts: Value,
    want: Want,
}

/// What was compared, as recorded, as found.
type Row = (String, Option<String>, Option<String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    verdict: String,
    reason: String,
    effect: Option<String>,
    liveness: Option<String>,
    identity: Option<String>,
    authority: Option<String>,
    /// A part of the sentence, where it tells what a person has to know.
    says: Option<String>,
    /// All of it.
    evidence: Option<Vec<Row>>,
    #[serde(default = "yes")]
    probe: bool,
}

fn yes() -> bool {
    true
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (file, text, least) in FILES {
        let cases: Vec<Case> = serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(
            cases.len() >= least,
            "{file} has lost cases: {} of {least}",
            cases.len()
        );
        all.extend(cases);
    }
    let names: BTreeSet<&str> = all.iter().map(|case| &*case.case).collect();
    assert_eq!(names.len(), all.len(), "two cases have one name");
    all
}

/// Runs a check over all cases; those that fail are named together, with what they rest on.
fn every_case(check: impl Fn(&Case, &Facts) -> Result<(), String>) {
    let mut failures = String::new();
    for case in cases() {
        let facts: Facts = serde_json::from_value(case.facts.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.case));
        if let Err(why) = check(&case, &facts) {
            write!(failures, "\n{}: {why}\nfacts: {:#}\n", case.case, case.facts).expect("a String takes all");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn word(judgement: &Judgement, field: &str) -> String {
    let json = serde_json::to_value(judgement).expect("a judgement is JSON");
    json[field]
        .as_str()
        .expect("the questions are answered with words")
        .to_owned()
}

/// A judgement without the facts that it repeats.
fn told(judgement: &Judgement) -> String {
    let mut json = serde_json::to_value(judgement).expect("a judgement is JSON");
    json.as_object_mut()
        .expect("a judgement is an object")
        .retain(|key, _| key != "owner" && key != "observer");
    format!("{json:#}")
}

fn as_wanted(want: &Want, judgement: &Judgement) -> Result<(), String> {
    for (field, wanted) in [
        ("verdict", Some(&want.verdict)),
        ("reason", Some(&want.reason)),
        ("effect", want.effect.as_ref()),
        ("liveness", want.liveness.as_ref()),
        ("identity", want.identity.as_ref()),
        ("authority", want.authority.as_ref()),
    ] {
        if let Some(wanted) = wanted
            && word(judgement, field) != *wanted
        {
            return Err(format!("wanted {field} {wanted}\njudged: {}", told(judgement)));
        }
    }
    if let Some(says) = &want.says
        && !judgement.sentence.contains(says)
    {
        return Err(format!("wanted {says:?}\njudged: {}", told(judgement)));
    }
    let rows = judgement.evidence.iter();
    let shown: Vec<Row> = rows
        .map(|row| (row.what.to_owned(), row.recorded.clone(), row.found.clone()))
        .collect();
    match &want.evidence {
        Some(wanted) if *wanted != shown => Err(format!("wanted {wanted:#?}\njudged: {}", told(judgement))),
        _ => Ok(()),
    }
}

/// Answers from the facts and keeps who was asked about.
#[derive(Debug)]
struct Recording {
    owner: Option<ProcessFacts>,
    keeper: Option<(Pid, ProcessFacts)>,
    asked: Mutex<Vec<Pid>>,
}

impl Recording {
    fn of(facts: &Facts) -> Self {
        let mut owner = facts.process.clone();
        let keeper = owner.as_mut().and_then(|process| process.keeper.take());
        Self {
            owner,
            keeper: facts
                .record
                .keeper
                .as_ref()
                .map(|k| k.pid)
                .zip(keeper.map(|facts| *facts)),
            asked: Mutex::default(),
        }
    }
}

impl ProcessTable for Recording {
    fn probe(&self, pid: Pid, _: bool) -> ProcessFacts {
        self.asked.lock().expect("no panic while it was held").push(pid);
        match &self.keeper {
            Some((keeper, facts)) if *keeper == pid => facts.clone(),
            _ => self.owner.clone().unwrap_or_default(),
        }
    }
}

#[test]
fn every_case_is_judged_as_wanted() {
    every_case(|case, facts| as_wanted(&case.want, &judge(facts)));
}

/// The process table is asked only about pids that the rules have placed here, and its answers lead to the same
/// judgement as the same facts from a file.
#[test]
fn no_pid_is_asked_about_before_it_is_placed_here() {
    every_case(|case, facts| {
        let table = Recording::of(facts);
        let mut found = Facts {
            process: None,
            ..facts.clone()
        };
        let unasked = found.clone();
        let judgement = resolve(&mut found, &table);
        as_wanted(&case.want, &judgement)?;
        let asked = table.asked.into_inner().expect("no panic while it was held");
        if !case.want.probe {
            if !asked.is_empty() || found != unasked {
                return Err(format!("asked about {asked:?}"));
            }
            return Ok(());
        }
        let owner = facts.record.valid_pid().ok_or("a probe of no pid is wanted")?;
        let keeper = facts.record.keeper.as_ref().map(|keeper| keeper.pid);
        match *asked {
            // Settled before the process table had to be asked.
            [] => {}
            [first] if first == owner => {}
            [first, second] if first == owner && Some(second) == keeper => {}
            _ => return Err(format!("asked about {asked:?}")),
        }
        let again = examine(&found).map_err(|question| format!("asks {question:?} again"))?;
        if again != judgement {
            return Err(format!(
                "judged from a file: {}\nlive: {}",
                told(&again),
                told(&judgement)
            ));
        }
        Ok(())
    });
}

/// A field that is misspelt or not part of the schema would be an unknown fact, and its case would test nothing.
#[test]
fn every_fact_of_every_case_is_understood() {
    every_case(|_, facts| {
        let saved = serde_json::to_value(facts).map_err(|error| error.to_string())?;
        let again: Facts = serde_json::from_value(saved).map_err(|error| error.to_string())?;
        if again == *facts {
            Ok(())
        } else {
            Err(format!("saved and read again: {again:#?}"))
        }
    });
    for case in cases() {
        let facts: Facts = serde_json::from_value(case.facts.clone()).expect("read before");
        let saved = serde_json::to_value(facts).expect("facts are JSON");
        assert_eq!(missing(&case.facts, &saved), None, "{}", case.case);
    }
}

/// The first value that is given and not kept.
fn missing(given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(key, value)| {
            Some(format!(
                "{key}.{}",
                missing(value, kept.get(key).unwrap_or(&Value::Null))?
            ))
        }),
        (Value::Number(given), Value::Number(kept)) if given.as_f64() == kept.as_f64() => None,
        (given, kept) if given == kept => None,
        (given, _) => Some(given.to_string()),
    }
}

#[test]
fn every_reason_has_a_case() {
    let cases = cases();
    // What another host said is no fact of a case.
    for reason in Reason::ALL.iter().filter(|reason| reason.word() != "asked") {
        let wanted = cases.iter().find(|case| case.want.reason == reason.word());
        let wanted = wanted.unwrap_or_else(|| panic!("no case for {reason}"));
        assert_eq!(wanted.want.verdict, reason.verdict().word(), "{}", wanted.case);
        let json = serde_json::to_value(reason).expect("a reason is a word");
        assert_eq!(json, reason.word(), "{reason} has two spellings");
    }
}
