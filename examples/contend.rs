//! Claims a lease again and again, and checks that nobody else holds it meanwhile. Try it on your own mount:
//!
//! ```text
//! cargo build --release --example contend
//! # on two hosts at once, in a directory that both see:
//! target/release/examples/contend /shared/try.lease --claims 500
//! ```
//!
//! ```text
//! contend PATH [OPTIONS]
//!
//!   --claims N      claim and release N times (100)
//!   --until N       end as soon as the log has N lines
//!   --give-way      let a claim that meets another one end, instead of outlasting it
//!   --wait SECONDS  wait in line for this long (0); in any case the program tries again until it has its claims
//!   --hold MILLIS   hold the lease for a random time of at most this (2)
//!   --seed N        of the random times
//!   --log FILE      a line for each claim, epoch and pid (PATH.log)
//!   --side FILE     the file that only one holder at a time may have (PATH.side)
//!
//! One operation, and faults:
//!
//!   --do VERB       claim, renew, note, release, hand-over, break, settle or run, once; a claim is left as it is, and
//!                   its token printed; run runs true(1)
//!   --token T       the claim to act for; without it one is made first
//!   --to PID        whom to hand over to
//!   --fault F       kill-before:N, kill-after:N, stop-before:N or stop-after:N: signal this process at its N-th call
//!                   that changes something on disk
//!   --lapsed        claim what has lapsed, too; its clock jumps over what it would wait for
//!   --no-links      do as on a filesystem without hard links
//!   --torn-rename   replace a file in two steps, as an NFS client does whose file is open: put it aside first
//! ```
//!
//! Exit code 0: done, and never two holders. 1: **two held the lease at once**; please report it. 2: refused, or lost.
//! 3: the filesystem failed. 64: usage.
//!
//! Each holder creates the side file exclusively, locks it (flock(2)), appends its epoch to the log, and removes the
//! side file before it releases. A process that is killed leaves the side file, but its lock ends with it: a side file
//! that exists is a violation only while its lock is held. The lock is the kernel's word and the judgement of the
//! library has no part in it. Between hosts it is the word of the mount's lock service; where locks are local to each
//! host, a side file of the other host passes for one of a dead process, and the owner of that file finds out when it
//! removes it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Claim, Error, Holder, Judge, Lease, Pid, Run, Token, break_lease};
use nix::sys::signal::Signal;

#[path = "../tests/support/faulty.rs"]
mod faulty;
#[path = "../tests/support/quick.rs"]
mod quick;
use faulty::{Counted, Fault, Faulty};

/// All lines of the log are this long, so that its length tells how many there are.
const LINE: u64 = 24;

/// Between two tries, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(12);

struct Options {
    path: PathBuf,
    claims: u64,
    until: u64,
    give_way: bool,
    wait: Duration,
    hold: Duration,
    seed: u64,
    log: PathBuf,
    side: PathBuf,
    verb: Option<String>,
    token: Option<Token>,
    to: Option<Pid>,
    fault: Option<(Fault, usize)>,
    lapsed: bool,
    no_links: bool,
    torn_rename: bool,
}

/// How a run ends, other than well.
enum End {
    Violation(String),
    Refused(Error),
    Failed(String),
    Usage(String),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(_)
            | Error::InDoubt(_)
            | Error::GaveWay { .. }
            | Error::TimedOut { .. }
            | Error::Lost { .. } => Self::Refused(error),
            other => Self::Failed(other.to_string()),
        }
    }
}

fn main() -> ExitCode {
    let (code, message) = match options().and_then(run) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(End::Violation(what)) => (1, format!("VIOLATION: {what}")),
        Err(End::Refused(error)) => (2, error.to_string()),
        Err(End::Failed(what)) => (3, what),
        Err(End::Usage(what)) => (
            64,
            format!("{what}; the usage stands at the top of examples/contend.rs"),
        ),
    };
    eprintln!("contend {}: {message}", std::process::id());
    ExitCode::from(code)
}

fn options() -> Result<Options, End> {
    let usage = |what: String| Err(End::Usage(what));
    let mut words = std::env::args_os().skip(1);
    let Some(path) = words.next().map(PathBuf::from) else {
        return usage("name a path".into());
    };
    let beside = |suffix: &str| {
        let mut name = path.clone().into_os_string();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut options = Options {
        log: beside(".log"),
        side: beside(".side"),
        path,
        claims: 100,
        until: u64::MAX,
        give_way: false,
        wait: Duration::ZERO,
        hold: Duration::from_millis(2),
        seed: 1,
        verb: None,
        token: None,
        to: None,
        fault: None,
        lapsed: false,
        no_links: false,
        torn_rename: false,
    };
    while let Some(word) = words.next() {
        let word = word.to_string_lossy().into_owned();
        match word.as_str() {
            "--give-way" => options.give_way = true,
            "--lapsed" => options.lapsed = true,
            "--no-links" => options.no_links = true,
            "--torn-rename" => options.torn_rename = true,
            _ => {
                let Some(value) = words.next() else {
                    return usage(format!("{word} is unknown, or lacks its value"));
                };
                if !options.set(&word, &value) {
                    return usage(format!("{word} is unknown, or its value is wrong"));
                }
            }
        }
    }
    Ok(options)
}

impl Options {
    /// Sets an option that has a value, if there is such an option and the value is one.
    fn set(&mut self, word: &str, value: &OsStr) -> bool {
        fn put<T>(place: &mut T, value: Option<T>) -> bool {
            value.map(|value| *place = value).is_some()
        }
        let text = value.to_string_lossy();
        let number = text.parse();
        match word {
            "--log" => put(&mut self.log, Some(value.into())),
            "--side" => put(&mut self.side, Some(value.into())),
            "--do" => put(&mut self.verb, Some(Some(text.into_owned()))),
            "--claims" => put(&mut self.claims, number.ok()),
            "--until" => put(&mut self.until, number.ok()),
            "--seed" => put(&mut self.seed, number.ok()),
            "--wait" => put(&mut self.wait, number.ok().map(Duration::from_secs)),
            "--hold" => put(&mut self.hold, number.ok().map(Duration::from_millis)),
            "--token" => put(&mut self.token, text.parse().ok().map(Some)),
            "--to" => put(&mut self.to, text.parse().ok().and_then(Pid::new).map(Some)),
            "--fault" => put(&mut self.fault, fault(&text).map(Some)),
            _ => false,
        }
    }
}

fn fault(text: &str) -> Option<(Fault, usize)> {
    let (what, at) = text.split_once(':')?;
    let fault = match what {
        "kill-before" => Fault::Before(Signal::SIGKILL),
        "kill-after" => Fault::After(Signal::SIGKILL),
        "stop-before" => Fault::Before(Signal::SIGSTOP),
        "stop-after" => Fault::After(Signal::SIGSTOP),
        _ => return None,
    };
    Some((fault, at.parse().ok()?))
}

fn run(options: Options) -> Result<(), End> {
    let disk = |fault: Option<(Fault, usize)>| {
        let mut fs = Faulty::new(
            fault.map(|fault| fault.0),
            fault.map_or(0, |fault| fault.1),
            Counted::Changes,
        );
        (fs.no_links, fs.torn_rename) = (options.no_links, options.torn_rename);
        let judge = Judge::here().with_fs(Arc::new(fs));
        match options.lapsed {
            true => judge.with_clock(Arc::new(quick::Quick::default())),
            false => judge,
        }
    };
    let judge = disk(options.fault);
    match options.verb.as_deref() {
        None => contend(&options, &judge),
        Some("claim") => {
            println!("{}", claim(&options, &judge)?.leave());
            Ok(())
        }
        Some("settle") => Ok(judge.settle(&options.path).map(drop)?),
        Some("run") => {
            let claim = Claim::new(&options.path).from(judge);
            Ok(Run::new(claim, vec!["true".into()]).run().map(drop)?)
        }
        Some(verb) => {
            let token = match options.token {
                Some(token) => token,
                // Its calls are not those that the fault counts.
                None => claim(&options, &disk(None))?.leave(),
            };
            act(
                &options,
                verb,
                judge.clone(),
                &Holder::from(judge, &options.path, token)?,
            )
        }
    }
}

fn claim(options: &Options, judge: &Judge) -> Result<Lease, End> {
    let claim = Claim::new(&options.path).from(judge.clone());
    let claim = claim.give_way(options.give_way).wait(options.wait);
    Ok(claim.take_lapsed(options.lapsed).take()?)
}

fn act(options: &Options, verb: &str, judge: Judge, holder: &Holder) -> Result<(), End> {
    match (verb, options.to) {
        ("renew", _) => holder.renew().map(drop),
        ("note", _) => holder.note(&[("phase", "noted")]).map(drop),
        ("release", _) => holder.release(None).map(drop),
        ("hand-over", Some(pid)) => holder.hand_over(pid).map(drop),
        ("break", _) => break_lease(judge, holder.path(), holder.token(), "a try").map(drop),
        _ => return Err(End::Usage(format!("`--do {verb}` is unknown, or lacks --to"))),
    }
    .map_err(End::from)
}

fn contend(options: &Options, judge: &Judge) -> Result<(), End> {
    let mut random = Random(options.seed);
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&options.log)
        .map_err(|error| failed(&options.log, error))?;
    let mut done = 0;
    while done < options.claims && lines(&log, &options.log)? < options.until {
        let lease = match claim(options, judge) {
            Ok(lease) => lease,
            Err(End::Refused(Error::Refused(_) | Error::GaveWay { .. } | Error::TimedOut { .. })) => {
                std::thread::sleep(random.up_to(LONGEST_PAUSE));
                continue;
            }
            Err(end) => return Err(end),
        };
        let side = Side::take(&options.side, lease.epoch())?;
        std::thread::sleep(random.up_to(options.hold));
        let epoch = lease
            .holder()
            .verify(None)
            .map_err(|error| taken_away(lease.epoch(), error))?;
        log.write_all(format!("{epoch:12} {:10}\n", std::process::id()).as_bytes())
            .map_err(|error| failed(&options.log, error))?;
        side.leave()?;
        lease.release(None).map_err(|unreleased| {
            let (error, epoch) = (unreleased.error, unreleased.lease.epoch());
            unreleased.lease.leave();
            taken_away(epoch, error)
        })?;
        done += 1;
    }
    Ok(())
}

/// This process lives, so nobody may have taken its lease.
fn taken_away(epoch: u64, error: Error) -> End {
    match error {
        Error::Lost { .. } => End::Violation(format!("at epoch {epoch} a lease was lost whose holder lives: {error}")),
        other => other.into(),
    }
}

fn lines(log: &File, path: &Path) -> Result<u64, End> {
    log.metadata()
        .map(|data| data.len() / LINE)
        .map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: io::Error) -> End {
    End::Failed(format!("{}: {error}", path.display()))
}

/// The file that proves that there is one holder: created exclusively and locked.
struct Side<'a> {
    file: File,
    path: &'a Path,
    epoch: u64,
}

impl<'a> Side<'a> {
    fn take(path: &'a Path, epoch: u64) -> Result<Self, End> {
        let made = match Self::create(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Self::clear(path, epoch)?;
                Self::create(path)
            }
            made => made,
        };
        let file = match made {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(two(epoch, "another holder has made the side file just now"));
            }
            Err(error) => return Err(failed(path, error)),
        };
        // Whoever finds the file before it is locked takes it for a dead holder's, and locks or removes it.
        if !lock(&file, path)? {
            return Err(two(epoch, "another holder has locked the new side file"));
        }
        let mut side = Self { file, path, epoch };
        side.check()?;
        side.file
            .write_all(format!("epoch {epoch} pid {}", std::process::id()).as_bytes())
            .map_err(|error| failed(path, error))?;
        Ok(side)
    }

    fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Removes what a killed holder left; a living one has it locked.
    fn clear(path: &Path, epoch: u64) -> Result<(), End> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(two(epoch, "another holder has removed its side file just now"));
            }
            Err(error) => return Err(failed(path, error)),
        };
        if !lock(&file, path)? {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            return Err(two(
                epoch,
                &format!("the side file is locked by a living holder: {owner}"),
            ));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(two(epoch, "another holder has removed its side file just now"))
            }
            removed => removed.map_err(|error| failed(path, error)),
        }
    }

    /// Whether the name is still this file's.
    fn check(&self) -> Result<(), End> {
        let own = self.file.metadata().map_err(|error| failed(self.path, error))?;
        match std::fs::symlink_metadata(self.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(self.path, error)),
            _ => Err(two(self.epoch, "another holder has replaced the side file")),
        }
    }

    fn leave(self) -> Result<(), End> {
        self.check()?;
        std::fs::remove_file(self.path).map_err(|error| failed(self.path, error))
    }
}

/// Takes the lock, or says that another process has it.
#[allow(
    clippy::incompatible_msrv,
    reason = "only what users build is built with the oldest Rust"
)]
fn lock(file: &File, path: &Path) -> Result<bool, End> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(failed(path, error)),
    }
}

fn two(epoch: u64, what: &str) -> End {
    End::Violation(format!("at epoch {epoch}: {what}"))
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }
}
