//! `leasehold break`

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use leasehold::facts::RecordState;
use leasehold::{Judge, Token, break_lease};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  token=$(leasehold show run/bridge.lease --field token)
  leasehold break run/bridge.lease --token \"$token\" --reason 'login-a is scrapped'
  leasehold break run/bridge.lease --token \"$token\" --reason 'ticket 4711' --yes

This is a decision, not a finding: the owner may still run. It has lost the lease then, and stops at its next heartbeat \
if it is kept by `leasehold run`; others stop when they `verify`. Only the claim with this token is broken: what has been \
claimed, released or broken since is left alone. The broken record is kept beside the new, vacant one, with who, when, \
where and why; its name is printed. What its owner was doing stays in doubt. Ask first: `leasehold ask`.

Exit: 0 broken · 2 not confirmed, or not a record · 6 not that claim any more · 64 usage, or no terminal and no --yes · \
74 the filesystem failed · 75 its holder changes it all the time";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The record
    path: PathBuf,
    /// The claim to break: the token that the record shows. Anything else that stands there by then is left alone
    #[arg(long)]
    token: Token,
    /// Why, in words
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Exit {
    let judge = Judge::here();
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            text::complain("leasehold: break asks before it acts; without a terminal, say --yes\n");
            return Exit::Usage;
        }
        let (judgement, facts) = judge.judge(&args.path);
        // What stands there is not the claim in question: nothing to ask about, and why is said below.
        let is_meant = facts.record.state == RecordState::Present && facts.record.token == Some(args.token.to_string());
        if is_meant {
            let epoch = facts.record.epoch.unwrap_or_default();
            let told = text::paragraph(&judgement, &args.path);
            text::complain(&format!("{told}Break the claim of epoch {epoch}? [y/N] "));
            let mut answer = String::new();
            // No answer is a no.
            let _ = std::io::stdin().lock().read_line(&mut answer);
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                text::complain("leasehold: nothing was changed\n");
                return Exit::Undetermined;
            }
        }
    }
    match break_lease(judge, &args.path, args.token, &args.reason) {
        Ok(broken) => {
            if args.json {
                let mut object = text::path_json(&args.path);
                object.insert("epoch".into(), broken.record.owner.epoch.into());
                object.insert("evidence".into(), broken.evidence.to_string_lossy().into());
                text::print(&format!("{}\n", serde_json::Value::from(object)));
            } else {
                text::print(&format!("{}\n", text::path(&broken.evidence)));
            }
            Exit::Done
        }
        Err(error) => super::fail(&error, &args.path, args.json),
    }
}
