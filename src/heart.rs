//! The heartbeat of a kept lease, over files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::claim::beat;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::lease::{Holder, Lease};
use crate::record::{Record, beat_line};

/// A record that is kept open and whose heartbeat is overwritten in place.
#[derive(Debug)]
pub(crate) struct Heart {
    holder: Holder,
    file: File,
    /// Where in the file the heartbeat stands.
    at: u64,
    inode: u64,
    beat: u64,
}

/// How the name of the record stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It names the file that is open.
    Same,
    /// It named another one, with our token: that is open now. Or it was gone, and names a new record of ours.
    Moved,
    /// The lease is not ours any more, and why.
    Lost(String),
    /// It could not be told.
    Unknown,
}

impl Heart {
    /// The heart of a lease that this process keeps.
    pub fn of(lease: &mut Lease) -> Result<Self> {
        let file = lease.file.take().expect("a kept lease has its record open");
        Self::over(lease.holder().clone(), file)
    }

    fn over(holder: Holder, file: File) -> Result<Self> {
        let path = holder.path().to_owned();
        let fs = &*holder.site().judge.fs;
        let stat = fs.stat_file(&file).map_err(Error::io("stat", &path))?;
        let line = beat_line(0).len() as u64;
        let at = stat
            .size
            .checked_sub(line)
            .ok_or_else(|| holder.lost("the record has no heartbeat"))?;
        Ok(Self {
            file,
            at,
            inode: stat.inode,
            beat: 0,
            holder,
        })
    }

    fn fs(&self) -> &dyn Fs {
        &*self.holder.site().judge.fs
    }

    pub fn now(&self) -> Duration {
        self.holder.site().judge.clock.now()
    }

    /// Overwrites the beat in the file that is open, whatever has become of its name.
    pub fn write(&mut self) -> io::Result<()> {
        self.beat = beat(self.now(), self.beat);
        self.fs().write_at(&self.file, beat_line(self.beat).as_bytes(), self.at)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.fs().sync(&self.file)
    }

    /// Whether the record's name still stands for the file that is open, as the file server says.
    pub fn is_named(&self) -> bool {
        self.fs().is_named(&self.file, self.holder.path()).unwrap_or(false)
    }

    /// Looks at the record by its name. Somebody with our token, such as the child with a `note`, may have replaced it:
    /// then the new file is opened, and its lock and heartbeat are taken over.
    pub fn look(&mut self) -> Standing {
        let sight = self.holder.site().look();
        let named = match self.holder.current(&sight) {
            Ok(_) => sight.stat.map(|stat| stat.inode),
            Err(Error::Lost { why, .. }) => return Standing::Lost(why),
            Err(_) => return Standing::Unknown,
        };
        let followed = match named == Some(self.inode) {
            true if self.is_named() => return Standing::Same,
            // What has taken the name away has not taken the lease: a new record gets the name.
            true => self.win_again(),
            false => self.follow(),
        };
        match followed {
            Ok(()) => Standing::Moved,
            Err(Error::Lost { why, .. }) => Standing::Lost(why),
            Err(_) => Standing::Unknown,
        }
    }

    fn follow(&mut self) -> Result<()> {
        let path: &Path = self.holder.path();
        let fs = self.fs();
        let file = fs.reopen(path).map_err(Error::io("reopen", path))?;
        let bytes = fs
            .read(&file, crate::record::LARGEST)
            .map_err(Error::io("read", path))?;
        // What was opened may be a later file than the one that was looked at.
        let ours = Record::parse(&bytes).is_ok_and(|record| record.owner.token == self.holder.token());
        if !ours {
            return Err(self.holder.lost("the record carries another token"));
        }
        // Only evidence hangs on it: a lock that cannot be taken over is not held, and says nothing.
        let _ = fs.lock(&file);
        let (holder, beat) = (self.holder.clone(), self.beat);
        *self = Self {
            beat,
            ..Self::over(holder, file)?
        };
        Ok(())
    }

    /// Wins the lease anew by a ballot.
    pub fn win_again(&mut self) -> Result<()> {
        let next = beat(self.now(), self.beat);
        let (_, file) = self.holder.change(self.holder.may_lock(), |record| {
            record.beat = next.max(record.beat + 1);
            Ok(())
        })?;
        let holder = self.holder.clone();
        *self = Self {
            beat: next,
            ..Self::over(holder, file)?
        };
        Ok(())
    }
}
