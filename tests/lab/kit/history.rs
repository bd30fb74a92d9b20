//! What happened, and whether it may have: the rules that every history of a lease has to keep. Pure.
//!
//! All times are the driver's, in milliseconds. An interval in which something is known to have been so is drawn too
//! short rather than too long, so that what is reported is real.

use std::collections::BTreeMap;
use std::fmt;

/// A process that held a lease: as long as it is known to have lived and worked under it.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    pub path: String,
    pub node: String,
    pub epoch: u64,
    pub token: String,
    /// After its claim.
    pub from: u64,
    /// Its last sign of life.
    pub to: u64,
    /// Dead for certain from then on.
    pub ended: Option<u64>,
}

/// A write of a holder: checked, then done.
#[derive(Clone, Debug, Default)]
pub struct Write {
    pub path: String,
    pub epoch: u64,
    pub token: String,
    /// Before its check began.
    pub asked: u64,
}

/// A line found in the transcript of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub path: String,
    pub epoch: u64,
    pub token: String,
}

/// An answer about a record: the look began at `from`, and had ended at `to`.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub path: String,
    pub by: String,
    pub from: u64,
    pub to: u64,
    pub verdict: String,
    pub reason: String,
    pub token: Option<String>,
    pub epoch: Option<u64>,
    pub seq: Option<u64>,
}

/// Something was broken: nobody has to get on with anything.
#[derive(Clone, Debug)]
pub struct Fault {
    pub from: u64,
    pub to: u64,
}

/// A whole machine stood still.
#[derive(Clone, Debug)]
pub struct Stall {
    pub node: String,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub holds: Vec<Hold>,
    pub writes: Vec<Write>,
    pub lines: Vec<Line>,
    pub looks: Vec<Look>,
    pub faults: Vec<Fault>,
    pub stalls: Vec<Stall>,
    /// While somebody wanted each of these leases.
    pub wanted: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    Overlap(String),
    EpochRepeats(String),
    EpochBack(String),
    Unfenced(String),
    ForeignLine(String),
    WrongDead(String),
    WrongHeld(String),
    Lost(String),
    Wedge(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A machine that was paused cannot know of it at once: so long its processes may run on after waking.
const WAKING: u64 = 5_000;
/// From the end of a process until its table says so.
const REAPING: u64 = 1_000;
/// A supervisor ends its command's processes, and vacates the record, in this time.
const ENDING: u64 = 20_000;
/// A server may attest a dead machine's lock until that one's NFS lease has ended, and be slow to notice.
const ATTESTED: u64 = 45_000;
/// Without any progress, everybody healthy.
const WEDGED: u64 = 60_000;

/// Everything that may not have happened.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut paths: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in &history.holds {
        paths.entry(&hold.path).or_default().push(hold);
    }
    for holds in paths.values_mut() {
        holds.sort_by_key(|hold| (hold.from, hold.epoch));
        claims(history, holds, &mut found);
        wedges(history, holds, &mut found);
    }
    writes(history, &mut found);
    lines(history, &mut found);
    verdicts(history, &mut found);
    records(history, &mut found);
    found
}

fn name(hold: &Hold) -> String {
    format!(
        "{} epoch {} on {} ({}..{})",
        hold.path, hold.epoch, hold.node, hold.from, hold.to
    )
}

fn claims(history: &History, holds: &[&Hold], found: &mut Vec<Violation>) {
    for (i, early) in holds.iter().enumerate() {
        for late in &holds[i + 1..] {
            let both = || format!("{}; {}", name(early), name(late));
            if early.epoch == late.epoch {
                found.push(Violation::EpochRepeats(both()));
            } else if early.epoch > late.epoch {
                found.push(Violation::EpochBack(both()));
            }
            let woke_late = history.stalls.iter().any(|stall| {
                stall.node == early.node
                    && stall.from <= late.from
                    && early.from <= stall.to
                    && early.to <= stall.to + WAKING
            });
            if late.from <= early.to && !woke_late {
                found.push(Violation::Overlap(both()));
            }
        }
    }
}

fn wedges(history: &History, holds: &[&Hold], found: &mut Vec<Violation>) {
    let Some((begin, end)) = history.wanted else { return };
    let mut progress: Vec<u64> = holds.iter().flat_map(|hold| [hold.from, hold.to]).collect();
    progress.extend([begin, end]);
    progress.retain(|at| (begin..=end).contains(at));
    progress.sort_unstable();
    for pair in progress.windows(2) {
        let healthy = pair[1] - pair[0] - broken(&history.faults, pair[0], pair[1]);
        if healthy > WEDGED {
            let path = holds.first().map_or("", |hold| &hold.path);
            found.push(Violation::Wedge(format!(
                "{path}: nothing from {} to {}, {healthy} ms of it healthy",
                pair[0], pair[1]
            )));
        }
    }
}

/// How much of a time was covered by faults.
fn broken(faults: &[Fault], from: u64, to: u64) -> u64 {
    let mut spans: Vec<(u64, u64)> = faults
        .iter()
        .map(|fault| (fault.from.max(from), fault.to.min(to)))
        .filter(|(from, to)| from < to)
        .collect();
    spans.sort_unstable();
    let (mut sum, mut until) = (0, from);
    for (begin, end) in spans {
        sum += end.saturating_sub(begin.max(until));
        until = until.max(end);
    }
    sum
}

/// A check that began when a successor was at work already must not pass, however long its process had slept.
fn writes(history: &History, found: &mut Vec<Violation>) {
    for write in &history.writes {
        let successor = history
            .holds
            .iter()
            .find(|hold| hold.path == write.path && hold.epoch > write.epoch && hold.from < write.asked);
        if let Some(successor) = successor {
            found.push(Violation::Unfenced(format!(
                "epoch {} asked at {} and was let through; {}",
                write.epoch,
                write.asked,
                name(successor)
            )));
        }
    }
}

fn lines(history: &History, found: &mut Vec<Violation>) {
    for line in &history.lines {
        let own = |hold: &Hold| hold.path == line.path && hold.epoch == line.epoch && hold.token == line.token;
        if !history.holds.iter().any(own) {
            found.push(Violation::ForeignLine(format!("{line:?}")));
        }
    }
}

fn verdicts(history: &History, found: &mut Vec<Violation>) {
    for look in &history.looks {
        let Some(hold) = history
            .holds
            .iter()
            .find(|hold| hold.path == look.path && look.token.as_ref() == Some(&hold.token))
        else {
            continue;
        };
        let both = || format!("{look:?}; {}", name(hold));
        let overdue = |slack| hold.ended.is_some_and(|ended| ended + slack < look.from);
        match (&*look.verdict, &*look.reason) {
            ("dead", _) if hold.to > look.to => found.push(Violation::WrongDead(both())),
            ("held", "process-running") if overdue(REAPING) => found.push(Violation::WrongHeld(both())),
            ("held", "keeper-running") if overdue(ENDING) => found.push(Violation::WrongHeld(both())),
            ("held", _) if overdue(ATTESTED) => found.push(Violation::WrongHeld(both())),
            _ => {}
        }
    }
}

/// Records never go away, break, or go back.
fn records(history: &History, found: &mut Vec<Violation>) {
    const BROKEN: [&str; 7] = [
        "no-record",
        "empty",
        "torn",
        "malformed",
        "symlink",
        "not-a-file",
        "too-large",
    ];
    for look in &history.looks {
        if BROKEN.contains(&&*look.reason) {
            let held = history
                .holds
                .iter()
                .find(|hold| hold.path == look.path && hold.from < look.from);
            found.extend(held.map(|hold| Violation::Lost(format!("{look:?}; {}", name(hold)))));
        }
    }
    let mut looks: Vec<&Look> = history.looks.iter().filter(|look| look.seq.is_some()).collect();
    looks.sort_by_key(|look| look.from);
    for (i, late) in looks.iter().enumerate() {
        let newest = looks[..i]
            .iter()
            .filter(|early| early.path == late.path && early.to < late.from)
            .max_by_key(|early| (early.seq, early.epoch));
        if let Some(early) = newest
            && (early.seq > late.seq || early.epoch > late.epoch)
        {
            found.push(Violation::EpochBack(format!("{early:?}; {late:?}")));
        }
        let ahead = history
            .holds
            .iter()
            .find(|hold| hold.path == late.path && hold.from < late.from && Some(hold.epoch) > late.epoch);
        found.extend(ahead.map(|hold| Violation::EpochBack(format!("{late:?}; {}", name(hold)))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(epoch: u64, from: u64, to: u64) -> Hold {
        Hold {
            path: "x".into(),
            node: if epoch % 2 == 1 { "a" } else { "b" }.into(),
            epoch,
            token: format!("t{epoch}"),
            from,
            to,
            ended: Some(to + 1),
        }
    }

    fn look(verdict: &str, reason: &str, epoch: u64, from: u64, to: u64) -> Look {
        Look {
            path: "x".into(),
            by: "b".into(),
            from,
            to,
            verdict: verdict.into(),
            reason: reason.into(),
            token: Some(format!("t{epoch}")),
            epoch: Some(epoch),
            seq: Some(epoch * 10),
        }
    }

    fn write(epoch: u64, asked: u64) -> Write {
        Write {
            path: "x".into(),
            epoch,
            token: format!("t{epoch}"),
            asked,
        }
    }

    /// Two holders one after the other, looked at rightly.
    fn good() -> History {
        History {
            holds: vec![hold(1, 0, 5_000), hold(2, 6_000, 20_000)],
            writes: vec![write(1, 100), write(1, 4_900), write(2, 6_100)],
            lines: vec![Line {
                path: "x".into(),
                epoch: 1,
                token: "t1".into(),
            }],
            looks: vec![
                look("held", "process-running", 1, 1_000, 1_010),
                look("dead", "no-such-process", 1, 5_500, 5_510),
                look("held", "process-running", 2, 7_000, 7_010),
            ],
            wanted: Some((0, 30_000)),
            ..History::default()
        }
    }

    fn found(change: impl FnOnce(&mut History)) -> Vec<Violation> {
        let mut history = good();
        change(&mut history);
        check(&history)
    }

    macro_rules! catches {
        ($name:ident, $kind:ident, $change:expr) => {
            #[test]
            fn $name() {
                let found = found($change);
                assert!(
                    matches!(&found[..], [Violation::$kind(_), ..])
                        && found.iter().all(|v| matches!(v, Violation::$kind(_))),
                    "{found:?}"
                );
            }
        };
    }

    #[test]
    fn a_good_history_is_good() {
        assert_eq!(check(&good()), []);
        assert_eq!(check(&History::default()), []);
    }

    catches!(two_holders_at_once, Overlap, |h| {
        h.holds[0].to = 6_000;
        h.looks.remove(1);
    });
    catches!(a_short_overlap_inside_a_long_hold, Overlap, |h| {
        h.holds[0].to = 10_000;
        h.holds[0].ended = None;
        h.holds[1].to = 7_000;
        h.looks.remove(1);
    });
    catches!(an_epoch_twice, EpochRepeats, |h| {
        h.holds.push(Hold {
            token: "t3".into(),
            ..hold(2, 21_000, 22_000)
        });
    });
    catches!(an_epoch_that_goes_back, EpochBack, |h| {
        h.holds = vec![hold(2, 0, 5_000), hold(1, 6_000, 20_000)];
        h.looks.clear();
        h.writes.clear();
    });
    catches!(a_record_that_goes_back, EpochBack, |h| {
        h.looks.push(look("free", "ended", 1, 8_000, 8_010));
        h.holds.pop();
        h.writes.pop();
    });
    catches!(a_record_behind_its_holder, EpochBack, |h| {
        h.looks.truncate(2);
        h.looks.push(look("free", "ended", 1, 6_100, 6_110));
    });
    catches!(a_check_that_passes_too_late, Unfenced, |h| h
        .writes
        .push(write(1, 6_001)));
    catches!(anothers_line_in_a_transcript, ForeignLine, |h| {
        h.lines.push(Line {
            path: "x".into(),
            epoch: 2,
            token: "t1".into(),
        });
    });
    catches!(called_dead_alive, WrongDead, |h| h.looks.push(look(
        "dead",
        "pid-reused",
        2,
        8_000,
        8_010
    )));
    catches!(called_held_dead, WrongHeld, |h| {
        h.holds.pop();
        h.writes.pop();
        h.looks[2] = look("held", "process-running", 1, 9_000, 9_010);
    });
    catches!(a_keeper_for_ever, WrongHeld, |h| {
        h.holds.pop();
        h.writes.pop();
        h.looks[2] = look("held", "keeper-running", 1, 29_000, 29_010);
    });
    catches!(a_lock_for_ever, WrongHeld, |h| {
        h.holds.pop();
        h.writes.pop();
        h.looks[2] = look("held", "server-attested", 1, 59_000, 59_010);
    });
    catches!(a_record_that_is_gone, Lost, |h| {
        h.looks.push(Look {
            token: None,
            epoch: None,
            seq: None,
            ..look("free", "no-record", 0, 8_000, 8_010)
        });
    });
    catches!(a_torn_record, Lost, |h| {
        h.looks.push(Look {
            token: None,
            epoch: None,
            seq: None,
            ..look("undetermined", "torn", 0, 8_000, 8_010)
        });
    });
    catches!(nobody_gets_on, Wedge, |h| h.wanted = Some((0, 81_000)));

    #[test]
    fn faults_are_no_wedge_and_count_once() {
        let faults = vec![
            Fault {
                from: 30_000,
                to: 60_000,
            },
            Fault {
                from: 40_000,
                to: 50_000,
            },
        ];
        let wait = |end: u64| {
            let faults = faults.clone();
            found(move |h| (h.wanted, h.faults) = (Some((0, end)), faults))
        };
        assert_eq!(wait(110_000), []);
        assert_eq!(wait(111_000).len(), 1);
    }

    #[test]
    fn a_machine_that_slept_may_wake_and_not_stay() {
        let slept = |last_sign: u64| {
            found(move |h| {
                h.holds[0].to = last_sign;
                h.holds[0].ended = None;
                h.looks.remove(1);
                h.stalls.push(Stall {
                    node: "a".into(),
                    from: 4_000,
                    to: 12_000,
                });
            })
        };
        assert_eq!(slept(12_400), []);
        assert!(matches!(&slept(17_001)[..], [Violation::Overlap(_)]));
        // And what it asks after that is refused: a check that passes is none the better for the sleep.
        let asked = found(|h| {
            h.stalls.push(Stall {
                node: "a".into(),
                from: 4_000,
                to: 12_000,
            });
            h.writes.push(write(1, 12_100));
        });
        assert!(matches!(&asked[..], [Violation::Unfenced(_)]));
    }
}
