//! The file server fails in the middle of changes: one change of every kind stands still before each of its steps, all at
//! once, and goes on into the failure.

use super::Scenario;
use super::kit::agent::{Job, Node};
use super::kit::lab::SERVER;
use super::kit::{Lab, Result, until};
use super::mounts::mount;
use super::product::{BOTH, TAKEOVER, each};
use super::server::{export, fill, make_room};
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::time::Duration;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "midway: disk full",
        run: full,
    },
    Scenario {
        name: "midway: export turned read-only",
        run: read_only,
    },
    Scenario {
        name: "midway: NFS server restarted",
        run: restart,
    },
    Scenario {
        name: "midway: server power cut, hard and soft mounts",
        run: power_cut,
    },
];

const VERBS: [&str; 3] = ["claim", "note", "release"];
/// One more than the calls that change something which each of them makes.
const STEPS: usize = 9;

/// Changes that stand still on one mount of one node.
struct Halted {
    node: Node,
    dir: String,
    job: Job,
    /// Codes and messages, on the node itself.
    books: String,
}

/// What became of one change.
struct Outcome {
    change: String,
    /// Of contend: 0 done, 2 refused or lost, 3 the filesystem failed.
    code: i32,
    said: String,
    /// What `judge` says of the record afterwards, and its phase.
    verdict: String,
    phase: String,
    /// The epoch of a claim after that.
    epoch: String,
}

impl Halted {
    /// The records of claims are those of a dead owner; the others belong to the process that changes them.
    fn start(node: &Node, dir: String) -> Result<Self> {
        let books = format!("/run{dir}");
        let script = format!(
            "mkdir -p {books} {dir} && cd {dir} || exit 1
             for verb in {verbs}; do for step in $(seq {STEPS}); do
                 it=$verb-$step
                 (
                     test $verb != claim || contend $it.lease --do claim
                     contend $it.lease --do $verb --fault stop-before:$step
                     echo $? > {books}/$it.code
                 ) > {books}/$it.said 2>&1 &
             done; done; wait",
            verbs = VERBS.join(" "),
        );
        Ok(Self {
            node: node.clone(),
            job: node.start(&["sh", "-c", &script])?,
            dir,
            books,
        })
    }

    /// Waits until all of them stand still, but for the few that have ended because they make no such call.
    fn stand(&self) -> Result {
        let count = format!(
            "ls {books} | grep -c code; cat /proc/[0-9]*/stat 2>/dev/null | awk '$3 == \"T\" && $5 == {group}' | wc -l",
            books = self.books,
            group = self.job.pid
        );
        until("every change stands still", TAKEOVER, || {
            let text = self.node.sh(&count)?.out();
            let counts: Vec<usize> = text.split_whitespace().flat_map(str::parse).collect();
            let [ended, stopped] = counts[..] else {
                return Err(format!("{}: {text}", self.dir).into());
            };
            if ended > VERBS.len() {
                return Err(format!(
                    "{}: {}",
                    self.dir,
                    self.node.sh(&format!("tail {}/*", self.books))?.out()
                )
                .into());
            }
            Ok((ended + stopped == VERBS.len() * STEPS).then_some(()))
        })
    }

    /// After the failure: every record can be judged and claimed, and nothing is left over but what remembers a change that
    /// may still do its first step, and the record's second name.
    fn outcomes(&self) -> Result<Vec<Outcome>> {
        let done = self.sh(&format!(
            r#"for record in *.lease; do
                   it=${{record%.lease}}
                   verdict=$(leasehold judge $record | cut -f 1)
                   phase=$(sed -n '2s/.*"phase":"\([a-z]*\)".*/\1/p' $record)
                   claimed=$(leasehold claim --json $record --owner 1) || exit 1
                   token=${{claimed#*\"token\":\"}}
                   leasehold release $record --token ${{token%%\"*}} || exit 1
                   echo $it $(cat {books}/$it.code) $verdict ${{phase:-none}} ${{claimed##*:}} $(tail -n 1 {books}/$it.said)
               done
               for left in $(ls -A | grep '^\.'); do
                   record=${{left#.}}
                   case $left in
                       *.lease.v-*) ;;
                       *) test $left -ef ${{record%%.lease.*}}.lease || {{ echo "$left is left" >&2; exit 1; }} ;;
                   esac
               done"#,
            books = self.books,
        ))?;
        let outcome = |line: &str| -> Option<Outcome> {
            let mut words = line.splitn(6, ' ').map(str::to_owned);
            Some(Outcome {
                change: words.next()?,
                code: words.next()?.parse().ok()?,
                verdict: words.next()?,
                phase: words.next()?,
                epoch: words.next()?,
                said: words.next().unwrap_or_default(),
            })
        };
        let outcomes: Option<Vec<_>> = done.lines().map(outcome).collect();
        let outcomes = outcomes.ok_or_else(|| format!("{}: {done}", self.dir))?;
        assert_eq!(outcomes.len(), VERBS.len() * STEPS, "no record is lost");
        Ok(outcomes)
    }

    /// When more than an hour has passed on the server, the next changes leave nothing.
    fn tidy(&self) -> Result {
        let script = r"for record in *.lease; do
                token=$(leasehold claim $record --owner 1) || exit 1
                leasehold release $record --token $token || exit 1
            done
            ! ls -A | grep '^\.' >&2";
        self.sh(script).map(drop)
    }

    /// Runs a script in the directory; it must succeed.
    fn sh(&self, script: &str) -> Result<String> {
        let script = format!("cd {} || exit 1\n{script}", self.dir);
        let done = self.node.cmd(&["sh", "-c", &script]).limit(TAKEOVER * 2).run()?;
        match done.code {
            0 => Ok(done.out()),
            _ => Err(format!("{}: {} {}", self.dir, done.out(), done.err()).into()),
        }
    }
}

impl Outcome {
    /// Whoever is told that it is done finds it done, and whoever is told of a failure finds the old state or the new one.
    fn is_right(&self) -> bool {
        let (verb, _) = self.change.split_once('-').expect("a verb and a step");
        let (before, after) = match verb {
            "claim" => (("dead", "none", "2}"), ("dead", "none", "3}")),
            "note" => (("dead", "none", "2}"), ("dead", "noted", "2}")),
            _ => (("dead", "none", "2}"), ("free", "none", "2}")),
        };
        let is = |state| (&*self.verdict, &*self.phase, &*self.epoch) == state;
        match self.code {
            0 => is(after),
            2 | 3 => is(before) || is(after),
            _ => false,
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            change,
            code,
            verdict,
            phase,
            epoch,
            said,
        } = self;
        write!(
            f,
            "{change}: {code}, then {verdict}, phase {phase}, next epoch {epoch}: {said}"
        )
    }
}

fn go_on(halted: &[Halted]) -> Result {
    halted.iter().try_for_each(|one| one.job.kill(Signal::SIGCONT))
}

/// All changes on these places of nodes go on into the failure, and end; then it is mended. How many were done, and all.
fn midway(
    lab: &mut Lab,
    places: &[(&str, &str)],
    fail: impl FnOnce(&mut Lab, &[Halted]) -> Result,
    mend: impl FnOnce(&mut Lab) -> Result,
) -> Result<Vec<(usize, usize)>> {
    lab.put("contend", &contend()?)?;
    let dir = lab.fresh_dir("midway")?;
    let start =
        |(i, (node, mount)): (usize, &(&str, &str))| Halted::start(&lab.node(node)?, format!("{mount}/{dir}/{i}"));
    let halted: Vec<_> = places.iter().enumerate().map(start).collect::<Result<_>>()?;
    halted.iter().try_for_each(Halted::stand)?;
    fail(lab, &halted)?;
    let ended = || {
        halted.iter().try_for_each(|one| {
            until("every change ends", TAKEOVER, || {
                Ok(one.job.wait(Duration::from_secs(1))?.map(drop))
            })
        })
    };
    let outcome = ended();
    mend(lab)?;
    outcome?;
    let counts = each(&halted, |one| {
        let outcomes = one.outcomes()?;
        let wrong = outcomes.iter().filter(|o| !o.is_right()).map(Outcome::to_string);
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", one.dir);
        let done = outcomes.iter().filter(|o| o.code == 0).count();
        super::say(&format!("  {}: {done} of {} were done", one.dir, outcomes.len()));
        Ok((done, outcomes.len()))
    })?;
    lab.clock(SERVER, 3700)?;
    each(&halted, Halted::tidy)?;
    Ok(counts)
}

pub fn contend() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile = test.ancestors().nth(2).ok_or("a test lies in target/PROFILE/deps")?;
    let worker = profile.join("examples/contend");
    if !worker.exists() {
        let worker = worker.display();
        return Err(format!("{worker} is missing; build it: cargo build --example contend").into());
    }
    Ok(worker)
}

const PLACES: [(&str, &str); 2] = [("a", BOTH[0]), ("b", BOTH[1])];

fn full(lab: &mut Lab) -> Result {
    let counts = midway(
        lab,
        &PLACES,
        |lab, halted| {
            fill(lab)?;
            go_on(halted)
        },
        make_room,
    )?;
    for (done, all) in counts {
        assert!(done < all, "the disk was full");
    }
    Ok(())
}

fn read_only(lab: &mut Lab) -> Result {
    let counts = midway(
        lab,
        &PLACES,
        |lab, halted| {
            export(lab, "ro")?;
            go_on(halted)
        },
        |lab| export(lab, "rw"),
    )?;
    for (done, all) in counts {
        assert!(done < all, "nothing could be written");
    }
    Ok(())
}

/// Nobody has to know of it.
fn restart(lab: &mut Lab) -> Result {
    let counts = midway(
        lab,
        &PLACES,
        |lab, halted| {
            go_on(halted)?;
            lab.restart_nfs()
        },
        |_| Ok(()),
    )?;
    for (done, all) in counts {
        assert_eq!(done, all, "they only had to wait");
    }
    Ok(())
}

/// On hard mounts nobody has to know of it. On soft ones the calls fail, and so do the changes.
fn power_cut(lab: &mut Lab) -> Result {
    for (name, options) in [("a", "vers=4.2"), ("b", "vers=3")] {
        mount(
            &lab.node(name)?,
            "/mnt/soft",
            &format!("{options},soft,timeo=40,retrans=0"),
        )?;
    }
    let places = [PLACES[0], PLACES[1], ("a", "/mnt/soft"), ("b", "/mnt/soft")];
    let counts = midway(
        lab,
        &places,
        |lab, halted| {
            go_on(&halted[..2])?;
            lab.crash(SERVER)?;
            go_on(&halted[2..])?;
            // Longer than a soft mount waits.
            std::thread::sleep(Duration::from_secs(6));
            lab.boot(SERVER)
        },
        |_| Ok(()),
    )?;
    for (done, all) in &counts[..2] {
        assert_eq!(done, all, "they only had to wait");
    }
    assert!(counts[2..].iter().any(|(done, all)| done < all), "{counts:?}");
    Ok(())
}
