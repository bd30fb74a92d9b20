//! Time, and holders that keep their lease by heartbeats: the library's own [`Keeping`], with a supervisor that stops the
//! work before the deadline unless it is paused.

use std::time::Duration;

use leasehold::Verdict;
use leasehold::deadline::{Due, Terms};
use leasehold::facts::{Facts, LeaseFacts, Observer, RecordFacts, RecordState};
use leasehold::keeping::{Action, Keeping, Reply};
use leasehold::lapse::Mark;

use super::*;

/// In seconds. A lease is kept for three ticks, and has lapsed after four.
const TICK: u64 = 20;
const TTL: u64 = 60;
pub const LAPSED: u8 = 4;

pub fn at(tick: u8) -> Duration {
    Duration::from_secs(TICK * u64::from(tick))
}

/// A supervisor, its heartbeats, and the work under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    keeping: Keeping,
    action: Action,
    /// The file that is open.
    inode: TempId,
    beat: u8,
    /// When the heartbeat that is under way began.
    began: Duration,
    /// The work runs.
    working: bool,
    /// It was ended for good while a ballot of the heartbeat's was under way.
    ended: bool,
    /// The supervisor is paused, and stops nothing.
    pub asleep: bool,
    /// The lease is to be confirmed.
    order: bool,
    /// It was, and the supervisor has not heard yet.
    news: bool,
    /// Since when the record is another claim's, or gone.
    lost: Option<u8>,
}

impl Kept {
    /// A lease that was just won.
    pub fn new(world: &World, change: &Change) -> Self {
        let ttl = Duration::from_secs(TTL);
        let inode = change.temp.expect("a claim that was won has written a record");
        let keeping = Keeping::new(Terms::new(ttl, Terms::usual_grace(ttl)), change.began, at(world.now));
        Self {
            action: keeping.start(),
            keeping,
            inode,
            beat: change.next.expect("… from what it saw").beat,
            began: Duration::ZERO,
            working: true,
            ended: false,
            asleep: false,
            order: false,
            news: false,
            lost: None,
        }
    }

    /// Whether it took so long to be told of it that it may have lapsed.
    pub fn is_over(&self, now: u8) -> bool {
        self.due(now) != Due::Nothing
    }

    fn due(&self, now: u8) -> Due {
        self.keeping.deadline().due(at(now))
    }

    /// Whether the work runs, and not only because nobody was awake to stop it.
    pub fn is_to_be_counted_on(&self, now: u8) -> bool {
        self.working && !(self.asleep && self.due(now) != Due::Nothing)
    }

    fn call(&self, token: Token) -> Call {
        Call::Beat {
            token,
            inode: self.inode,
            beat: self.beat + 1,
        }
    }
}

/// Whether a heartbeat is making a new record for its lease, whose name it found gone.
pub fn gives_name(contender: &Contender) -> bool {
    let looks = |kept: &Kept| kept.action == Action::Look;
    matches!(&contender.phase, Phase::Busy(change) if change.kept.as_deref().is_some_and(looks))
}

/// What a foreign observer's judge says of a living or dead holder's lease.
pub fn has_lapsed(lease: LeaseFacts) -> bool {
    let text = |text: &str| Some(text.to_owned());
    let facts = Facts {
        record: RecordFacts {
            state: RecordState::Present,
            host: text("a"),
            boot: text("boot of a"),
            pid: Some(1.into()),
            ttl: Some(TTL),
            ..RecordFacts::default()
        },
        observer: Observer {
            host: text("b"),
            boot: text("boot of b"),
            ..Observer::default()
        },
        lease,
        ..Facts::default()
    };
    match leasehold::verdict::judge(&facts).verdict {
        Verdict::Lapsed => true,
        Verdict::Undetermined => false,
        other => panic!("a foreign lease is {}", other.word()),
    }
}

/// What a holder's heartbeat and supervisor can do next.
pub fn events(world: &World, slot: usize, kept: &Kept, events: &mut Vec<Event>) {
    let starts = kept.order || world.beats > 0 && kept.due(world.now) != Due::Stop;
    if starts || !matches!(kept.action, Action::Rest(_)) {
        events.push(Event::Heart { slot, how: How::Plain });
        for how in &HOWS[1..] {
            if *how == How::Stale || world.mishaps > 0 {
                events.push(Event::Heart { slot, how: *how });
            }
        }
    }
    if kept.news && !kept.asleep {
        events.push(Event::Hear { slot });
    }
    pauses(world, slot, kept, events);
}

/// … also while its heartbeat is busy with a ballot.
pub fn pauses(world: &World, slot: usize, kept: &Kept, events: &mut Vec<Event>) {
    if kept.asleep || kept.working && kept.due(world.now) != Due::Nothing {
        events.push(Event::Wake { slot });
    } else if kept.working && world.naps > 0 {
        events.push(Event::Sleep { slot });
    }
}

impl Protocol {
    pub fn is_timed(&self) -> bool {
        self.setup.ticks > 0
    }

    /// Takes in what a claim's look has seen, as the library does.
    pub fn observe(&self, world: &mut World, change: &mut Change, found: Option<Record>) -> LeaseFacts {
        if !self.is_timed() {
            return LeaseFacts::default();
        }
        let now = at(world.now);
        let slot = usize::from(world.claimant(change.token).slot);
        let mark = found.map(|record| Mark {
            stamp: record.stamp(),
            written: match self.has(Fault::BeatAlone) {
                true => Duration::ZERO,
                false => at(record.written),
            },
        });
        let lease = world.contenders[slot].watch.saw(mark, change.began, now);
        change.began = now;
        lease
    }

    /// One call of a heartbeat.
    pub fn heart(&self, world: &mut World, slot: usize, how: How) -> Option<()> {
        let Phase::Holding {
            token,
            kept: Some(kept),
            ..
        } = world.contenders[slot].phase.clone()
        else {
            return None;
        };
        let mut kept = *kept;
        let mut now = at(world.now);
        let goes_wrong = !matches!(how, How::Plain | How::Stale);
        if goes_wrong {
            world.mishaps = world.mishaps.checked_sub(1)?;
        }
        let reply = match (kept.action, how) {
            (Action::Rest(_), How::Plain) => {
                kept.began = if self.has(Fault::LateBeat) { now } else { Duration::ZERO };
                if !std::mem::take(&mut kept.order) {
                    world.beats = world.beats.checked_sub(1)?;
                    Reply::Rested { confirm: false }
                } else {
                    Reply::Rested { confirm: true }
                }
            }
            (Action::Write, How::Stale | How::Resend) => return None,
            (Action::Write, how) => {
                let call = kept.call(token);
                kept.beat += 1;
                if matches!(how, How::Plain | How::Duplicate | How::FailsDone) {
                    self.execute(world, call);
                }
                if matches!(how, How::Duplicate | How::FailsLate) {
                    world.later(call);
                }
                match how {
                    How::Plain | How::Duplicate => Reply::Done,
                    _ => Reply::Failed,
                }
            }
            (Action::Sync | Action::Ask | Action::Look, How::FailsUndone) => Reply::Failed,
            (Action::Sync, How::Plain) => Reply::Done,
            (Action::Ask, How::Plain) => {
                let is_named = match world.file {
                    File::Record { inode, .. } => inode == kept.inode || self.has(Fault::BeatByPath),
                    _ => false,
                };
                let has_any = self.has(Fault::AnyName) && world.names(kept.inode) > 0;
                match is_named || has_any || self.has(Fault::NoStat) {
                    true => Reply::Done,
                    false => Reply::Failed,
                }
            }
            (Action::Look, How::Plain | How::Stale) => {
                let file = match how {
                    How::Stale => self.stale_sight(world, slot)?,
                    _ => world.sight(),
                };
                let named = |open| matches!(world.file, File::Record { inode, .. } if inode == open);
                match file {
                    File::Record { inode, record } if record.token == token && !record.ended => {
                        match inode == kept.inode {
                            true if named(inode) => Reply::Done,
                            // The name is gone, and the lease is not: a new record gets it.
                            true => return self.win_again(world, slot, kept),
                            // What is to be opened has no name.
                            false if !named(inode) => Reply::Failed,
                            false => {
                                kept.inode = inode;
                                Reply::Moved
                            }
                        }
                    }
                    File::Empty if world.ballots.is_empty() => Reply::Failed,
                    _ => Reply::Lost,
                }
            }
            (Action::WinAgain, How::Plain) => return self.win_again(world, slot, kept),
            _ => return None,
        };
        if self.has(Fault::LateBeat) && kept.action == Action::Ask {
            now = kept.began;
        }
        self.go_on(world, slot, kept, reply, now);
        Some(())
    }

    fn win_again(&self, world: &mut World, slot: usize, kept: Kept) -> Option<()> {
        if world.contenders[slot].written >= self.tries(slot) {
            return None;
        }
        self.begin(world, slot, Job::Renew, false)?;
        if let Phase::Busy(change) = &mut world.contenders[slot].phase {
            change.kept = Some(Box::new(kept));
        }
        Some(())
    }

    /// Gives a heartbeat the reply to its last call.
    fn go_on(&self, world: &mut World, slot: usize, mut kept: Kept, reply: Reply, now: Duration) {
        kept.action = kept.keeping.advance(reply, now);
        // Nothing that others see lies between a call and these.
        while world.mishaps == 0 && kept.action == Action::Sync || kept.action == Action::Confirm {
            kept.news |= kept.action == Action::Confirm;
            kept.action = kept.keeping.advance(Reply::Done, now);
        }
        let Phase::Holding { token, epoch, .. } = world.contenders[slot].phase else {
            unreachable!("only a holder has heartbeats")
        };
        if kept.action == Action::Stop {
            world.contenders[slot].phase = Phase::Stopped { token, epoch };
        } else {
            *world.kept(slot).expect("a holder that keeps its lease") = kept;
        }
    }

    /// What a heartbeat makes of the ballot by which it wanted to win its lease anew.
    pub fn won_again(&self, world: &mut World, slot: usize, change: &Change, kept: &Kept, outcome: Outcome) {
        let Change {
            token, epoch, excused, ..
        } = *change;
        let mut kept = *kept;
        if kept.ended {
            world.contenders[slot].phase = Phase::Stopped { token, epoch };
            return;
        }
        let reply = match outcome {
            Outcome::Committed { temp, .. } => {
                if change.onto_nothing {
                    world.breaks(NO_RETURN);
                }
                kept.inode = temp;
                kept.beat = change.next.expect("a commit has written a record").beat;
                match kept.action {
                    Action::Look => Reply::Moved,
                    _ => Reply::Done,
                }
            }
            Outcome::Refused => Reply::Lost,
            _ => Reply::Failed,
        };
        world.contenders[slot].phase = Phase::Holding {
            token,
            epoch,
            excused,
            kept: Some(Box::new(kept)),
        };
        self.go_on(world, slot, kept, reply, at(world.now));
    }
}

impl World {
    pub fn kept(&mut self, slot: usize) -> Option<&mut Kept> {
        match &mut self.contenders[slot].phase {
            Phase::Holding { kept, .. } => kept.as_deref_mut(),
            Phase::Busy(change) => change.kept.as_deref_mut(),
            _ => None,
        }
    }

    pub fn write_beat(&mut self, token: Token, open: TempId, beat: u8, by_path: bool) {
        let before = self.file;
        if let File::Record { inode, record } = &mut self.file
            && (*inode == open || by_path)
        {
            record.beat = beat;
            record.written += 1;
            if record.token != token {
                self.breaks(OWN_BEAT);
            }
            self.before = Some(before);
        }
        // All names show one file.
        let ballots = self.ballots.values_mut().filter_map(|slip| match slip {
            Slip::Second(inode, record) => Some((inode, record)),
            _ => None,
        });
        let kept = self.kept.values_mut().map(|(inode, record)| (inode, record));
        for (_, record) in ballots.chain(kept).filter(|(inode, _)| **inode == open) {
            record.beat = beat;
            record.written += 1;
        }
    }

    /// A tick later. Before it is over, whoever is awake has stopped what would outlast its deadline.
    pub fn tick(&mut self) {
        self.now += 1;
        for slot in 0..self.contenders.len() {
            let now = self.now;
            let Some(kept) = self.kept(slot) else { continue };
            if !kept.working || kept.asleep || kept.due(now) < Due::Kill {
                continue;
            }
            (kept.working, kept.ended) = (false, true);
            if let Phase::Holding { token, epoch, .. } = self.contenders[slot].phase {
                self.leave_heart(slot);
                self.contenders[slot].phase = Phase::Stopped { token, epoch };
            }
        }
    }

    /// The supervisor looks at the clock: what should have stopped waits until the lease is confirmed.
    pub fn wake(&mut self, slot: usize) -> Option<()> {
        let now = self.now;
        let kept = self.kept(slot)?;
        kept.asleep = false;
        if kept.working && kept.due(now) != Due::Nothing {
            (kept.working, kept.order) = (false, true);
        }
        Some(())
    }

    /// The answer may have come in a second pause, or have taken too long itself.
    pub fn hear(&mut self, slot: usize) -> Option<()> {
        let now = self.now;
        let kept = self.kept(slot)?;
        kept.news = false;
        if !kept.working {
            kept.working = kept.due(now) == Due::Nothing;
            kept.order = !kept.working;
        }
        Some(())
    }

    /// A heartbeat of a holder that stops, or is gone, may still be on its way.
    pub fn leave_heart(&mut self, slot: usize) {
        if let Phase::Holding {
            token,
            kept: Some(kept),
            ..
        } = &self.contenders[slot].phase
            && kept.action == Action::Write
        {
            let call = kept.call(*token);
            self.later(call);
        }
    }

    /// The record of this claim is another's, or gone.
    pub fn take_from(&mut self, claim: Token) {
        let now = self.now;
        for slot in 0..self.contenders.len() {
            let token = match &self.contenders[slot].phase {
                Phase::Holding { token, .. } => *token,
                Phase::Busy(change) => change.token,
                _ => continue,
            };
            if token == claim
                && let Some(kept) = self.kept(slot)
            {
                kept.lost.get_or_insert(now);
            }
        }
    }

    /// Whether a holder works on although it lost its record a ttl ago.
    pub fn outstays(&self) -> bool {
        fn kept(contender: &Contender) -> Option<&Kept> {
            match &contender.phase {
                Phase::Holding { kept, .. } => kept.as_deref(),
                Phase::Busy(change) => change.kept.as_deref(),
                _ => None,
            }
        }
        self.contenders.iter().filter_map(kept).any(|kept| {
            let over = |lost| at(self.now) >= at(lost) + Duration::from_secs(TTL);
            kept.lost.is_some_and(over) && kept.is_to_be_counted_on(self.now)
        })
    }
}
