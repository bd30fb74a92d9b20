//! `leasehold id`

use leasehold::Pid;
use leasehold::identity::{Host, Process};
use serde_json::{Value, json};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold id
  leasehold id --owner $$ --json

Exit: 0 printed, also where a warning says that the identity is weak · 64 no such process";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A process of this host
    #[arg(long, value_name = "PID", value_parser = super::pid)]
    owner: Option<Pid>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Exit {
    let host = Host::here();
    let process = match args.owner.map(Process::of).transpose() {
        Ok(process) => process,
        Err(error) => return super::fail(&error, std::path::Path::new(""), args.json),
    };
    let warnings: Vec<String> = host.weaknesses().iter().map(ToString::to_string).collect();
    let mut object = match json!(host) {
        Value::Object(object) => object,
        _ => Default::default(),
    };
    object.extend(match json!(process) {
        Value::Object(fields) => fields,
        _ => Default::default(),
    });
    if args.json {
        object.insert("warnings".into(), json!(warnings));
        text::print(&format!("{}\n", Value::from(object)));
        return Exit::Done;
    }
    let lines = object.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key:<15} {}\n", text::escape(text)),
        value => format!("{key:<15} {value}\n"),
    });
    text::print(&lines.collect::<String>());
    for warning in warnings {
        text::complain(&format!("leasehold: warning: {warning}\n"));
    }
    Exit::Done
}
