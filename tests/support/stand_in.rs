//! Filesystems that stand in for real files: each says what it does around a call, and makes it on real files.

#![allow(
    unused_imports,
    unused_macros,
    dead_code,
    reason = "each of the programs that include this file uses a part of it"
)]

/// The calls of [`Fs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Stat,
    StatFile,
    IsNamed,
    Ask,
    Open,
    Reopen,
    Read,
    Create,
    Write,
    Sync,
    Lock,
    IsLocked,
    ReadLink,
    Link,
    Rename,
    Unlink,
    List,
    Touch,
    LockRange,
    Space,
    MakeDir,
    RemoveDir,
}

impl Call {
    /// Whether it changes something on disk. Between two calls that do not, a crash leaves the same files.
    pub fn changes(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Write
                | Self::Sync
                | Self::Link
                | Self::Rename
                | Self::Unlink
                | Self::Touch
                | Self::MakeDir
                | Self::RemoveDir
        )
    }
}

/// Makes a type a filesystem by its `fn pass<T>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T>`; what
/// it does at a rename may be given.
macro_rules! stand_in {
    ($name:ty) => {
        stand_in! { $name;
            fn rename(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
                self.pass(Call::Rename, || std::fs::rename(from, to))
            }
        }
    };
    ($name:ty; $($rename:tt)*) => {
        impl leasehold::fs::Fs for $name {
            $($rename)*
            stand_in! { @calls
                Stat stat(path: &std::path::Path) -> leasehold::fs::Stat;
                StatFile stat_file(file: &std::fs::File) -> leasehold::fs::Stat;
                IsNamed is_named(file: &std::fs::File, path: &std::path::Path) -> bool;
                Ask ask(path: &std::path::Path) -> ();
                Open open(path: &std::path::Path) -> std::fs::File;
                Reopen reopen(path: &std::path::Path) -> std::fs::File;
                Read read(file: &std::fs::File, limit: usize) -> Vec<u8>;
                Create create(path: &std::path::Path, like: Option<&leasehold::fs::Stat>) -> std::fs::File;
                Write write_at(file: &std::fs::File, bytes: &[u8], offset: u64) -> ();
                Sync sync(file: &std::fs::File) -> ();
                Lock lock(file: &std::fs::File) -> ();
                IsLocked is_locked(file: &std::fs::File) -> bool;
                ReadLink read_link(link: &std::path::Path) -> std::ffi::OsString;
                Link link(from: &std::path::Path, to: &std::path::Path) -> ();
                Unlink unlink(path: &std::path::Path) -> ();
                List list(dir: &std::path::Path, limit: usize) -> Vec<std::ffi::OsString>;
                Touch touch(file: &std::fs::File) -> ();
                LockRange lock_range(file: &std::fs::File) -> ();
                Space space(dir: &std::path::Path) -> leasehold::fs::Space;
                MakeDir make_dir(dir: &std::path::Path) -> ();
                RemoveDir remove_dir(dir: &std::path::Path) -> ();
            }
        }
    };
    (@calls $($call:ident $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> std::io::Result<$result> {
            self.pass(Call::$call, || leasehold::fs::Fs::$name(&leasehold::fs::Disk, $($arg),*))
        })*
    };
}
pub(crate) use stand_in;
