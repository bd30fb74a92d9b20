//! How much denial of service costs whom.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Claim, Error, Judge};

use crate::place::{Place, USER, possible};

/// A clock that does not wait: it jumps.
#[derive(Debug, Default)]
struct Quick(std::sync::Mutex<Duration>);

impl Clock for Quick {
    fn now(&self) -> Duration {
        *self.0.lock().expect("no panic while it is held")
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock().expect("no panic while it is held") += time;
    }
}

/// Ballots of nobody hold a claim up for half a second each, and for two minutes in all; beyond that it gives up.
#[test]
fn planted_ballots_cost_two_minutes_at_most() {
    if !possible() {
        return;
    }
    for (ballots, gives_up) in [(100u32, false), (1000, true)] {
        let place = Place::new();
        for number in 1..=ballots {
            symlink("x", place.beside(format!(".x.lease.ballot-{number}"))).expect("symlink");
        }
        let clock = Arc::new(Quick::default());
        let judge = Judge::here().with_clock(clock.clone());
        let claimed = Claim::new(place.path()).from(judge).take();
        let waited = clock.now();
        match claimed {
            Ok(lease) => {
                assert!(!gives_up, "{waited:?}");
                lease.release(None).expect("it is held");
            }
            Err(error) => assert!(gives_up && matches!(error, Error::Contended { .. }), "{error}"),
        }
        // A half second each, and one look more.
        let most = Duration::from_millis(520) * ballots.min(256);
        assert!(waited <= most, "{ballots} cost {waited:?}");
        place.is_unharmed();
    }
}

/// Many names make each claim read them all once.
#[test]
fn many_planted_names_cost_a_listing() {
    if !possible() {
        return;
    }
    let place = Place::new();
    for number in 0..10_000 {
        let name = format!(".x.lease.t-{:032x}", u128::MAX - number);
        std::fs::write(place.beside(name), "").expect("write");
    }
    let claimed = place.harmless(USER, &["claim", "PATH", "--owner", "PID"]);
    claimed.expect_code(0);
    println!("a claim beside 10000 planted names took {:?}", claimed.took);
    place.is_unharmed();
}
