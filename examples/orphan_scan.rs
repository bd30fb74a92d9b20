//! Clears the way for a respawn: `orphan_scan DIR ROLE` looks at every record in a directory whose run state says
//! `role=ROLE`, ends what is verified to run on this host, vacates what died here, and lists the rest.
//!
//! Exit: 0 when none of that role is left; 5 when one may still be somebody's; 74 when something could not be read.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Finding, Judge, Scan, Settlement, Stop, Verdict};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dir, role] = &words[..] else {
        eprintln!("usage: orphan_scan DIR ROLE");
        return ExitCode::from(64);
    };
    let mut found = Vec::new();
    // Many files at a time; nothing is changed by looking.
    let swept = Scan::new([dir]).run(|finding| found.push(finding));
    for failure in &swept.failures {
        eprintln!("orphan_scan: {}: {}", failure.path.display(), failure.error);
    }
    let here = Judge::here();
    let mut left = 0;
    for finding in &found {
        // A record that cannot be read may be of this role.
        let of_this_role = finding
            .record
            .as_ref()
            .is_none_or(|record| record.state.get("role") == Some(role));
        if of_this_role && !is_cleared(&here, finding, role) {
            left += 1;
        }
    }
    if !swept.failures.is_empty() {
        return ExitCode::from(74);
    }
    if left > 0 { ExitCode::from(5) } else { ExitCode::SUCCESS }
}

/// Whether nobody has it any more. The respawn itself still has to claim it.
fn is_cleared(here: &Judge, finding: &Finding, role: &str) -> bool {
    let path = finding.path.display();
    let judgement = &finding.judgement;
    match judgement.verdict {
        Verdict::Free => true,
        // By a descriptor of the very process that is judged, never by its number.
        Verdict::Held if judgement.may_be_stopped() => {
            let stop = Stop::new(&finding.path).only_if("role", role);
            match stop.grace(Duration::from_secs(10)).run() {
                Ok(stopped) => {
                    println!("{path}: process {} ended by {}", stopped.pid, stopped.signal);
                    true
                }
                Err(error) => {
                    eprintln!("orphan_scan: {path}: {error}");
                    false
                }
            }
        }
        // So that the other hosts know it too. Its action is not to be repeated for that.
        Verdict::Dead => match here.settle(&finding.path) {
            Ok(Settlement::Vacated(..)) => {
                println!("{path}: vacated: {}", judgement.sentence);
                true
            }
            Ok(_) => false,
            Err(error) => {
                eprintln!("orphan_scan: {path}: {error}");
                false
            }
        },
        // Of another host, or not to be told.
        Verdict::Held | Verdict::Lapsed | Verdict::Undetermined => {
            println!(
                "{path}: {} ({}): {}",
                judgement.verdict,
                judgement.reason,
                judgement.next(&finding.path.to_string_lossy())
            );
            false
        }
    }
}
