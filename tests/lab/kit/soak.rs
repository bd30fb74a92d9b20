//! A crowd that wants the same leases, observers that judge them, and whatever can go wrong, chosen by a seed. The
//! checker has the last word.

use super::agent::{Job, Node, Output};
use super::history::{self, Violation};
use super::lab::SERVER;
use super::witness::{Witness, lease_name};
use super::{Lab, Result, until};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub const TTL: u64 = 5;
const MOUNTS: [&str; 2] = ["/mnt/v4", "/mnt/v3"];
/// What a server that was away may keep its clients busy with: a grace period, delegations, reclaiming.
const SETTLING: Duration = Duration::from_secs(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    PowerCut,
    Partition,
    Pause,
    Clock,
    ServerRestart,
    ServerPowerCut,
}

pub const ALL: &[Fault] = &[
    Fault::PowerCut,
    Fault::Partition,
    Fault::Pause,
    Fault::Clock,
    Fault::ServerRestart,
    Fault::ServerPowerCut,
];

pub struct Plan {
    pub seed: u64,
    pub length: Duration,
    pub leases: usize,
    /// Contenders on each node.
    pub crowd: usize,
    pub faults: &'static [Fault],
    /// The longest hold, in milliseconds.
    pub longest: u64,
    pub mounts: &'static [&'static str],
}

impl Plan {
    pub fn new(seed: u64, length: Duration) -> Self {
        Self {
            seed,
            length,
            leases: 2,
            crowd: 2,
            faults: ALL,
            longest: 1_500,
            mounts: &MOUNTS,
        }
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub seconds: f64,
    pub holds: usize,
    pub hand_overs: usize,
    pub between_nodes: usize,
    pub writes: usize,
    pub faults: BTreeMap<Fault, u32>,
    pub verdicts: BTreeMap<String, u32>,
    /// How commands of the crowd ended.
    pub ends: BTreeMap<i32, u32>,
    pub errors: BTreeMap<String, u32>,
    pub violations: Vec<Violation>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |words: Vec<String>| {
            if words.is_empty() {
                "none".into()
            } else {
                words.join(", ")
            }
        };
        let faults = self.faults.iter().map(|(fault, n)| format!("{fault:?} {n}")).collect();
        let verdicts = self.verdicts.iter().map(|(word, n)| format!("{word} {n}")).collect();
        let ends = self.ends.iter().map(|(code, n)| format!("{code}: {n}")).collect();
        writeln!(f, "seed {}, {:.0} s", self.seed, self.seconds)?;
        writeln!(
            f,
            "hand-overs {} ({} between nodes), holders {}, checked writes {}",
            self.hand_overs, self.between_nodes, self.holds, self.writes
        )?;
        writeln!(f, "faults {}: {}", self.faults.values().sum::<u32>(), list(faults))?;
        writeln!(
            f,
            "verdicts checked {}: {}",
            self.verdicts.values().sum::<u32>(),
            list(verdicts)
        )?;
        writeln!(f, "exit codes of run: {}", list(ends))?;
        for (message, n) in &self.errors {
            writeln!(f, "said {n} times: {message}")?;
        }
        write!(f, "violations {}", self.violations.len())?;
        self.violations.iter().try_for_each(|v| write!(f, "\n  {v}"))
    }
}

/// splitmix64: small, and the same everywhere.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.range(0, 100) < percent
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.range(0, of.len() as u64) as usize]
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Crowd<'a> {
    plan: &'a Plan,
    dir: &'a str,
    agent: &'a [String],
    witness: &'a Witness,
    over: &'a AtomicBool,
    ends: &'a Mutex<BTreeMap<i32, u32>>,
    errors: &'a Mutex<BTreeMap<String, u32>>,
}

/// Ends with a healthy lab, unless it fails.
pub fn soak(lab: &mut Lab, plan: &Plan) -> Result<Report> {
    let began = Instant::now();
    let witness = Witness::listen(lab.run())?;
    let dir = lab.fresh_dir("soak")?;
    let nodes: Vec<Node> = lab
        .names()
        .iter()
        .filter(|name| *name != SERVER)
        .map(|name| lab.node(name))
        .collect::<Result<_>>()?;
    let (ends, errors) = (Mutex::default(), Mutex::default());
    let over = AtomicBool::new(false);
    let agent = lab.agent_words();
    let crowd = Crowd {
        plan,
        dir: &dir,
        agent: &agent,
        witness: &witness,
        over: &over,
        ends: &ends,
        errors: &errors,
    };
    let start = witness.now();
    let (outcome, faults) = thread::scope(|scope| {
        for (i, node) in nodes.iter().enumerate() {
            for k in 0..plan.crowd {
                let crowd = &crowd;
                scope.spawn(move || crowd.contend(node, Dice::new(plan.seed, (100 * (i + 1) + k) as u64)));
            }
            let crowd = &crowd;
            scope.spawn(move || crowd.observe(node, Dice::new(plan.seed, (1000 + i) as u64)));
        }
        let mut faults = BTreeMap::new();
        let outcome = inject(lab, plan, &witness, &nodes, &mut faults);
        let stopped = witness.now();
        // What runs is let finish, so nothing but the stop itself ends a command.
        over.store(true, Ordering::Relaxed);
        witness.wanted(start, stopped);
        (outcome, faults)
    });
    outcome?;
    lab.heal()?;
    for i in 0..plan.leases {
        let name = format!("{dir}/{i}.lease");
        for node in &nodes {
            judge(&witness, node, &format!("{}/{name}", plan.mounts[0]), None)?;
        }
        let epochs = lab.node(SERVER)?.ok(&format!(
            "cd /mnt/export/{dir} && for f in {i}.lease.transcript.*; do test -e $f || continue; sed \"s/^/${{f##*.}} /\" $f; done"
        ))?;
        for line in epochs.lines() {
            let (epoch, line) = line.split_once(' ').ok_or("a transcript's line")?;
            witness.transcript(&lease_name(&name), epoch.parse()?, line);
        }
    }
    let history = witness.history();
    let mut report = Report {
        seed: plan.seed,
        seconds: began.elapsed().as_secs_f64(),
        holds: history.holds.len(),
        writes: history.writes.len(),
        faults,
        ends: ends.into_inner().unwrap_or_else(PoisonError::into_inner),
        errors: errors.into_inner().unwrap_or_else(PoisonError::into_inner),
        violations: history::check(&history),
        ..Report::default()
    };
    for i in 0..plan.leases {
        let path = lease_name(&format!("{dir}/{i}.lease"));
        let mut holds: Vec<_> = history.holds.iter().filter(|hold| hold.path == path).collect();
        holds.sort_by_key(|hold| hold.from);
        report.hand_overs += holds.len().saturating_sub(1);
        report.between_nodes += holds.windows(2).filter(|pair| pair[0].node != pair[1].node).count();
    }
    for look in &history.looks {
        let word = format!("{}/{}", look.verdict, look.reason);
        *report.verdicts.entry(word).or_default() += 1;
    }
    Ok(report)
}

/// One `judge`, with the driver's stamps around it.
pub fn judge(witness: &Witness, node: &Node, path: &str, observe: Option<&str>) -> Result<(String, String)> {
    let mut words = vec!["leasehold", "judge", "--json", path];
    if let Some(time) = observe {
        words.extend(["--observe", time]);
    }
    let from = witness.now();
    let answer = node.cmd(&words).limit(Duration::from_secs(60)).run()?;
    let json: serde_json::Value =
        serde_json::from_slice(&answer.stdout).map_err(|e| format!("{}: {e}: {}", node.name, answer.err()))?;
    witness.judged(&lease_name(path), &node.name, from, witness.now(), &json);
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    Ok((text("verdict"), text("reason")))
}

impl Crowd<'_> {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn lease(&self, dice: &mut Dice) -> String {
        let mount = *dice.pick(self.plan.mounts);
        format!("{mount}/{}/{}.lease", self.dir, dice.range(0, self.plan.leases as u64))
    }

    fn contend(&self, node: &Node, mut dice: Dice) {
        while !self.over() {
            let path = self.lease(&mut dice);
            let long = self.plan.longest > 1_000 && dice.chance(10);
            let hold = if long {
                1_000 * TTL + 3_000
            } else {
                dice.range(1, self.plan.longest)
            };
            let end = if dice.chance(8) { "killed" } else { "done" };
            let killed = dice.chance(8).then(|| Duration::from_millis(dice.range(0, 2_000)));
            let worker = self.witness.worker(self.agent, Duration::from_millis(hold), end);
            let ttl = format!("{TTL}s");
            let mut words = vec!["leasehold", "run", "--ttl", &ttl, "--wait", "20s", "--take-lapsed"];
            words.extend([&*path, "--"]);
            words.extend(worker.iter().map(|word| &**word));
            // A node that is off or stands still: later.
            let Ok(job) = node.start(&words) else {
                thread::sleep(Duration::from_millis(200));
                continue;
            };
            if let Some(after) = killed
                && matches!(job.wait(after), Ok(None))
            {
                let _ = job.kill_alone(Signal::SIGKILL);
            }
            self.finish(&job);
        }
    }

    fn note(&self, done: &Output) {
        let count = |book: &Mutex<BTreeMap<i32, u32>>| {
            *locked(book).entry(done.code).or_default() += 1;
        };
        count(self.ends);
        // These are worth words: a failed filesystem, a record that cannot be told from here, a bug.
        if [101, 102, 170, 174].contains(&done.code) {
            let text = done.err();
            let last = text
                .lines()
                .rfind(|line| line.starts_with("leasehold: ") && !line.contains("waiting for"));
            let words = last
                .unwrap_or(&text)
                .split(' ')
                .map(|word| if word.contains("/mnt/") { "…" } else { word });
            let message = format!("{}: {}", done.code, words.collect::<Vec<_>>().join(" "));
            *locked(self.errors).entry(message).or_default() += 1;
        }
    }

    /// Waits for the end, for as long as the node has this job on its books.
    fn finish(&self, job: &Job) {
        let limit = Instant::now() + Duration::from_secs(180);
        let mut silent = 0;
        while Instant::now() < limit {
            match job.wait(Duration::from_secs(2)) {
                Ok(Some(done)) => {
                    self.note(&done);
                    return;
                }
                Ok(None) => silent = 0,
                Err(e) if e.to_string().contains("no job") => return,
                Err(_) => {
                    silent += 1;
                    // Off, standing still, or booted anew.
                    if silent > 40 {
                        return;
                    }
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
    }

    fn observe(&self, node: &Node, mut dice: Dice) {
        while !self.over() {
            let path = self.lease(&mut dice);
            let time = dice.chance(10).then_some("8s");
            // A node that is off, stands still or is cut off gives no verdict, and so no wrong one.
            let _ = judge(self.witness, node, &path, time);
            thread::sleep(Duration::from_millis(dice.range(50, 400)));
        }
    }
}

fn inject(lab: &mut Lab, plan: &Plan, witness: &Witness, nodes: &[Node], counts: &mut BTreeMap<Fault, u32>) -> Result {
    let mut dice = Dice::new(plan.seed, 1);
    let end = Instant::now() + plan.length;
    let sleep =
        |millis: u64| thread::sleep(Duration::from_millis(millis).min(end.saturating_duration_since(Instant::now())));
    sleep(3_000);
    let mut bag: Vec<Fault> = Vec::new();
    while Instant::now() < end {
        if plan.faults.is_empty() {
            sleep(500);
            continue;
        }
        // Each kind once before any comes again, in an order that the seed decides.
        if bag.is_empty() {
            bag = plan.faults.to_vec();
        }
        let fault = bag.swap_remove(dice.range(0, bag.len() as u64) as usize);
        let node = &*dice.pick(nodes).name;
        let long = dice.chance(50);
        let from = witness.now();
        *counts.entry(fault).or_default() += 1;
        match fault {
            Fault::PowerCut => {
                lab.crash(node)?;
                witness.crashed(node);
                sleep(if long {
                    dice.range(8_000, 16_000)
                } else {
                    dice.range(0, 2_000)
                });
                lab.boot(node)?;
            }
            Fault::Partition => {
                lab.cut(node)?;
                sleep(if long {
                    dice.range(6_000, 16_000)
                } else {
                    dice.range(500, 4_000)
                });
                lab.mend(node)?;
            }
            Fault::Pause => {
                lab.pause(node)?;
                sleep(if long {
                    dice.range(8_000, 14_000)
                } else {
                    dice.range(500, 4_000)
                });
                lab.resume(node)?;
                witness.stalled(node, from, witness.now());
            }
            Fault::Clock => {
                let seconds = *dice.pick(&[-90_000, -3_600, -30, 30, 3_600, 90_000]);
                let node = if dice.chance(25) { SERVER } else { node };
                // A node that hangs in something else keeps its time.
                let _ = lab.clock(node, seconds);
            }
            Fault::ServerRestart => lab.restart_nfs()?,
            Fault::ServerPowerCut => {
                lab.crash(SERVER)?;
                sleep(dice.range(0, 3_000));
                lab.boot(SERVER)?;
            }
        }
        witness.faulty(from, witness.now() + SETTLING.as_millis() as u64);
        let pause = dice.range(2_000, 8_000);
        sleep(pause);
    }
    // Everybody must be able to finish.
    for node in nodes {
        until(&format!("{} answers", node.name), Duration::from_secs(60), || {
            Ok(node.hello().ok())
        })?;
    }
    Ok(())
}
