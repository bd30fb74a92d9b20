//! What the holder of a token does: `verify`, `renew`, `release`, `hand-over`, `note`.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Holder, Outcome, Pid, Record, Result, Token};

use super::exit::Exit;
use super::text;

// Which claim.
#[derive(clap::Args)]
struct Which {
    /// The record
    #[arg(env = "LEASEHOLD_PATH")]
    path: PathBuf,
    /// The claim's token, as `claim` printed it. It is no secret: it guards against mistakes
    #[arg(long, env = "LEASEHOLD_TOKEN")]
    token: Token,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Which {
    fn carry_out(&self, change: impl FnOnce(&Holder) -> Result<Record>) -> Exit {
        match Holder::new(&self.path, self.token).and_then(|holder| change(&holder)) {
            Ok(record) => {
                if self.json {
                    let mut object = text::path_json(&self.path);
                    object.insert("token".into(), self.token.to_string().into());
                    object.insert("epoch".into(), record.owner.epoch.into());
                    object.insert("seq".into(), record.owner.seq.into());
                    text::print(&format!("{}\n", serde_json::Value::from(object)));
                }
                Exit::Done
            }
            Err(error) => super::fail(&error, &self.path, self.json),
        }
    }
}

const VERIFY: &str = "\
Examples:
  epoch=$(leasehold verify 7.lease --token \"$token\" --margin 10s) && append_to transcript.$epoch
  epoch=$(leasehold verify) || exit   # with LEASEHOLD_PATH and LEASEHOLD_TOKEN set

It tells what was so when it was asked. What must not mix goes into a file of its own epoch, or behind a resource that \
checks the epoch itself.

Exit: 0 current, and the epoch is printed · 2 not a record · 6 the token is not current, or too little of the ttl is left · 64 usage · 74 unreadable";

#[derive(clap::Args)]
#[command(after_help = VERIFY)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    which: Which,
    /// Fail when less than this is left of the ttl
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    margin: Option<Duration>,
}

pub(crate) fn verify(args: VerifyArgs) -> Exit {
    let which = args.which;
    match Holder::new(&which.path, which.token).and_then(|holder| holder.verify(args.margin)) {
        Ok(epoch) => {
            if which.json {
                let mut object = text::path_json(&which.path);
                object.insert("token".into(), which.token.to_string().into());
                object.insert("epoch".into(), epoch.into());
                text::print(&format!("{}\n", serde_json::Value::from(object)));
            } else {
                text::print(&format!("{epoch}\n"));
            }
            Exit::Done
        }
        Err(error) => super::fail(&error, &which.path, which.json),
    }
}

const RENEW: &str = "\
Examples:
  leasehold renew run/bridge.lease --token \"$token\"
  while sleep 20; do leasehold renew run/bridge.lease --token \"$token\" || break; done

Nothing stops the owner when its ttl has run out and nobody renewed: check with `verify --margin` before each write.

Exit: 0 renewed · 2 not a record · 6 lost: the token is not current · 64 usage · 74 the filesystem failed · \
75 it is changed all the time";

#[derive(clap::Args)]
#[command(after_help = RENEW)]
pub(crate) struct RenewArgs {
    #[command(flatten)]
    which: Which,
}

pub(crate) fn renew(args: RenewArgs) -> Exit {
    args.which.carry_out(Holder::renew)
}

const RELEASE: &str = "\
Examples:
  trap 'leasehold release run/bridge.lease --token \"$token\"' EXIT
  leasehold release thread-7.lease --token \"$token\" --outcome completed

The record stays, vacant, so that the next claim gets the next epoch.

Exit: 0 released, or was already · 2 not a record · 6 lost: the token is not current · 64 usage · 74 the filesystem failed · \
75 it is changed all the time";

#[derive(clap::Args)]
#[command(after_help = RELEASE)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    which: Which,
    /// What became of the action noted as intent: completed or failed
    #[arg(long)]
    outcome: Option<Outcome>,
}

pub(crate) fn release(args: ReleaseArgs) -> Exit {
    args.which.carry_out(|holder| holder.release(args.outcome))
}

const HAND_OVER: &str = "\
Examples:
  leasehold hand-over run/bridge.lease --to \"$bridge_pid\" --token \"$token\"
  LEASEHOLD_TOKEN=$token leasehold hand-over run/bridge.lease --to $$

The claim stays the same: same token, same epoch.

Exit: 0 handed over · 2 not a record · 6 lost: the token is not current · 64 usage, no such process, or a keeper is recorded · \
74 the filesystem failed · 75 it is changed all the time";

#[derive(clap::Args)]
#[command(after_help = HAND_OVER)]
pub(crate) struct HandOverArgs {
    #[command(flatten)]
    which: Which,
    /// The process that shall hold the lease
    #[arg(long, value_name = "PID", value_parser = super::pid)]
    to: Pid,
}

pub(crate) fn hand_over(args: HandOverArgs) -> Exit {
    args.which.carry_out(|holder| holder.hand_over(args.to))
}

const NOTE: &str = "\
Examples:
  leasehold note run/bridge.lease --token \"$token\" phase=serving appserver=127.0.0.1:4100
  leasehold note thread-7.lease --token \"$token\" 'intent=push branch'   # before it is done
  leasehold note thread-7.lease --token \"$token\" outcome=completed      # after

An intent without an outcome leaves the effect in doubt when the owner ends: the next claim is refused with 7. A new \
intent takes the last outcome away.
With LEASEHOLD_PATH set, the record need not be named: leasehold note phase=serving

Exit: 0 noted · 2 not a record · 6 lost: the token is not current · 64 usage · 74 the filesystem failed · \
75 it is changed all the time";

#[derive(clap::Args)]
#[command(after_help = NOTE, override_usage = "leasehold note [OPTIONS] PATH KEY=VALUE…")]
pub(crate) struct NoteArgs {
    /// The record, then the fields
    #[arg(required = true, value_name = "PATH KEY=VALUE")]
    words: Vec<std::ffi::OsString>,
    /// The claim's token, as `claim` printed it. It is no secret: it guards against mistakes
    #[arg(long, env = "LEASEHOLD_TOKEN")]
    token: Token,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn note(args: NoteArgs) -> Exit {
    let mut words = args.words.into_iter();
    let named = |words: &mut std::vec::IntoIter<std::ffi::OsString>| words.next().map(PathBuf::from);
    let path = match std::env::var_os("LEASEHOLD_PATH") {
        // Nothing but fields: the record is the environment's.
        Some(path)
            if words
                .as_slice()
                .iter()
                .all(|word| word.to_str().is_some_and(|word| super::field(word).is_ok())) =>
        {
            Some(path.into())
        }
        _ => named(&mut words),
    };
    let mut fields = Vec::new();
    for word in words {
        let field = word.to_str().ok_or_else(|| "a field is UTF-8".to_owned());
        match field.and_then(super::field) {
            Ok(field) => fields.push(field),
            Err(message) => {
                text::complain(&format!(
                    "leasehold: {}: {message}\n",
                    text::escape(&word.to_string_lossy())
                ));
                return Exit::Usage;
            }
        }
    }
    let Some(path) = path.filter(|_| !fields.is_empty()) else {
        text::complain("leasehold: name at least one field: leasehold note PATH key=value\n");
        return Exit::Usage;
    };
    Which {
        path,
        token: args.token,
        json: args.json,
    }
    .carry_out(|holder| holder.note(&fields))
}
