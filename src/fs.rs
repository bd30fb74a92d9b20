//! The only door to the disk: a narrow trait, and the implementation over real files.
//!
//! Everything that touches a record goes through [`Fs`], so that a stand-in can fail, lie about replies, hang or stop
//! the process at any call.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::platform;

/// What kind of thing has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Directory,
    /// A FIFO, socket or device.
    Other,
}

/// What the filesystem says of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// Names that it has.
    pub links: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of content (mtime) since 1970, by the clock of whoever stores it: compare it with nothing but
    /// another stamp of the same filesystem.
    pub changed: Duration,
}

impl Stat {
    /// Which file it is: equal for all its names.
    pub(crate) fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The calls that Leasehold makes on the filesystem. Each is one operation, which happens or does not; but a network
/// filesystem may make a rename onto a file by half.
///
/// # Errors
/// Each call fails with the operating system's error, bare; callers add path and operation. EINTR never gets out.
#[allow(clippy::missing_errors_doc, reason = "as above, for all of them")]
pub trait Fs: fmt::Debug + Send + Sync {
    /// What is at `path`, not followed. Asked of the file server, not of a cache.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// The same about an open file.
    fn stat_file(&self, file: &File) -> io::Result<Stat>;
    /// Whether `path` is a name of this open file, as the file server says.
    fn is_named(&self, file: &File, path: &Path) -> io::Result<bool>;
    /// Has the file server asked about a name, whatever a cache says; the next call on the name finds what it answers. Fails
    /// where it is not taken.
    fn ask(&self, path: &Path) -> io::Result<()>;
    /// Opens for reading: not through a link at the last component, and never waiting.
    fn open(&self, path: &Path) -> io::Result<File>;
    /// Opens for reading and writing, in the same way.
    fn reopen(&self, path: &Path) -> io::Result<File>;
    /// Reads the whole file, at most `limit` bytes of it.
    fn read(&self, file: &File, limit: usize) -> io::Result<Vec<u8>>;
    /// Creates a file that must not exist, open for reading and writing, with the mode and group of `like`.
    fn create(&self, path: &Path, like: Option<&Stat>) -> io::Result<File>;
    /// Writes all bytes at an offset.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the content safe (fdatasync(2)).
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Takes an exclusive advisory lock (flock(2)) that lasts until the file is closed, without waiting.
    fn lock(&self, file: &File) -> io::Result<()>;
    /// Whether somebody holds a lock on the file, as the file server says. Takes none: that would make others see "busy".
    fn is_locked(&self, file: &File) -> io::Result<bool>;
    /// The content of a symbolic link.
    fn read_link(&self, link: &Path) -> io::Result<OsString>;
    /// Gives a file a second name, exclusively.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, at most `limit` of them.
    fn list(&self, dir: &Path, limit: usize) -> io::Result<Vec<OsString>>;

    // What follows serves the doctor alone, which reports what a filesystem does not have: a stand-in may go without.

    /// Sets the times of an open file to now, by its descriptor (futimens(2)).
    fn touch(&self, _file: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Takes an exclusive lock of the other kind (F_OFD_SETLK, fcntl(2)), in the same way.
    fn lock_range(&self, _file: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// What is left of a filesystem (statvfs(3)).
    fn space(&self, _dir: &Path) -> io::Result<Space> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Creates a directory, exclusively.
    fn make_dir(&self, _dir: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a directory that is empty.
    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What is left of a filesystem, for its ordinary users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    /// Bytes.
    pub bytes: u64,
    /// Files; `None` where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Bytes that a name may have.
    pub longest_name: u64,
}

/// Real files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Fs for Disk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        platform::stat(path)
    }

    fn stat_file(&self, file: &File) -> io::Result<Stat> {
        platform::stat_file(file)
    }

    fn is_named(&self, file: &File, path: &Path) -> io::Result<bool> {
        self.ask(path)?;
        platform::is_named(file, path)
    }

    fn ask(&self, path: &Path) -> io::Result<()> {
        // Nothing can be linked to a directory, so nothing is made; but to make a name, an NFS client has to ask whether it is
        // taken.
        match std::fs::hard_link("/", path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        platform::open(path)
    }

    fn reopen(&self, path: &Path) -> io::Result<File> {
        platform::reopen(path)
    }

    fn read(&self, file: &File, limit: usize) -> io::Result<Vec<u8>> {
        // Records are small: one read finds the end of nearly all of them.
        let mut bytes = vec![0; limit.min(4096)];
        let mut length = platform::read_at(file, &mut bytes, 0)?;
        while length == bytes.len() && length < limit {
            bytes.resize(limit.min(length * 4), 0);
            length += platform::read_at(file, &mut bytes[length..], length as u64)?;
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn create(&self, path: &Path, like: Option<&Stat>) -> io::Result<File> {
        platform::create(path, like)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        platform::write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn lock(&self, file: &File) -> io::Result<()> {
        loop {
            // By its full name: the standard library has a method of the same name.
            match fs4::FileExt::try_lock(file) {
                Ok(()) => return Ok(()),
                Err(fs4::TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(fs4::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(fs4::TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    fn is_locked(&self, file: &File) -> io::Result<bool> {
        platform::is_locked(file)
    }

    fn read_link(&self, link: &Path) -> io::Result<OsString> {
        std::fs::read_link(link).map(PathBuf::into_os_string)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path, limit: usize) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(dir)?
            .take(limit)
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    fn touch(&self, file: &File) -> io::Result<()> {
        platform::touch(file)
    }

    fn lock_range(&self, file: &File) -> io::Result<()> {
        platform::lock_range(file)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        platform::space(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }
}
