//! The ballot protocol, searched exhaustively within bounds: every order of every call of a few contenders.
//!
//! `LEASEHOLD_MODEL_DEPTH=1` gives each contender one more try than usual, and so on. That takes hours and tens of gigabytes.

#[path = "model/world.rs"]
mod world;

use std::fmt::Write as _;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use world::{
    DISARMED, Event, FORWARD, Fault, IN_TIME, LAPSED, LOSES, NAMED, NO_WEDGE, ONE_HOLDER, OWN_BEAT, Protocol, Setup,
    Start, TOLD_TRUE, World, tell,
};

/// Searches all that can happen. Every rule that was broken, and how; and how many states there were.
fn search(protocol: Protocol, until: HasDiscoveries) -> (Vec<(&'static str, String)>, usize) {
    let checker = protocol.checker().threads(2).finish_when(until).spawn_bfs().join();
    let found = checker.discoveries();
    let mut broken = Vec::new();
    for property in checker.model().properties() {
        match (&property.expectation, found.get(property.name)) {
            (Expectation::Always, Some(path)) => broken.push((property.name, trace(path.clone()))),
            (Expectation::Sometimes, None) => broken.push((property.name, "never seen".to_owned())),
            _ => {}
        }
    }
    (broken, checker.unique_state_count())
}

fn trace(path: Path<World, Event>) -> String {
    let mut text = String::new();
    for (world, event) in path.into_vec() {
        if let Some(event) = event {
            writeln!(text, "  {}", tell(&world, &event)).expect("a String takes all");
        }
    }
    text
}

/// Nothing breaks a rule, in at least so many states: fewer would be another model than the one that was looked at.
fn holds(mut setup: Setup, least: usize) {
    let depth = std::env::var("LEASEHOLD_MODEL_DEPTH").ok();
    let more: u8 = depth.map_or(0, |depth| {
        depth.parse().expect("LEASEHOLD_MODEL_DEPTH is a small number")
    });
    setup.tries.iter_mut().for_each(|tries| *tries += more);
    let shown = format!("{setup:?}");
    let (broken, states) = search(Protocol::new(setup), HasDiscoveries::AnyFailures);
    if let Some((rule, trace)) = broken.first() {
        panic!("broken: {rule}\n{trace}{shown}");
    }
    println!("{states} states: {shown}");
    assert!(states >= least, "fewer than {least}");
}

/// The checker finds what a fault leads to: one of these rules is broken.
fn finds(fault: Fault, setup: Setup, rules: &[&'static str]) {
    let fault = Some(fault);
    breaks(Setup { fault, ..setup }, rules);
}

fn breaks(setup: Setup, rules: &[&'static str]) {
    let shown = format!("{setup:?}");
    let (broken, states) = search(Protocol::about(setup, rules), HasDiscoveries::Any);
    assert!(!broken.is_empty(), "unnoticed in {states} states: {shown}");
}

#[test]
fn two_contenders() {
    let tries = vec![3, 2];
    holds(
        Setup {
            tries,
            ..Setup::of(2, 3)
        },
        450_000,
    );
}

#[test]
fn three_contenders() {
    let tries = vec![2, 1, 1];
    holds(
        Setup {
            stale: false,
            tries,
            ..Setup::of(3, 1)
        },
        100_000,
    );
}

#[test]
fn calls_that_are_lost_repeated_late_or_failed() {
    holds(
        Setup {
            mishaps: 1,
            stale: false,
            ..Setup::of(2, 2)
        },
        750_000,
    );
    let tries = vec![2, 1];
    holds(
        Setup {
            mishaps: 2,
            tries,
            ..Setup::of(2, 2)
        },
        150_000,
    );
}

#[test]
fn leftovers_are_swept_at_any_time() {
    let tries = vec![2, 1];
    holds(
        Setup {
            sweep: true,
            give_way: true,
            mishaps: 1,
            tries,
            ..Setup::of(2, 2)
        },
        100_000,
    );
    holds(
        Setup {
            sweep: true,
            give_way: true,
            ..Setup::of(2, 2)
        },
        100_000,
    );
}

#[test]
fn the_dead_are_settled() {
    holds(
        Setup {
            settle: true,
            ..Setup::of(2, 2)
        },
        50_000,
    );
    let tries = vec![2, 1];
    holds(
        Setup {
            settle: true,
            mishaps: 1,
            tries,
            ..Setup::of(2, 2)
        },
        50_000,
    );
}

#[test]
fn without_hard_links() {
    let tries = vec![2, 1];
    holds(
        Setup {
            links: false,
            mishaps: 1,
            tries,
            ..Setup::of(2, 2)
        },
        40_000,
    );
    holds(
        Setup {
            links: false,
            sweep: true,
            ..Setup::of(2, 2)
        },
        40_000,
    );
}

#[test]
fn holders_change_their_records_and_lapse() {
    let renewing = Setup {
        changes: true,
        ..Setup::of(2, 2)
    };
    holds(
        Setup {
            lapses: true,
            stale: false,
            tries: vec![3, 2],
            ..renewing.clone()
        },
        1_100_000,
    );
    let tries = vec![2, 1];
    holds(
        Setup {
            lapses: true,
            mishaps: 1,
            tries,
            ..renewing
        },
        50_000,
    );
}

#[test]
fn holders_hand_over() {
    holds(
        Setup {
            hand_over: true,
            lapses: true,
            ..Setup::of(2, 2)
        },
        50_000,
    );
    let tries = vec![2, 1, 1];
    holds(
        Setup {
            hand_over: true,
            stale: false,
            tries,
            ..Setup::of(3, 1)
        },
        70_000,
    );
}

/// A supervisor renews while its child notes what it does.
fn family() -> Setup {
    Setup {
        changes: true,
        children: true,
        stale: false,
        tries: vec![2, 3],
        ..Setup::of(2, 2)
    }
}

#[test]
fn children_change_the_record_of_their_holder() {
    holds(family(), 250_000);
    finds(Fault::OwnByNumber, family(), &[TOLD_TRUE]);
}

/// An operator deletes the record while its holder is about to change it: the holder has lost.
fn deleted() -> Setup {
    Setup {
        changes: true,
        lapses: true,
        stale: false,
        crashes: false,
        deletions: 1,
        tries: vec![3, 1, 1],
        ..Setup::of(3, 1)
    }
}

#[test]
fn a_record_that_was_deleted_is_not_put_back() {
    holds(deleted(), 400_000);
}

/// An NFS client's rename: the name is gone before it stands for the new record, and goes although there is none any more.
fn torn() -> Setup {
    Setup {
        torn: true,
        stale: false,
        ..Setup::of(2, 2)
    }
}

#[test]
fn renames_take_two_steps() {
    holds(torn(), 40_000);
    holds(
        Setup {
            sweep: true,
            changes: true,
            tries: vec![3, 1],
            ..torn()
        },
        60_000,
    );
    holds(
        Setup {
            mishaps: 1,
            tries: vec![2, 1],
            ..torn()
        },
        50_000,
    );
    finds(Fault::NoSecondName, torn(), &[ONE_HOLDER, FORWARD]);
    finds(
        Fault::NoLastingBallot,
        Setup {
            tries: vec![3, 2],
            ..torn()
        },
        &[ONE_HOLDER, FORWARD],
    );
    finds(Fault::NoVoid, torn(), &[ONE_HOLDER, FORWARD]);
}

/// A process is killed in the first step of its rename, or is told that it failed. The kernel makes that step all the same,
/// when others have replaced the record.
fn trailing() -> Setup {
    Setup {
        trailing: true,
        ..torn()
    }
}

#[test]
fn the_first_step_of_a_rename_outlives_its_process() {
    let killed = Setup {
        tries: vec![2, 3],
        ..trailing()
    };
    holds(killed.clone(), 350_000);
    finds(Fault::EndedIsOver, killed, &[ONE_HOLDER, FORWARD]);
    let failed = Setup {
        crashes: false,
        mishaps: 1,
        tries: vec![4, 1],
        ..trailing()
    };
    holds(failed.clone(), 50_000);
    finds(Fault::FailedIsOver, failed, &[ONE_HOLDER, FORWARD]);
    holds(
        Setup {
            sweep: true,
            ..trailing()
        },
        50_000,
    );
}

#[test]
fn an_operator_must_not_delete_a_record_that_is_in_use() {
    breaks(
        Setup {
            careless: true,
            deletions: 1,
            ..Setup::of(2, 2)
        },
        &[ONE_HOLDER],
    );
}

#[test]
fn leases_are_broken() {
    holds(
        Setup {
            breaks: 1,
            changes: true,
            lapses: true,
            stale: false,
            ..Setup::of(2, 2)
        },
        190_000,
    );
    let tries = vec![2, 1];
    holds(
        Setup {
            breaks: 1,
            mishaps: 1,
            tries,
            ..Setup::of(2, 2)
        },
        120_000,
    );
}

/// Whatever a contender leaves that crashed long ago: its temp files, ballots, records, and files with two names.
#[test]
fn leftovers_are_in_nobodys_way() {
    let left = Setup {
        leftovers: true,
        tries: vec![2, 1],
        ..Setup::of(2, 2)
    };
    holds(left.clone(), 190_000);
    let unsupported = Setup {
        links: false,
        tries: vec![1, 1],
        ..left
    };
    holds(unsupported, 40_000);
}

/// Time goes on. A holder keeps its lease by heartbeats and stops before its deadline unless it is paused; others take
/// the lease once they have seen it lapse.
fn kept() -> Setup {
    Setup {
        ticks: 5,
        beats: 1,
        crashes: false,
        stale: false,
        tries: vec![2, 1],
        ..Setup::of(2, 2)
    }
}

#[test]
fn holders_stop_in_time() {
    holds(Setup { naps: 1, ..kept() }, 500_000);
    // Nobody knows of a holder that crashed but by watching.
    holds(
        Setup {
            beats: 0,
            crashes: true,
            ..kept()
        },
        90_000,
    );
}

#[test]
fn three_contenders_wait_for_a_lapse() {
    holds(
        Setup {
            beats: 0,
            naps: 1,
            tries: vec![1, 1, 1],
            ..kept()
        },
        1_500_000,
    );
}

/// A heartbeat that hangs, fails, is made twice, or late.
#[test]
fn heartbeats_go_wrong() {
    let repeated = repeated();
    holds(
        Setup {
            beats: 2,
            ..repeated.clone()
        },
        600_000,
    );
    finds(Fault::BeatAlone, repeated, &[IN_TIME]);
}

/// A duplicate of an old heartbeat comes after two that nobody saw.
fn repeated() -> Setup {
    Setup {
        beats: 3,
        mishaps: 1,
        tries: vec![1, 1],
        ..kept()
    }
}

#[test]
fn kept_leases_are_broken() {
    let broken = Setup { breaks: 1, ..kept() };
    holds(broken.clone(), 850_000);
    finds(Fault::BeatByPath, broken.clone(), &[OWN_BEAT]);
    finds(Fault::NoStat, broken.clone(), &[LOSES]);
    finds(Fault::NaiveBreak, broken.clone(), &[NAMED, FORWARD]);
}

/// The child under a supervisor replaces the record; the heartbeat follows it to the new file.
#[test]
fn children_change_a_kept_record() {
    let family = Setup {
        children: true,
        tries: vec![1, 2],
        ..kept()
    };
    holds(family, 500_000);
}

#[test]
fn kept_leases_without_hard_links() {
    holds(Setup { links: false, ..kept() }, 110_000);
}

/// Heartbeats, a lapse, and rivals that were passed over, where a rename takes the name away first.
#[test]
fn renames_take_two_steps_while_a_lease_lapses() {
    let torn = Setup { torn: true, ..kept() };
    let lapsed = Setup {
        start: Start::Lapsed,
        ..torn.clone()
    };
    // Whoever overslept wins the lease anew, past a rival that then takes the name away.
    let anew = Setup {
        tries: vec![4, 2],
        ..lapsed.clone()
    };
    holds(anew.clone(), 350_000);
    for fault in [Fault::NoSecondName, Fault::NoLastingBallot, Fault::NoVoid] {
        finds(fault, anew.clone(), &[IN_TIME, FORWARD]);
    }
    // Of two who wait for the lapse one passes the other over, and keeps its lease by heartbeats.
    holds(
        Setup {
            ticks: LAPSED,
            tries: vec![1, 2, 3],
            ..lapsed.clone()
        },
        140_000,
    );
    holds(
        Setup {
            beats: 0,
            mishaps: 1,
            tries: vec![3, 1],
            ..lapsed
        },
        180_000,
    );
    let held = Setup {
        start: Start::Held,
        ticks: LAPSED,
        ..torn
    };
    holds(
        Setup {
            naps: 1,
            crashes: true,
            ..held.clone()
        },
        200_000,
    );
    let broken = Setup { breaks: 1, ..held };
    holds(broken.clone(), 500_000);
    finds(Fault::AnyName, broken, &[LOSES]);
}

/// A lease is handed over, to another host or to one that waits for its lapse, while somebody counts.
#[test]
fn kept_leases_are_handed_over() {
    let handed = Setup {
        hand_over: true,
        start: Start::Held,
        ..kept()
    };
    let other = Setup {
        tries: vec![2, 0, 1],
        ..handed.clone()
    };
    holds(other.clone(), 180_000);
    finds(Fault::LateClaim, Setup { beats: 0, ..other }, &[IN_TIME]);
    holds(
        Setup {
            beats: 0,
            naps: 1,
            crashes: true,
            stale: true,
            ..handed
        },
        180_000,
    );
}

/// A first look may see an old record, or an old heartbeat of this one.
#[test]
fn looks_are_stale_while_a_lease_lapses() {
    let stale = Setup {
        stale: true,
        start: Start::Held,
        ..kept()
    };
    holds(stale.clone(), 120_000);
    finds(Fault::NoRecheck, stale.clone(), &[IN_TIME]);
    finds(Fault::StaleRecheck, stale, &[IN_TIME]);
}

#[test]
fn holders_are_paused_and_others_crash() {
    let both = Setup {
        naps: 1,
        crashes: true,
        stale: true,
        ..kept()
    };
    let held = Setup {
        start: Start::Held,
        tries: vec![1, 1],
        ..both.clone()
    };
    holds(held.clone(), 35_000);
    finds(Fault::LateBeat, held, &[IN_TIME]);
    holds(
        Setup {
            start: Start::Lapsed,
            tries: vec![2, 2],
            ..both
        },
        200_000,
    );
}

/// A claim whose last call hung for longer than the ttl was told that it had won, while another had taken the lease.
#[test]
fn what_is_late_does_not_count() {
    finds(Fault::LateClaim, Setup { beats: 0, ..kept() }, &[IN_TIME]);
    finds(Fault::LateBeat, Setup { naps: 1, ..kept() }, &[IN_TIME]);
}

#[test]
fn faults_of_the_protocol_are_found() {
    finds(Fault::NoDisarm, Setup::of(2, 2), &[DISARMED]);
    finds(Fault::NoRecheck, Setup::of(2, 2), &[FORWARD]);
    finds(Fault::StaleRecheck, Setup::of(2, 2), &[FORWARD]);
    finds(
        Fault::EarlyRemoval,
        Setup {
            sweep: true,
            crashes: false,
            stale: false,
            tries: vec![4, 2],
            ..Setup::of(2, 4)
        },
        &[FORWARD, ONE_HOLDER],
    );
    finds(
        Fault::DeleteVerb,
        Setup {
            lapses: true,
            ..Setup::of(2, 2)
        },
        &[FORWARD],
    );
    finds(
        Fault::EmptyStays,
        Setup {
            links: false,
            ..Setup::of(2, 1)
        },
        &[NO_WEDGE],
    );
}
