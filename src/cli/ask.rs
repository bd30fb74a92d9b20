//! `leasehold ask`: the owner's own host is asked about a record.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Facts, Judge, Judgement, Reason, Record, Verdict, testimony};
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::unistd::Pid;

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold ask run/bridge.lease
  leasehold ask run/bridge.lease --via 'ssh -oBatchMode=yes -l ops {host}' --timeout 5s
  leasehold ask run/bridge.lease --map /home=/export/home --remote-command /opt/bin/leasehold
  leasehold ask run/bridge.lease --via 'docker exec {host} sh -c'

The command of --via gets one more word: a command line for a shell, as ssh takes it. {host} is the host that the \
record names. Of --map, the first that fits counts. An answer counts only when it comes from there, and is about \
this very claim; whatever else happens, the verdict stays what it was, and why is said. The record is not written. Where this host can tell by itself, nobody is \
asked. Of several records of one host, that host is asked once.

Exit with one path, as judge: 0 held · 1 dead, as its own host says · 2 undetermined, also when nobody answers · \
3 free · 4 lapsed · 64 usage
With several: 0 all could be read · 74 something could not";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The records
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
    /// Print one JSON object a path
    #[arg(long)]
    json: bool,
}

// How to reach another host.
#[derive(clap::Args)]
pub(crate) struct How {
    /// What runs a command line on a host
    #[arg(long, value_name = "COMMAND", default_value = "ssh -oBatchMode=yes {host}", value_parser = via)]
    via: Via,
    /// Give up on a host after this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::duration)]
    timeout: Duration,
    /// How leasehold is called there, in words for its shell
    #[arg(long, value_name = "COMMAND", default_value = "leasehold")]
    remote_command: String,
    /// How the directory HERE is called there; repeatable
    #[arg(long, value_name = "HERE=THERE", value_parser = map)]
    map: Vec<(PathBuf, PathBuf)>,
}

/// The words of the transport.
#[derive(Clone)]
struct Via(Vec<String>);

fn via(text: &str) -> Result<Via, String> {
    match shell_words::split(text) {
        Ok(words) if words.is_empty() => Err("it names no command".into()),
        Ok(words) => Ok(Via(words)),
        Err(error) => Err(error.to_string()),
    }
}

fn map(text: &str) -> Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((here, there)) if here.starts_with('/') && there.starts_with('/') => Ok((here.into(), there.into())),
        _ => Err("write it as /here=/there".into()),
    }
}

/// The longest answer that is read, in bytes, and how much longer it may be for each record.
const LONGEST: u64 = 1 << 20;
const LONGEST_EACH: u64 = 1 << 17;

/// The longest command line: Linux takes 128 KiB in one word.
const LONGEST_LINE: usize = 96 << 10;

/// What is kept of a transport's complaints, in bytes.
const LONGEST_COMPLAINT: usize = 4096;

/// How long an ended transport's complaints are waited for.
const COMPLAINT_AWAITED: Duration = Duration::from_secs(1);

pub(crate) fn run(args: Args) -> Exit {
    let here = Judge::here();
    let looked = args.paths.iter().map(|path| {
        let (judgement, facts) = here.judge(path);
        (path.clone(), judgement, facts)
    });
    let judgements = args.how.ask_each(&here, looked.collect());
    let told = std::io::stdout().is_terminal();
    let mut last = (Exit::Done, true);
    for (path, judgement) in args.paths.iter().zip(&judgements) {
        // A tab line has no room for why.
        if !args.json && !told && testimony::may_help(judgement) && judgement.verdict == Verdict::Undetermined {
            let sentence = text::escape(&judgement.sentence);
            text::complain(&format!("leasehold: {}: {sentence}\n", text::path(path)));
        }
        let printed = match (args.json, told) {
            (true, _) => text::print(&format!("{}\n", text::judgement_json(judgement, path))),
            (false, true) => text::print(&text::paragraph(judgement, path)),
            (false, false) => text::print(&text::tab_line(judgement, path)),
        };
        last = (
            judgement.verdict.into(),
            last.1 && judgement.reason != Reason::Unreadable,
        );
        if !printed {
            break;
        }
    }
    match (args.paths.len(), last) {
        (1, (exit, _)) => exit,
        (_, (_, true)) => Exit::Done,
        (_, (_, false)) => Exit::Io,
    }
}

impl How {
    /// Asks about each of these where that can help, each host once: a judgement for each, in order.
    pub(crate) fn ask_each(&self, here: &Judge, looked: Vec<(PathBuf, Judgement, Facts)>) -> Vec<Judgement> {
        let mut hosts: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
        for (at, (_, judgement, facts)) in looked.iter().enumerate() {
            if testimony::may_help(judgement) {
                hosts.entry(facts.record.host.clone()).or_default().push(at);
            }
        }
        let (paths, mut judgements): (Vec<_>, Vec<_>) = looked
            .into_iter()
            .map(|(path, judgement, facts)| ((path, facts), judgement))
            .unzip();
        for of_host in hosts.into_values() {
            let records: Vec<_> = of_host.iter().map(|at| paths[*at].clone()).collect();
            for (at, judgement) in of_host.into_iter().zip(self.ask(here, &records)) {
                judgements[at] = judgement;
            }
        }
        judgements
    }

    /// Asks the host that the first of these records names, once, about all of them, and weighs the answers: a judgement
    /// for each, in order. Whatever goes wrong leaves a record undetermined, and says why.
    fn ask(&self, here: &Judge, records: &[(PathBuf, Facts)]) -> Vec<Judgement> {
        let before: Vec<Option<Record>> = records.iter().map(|(path, _)| read(here, path)).collect();
        let theirs: Vec<Result<String, String>> = records.iter().map(|(path, _)| self.there(path)).collect();
        let host = records.first().and_then(|(_, facts)| facts.record.host.as_deref());
        let outputs = self.outputs(host.unwrap_or_default(), &theirs);
        let each = records.iter().zip(before).zip(theirs.iter().zip(outputs));
        each.map(|(((path, _), before), (there, output))| {
            // It may have been changed meanwhile, and the answer is about what their host read.
            let (judgement, mut facts) = here.judge(path);
            if !testimony::may_help(&judgement) {
                return judgement;
            }
            let after = read(here, path);
            let renewed = before.zip(after).is_some_and(|(before, after)| {
                before.owner.token == after.owner.token
                    && (before.owner.seq, before.beat) != (after.owner.seq, after.beat)
            });
            if renewed {
                facts.lease.renewal_seen = Some(true);
            }
            let weighed = there.clone().and_then(|there| {
                let output = output?;
                testimony::weigh(&facts, age(path), testimony::about(&output, &there)?)
            });
            weighed.unwrap_or_else(|why| testimony::unanswered(&facts, &why))
        })
        .collect()
    }

    /// What the host printed about each path: of as few calls as command lines have room for.
    fn outputs(&self, host: &str, paths: &[Result<String, String>]) -> Vec<Result<std::rc::Rc<[u8]>, String>> {
        let mut outputs = Vec::with_capacity(paths.len());
        let mut line = String::new();
        let mut count = 0;
        for (at, path) in paths.iter().enumerate() {
            if let Ok(path) = path {
                line.push(' ');
                line.push_str(&shell_words::quote(path));
            }
            count += 1;
            let next = paths.get(at + 1).and_then(|path| path.as_ref().ok());
            // Quoting makes four bytes of one at most.
            let full = next.is_some_and(|next| line.len() + 4 * next.len() + 3 > LONGEST_LINE);
            if full || at + 1 == paths.len() {
                let output = match line.is_empty() {
                    true => Err("nothing was asked".to_owned()),
                    false => self.output(host, &line, count as u64).map(std::rc::Rc::from),
                };
                outputs.extend(std::iter::repeat_n(output, count));
                line.clear();
                count = 0;
            }
        }
        outputs
    }

    fn output(&self, host: &str, paths: &str, count: u64) -> Result<Vec<u8>, String> {
        // The name comes out of a file that others may write: it must not become an option or a command.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if host.is_empty() || host.starts_with(['-', '.']) || !host.bytes().all(plain) {
            return Err("the record's host name is none that may be handed to a command".into());
        }
        let mut words = self.via.0.iter().map(|word| word.replace("{host}", host));
        let mut command = Command::new(words.next().ok_or("--via names no command")?);
        let line = format!("{} judge --json --{paths}", self.remote_command);
        command.args(words).arg(line);
        output(command, self.timeout, LONGEST + count * LONGEST_EACH)
    }

    /// The path as the other host knows it.
    fn there(&self, path: &Path) -> Result<String, String> {
        let here = std::path::absolute(path).map_err(|error| error.to_string())?;
        let mapped = self.map.iter().find_map(|(from, to)| match here.strip_prefix(from) {
            // Joined, no rest would be a slash at the end.
            Ok(rest) if rest.as_os_str().is_empty() => Some(to.clone()),
            Ok(rest) => Some(to.join(rest)),
            Err(_) => None,
        });
        let there = mapped.unwrap_or(here).into_os_string().into_string();
        there.map_err(|_| "a path that is no UTF-8 cannot be asked about".into())
    }
}

fn read(here: &Judge, path: &Path) -> Option<Record> {
    here.read(path).ok().flatten()
}

/// For how long a record has not been changed, by this host's clock.
fn age(path: &Path) -> Option<Duration> {
    let changed = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
    // A stamp that lies ahead is as young as can be.
    Some(changed.elapsed().unwrap_or_default())
}

/// What a command prints, bounded in time and size. Nothing of it is left when this returns.
fn output(mut command: Command, at_most: Duration, longest: u64) -> Result<Vec<u8>, String> {
    let began = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Whatever it starts ends with it.
        .process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().to_string_lossy()))?;
    let group = Group::new(Pid::from_raw(child.id() as i32));
    let stdout = child.stdout.take().ok_or("the transport has no output")?;
    let stderr = child.stderr.take().ok_or("the transport has no output")?;
    let answer = in_background(move || {
        let mut bytes = Vec::new();
        stdout.take(longest + 1).read_to_end(&mut bytes).map(|_| bytes)
    });
    let complaint = in_background(move || complaint(stderr));
    let answer = answer.recv_timeout(at_most);
    let words = match &answer {
        Ok(Ok(bytes)) if bytes.is_empty() => {
            let left = at_most.saturating_sub(began.elapsed()).min(COMPLAINT_AWAITED);
            complaint.recv_timeout(left).unwrap_or_default()
        }
        _ => String::new(),
    };
    group.end();
    // What was killed ends at once, unless the kernel holds it: that is not waited for.
    let ended = in_background(move || child.wait());
    let _ = ended.recv_timeout(COMPLAINT_AWAITED);
    match answer {
        Ok(Ok(bytes)) if bytes.len() as u64 > longest => Err("the answer is too long".into()),
        Ok(Ok(bytes)) if bytes.is_empty() && words.is_empty() => Err("there was no answer".into()),
        Ok(Ok(bytes)) if bytes.is_empty() => Err(format!("there was no answer: {words}")),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(format!("the answer cannot be read: {error}")),
        Err(_) => Err(format!("no answer within {}", humantime::format_duration(at_most))),
    }
}

/// The last line of what was complained; all of it is read, so that the complainer is not held up.
fn complaint(mut from: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(LONGEST_COMPLAINT);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or_default().to_owned()
}

fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    std::thread::spawn(move || {
        // Nobody may listen any more.
        let _ = done.send(work());
    });
    result
}

/// The process groups of transports: in groups of their own they are out of reach of the terminal's interrupt.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A transport's process group. Until its end, a signal that ends this process ends the group too.
struct Group {
    group: Pid,
    before: Option<SigSet>,
}

impl Group {
    fn new(group: Pid) -> Self {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        // Not before the transport is started, which would inherit it.
        let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).ok();
        GROUPS.lock().unwrap_or_else(PoisonError::into_inner).push(group);
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            std::thread::spawn(move || {
                if let Ok(signal) = signals.wait() {
                    for group in &*GROUPS.lock().unwrap_or_else(PoisonError::into_inner) {
                        let _ = killpg(*group, Signal::SIGKILL);
                    }
                    let _ = signals.thread_unblock();
                    let _ = raise(signal);
                }
            });
        });
        Self { group, before }
    }

    fn end(self) {
        // Its leader is not waited for yet, so the number is still its own.
        let _ = killpg(self.group, Signal::SIGKILL);
        GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|group| *group != self.group);
        if let Some(before) = self.before {
            let _ = before.thread_set_mask();
        }
    }
}
