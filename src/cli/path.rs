//! `leasehold path`, and naming a record by a key.

use std::path::PathBuf;

use super::exit::Exit;
use super::text;

// A record that is named by a directory and a key.
#[derive(clap::Args)]
pub(crate) struct Key {
    /// The directory of records that are named by keys
    #[arg(long, value_name = "DIR", requires = "key")]
    dir: Option<PathBuf>,
    /// Name the record by any text, such as a thread id
    #[arg(long, value_name = "TEXT", requires = "dir")]
    key: Option<String>,
}

impl Key {
    pub(crate) fn path(&self) -> Result<PathBuf, Exit> {
        match (&self.dir, &self.key) {
            (Some(dir), Some(key)) => Ok(dir.join(leasehold::key::file_name(key))),
            _ => {
                text::complain("leasehold: name the record by its path, or by --dir and --key\n");
                Err(Exit::Usage)
            }
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  leasehold path --dir run --key 'team/Name'     # run/team%2f%4eame.lease
  leasehold judge \"$(leasehold path --dir run --key \"thread $id\")\"

Different texts always get different names, also where a filesystem folds case or normalises Unicode. Lower-case \
letters, digits, `-`, `_` and inner dots stand for themselves; long keys end in a digest.

Exit: 0 printed · 64 usage";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    key: Key,
}

pub(crate) fn run(args: Args) -> Exit {
    match args.key.path() {
        Ok(path) => {
            text::print_path(&path);
            Exit::Done
        }
        Err(exit) => exit,
    }
}
