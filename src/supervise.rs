//! The supervisor of [`crate::Run`]: one loop that waits for everything and makes no call on the record's filesystem, and
//! one thread that makes them all.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::clock::{BootClock, Clock};
use crate::deadline::{Deadline, Due, Terms};
use crate::error::{Error, Result};
use crate::heart::{Heart, Standing};
use crate::identity::Process;
use crate::keeping::{Action, Keeping, Reply};
use crate::lease::Lease;
use crate::platform::cgroup::Cgroup;
use crate::platform::child::{self, Child, Descendant, Events, Gate, Remote, Signal, State, Terminal};
use crate::run::{Descendants, Ending, Report, Run};
use crate::run_state::Outcome;

pub(crate) fn run(run: Run) -> Result<Report> {
    let path = run.claim.path().to_owned();
    // As the record will have it, in whole seconds.
    let ttl = Duration::from_secs(run.ttl.as_secs());
    let grace = run.grace.unwrap_or(Terms::usual_grace(ttl));
    if grace > ttl / 2 {
        let (grace, ttl) = (grace.as_secs_f64(), ttl.as_secs());
        let what =
            format!("a kill grace of {grace} s is more than half of the ttl of {ttl} s; shorten it, or lengthen that");
        return Err(Error::invalid(&path, what));
    }
    let terms = Terms::new(ttl, grace);
    child::adopt_orphans().map_err(Error::io("become the subreaper for", &path))?;
    // Before the command, which must not have its descriptors.
    let cgroup = run.contain.then(Cgroup::create).transpose()?;
    let gate = Gate::fork(&run.words, &path).map_err(Error::io("fork for", &path))?;
    if let Some(Err(error)) = cgroup.as_ref().map(|cgroup| cgroup.add(gate.pid())) {
        gate.shut();
        return Err(error);
    }
    let words: Vec<_> = run.words.iter().map(|word| word.to_string_lossy()).collect();
    // Whoever is the last to see to the command answers for the record.
    let keeper = cgroup
        .as_ref()
        .map_or_else(Process::current, |cgroup| Process::of(cgroup.sentinel()));
    let claimed = keeper.and_then(|keeper| {
        run.claim
            .owner(gate.pid())
            .keeper(keeper)
            .ttl(ttl)
            .command(words.join(" "))
            .take()
    });
    let mut lease = match claimed {
        Ok(lease) => lease,
        Err(error) => {
            gate.shut();
            return Err(error);
        }
    };
    let (token, epoch) = (lease.token(), lease.epoch());
    let started = Events::new().and_then(|events| Ok((events.remote()?, events)));
    let heart = Heart::of(&mut lease).and_then(|mut heart| {
        // Calls may have hung for as long as the ttl: the command starts on a lease that is known to be good.
        let mut won = lease.renewed;
        while Deadline::new(terms, won).due(BootClock.now()) != Due::Nothing {
            won = BootClock.now();
            heart.win_again()?;
        }
        Ok((heart, won))
    });
    let ((remote, events), (heart, won)) = match (started, heart) {
        (Ok(events), Ok(heart)) => (events, heart),
        (started, heart) => {
            gate.shut();
            let _ = lease.release(Some(Outcome::Failed));
            return Err(heart.err().unwrap_or_else(|| {
                Error::io("watch", &path)(started.err().unwrap_or_else(|| io::ErrorKind::Other.into()))
            }));
        }
    };
    let mut report = Report {
        token,
        epoch,
        ending: None,
        lost: None,
        not_started: None,
        unreleased: None,
        outlived: false,
        interrupted: false,
    };

    let terminal = Terminal::open();
    let keeping = Keeping::new(terms, won, BootClock.now());
    let watch = Arc::new(Watch {
        times: Mutex::new(Times {
            deadline: keeping.deadline(),
            until: None,
        }),
        remote,
    });
    let (orders, inbox) = mpsc::channel();
    let (outbox, news) = mpsc::channel();
    watch.wait_until(None);
    let thread = {
        let watch = watch.clone();
        std::thread::Builder::new()
            .name("heartbeat".into())
            .spawn(move || beat(heart, keeping, &watch, &inbox, &outbox))
    };
    let events = if let Err(error) = thread {
        gate.shut();
        report.not_started = Some(error);
        events
    } else {
        if let Some(terminal) = terminal.as_ref().filter(|terminal| terminal.is_interactive()) {
            terminal.give_to(gate.pid());
        }
        let supervisor = Supervisor {
            child: gate.open(token, epoch),
            events,
            terminal,
            terms,
            watch,
            orders,
            news,
            descendants: run.descendants,
            cgroup: cgroup.as_ref(),
            on_outlived: run.on_outlived,
            phase: Phase::Running,
            ending: None,
            lost: None,
            outlived: false,
            interrupted: false,
            asked: HashSet::new(),
        };
        supervisor.run(&mut report)
    };
    let at_most = if report.lost.is_some() {
        terms.grace()
    } else {
        terms.ttl()
    };
    vacate(lease, &mut report, at_most);
    // Only now: a signal that came too late for the command must not end us before the record is vacated.
    drop(events);
    drop(cgroup);
    Ok(report)
}

/// Vacates the record, with what became of the command. A file server that does not answer keeps nobody here for longer
/// than `at_most`: the lease lapses then, by its own terms.
fn vacate(lease: Lease, report: &mut Report, at_most: Duration) {
    let killed = matches!(report.ending, Some(Ending::Signal(_))) || report.lost.is_some();
    let code = report.ending.map_or_else(|| not_started_code(report), Ending::code);
    let holder = lease.holder().clone();
    lease.leave();
    let (done, answer) = mpsc::channel();
    let path = holder.path().to_owned();
    let end = move || {
        let ended = holder.end(|record| {
            let state = &mut record.state;
            state.set("exit", code);
            // What a killed command intended may have happened, or not: nobody can say.
            let in_doubt = killed && state.intent().is_some();
            if state.outcome().is_none() && !in_doubt {
                let outcome = if code == 0 { Outcome::Completed } else { Outcome::Failed };
                state.set("outcome", outcome.to_string());
            }
        });
        // Whoever waited may have given up.
        let _ = done.send(ended.map(drop));
    };
    if let Err(error) = std::thread::Builder::new().spawn(end) {
        report.unreleased = Some(Error::io("start a thread to vacate", &path)(error));
        return;
    }
    match answer.recv_timeout(at_most) {
        Ok(Ok(())) => {}
        Ok(Err(Error::Lost { why, .. })) => {
            report.lost.get_or_insert(why);
        }
        Ok(Err(error)) => report.unreleased = Some(error),
        Err(_) => report.unreleased = Some(Error::io("vacate", &path)(io::ErrorKind::TimedOut.into())),
    }
}

/// 127: not found; 126: found, and could not be run.
fn not_started_code(report: &Report) -> i32 {
    match report.not_started.as_ref().map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => 127,
        _ => 126,
    }
}

/// What both threads look at.
struct Watch {
    times: Mutex<Times>,
    remote: Remote,
}

struct Times {
    deadline: Deadline,
    /// When the supervisor wants to be woken, where that is not when the work has to be asked to end.
    until: Option<Duration>,
}

impl Watch {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().expect("no thread panics while it holds the times")
    }

    fn deadline(&self) -> Deadline {
        self.times().deadline
    }

    /// Moves the deadline, and with it the timer if the supervisor waits for nothing else.
    fn renewed(&self, deadline: Deadline) {
        let mut times = self.times();
        if times.deadline != deadline {
            times.deadline = deadline;
            self.arm(&times);
        }
    }

    /// Wakes the supervisor then, or when the work has to be asked to end.
    fn wait_until(&self, until: Option<Duration>) {
        let mut times = self.times();
        times.until = until;
        self.arm(&times);
    }

    fn arm(&self, times: &Times) {
        let at = times.until.unwrap_or_else(|| times.deadline.terminate_at());
        self.remote.set_timer(at);
    }
}

/// From the supervisor to the heartbeat's thread.
enum Order {
    /// Make sure now that the lease is ours; past the deadline, win it anew.
    Confirm,
    /// The end.
    End,
}

/// And back.
enum News {
    /// The lease is ours, and the deadline has moved.
    Confirmed,
    /// It is not.
    Lost(String),
}

/// The heartbeat's thread: every call on the filesystem is made here, and may hang.
fn beat(mut heart: Heart, mut keeping: Keeping, watch: &Watch, orders: &Receiver<Order>, news: &Sender<News>) {
    let tell = |what| {
        // A supervisor that is gone does not need to know.
        let _ = news.send(what);
        watch.remote.nudge();
    };
    let mut action = keeping.start();
    let mut why = String::new();
    loop {
        let reply = match action {
            Action::Rest(pause) => match orders.recv_timeout(pause) {
                Ok(Order::Confirm) => Reply::Rested { confirm: true },
                Err(RecvTimeoutError::Timeout) => Reply::Rested { confirm: false },
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            },
            Action::Write => done(heart.write()),
            Action::Sync => done(heart.sync()),
            Action::Ask if heart.is_named() => Reply::Done,
            Action::Ask => Reply::Failed,
            Action::Look => match heart.look() {
                Standing::Same => Reply::Done,
                Standing::Moved => Reply::Moved,
                Standing::Lost(lost) => {
                    why = lost;
                    Reply::Lost
                }
                Standing::Unknown => Reply::Failed,
            },
            Action::WinAgain => match heart.win_again() {
                Err(Error::Lost { why: lost, .. }) => {
                    why = lost;
                    Reply::Lost
                }
                won => done(won),
            },
            Action::Confirm => {
                tell(News::Confirmed);
                Reply::Done
            }
            Action::Stop => return tell(News::Lost(why)),
        };
        action = keeping.advance(reply, heart.now());
        watch.renewed(keeping.deadline());
    }
}

fn done<E>(call: std::result::Result<(), E>) -> Reply {
    call.map_or(Reply::Failed, |()| Reply::Done)
}

/// What a killed process may take to end, where the deadline has passed already.
const DYING: Duration = Duration::from_secs(1);

/// Between two looks at processes that are to end.
const GLANCE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The command runs, and the lease is good.
    Running,
    /// The command is stopped until the lease is known to be ours; by then, if it cannot be told.
    Held { until: Duration },
    /// It was asked to end; SIGKILL follows.
    Terminating { until: Duration },
    /// It was killed, and its end is awaited; after this it has outlived the lease.
    Killed { by: Duration },
    /// The command has ended; what it left behind is being ended, with SIGKILL from then on.
    Ending { kill_at: Duration },
    /// … or waited for.
    Waiting,
}

fn signal_each(processes: Vec<Descendant>, signal: Signal) {
    processes.into_iter().for_each(|process| process.signal(signal));
}

struct Supervisor<'a> {
    child: Child,
    events: Events,
    terminal: Option<Terminal>,
    terms: Terms,
    watch: Arc<Watch>,
    orders: Sender<Order>,
    news: Receiver<News>,
    descendants: Descendants,
    cgroup: Option<&'a Cgroup>,
    on_outlived: Option<Box<dyn FnMut()>>,
    phase: Phase,
    ending: Option<Ending>,
    lost: Option<String>,
    outlived: bool,
    interrupted: bool,
    /// Processes left behind that have been asked to end.
    asked: HashSet<Descendant>,
}

impl Supervisor<'_> {
    /// Waits for the command, and for what it leaves behind. Makes no call on the record's filesystem.
    fn run(mut self, report: &mut Report) -> Events {
        // It may have been killed in line, before its signals were waited for.
        self.look_at_the_child();
        while self.ending.is_none() || !self.is_over() {
            // Only a broken kernel interface ends this; the command is then killed by its parent-death signal.
            let woken = self
                .events
                .wait()
                .expect("poll, signalfd and timerfd work on descriptors of our own");
            for (signal, to_group) in woken.forward {
                match self.phase {
                    Phase::Waiting => signal_each(self.child.descendants(), signal),
                    _ if self.ending.is_some() => {}
                    _ if to_group => self.child.signal_group(signal),
                    _ => self.child.signal(signal),
                }
            }
            if woken.stop && self.ending.is_none() {
                self.child.signal_group(Signal::SIGTSTP);
            }
            while let Ok(news) = self.news.try_recv() {
                self.hear(news);
            }
            if woken.timer {
                self.look_at_the_clock();
            }
            if woken.child && self.ending.is_none() {
                self.look_at_the_child();
            }
        }
        // No heartbeat may come after the record is vacated; one that hangs is harmless, its file is replaced.
        let _ = self.orders.send(Order::End);
        self.child.reap();
        report.not_started = self.child.not_started();
        report.ending = self.ending.filter(|_| report.not_started.is_none());
        report.lost = self.lost;
        report.outlived = self.outlived;
        report.interrupted = self.interrupted;
        self.events
    }

    fn now(&self) -> Duration {
        BootClock.now()
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Lost(why) => self.lose(why),
            News::Confirmed => {
                if matches!(self.phase, Phase::Held { .. }) {
                    // The answer may have come in a second pause, or have taken too long itself.
                    if self.watch.deadline().due(self.now()) != Due::Nothing {
                        let _ = self.orders.send(Order::Confirm);
                        return;
                    }
                    self.phase = if self.ending.is_none() {
                        Phase::Running
                    } else {
                        Phase::Waiting
                    };
                    self.watch.wait_until(None);
                    self.go_on();
                }
            }
        }
    }

    /// The lease is gone, or will be before it can be renewed: the command has to end.
    fn lose(&mut self, why: String) {
        self.lost.get_or_insert(why);
        let (now, deadline) = (self.now(), self.watch.deadline());
        let until = deadline.kill_at().min(now + self.terms.grace());
        match self.phase {
            // What is left of it is seen to after every event.
            Phase::Waiting => self.phase = Phase::Ending { kill_at: until },
            Phase::Held { .. } if self.ending.is_some() => self.phase = Phase::Ending { kill_at: now },
            // It must not run again.
            Phase::Held { .. } => self.kill(),
            Phase::Running if now >= deadline.at() => self.kill(),
            Phase::Running => {
                // A stopped command could not act on it.
                self.signal_all(Signal::SIGTERM);
                self.signal_all(Signal::SIGCONT);
                self.phase = Phase::Terminating { until };
                self.watch.wait_until(Some(until));
            }
            Phase::Terminating { .. } | Phase::Killed { .. } | Phase::Ending { .. } => {}
        }
    }

    fn look_at_the_clock(&mut self) {
        let now = self.now();
        let deadline = self.watch.deadline();
        let overslept = now >= deadline.terminate_at() + self.terms.retry();
        match (self.phase, deadline.due(now)) {
            // A heartbeat has moved it meanwhile.
            (Phase::Running | Phase::Waiting, Due::Nothing) => self.watch.wait_until(None),
            // Everything had stood still: nothing may go on before the lease is known to be ours.
            (Phase::Running | Phase::Waiting, _) if overslept => self.hold(),
            (Phase::Running | Phase::Waiting, _) => {
                self.lose(format!(
                    "no renewal counted within its ttl of {} s",
                    self.terms.ttl().as_secs()
                ));
            }
            (Phase::Held { until }, _) if now >= until => {
                self.lose("the record could not be read after a pause".into());
            }
            (Phase::Terminating { until }, _) if now >= until => self.kill(),
            (Phase::Killed { by }, _) if now >= by && self.ending.is_none() && !self.outlived => {
                self.outlived = true;
                if let Some(call) = &mut self.on_outlived {
                    call();
                }
            }
            _ => {}
        }
    }

    /// Stops the command until the lease is known to be ours.
    fn hold(&mut self) {
        self.signal_all(Signal::SIGSTOP);
        let (now, deadline) = (self.now(), self.watch.deadline());
        let until = match deadline.due(now) {
            Due::Nothing => deadline.terminate_at().max(now + self.terms.retry()),
            // A heartbeat that counts is all that is needed; without one SIGKILL comes before the deadline.
            Due::Terminate | Due::Kill => now + deadline.at().saturating_sub(now) / 2,
            // Others may have it. What is stopped can wait for a ballot.
            Due::Stop => now + self.terms.ttl(),
        };
        self.phase = Phase::Held { until };
        self.watch.wait_until(Some(until));
        let _ = self.orders.send(Order::Confirm);
    }

    fn go_on(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_interactive()) {
            terminal.give(&self.child);
        }
        self.signal_all(Signal::SIGCONT);
    }

    fn kill(&mut self) {
        self.signal_all(Signal::SIGKILL);
        let by = self.watch.deadline().at().max(self.now() + DYING);
        self.phase = Phase::Killed { by };
        self.watch.wait_until(Some(by));
    }

    /// The command's group, and its other descendants.
    fn signal_all(&self, signal: Signal) {
        self.child.signal_group(signal);
        if self.descendants != Descendants::Leave {
            signal_each(self.child.descendants_elsewhere(), signal);
        }
        if signal == Signal::SIGKILL {
            self.kill_all_contained();
        }
    }

    /// Also those that this process may not signal.
    fn kill_all_contained(&self) {
        if let Some(cgroup) = self.cgroup {
            cgroup.kill();
        }
    }

    fn look_at_the_child(&mut self) {
        match self.child.state() {
            State::Exited(code) => self.ended(Ending::Exit(code)),
            State::Killed(signal) => self.ended(Ending::Signal(signal)),
            State::Stopped(signal) => self.stopped(signal),
            State::Running => {}
        }
        if self.ending.is_none() {
            self.child.reap_others();
        }
    }

    fn ended(&mut self, ending: Ending) {
        self.ending = Some(ending);
        if let Some(terminal) = &self.terminal {
            // A terminal's signal is for the whole job, and reached only the part of it that had the terminal.
            if let Ending::Signal(signal) = ending
                && terminal.has(&self.child)
                && self.events.interrupt_job(signal)
            {
                self.interrupted = true;
            }
            terminal.take(&self.child);
        }
        let now = self.now();
        self.phase = match (self.descendants, self.phase) {
            // Nothing else is looked at.
            (Descendants::Leave, phase) => phase,
            (Descendants::Wait, Phase::Running) => Phase::Waiting,
            (Descendants::Wait, held @ Phase::Held { .. }) => held,
            // Nothing that is left may run again either.
            (_, Phase::Killed { .. } | Phase::Held { .. }) => Phase::Ending { kill_at: now },
            (_, Phase::Terminating { until }) => Phase::Ending { kill_at: until },
            _ => Phase::Ending {
                kill_at: now + self.terms.grace(),
            },
        };
    }

    /// Whether nothing is left of the command that has to end first. What is left is asked to, each process once, and
    /// killed when its time is over.
    fn is_over(&mut self) -> bool {
        if self.descendants == Descendants::Leave {
            return true;
        }
        let left = self.child.leftovers();
        if let Phase::Ending { kill_at } = self.phase {
            let now = self.now();
            for process in &left {
                if now >= kill_at {
                    process.signal(Signal::SIGKILL);
                } else if self.asked.insert(*process) {
                    process.signal(Signal::SIGTERM);
                    process.signal(Signal::SIGCONT);
                }
            }
            if now >= kill_at {
                self.kill_all_contained();
            }
            // They may start others meanwhile, of which no signal tells.
            let next = if now < kill_at {
                kill_at.min(now + GLANCE)
            } else {
                now + GLANCE
            };
            self.watch.wait_until(Some(next));
        }
        let contained = self.cgroup.is_some_and(|cgroup| !cgroup.is_empty());
        if contained && self.phase == Phase::Waiting {
            // No signal tells of those who are nobody's children here.
            self.watch.wait_until(Some(self.now() + GLANCE));
        }
        left.is_empty() && !contained
    }

    /// The command was stopped, by a terminal or by somebody.
    fn stopped(&mut self, signal: Signal) {
        // Stopped by ourselves, or about to be ended.
        if self.phase != Phase::Running {
            return;
        }
        let Some(terminal) = &self.terminal else { return };
        let ours = terminal.is_ours(&self.child);
        let wants = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants && ours {
            // It wants the terminal, which we have.
            terminal.give(&self.child);
            return self.child.signal_group(Signal::SIGCONT);
        }
        // Somebody's doing, and no job of a shell that waits for it.
        if signal == Signal::SIGSTOP && !ours {
            return;
        }
        if !terminal.is_controlled() {
            // Nobody would continue us. A command alone would not have been stopped by the terminal.
            if signal == Signal::SIGTSTP {
                self.child.signal_group(Signal::SIGCONT);
            }
            return;
        }
        terminal.take(&self.child);
        self.events.stop_job(signal);
        // Continued by the shell: the lease may have been lost meanwhile.
        self.hold();
    }
}
