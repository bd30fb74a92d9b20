//! Single steps of a change and of a heartbeat where what a user sees hangs on one reply; the model has all their orders.

use std::time::Duration;

use leasehold::Token;
use leasehold::ballot::{self, Ballot, Kind, Outcome, Stamp};
use leasehold::deadline::Terms;
use leasehold::keeping::{self, Keeping};
use leasehold::names::TempId;

const OWN: TempId = TempId::new(1, 10, 0);
const RIVAL: TempId = TempId::new(1, 20, 0);

fn seen(stamp: Option<Stamp>) -> ballot::Reply {
    ballot::Reply::Seen {
        stamp,
        twin: false,
        own: false,
    }
}

fn current() -> Option<Stamp> {
    let token = Token::from_bits(7);
    Some(Stamp { token, seq: 4, beat: 0 })
}

/// A claim up to where a living rival's ballot stands in its way.
fn behind_a_rival(give_way: bool) -> Ballot {
    let mut ballot = Ballot::new(Kind::Claim, Token::from_bits(8), give_way);
    assert_eq!(ballot.start(), ballot::Action::Look);
    assert_eq!(ballot.advance(seen(current())), ballot::Action::Write { seq: 5 });
    let take = ballot.advance(ballot::Reply::Written(OWN));
    assert_eq!(take, ballot::Action::Take { number: 5, temp: OWN });
    let inspect = ballot.advance(ballot::Reply::Exists);
    assert_eq!(inspect, ballot::Action::Inspect { number: 5 });
    let rival = ballot::Reply::Rival {
        temp: Some(RIVAL),
        gone: false,
        ended: false,
    };
    assert_eq!(ballot.advance(rival), ballot::Action::Pause { rival: Some(RIVAL) });
    ballot
}

/// Replies `Done` to whatever tidies up, up to the first call of another kind.
fn tidied(ballot: &mut Ballot, mut action: ballot::Action) -> ballot::Action {
    use ballot::Action::{Discard, Forget, Remove, Retire, Withdraw};
    while matches!(
        action,
        Retire { .. } | Withdraw { .. } | Remove { .. } | Discard { .. } | Forget { .. }
    ) {
        action = ballot.advance(ballot::Reply::Done);
    }
    action
}

#[test]
fn only_who_wants_to_gives_way() {
    for (give_way, then) in [
        (true, ballot::Action::Finish(Outcome::GaveWay)),
        (false, ballot::Action::Look),
    ] {
        let mut ballot = behind_a_rival(give_way);
        let next = ballot.advance(ballot::Reply::Changed);
        assert_eq!(tidied(&mut ballot, next), then, "give way: {give_way}");
    }
}

#[test]
fn nobody_gives_way_to_a_rival_that_does_nothing() {
    for give_way in [true, false] {
        let mut ballot = behind_a_rival(give_way);
        let next = ballot.advance(ballot::Reply::Expired);
        let next = tidied(&mut ballot, next);
        assert_eq!(next, ballot::Action::Write { seq: 6 }, "give way: {give_way}");
    }
}

/// A link may have been done and its reply lost: then nobody may be told that the change was not made.
#[test]
fn a_record_that_cannot_be_read_is_in_doubt_only_where_it_may_be_ours() {
    for (before, outcome) in [(None, Outcome::Unknown), (current(), Outcome::Failed)] {
        let mut ballot = Ballot::new(Kind::Claim, Token::from_bits(8), false);
        ballot.advance(seen(before));
        ballot.advance(ballot::Reply::Written(OWN));
        let next = ballot.advance(ballot::Reply::Done);
        let next = match before {
            None => {
                assert_eq!(next, ballot::Action::Link { temp: OWN });
                ballot.advance(ballot::Reply::Exists)
            }
            Some(_) => {
                assert_eq!(next, ballot::Action::Ask);
                ballot.advance(ballot::Reply::Done)
            }
        };
        assert_eq!(next, ballot::Action::Recheck);
        let next = ballot.advance(ballot::Reply::Failed);
        let end = tidied(&mut ballot, next);
        assert_eq!(end, ballot::Action::Finish(outcome), "before: {before:?}");
    }
}

/// One heartbeat that succeeds, up to the look at the record's name that it makes.
fn beaten(keeping: &mut Keeping, confirm: bool, now: Duration) {
    use keeping::{Action, Reply};
    assert_eq!(keeping.advance(Reply::Rested { confirm }, now), Action::Write);
    assert_eq!(keeping.advance(Reply::Done, now), Action::Sync);
    assert_eq!(keeping.advance(Reply::Done, now), Action::Ask);
    assert_eq!(keeping.advance(Reply::Done, now), Action::Look);
}

#[test]
fn a_lease_is_confirmed_only_once_its_name_has_told() {
    use keeping::{Action, Reply};
    let terms = Terms::new(Duration::from_secs(60), Duration::from_secs(10));
    let mut keeping = Keeping::new(terms, Duration::ZERO, Duration::ZERO);

    let now = Duration::from_secs(20);
    beaten(&mut keeping, true, now);
    let unsure = keeping.advance(Reply::Failed, now);
    assert_eq!(unsure, Action::Rest(terms.interval()), "not confirmed, but renewed");
    assert_eq!(keeping.deadline().at(), now + terms.ttl());

    // Whoever asked is not forgotten.
    let now = Duration::from_secs(40);
    beaten(&mut keeping, false, now);
    assert_eq!(keeping.advance(Reply::Done, now), Action::Confirm);
    assert_eq!(keeping.advance(Reply::Done, now), Action::Rest(terms.interval()));
}
