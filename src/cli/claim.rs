//! `leasehold claim`

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Claim, Pid};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  token=$(leasehold claim run/bridge.lease --owner $$) || exit
  token=$(leasehold claim thread-7.lease --owner $$ --ttl 60s --wait 2m --take-lapsed)
  leasehold claim run/x.pid.lease --owner \"$pid\" --binds x.pid --set phase=serving

The owner is always named: the process that does the work and whose end frees the lease. $$ is the shell that runs the \
script. A lease without --ttl never lapses; with one, its owner has to `renew` it, and others may --take-lapsed it, though it may still run. \
A single look cannot tell a lapse: --take-lapsed needs a --wait longer than the owner's ttl.

Exit: 0 claimed · 2 undetermined · 4 lapsed · 5 held by another · 7 the last owner's action is in doubt · \
64 usage, or no such process · 74 the filesystem failed · 75 the wait ran out";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The record; a file of its own, in an existing directory
    path: PathBuf,
    /// The process of this host that shall hold the lease
    #[arg(long, value_name = "PID", value_parser = super::pid)]
    owner: Pid,
    /// Let others take the lease when it is not renewed for this long (5s or more)
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    admission: Admission,
    /// Hold only while this pid file, which other programs read, names the owner
    #[arg(long, value_name = "FILE")]
    binds: Option<String>,
    /// Print a JSON object instead of the token
    #[arg(long)]
    json: bool,
}

// When a lease may be taken, and with what.
#[derive(clap::Args)]
pub(crate) struct Admission {
    /// Wait for at most this long until the lease can be taken
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    wait: Option<Duration>,
    /// Take a lease that its owner did not renew in time
    #[arg(long)]
    take_lapsed: bool,
    /// Take it although the last owner's action is in doubt
    #[arg(long)]
    accept_in_doubt: bool,
    /// Take an owner elsewhere for past: one host at a time writes here
    #[arg(long)]
    sole_writer: bool,
    /// Give way to another claim that is just under way
    #[arg(long)]
    give_way: bool,
    /// Set a field of the run state; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::field)]
    set: Vec<(String, String)>,
}

impl Admission {
    /// Adds these options to a claim on `path`.
    pub(crate) fn apply(self, mut claim: Claim, path: &Path) -> Claim {
        for (key, value) in self.set {
            claim = claim.set(key, value);
        }
        let path = path.to_owned();
        claim
            .wait(self.wait.unwrap_or_default())
            .take_lapsed(self.take_lapsed)
            .accept_in_doubt(self.accept_in_doubt)
            .give_way(self.give_way)
            .sole_writer(self.sole_writer)
            .on_wait(move |judgement| {
                text::complain(&format!("leasehold: waiting for {}", text::paragraph(judgement, &path)));
            })
    }
}

pub(crate) fn run(args: Args) -> Exit {
    let mut claim = args
        .admission
        .apply(Claim::new(&args.path).owner(args.owner), &args.path);
    if let Some(ttl) = args.ttl {
        claim = claim.ttl(ttl);
    }
    if let Some(file) = args.binds {
        claim = claim.binds(file);
    }
    match claim.take() {
        Ok(lease) => {
            let token = lease.token().to_string();
            let told = if args.json {
                let mut object = text::path_json(&args.path);
                object.insert("token".into(), token.into());
                object.insert("epoch".into(), lease.epoch().into());
                serde_json::Value::from(object).to_string()
            } else {
                token
            };
            match text::try_print(format!("{told}\n").as_bytes()) {
                Err(error) => {
                    // The caller has no token and takes this for a failed claim: dropped, the lease is released.
                    text::complain(&format!(
                        "leasehold: cannot print the token: {error}; the lease on {} is given back\n",
                        text::path(&args.path)
                    ));
                    Exit::Io
                }
                Ok(()) => {
                    lease.leave();
                    Exit::Done
                }
            }
        }
        Err(error) => super::fail(&error, &args.path, args.json),
    }
}
