//! `leasehold show`

use std::io::IsTerminal;
use std::path::PathBuf;

use leasehold::{Judge, Record};
use serde_json::{Value, json};

use super::exit::Exit;
use super::text;

const EXAMPLES: &str = "\
Examples:
  leasehold show run/bridge.lease
  leasehold show run/bridge.lease --field appserver
  leasehold show run/bridge.lease --field epoch

Exit: 0 shown · 2 not a record, or no such field · 3 no record · 64 usage · 74 it cannot be read";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The record
    path: PathBuf,
    /// Print the value of one field of the owner line, the run state or the heartbeat, and nothing else
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// Print the record as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Exit {
    let record = match Judge::here().read(&args.path) {
        Ok(Some(record)) => record,
        Ok(None) => {
            return fail(&args, "there is no record", Exit::Free);
        }
        Err(error) => return super::fail(&error, &args.path, args.json),
    };
    let sections = sections(&record);
    match &args.field {
        Some(name) => match sections.iter().find_map(|(_, section)| section.get(name)) {
            // As it is, for a script; but a record must not drive a terminal.
            Some(value) if !args.json => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let terminal = std::io::stdout().is_terminal();
                let text = if terminal { text::escape(&text) } else { text };
                text::print(&format!("{text}\n"));
            }
            Some(value) => {
                text::print(&format!("{value}\n"));
            }
            None => {
                return fail(
                    &args,
                    &format!("there is no field `{name}`; without --field all are shown"),
                    Exit::Undetermined,
                );
            }
        },
        None if args.json => {
            let mut object = text::path_json(&args.path);
            object.extend(sections.map(|(name, section)| (name.to_owned(), section)));
            text::print(&format!("{}\n", Value::from(object)));
        }
        None => {
            let fields = sections.iter().filter_map(|(_, section)| section.as_object()).flatten();
            let lines = fields.map(|(key, value)| match value {
                Value::String(text) => format!("{:<9} {}\n", text::escape(key), text::escape(text)),
                value => format!("{:<9} {}\n", text::escape(key), text::escape(&value.to_string())),
            });
            text::print(&lines.collect::<String>());
        }
    }
    Exit::Done
}

fn fail(args: &Args, what: &str, exit: Exit) -> Exit {
    if args.json {
        let object = text::failure_json(what, &args.path, exit);
        text::print(&format!("{}\n", Value::from(object)));
    } else {
        let (path, what) = (text::path(&args.path), text::escape(what));
        text::complain(&format!("leasehold: {path}: {what}\n"));
    }
    exit
}

fn sections(record: &Record) -> [(&'static str, Value); 3] {
    [
        ("owner", json!(record.owner)),
        ("state", json!(record.state)),
        ("heartbeat", json!({ "beat": record.beat })),
    ]
}
