//! Files of the doctor's own beside records. Their names are those of temp files of a record `leasehold-doctor`, so that
//! scans and claims take them for nothing; they are removed at the end, and whatever a doctor that was killed left, by the
//! next one.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fs::Fs;
use crate::names::{self, LONGEST_COMPANION, TempId};
use crate::observe::Judge;
use crate::platform;

const NAME: &str = "leasehold-doctor";

/// Begins the names of directories in which hosts meet.
const MEETING: &str = ".leasehold-meeting-";

/// Without a change for that long, by the clock that stamps the files, nobody works with them any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The most names that are looked through for what earlier doctors left.
const LISTED: usize = 1_000_000;

/// Where hosts meet whose users say the same word.
pub(super) fn meeting_place(dir: &Path, digest: &str) -> PathBuf {
    dir.join(format!("{MEETING}{digest}"))
}

/// Removes what it gave names to.
pub(super) struct Scratch<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    scope: u64,
    made: RefCell<Vec<PathBuf>>,
}

impl<'a> Scratch<'a> {
    pub fn new(judge: &'a Judge, dir: &'a Path) -> Self {
        Self {
            fs: &*judge.fs,
            dir,
            scope: judge.host.scope(),
            made: RefCell::default(),
        }
    }

    /// A new name, for something that is about to be made.
    pub fn name(&self) -> PathBuf {
        self.made_of(OsStr::new(NAME))
    }

    /// One of exactly that many bytes; `None` when that is too short.
    pub fn name_of(&self, length: usize) -> Option<PathBuf> {
        let padding = length.checked_sub(LONGEST_COMPANION + NAME.len())?;
        Some(self.made_of(OsStr::new(&format!("{NAME}{}", "-".repeat(padding)))))
    }

    fn made_of(&self, name: &OsStr) -> PathBuf {
        let id = TempId::new(self.scope, std::process::id(), platform::random() as u32);
        let path = self.dir.join(names::temp(name, id));
        self.made.borrow_mut().push(path.clone());
        path
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        for path in self.made.get_mut() {
            let _ = self.fs.unlink(path);
        }
    }
}

/// Removes what earlier doctors left in a directory; how many files that were. `now` is a stamp of this filesystem.
pub(super) fn sweep(judge: &Judge, dir: &Path, now: Duration) -> usize {
    let fs = &*judge.fs;
    let is_old = |path: &Path| {
        fs.stat(path)
            .is_ok_and(|stat| now.saturating_sub(stat.changed) > ABANDONED)
    };
    let mut swept = 0;
    for name in fs.list(dir, LISTED).unwrap_or_default() {
        let path = dir.join(&name);
        if let Some(temp) = parse(&name) {
            if judge.has_ended(judge.host.scope(), temp) || is_old(&path) {
                swept += usize::from(fs.unlink(&path).is_ok());
            }
        } else if name.as_encoded_bytes().starts_with(MEETING.as_bytes()) && is_old(&path) {
            swept += clear(fs, &path);
        }
    }
    swept
}

/// Removes a meeting place with all that is in it; how many names that were.
pub(super) fn clear(fs: &dyn Fs, place: &Path) -> usize {
    let names = fs.list(place, LISTED).unwrap_or_default();
    let removed = names.iter().filter(|name| fs.unlink(&place.join(name)).is_ok()).count();
    removed + usize::from(fs.remove_dir(place).is_ok())
}

fn parse(name: &OsString) -> Option<TempId> {
    let bytes = name.as_encoded_bytes();
    let padded = bytes.strip_prefix(b".")?.strip_prefix(NAME.as_bytes())?;
    let padding = padded.iter().take_while(|byte| **byte == b'-').count();
    names::parse_temp(OsStr::new(&format!("{NAME}{}", "-".repeat(padding))), name)
}

/// Whether it is something of a doctor's.
pub(super) fn is_ours(name: &OsString) -> bool {
    parse(name).is_some()
}
