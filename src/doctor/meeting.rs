//! What hosts that met tell each other, and what it means. Pure: each host has the same accounts and comes to the same
//! findings.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::findings::{Area, Finding, Level};
use crate::facts::Observer;

/// Rounds in which all try to be the one.
pub(super) const ROUNDS: usize = 500;

/// What is won in rounds.
pub(super) const PRIZES: [&str; 2] = ["link", "create"];

/// Kinds of locks.
pub(super) const LOCKS: [&str; 2] = ["flock", "fcntl-lock"];

/// What a host sees of another's change.
pub(super) const SIGHTS: [&str; 3] = ["create", "replace", "remove"];

/// What one host says: who it is, how far it is, and what it saw. A file of its own, which the others read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// A random name for this one time.
    pub id: String,
    /// Grows with each publication: a sign of life.
    #[serde(skip_serializing_if = "is_default")]
    pub beat: u64,
    /// The host.
    pub host: Observer,
    /// The process.
    pub pid: u32,
    /// The mount, in plain words.
    pub mount: String,
    /// Whom it has heard of, be they alive or not.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub heard: BTreeSet<String>,
    /// Who has heard of it, so that they are alive: they and itself.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub alive: BTreeSet<String>,
    /// Who takes part, once that is settled.
    pub roster: Vec<String>,
    /// How far it is.
    #[serde(skip_serializing_if = "is_default")]
    pub step: u32,
    /// Seconds that the files' clock is ahead of its own, and by how much that may be wrong.
    pub clock: Option<(f64, f64)>,
    /// Seconds that it takes to create a file, at best.
    pub cost: f64,
    /// Of whoever leads: when the rounds of a prize begin, by the files' clock, the seconds of a round, and their number.
    pub plans: BTreeMap<String, Plan>,
    /// What it has seen, done or found out, by place in the programme.
    pub notes: BTreeMap<String, Note>,
    /// By prize, a letter a round: `w` won, `-` not, `?` not known.
    pub rounds: BTreeMap<String, String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// When rounds are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// By the files' clock.
    pub start: f64,
    /// Seconds.
    pub slot: f64,
    /// How many.
    pub rounds: usize,
}

/// What came of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Note {
    /// Yes, or as it should be.
    Yes,
    /// No.
    No,
    /// A call failed.
    Failed(String),
    /// Seconds.
    Took(f64),
}

impl Account {
    /// Its name for people.
    pub fn name(&self) -> String {
        let host = self.host.host.as_deref().filter(|name| !name.is_empty());
        host.unwrap_or("a host without a name").to_owned()
    }
}

/// The place in the programme of one sight: whose file, which time, and what is done with it.
pub(super) fn sight(whose: usize, time: usize, what: &str) -> String {
    format!("{what} {whose}.{time}")
}

/// The place in the programme of a lock, and of what the others found out about it.
pub(super) fn lock(kind: &str, whose: usize, what: &str) -> String {
    format!("{kind} {whose} {what}")
}

/// The place in the programme of what belongs to one host's replacing a file again and again.
pub(super) fn gap(whose: usize, what: &str) -> String {
    format!("gap {whose} {what}")
}

/// The place in the programme of a turn in the sequence of stamps.
pub(super) fn turn(number: usize) -> String {
    format!("stamp {number}")
}

/// What the accounts of all that met mean, in the order of the roster.
pub fn judge(accounts: &[Account]) -> Vec<Finding> {
    let mut found = Vec::new();
    identities(accounts, &mut found);
    for what in SIGHTS {
        found.push(seen(accounts, what));
    }
    found.push(gaps(accounts));
    found.push(learns(accounts));
    for prize in PRIZES {
        found.push(winners(accounts, prize));
    }
    for kind in LOCKS {
        found.push(excludes(accounts, kind));
        found.push(tells(accounts, kind));
    }
    found.push(stamps(accounts));
    found.push(clocks(accounts));
    found
}

fn finding(level: Level, id: &'static str, what: impl Into<String>) -> Finding {
    Finding::new(level, Area::Meeting, id, what)
}

fn pairs(accounts: &[Account]) -> impl Iterator<Item = (&Account, &Account)> {
    let later = |at: usize| accounts.iter().skip(at + 1);
    accounts
        .iter()
        .enumerate()
        .flat_map(move |(at, one)| later(at).map(move |other| (one, other)))
}

const OWN_ID: &str = "give each an id of its own in /etc/leasehold/host-id, on a disk of its own";

fn identities(accounts: &[Account], found: &mut Vec<Finding>) {
    let before = found.len();
    for (a, b) in pairs(accounts) {
        let (one, other) = (&a.host, &b.host);
        let equal = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
        let differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
        let who = format!("{} and {}", a.name(), b.name());
        if equal(&one.boot, &other.boot) {
            let other_host = differ(&one.machine, &other.machine) || differ(&one.host_id, &other.host_id);
            found.push(if other_host {
                finding(
                    Level::Warning,
                    "boot-id-repeats",
                    format!("{who} have one boot id, and are two machines"),
                )
                .why("each is undetermined/identity-conflict for the other")
                .remedy("seed the kernel's random generator before the boot id is read; see random(4)")
            } else {
                finding(Level::Warning, "same-host", format!("{who} are one host"))
                    .why("what is found out here is true of two processes of one host, and says nothing of two hosts")
                    .remedy("run it on two hosts")
            });
        } else if equal(&one.host_id, &other.host_id) {
            found.push(
                finding(Level::Warning, "same-host-id", format!("{who} have one operator id"))
                    .why("each takes the other for itself after a reboot, and its records for dead")
                    .remedy(OWN_ID),
            );
        } else if equal(&one.machine, &other.machine) {
            let same_name = equal(&one.host, &other.host);
            let operator = differ(&one.host_id, &other.host_id);
            let level = if operator { Level::Note } else { Level::Warning };
            let names = if same_name { ", and one name" } else { "" };
            found.push(
                finding(level, "same-machine-id", format!("{who} have one machine id{names}"))
                    .why("they are cloned or run from one image: with one name too, each takes the other for itself after a reboot")
                    .remedy(if operator { "" } else { OWN_ID }),
            );
        } else if equal(&one.host, &other.host) {
            found.push(
                finding(Level::Note, "same-name", format!("both are named {}", a.name()))
                    .why("machine ids tell them apart; people, and `leasehold ask`, cannot"),
            );
        }
    }
    if found.len() == before {
        found.push(
            finding(Level::Ok, "ids", "boot id, machine id and name differ")
                .why("hosts must not be taken for each other"),
        );
    }
}

/// All notes of one kind, whoever made them.
fn notes<'a>(accounts: &'a [Account], begins: &'a str) -> impl Iterator<Item = (&'a Account, &'a Note)> {
    accounts.iter().flat_map(move |account| {
        let of = account.notes.iter().filter(move |(place, _)| place.starts_with(begins));
        of.map(move |(_, note)| (account, note))
    })
}

fn seen(accounts: &[Account], what: &'static str) -> Finding {
    let id = match what {
        "create" => "see-create",
        "replace" => "see-replace",
        _ => "see-remove",
    };
    let begins = format!("{what} ");
    let mut times: Vec<f64> = notes(accounts, &begins)
        .filter_map(|(_, note)| match note {
            Note::Took(seconds) => Some(*seconds),
            _ => None,
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let blind = notes(accounts, &begins).find(|(_, note)| matches!(note, Note::No | Note::Failed(_)));
    let why = "a judgement looks afresh, and must find what another host has done";
    match (blind, times.last()) {
        (Some((account, Note::Failed(why_not))), _) => {
            finding(Level::Problem, id, format!("on {}: {why_not}", account.name())).why(why)
        }
        (Some((account, _)), _) => finding(
            Level::Problem,
            id,
            format!(
                "not seen by {} within {:.0} s",
                account.name(),
                super::SEEN.as_secs_f64()
            ),
        )
        .why(why)
        .remedy("turn the client's caches off; docs/filesystems.md"),
        (None, Some(longest)) => finding(
            Level::Ok,
            id,
            format!(
                "seen by all, {} there and back; at most {}",
                time(times[times.len() / 2]),
                time(*longest)
            ),
        )
        .why(why),
        (None, None) => finding(Level::Problem, id, "was not tried").why(why),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn gaps(accounts: &[Account]) -> Finding {
    let id = "see-no-gap";
    let why = "a claim that sees no record while it is replaced takes a lease that is held";
    let sum = |what: &str| -> f64 {
        let places = (0..accounts.len()).map(|whose| gap(whose, what));
        let notes = places.flat_map(|place| accounts.iter().filter_map(move |account| account.notes.get(&place)));
        notes
            .map(|note| if let Note::Took(count) = note { *count } else { 0.0 })
            .sum()
    };
    let (looked, missed) = (sum("looked"), sum("missed"));
    if missed > 0.0 {
        let what = format!("a file that another host replaces is missing in {missed:.0} of {looked:.0} looks");
        return finding(Level::Problem, id, what)
            .why(why)
            .remedy("do not use this directory between these hosts; docs/filesystems.md");
    }
    match looked > 0.0 {
        true => finding(
            Level::Ok,
            id,
            format!("a file that another host replaces is never missing ({looked:.0} looks)"),
        ),
        false => finding(Level::Note, id, "was not tried"),
    }
    .why(why)
}

fn learns(accounts: &[Account]) -> Finding {
    let answers: Vec<_> = notes(accounts, "learns ").collect();
    let why = "at its next heartbeat a holder sees by it that it has lost; once a ttl it also reads the record by name";
    let id = "see-own-loss";
    if let Some((account, note)) = answers.iter().find(|(_, note)| **note != Note::Yes) {
        let what = match note {
            Note::Failed(error) => format!("on {}: {error}", account.name()),
            _ => "an open file that another host has replaced does not say so".to_owned(),
        };
        return finding(Level::Note, id, what).why(why);
    }
    finding(Level::Ok, id, "an open file that another host has replaced says so").why(why)
}

fn winners(accounts: &[Account], prize: &str) -> Finding {
    let id = match prize {
        "link" => "one-link",
        _ => "one-create",
    };
    let why = match prize {
        "link" => "a ballot is one: two winners would be two holders",
        _ => "it stands in where there are no hard links",
    };
    let results: Vec<&[u8]> = accounts
        .iter()
        .map(|account| account.rounds.get(prize).map_or(&b""[..], |rounds| rounds.as_bytes()))
        .collect();
    let rounds = results.iter().map(|result| result.len()).min().unwrap_or(0);
    if rounds == 0 {
        let why_not = accounts.iter().find_map(|account| match account.notes.get(prize) {
            Some(Note::Failed(error)) => Some(format!("on {}: {error}", account.name())),
            _ => None,
        });
        // Hard links are not needed: there is a way round them.
        let level = if prize == "create" { Level::Problem } else { Level::Note };
        return finding(level, id, why_not.unwrap_or_else(|| "was not tried".into())).why(why);
    }
    let count = |round: usize, letter: u8| results.iter().filter(|result| result[round] == letter).count();
    let (mut several, mut none, mut unknown) = (0, 0, 0);
    for round in 0..rounds {
        match (count(round, b'w'), count(round, b'?')) {
            (2.., _) => several += 1,
            (_, 1..) => unknown += 1,
            (0, _) => none += 1,
            _ => {}
        }
    }
    let shares: Vec<String> = results
        .iter()
        .map(|result| result.iter().filter(|letter| **letter == b'w').count().to_string())
        .collect();
    let shares = shares.join(" : ");
    let remedy = "do not use this directory between these hosts; docs/filesystems.md";
    if several > 0 {
        finding(
            Level::Problem,
            id,
            format!("two winners in {several} of {rounds} rounds ({shares})"),
        )
        .why(why)
        .remedy(remedy)
    } else if none + unknown > 0 {
        let what = format!("no winner in {none} of {rounds} rounds, {unknown} not known ({shares})");
        finding(Level::Warning, id, what).why(why).remedy(remedy)
    } else {
        finding(
            Level::Ok,
            id,
            format!("one winner in each of {rounds} rounds ({shares})"),
        )
        .why(why)
    }
}

fn excludes(accounts: &[Account], kind: &'static str) -> Finding {
    let id = kind;
    let name = if kind == "flock" { "flock" } else { "fcntl locks" };
    let why = "leases do not rest on locks; programs that use them on both hosts do";
    let of = |what: &str| -> Vec<(&Account, Note)> {
        let all = (0..accounts.len()).flat_map(|whose| {
            let place = lock(kind, whose, what);
            let of = accounts
                .iter()
                .filter_map(move |account| Some((account, account.notes.get(&place)?.clone())));
            of.collect::<Vec<_>>()
        });
        all.collect()
    };
    for (account, note) in of("held").into_iter().chain(of("refused")) {
        if let Note::Failed(error) = note {
            return finding(Level::Note, id, format!("{name} on {}: {error}", account.name())).why(why);
        }
    }
    let refused = of("refused");
    let granted = refused.iter().filter(|(_, note)| *note == Note::No).count();
    match (granted, refused.len()) {
        (_, 0) => finding(Level::Note, id, format!("{name}: not tried")).why(why),
        (0, _) => finding(Level::Ok, id, format!("{name} exclude between hosts")).why(why),
        (granted, all) => finding(
            Level::Note,
            id,
            format!("{name} do not exclude between hosts (granted to two {granted} of {all} times)"),
        )
        .why(why)
        .remedy("for programs that need them: mount options, docs/filesystems.md"),
    }
}

fn tells(accounts: &[Account], kind: &'static str) -> Finding {
    let id = if kind == "flock" { "getlk-flock" } else { "getlk-fcntl" };
    let name = if kind == "flock" { "a flock" } else { "an fcntl lock" };
    let why = "a file server is asked this way whether another host's owner still holds its lock";
    let told: Vec<&Note> = (0..accounts.len())
        .flat_map(|whose| {
            let place = lock(kind, whose, "told");
            accounts.iter().filter_map(move |account| account.notes.get(&place))
        })
        .collect();
    if told.is_empty() {
        finding(Level::Note, id, format!("not asked of {name}")).why(why)
    } else if let Some(Note::Failed(error)) = told.iter().find(|note| matches!(note, Note::Failed(_))) {
        finding(Level::Note, id, format!("F_OFD_GETLK: {error}")).why(why)
    } else if told.iter().all(|note| **note == Note::Yes) {
        finding(Level::Ok, id, format!("F_OFD_GETLK tells of {name} of another host")).why(why)
    } else {
        finding(
            Level::Note,
            id,
            format!("F_OFD_GETLK does not tell of {name} of another host"),
        )
        .why(why.to_owned() + "; here nothing is attested, and its records stay undetermined until asked about")
    }
}

/// Stamps of files that hosts made in turn must not go back.
fn stamps(accounts: &[Account]) -> Finding {
    let id = "one-clock";
    let why = "whether a record is from before a reboot, and what was abandoned, is told by stamps of files";
    let mut all = Vec::new();
    while let Some(stamp) = accounts.iter().find_map(|account| account.notes.get(&turn(all.len()))) {
        match stamp {
            Note::Took(seconds) => all.push(*seconds),
            _ => break,
        }
    }
    if all.len() < 2 {
        return finding(Level::Note, id, "stamps of files were not compared").why(why);
    }
    let steps: Vec<f64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let back = steps.iter().copied().fold(0.0, f64::min);
    if back < 0.0 {
        let level = if back < -2.0 { Level::Warning } else { Level::Note };
        return finding(
            level,
            id,
            format!("files are stamped by each host's own clock: back by {}", time(-back)),
        )
        .why(why)
        .remedy("keep the clocks of all hosts on time: ntp, chrony");
    }
    let widest = steps.iter().copied().fold(0.0, f64::max);
    finding(
        Level::Ok,
        id,
        format!(
            "{} files made in turn are stamped in that order, {} apart at most",
            all.len(),
            time(widest)
        ),
    )
    .why(why)
}

fn clocks(accounts: &[Account]) -> Finding {
    let id = "clocks";
    let why = "no lease ends by a comparison of clocks; only whether a record is from before this boot is told by one";
    let told: Vec<(String, f64)> = accounts
        .iter()
        .filter_map(|account| {
            let (offset, give) = account.clock?;
            Some((
                format!("{} {:+.2} s (± {give:.2})", account.name(), -offset),
                offset.abs(),
            ))
        })
        .collect();
    let what: Vec<&str> = told.iter().map(|(what, _)| what.as_str()).collect();
    let far = told.iter().map(|(_, far)| *far).fold(0.0, f64::max);
    let level = match far {
        far if far > super::findings::FAR => Level::Warning,
        far if far > 2.0 => Level::Note,
        _ => Level::Ok,
    };
    let remedy = if level > Level::Ok {
        "keep the clocks of all hosts on time: ntp, chrony"
    } else {
        ""
    };
    finding(
        level,
        id,
        format!("against the clock of the files: {}", what.join(", ")),
    )
    .why(why)
    .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> [Account; 2] {
        ["login-a", "login-b"].map(|name| Account {
            host: Observer {
                host: Some(name.into()),
                machine: Some(format!("machine of {name}")),
                boot: Some(format!("boot of {name}")),
                ..Observer::default()
            },
            ..Account::default()
        })
    }

    fn level(accounts: &[Account], id: &str) -> (Level, String) {
        let found = judge(accounts).into_iter().find(|finding| finding.id == id);
        found.map_or((Level::Ok, "-".into()), |finding| (finding.level, finding.what))
    }

    #[test]
    fn rounds_are_counted() {
        for (one, other, expected, what) in [
            ("w-w-", "-w-w", Level::Ok, "one winner in each of 4 rounds (2 : 2)"),
            ("w-w-", "-w-", Level::Ok, "one winner in each of 3 rounds (2 : 1)"),
            ("www-", "-w-w", Level::Problem, "two winners in 1 of 4 rounds (3 : 2)"),
            (
                "w---",
                "-w-w",
                Level::Warning,
                "no winner in 1 of 4 rounds, 0 not known (1 : 2)",
            ),
            (
                "w-?-",
                "-w-w",
                Level::Warning,
                "no winner in 0 of 4 rounds, 1 not known (1 : 2)",
            ),
            ("", "", Level::Note, "was not tried"),
        ] {
            let mut accounts = two();
            accounts[0].rounds.insert("link".into(), one.into());
            accounts[1].rounds.insert("link".into(), other.into());
            assert_eq!(level(&accounts, "one-link"), (expected, what.into()));
        }
    }

    #[test]
    fn stamps_that_go_back_are_of_two_clocks() {
        for (stamps, expected) in [
            ([10.0, 10.0, 10.5], Level::Ok),
            ([10.0, 9.5, 10.5], Level::Note),
            ([100.0, 10.0, 101.0], Level::Warning),
        ] {
            let mut accounts = two();
            for (number, stamp) in stamps.into_iter().enumerate() {
                accounts[number % 2].notes.insert(turn(number), Note::Took(stamp));
            }
            assert_eq!(level(&accounts, "one-clock").0, expected, "{stamps:?}");
        }
    }

    #[test]
    fn hosts_that_could_be_taken_for_each_other_are_told() {
        type Change = fn(&mut [Account; 2]);
        let cases: [(Change, &str, Level); 6] = [
            (|_| {}, "ids", Level::Ok),
            (
                |both| both[1].host.boot = both[0].host.boot.clone(),
                "boot-id-repeats",
                Level::Warning,
            ),
            (|both| both[1].host = both[0].host.clone(), "same-host", Level::Warning),
            (
                |both| both[1].host.machine = both[0].host.machine.clone(),
                "same-machine-id",
                Level::Warning,
            ),
            (
                |both| both.iter_mut().for_each(|one| one.host.host_id = Some("x".into())),
                "same-host-id",
                Level::Warning,
            ),
            (
                |both| both[1].host.host = both[0].host.host.clone(),
                "same-name",
                Level::Note,
            ),
        ];
        for (change, id, expected) in cases {
            let mut accounts = two();
            change(&mut accounts);
            let (found, what) = level(&accounts, id);
            assert!(found == expected && what != "-", "{id}: {found:?} {what}");
        }
    }

    #[test]
    fn a_file_that_was_missing_for_a_moment_is_a_problem() {
        let mut accounts = two();
        assert_eq!(level(&accounts, "see-no-gap").0, Level::Note);
        accounts[1].notes.insert(gap(0, "looked"), Note::Took(400.0));
        accounts[1].notes.insert(gap(0, "missed"), Note::Took(0.0));
        assert_eq!(level(&accounts, "see-no-gap").0, Level::Ok);
        accounts[1].notes.insert(gap(0, "missed"), Note::Took(2.0));
        let (found, what) = level(&accounts, "see-no-gap");
        assert!(
            found == Level::Problem && what.ends_with("missing in 2 of 400 looks"),
            "{what}"
        );
    }

    #[test]
    fn what_one_host_does_not_see_is_a_problem() {
        let mut accounts = two();
        accounts[0].notes.insert(sight(0, 0, "create"), Note::Took(0.02));
        accounts[1].notes.insert(sight(0, 0, "create"), Note::Yes);
        assert_eq!(level(&accounts, "see-create").0, Level::Ok);
        accounts[1].notes.insert(sight(0, 1, "create"), Note::No);
        let (found, what) = level(&accounts, "see-create");
        assert_eq!(
            (found, what.as_str()),
            (Level::Problem, "not seen by login-b within 10 s")
        );
    }
}
