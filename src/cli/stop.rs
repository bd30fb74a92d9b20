//! `leasehold stop`

use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Signal, Stop};
use serde_json::Value;

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold stop run/bridge.lease
  leasehold stop run/bridge.lease --signal INT --grace 30s --where role=bridge

The process is opened first (a pidfd), judged after, and signalled through that descriptor: a process that gets its number \
meanwhile is never signalled. SIGKILL follows after the grace; then its end is awaited and the record vacated, which \
`settled` in its run state tells. With `leasehold run` as its supervisor, that ends what the process leaves behind, and \
vacates the record itself.

Anything but held/process-running is refused, with nothing signalled. A file of another program is never acted on.

Exit: 0 stopped, and the record is vacant · 1 dead already · 2 undetermined, as every record of another host · 3 free · \
4 lapsed · 5 held, but not by a process of this host that can be stopped · 64 usage, a field says something else, or \
others could have written the record · 74 it may not be signalled, or the filesystem failed · 75 it, or its supervisor, has \
not ended, or the record kept changing";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The record
    path: PathBuf,
    #[command(flatten)]
    how: Manner,
    /// Only if this field of the run state says this; repeatable
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = super::condition)]
    fields: Vec<(String, String)>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

// How a process is asked to end.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Manner {
    /// The signal that asks it to end
    #[arg(long, value_name = "SIGNAL", default_value_t = Signal::TERM)]
    signal: Signal,
    /// Time between that and SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = super::duration)]
    grace: Duration,
}

impl Manner {
    pub(crate) fn apply(self, stop: Stop, fields: &[(String, String)]) -> Stop {
        let stop = stop.signal(self.signal).grace(self.grace);
        fields
            .iter()
            .fold(stop, |stop, (key, value)| stop.only_if(key.as_str(), value.as_str()))
    }
}

pub(crate) fn run(args: Args) -> Exit {
    match args.how.apply(Stop::new(&args.path), &args.fields).run() {
        Ok(stopped) => {
            if args.json {
                let mut object = text::path_json(&args.path);
                object.insert("pid".into(), stopped.pid.get().into());
                object.insert("signal".into(), stopped.signal.to_string().into());
                let vacant = stopped.record.is_some_and(|record| record.owner.ended.is_some());
                object.insert("vacated".into(), vacant.into());
                text::print(&format!("{}\n", Value::from(object)));
            }
            Exit::Done
        }
        Err(error) => super::fail_with(&error, &args.path, args.json, Exit::unstopped(&error)),
    }
}
