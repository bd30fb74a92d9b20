//! What the scenarios about the command itself share.

use super::kit::agent::{Job, Node};
use super::kit::history::{Hold, check};
use super::kit::witness::Witness;
use super::kit::{Lab, Result, soak, until};
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

pub const BOTH: [&str; 2] = ["/mnt/v4", "/mnt/v3"];
pub const SOON: Duration = Duration::from_secs(20);
/// A lapse of the shortest ttl, and a dead node's delegation after it.
pub const TAKEOVER: Duration = Duration::from_secs(60);

/// Verdict and reason, as one word, and the exit code says the same.
pub fn judge(node: &Node, path: &str, more: &[&str]) -> Result<String> {
    let mut words = vec!["leasehold", "judge", path];
    words.extend(more);
    let done = node.cmd(&words).limit(Duration::from_secs(90)).run()?;
    let out = done.out();
    let (verdict, rest) = out
        .split_once('\t')
        .ok_or_else(|| format!("judge: {out} {}", done.err()))?;
    let code = match verdict {
        "held" => 0,
        "dead" => 1,
        "undetermined" => 2,
        "free" => 3,
        "lapsed" => 4,
        other => return Err(format!("no verdict: {other}").into()),
    };
    assert_eq!(done.code, code, "{out}");
    Ok(format!("{verdict}/{}", rest.split('\t').next().unwrap_or_default()))
}

/// A command that must end with this code; its output.
pub fn ends(node: &Node, words: &[&str], code: i32) -> Result<String> {
    let done = node.cmd(words).limit(Duration::from_secs(90)).run()?;
    if done.code != code {
        let what = words.join(" ");
        return Err(format!(
            "{}: `{what}` ended with {}, not {code}: {} {}",
            node.name,
            done.code,
            done.out(),
            done.err()
        )
        .into());
    }
    Ok(done.out())
}

pub fn field(node: &Node, path: &str, name: &str) -> Result<String> {
    ends(node, &["leasehold", "show", path, "--field", name], 0)
}

/// A claim for a process that stays, which is made here; the claim's token.
pub fn claim(node: &Node, path: &str, more: &[&str]) -> Result<String> {
    let owner = node.start(&["sleep", "1000"])?.pid.to_string();
    let mut words = vec!["leasehold", "claim", path, "--owner", &owner];
    words.extend(more);
    ends(node, &words, 0)
}

/// A run that stays, and has begun.
pub fn stay(node: &Node, path: &str, more: &[&str]) -> Result<Job> {
    let script = ["--", "sh", "-c", "echo up; exec sleep 1000"];
    let job = node.start(&[&["leasehold", "run", path], more, &script].concat())?;
    job.prints("up", SOON)?;
    Ok(job)
}

/// `leasehold run` with a worker that the witness hears; the shortest ttl, unless told.
pub fn keep(lab: &Lab, witness: &Witness, node: &Node, path: &str, hold: Duration, more: &[&str]) -> Result<Job> {
    let worker = witness.worker(&lab.agent_words(), hold, "done");
    let mut words = vec!["leasehold", "run", path];
    words.extend(more);
    if !more.contains(&"--ttl") {
        words.extend(["--ttl", "5s"]);
    }
    words.push("--");
    words.extend(worker.iter().map(|word| &**word));
    node.start(&words)
}

pub const LONG: Duration = Duration::from_secs(1000);

pub fn held_by(witness: &Witness, path: &str, node: &str, limit: Duration) -> Result<Hold> {
    let path = super::kit::witness::lease_name(path);
    witness.hold(&format!("{node} holds {path}"), limit, |hold| {
        hold.path == path && hold.node == node
    })
}

/// The end of a command, within a time.
pub fn ended(job: &Job, limit: Duration) -> Result<i32> {
    until("a command ends", limit, || {
        Ok(job.wait(Duration::from_secs(1))?.map(|done| done.code))
    })
}

/// It has not ended; if it has, this tells how.
pub fn runs(job: &Job) -> Result {
    match job.wait(Duration::ZERO)? {
        None => Ok(()),
        Some(done) => Err(format!("it ended with {}: {} {}", done.code, done.out(), done.err()).into()),
    }
}

/// The same for all of them, at once: most of it is waiting.
pub fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let work = &work;
        let jobs: Vec<_> = all.iter().map(|one| scope.spawn(move || work(one))).collect();
        jobs.into_iter()
            .map(|job| job.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// What the checker says to all that the witness saw, with the transcripts as they stand on the server.
pub fn must_be_right(lab: &Lab, witness: &Witness, path: &str) -> Result {
    let below = path.splitn(4, '/').nth(3).ok_or("a path below a mount")?;
    let name = super::kit::witness::lease_name(path);
    let text = lab.node("server")?.ok(&format!(
        "cd /mnt/export && for f in {below}.transcript.*; do test -e $f || continue; sed \"s/^/${{f##*.}} /\" $f; done"
    ))?;
    for line in text.lines() {
        let (epoch, line) = line.split_once(' ').ok_or("a transcript's line")?;
        witness.transcript(&name, epoch.parse()?, line);
    }
    let found = check(&witness.history());
    assert!(found.is_empty(), "{found:#?}");
    Ok(())
}

/// A judgement that also goes into the history.
pub fn look(witness: &Witness, node: &Node, path: &str) -> Result<String> {
    let (verdict, reason) = soak::judge(witness, node, path, None)?;
    Ok(format!("{verdict}/{reason}"))
}
