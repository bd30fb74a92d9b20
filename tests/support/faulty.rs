//! Real files behind a filesystem that, at one call of one's choice, misbehaves or signals its own process.

#![allow(dead_code, reason = "each of the programs that include this file uses a part of it")]

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[path = "stand_in.rs"]
pub mod stand_in;
pub use stand_in::Call;
use stand_in::stand_in;

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process gets this signal before the call is made.
    Before(Signal),
    /// … or after it was made.
    After(Signal),
    /// The call is not made, and fails.
    Fails(Errno),
    /// The call is made, and is said to have failed.
    Denies(Errno),
    /// The call is made twice, as by a late duplicate; the first answer counts.
    Twice,
    /// Each call that changes something is made twice, and the second answer counts: a server without a reply cache.
    Repeated,
}

/// Which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All.
    All,
    /// Those that change something.
    Changes,
}

pub struct Meanwhile(pub Box<dyn Fn(Call) + Send + Sync>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

#[derive(Debug)]
pub struct Faulty {
    /// The number of the chosen call, from 1.
    pub at: usize,
    /// The fault goes on at every call after it.
    pub lasting: bool,
    /// After the chosen call nothing can be read any more.
    pub blinding: bool,
    /// Nothing waits for the disk.
    pub unsynced: bool,
    /// Done before each counted call.
    pub meanwhile: Meanwhile,
    pub fault: Option<Fault>,
    pub counted: Counted,
    /// Hard links are unsupported.
    pub no_links: bool,
    /// A rename takes the name away from the file that has it, and then gives it to the other: an NFS client's of a file that
    /// it has open (`nfs_rename` in the kernel's fs/nfs/dir.c).
    pub torn_rename: bool,
    calls: AtomicUsize,
    made: Mutex<Vec<Call>>,
}

impl Faulty {
    pub fn new(fault: Option<Fault>, at: usize, counted: Counted) -> Self {
        Self {
            at,
            lasting: false,
            blinding: false,
            unsynced: false,
            meanwhile: Meanwhile(Box::new(|_| {})),
            fault,
            counted,
            no_links: false,
            torn_rename: false,
            calls: AtomicUsize::new(0),
            made: Mutex::default(),
        }
    }

    /// The fault goes on from the chosen call: what is on disk then is what a crash leaves.
    pub fn lasting(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// Done before each counted call.
    pub fn meanwhile(mut self, happens: impl Fn(Call) + Send + Sync + 'static) -> Self {
        self.meanwhile = Meanwhile(Box::new(happens));
        self
    }

    /// The calls so far, of those that are counted.
    pub fn made(&self) -> Vec<Call> {
        self.made.lock().expect("no panic while it is held").clone()
    }

    /// Whether the chosen call was reached.
    pub fn reached(&self) -> bool {
        self.calls.load(Ordering::SeqCst) >= self.at
    }

    fn pass<T>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let missing = call == Call::Link && self.no_links;
        let make = || if missing { Err(Errno::EOPNOTSUPP.into()) } else { make() };
        if self.counted == Counted::Changes && !call.changes() {
            return make();
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.made.lock().expect("no panic while it is held").push(call);
        (self.meanwhile.0)(call);
        if self.blinding && number > self.at && !call.changes() {
            return Err(Errno::EIO.into());
        }
        let due = number == self.at || self.lasting && number > self.at;
        match self.fault.filter(|_| due) {
            None => make(),
            Some(Fault::Before(signal)) => {
                kill(Pid::this(), signal).expect("a process may signal itself");
                make()
            }
            Some(Fault::After(signal)) => {
                let made = make();
                kill(Pid::this(), signal).expect("a process may signal itself");
                made
            }
            Some(Fault::Fails(errno)) => Err(errno.into()),
            Some(Fault::Denies(errno)) => make().and_then(|_| Err(errno.into())),
            Some(Fault::Twice) => {
                let first = make();
                let _ = make();
                first
            }
            Some(Fault::Repeated) => {
                let first = make();
                if call.changes() && call != Call::Create {
                    make()
                } else {
                    first
                }
            }
        }
    }
}

stand_in! { Faulty;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let aside = to.with_file_name(".nfs0001");
        let is_torn = self.torn_rename && to.exists();
        if is_torn {
            self.pass(Call::Rename, || std::fs::rename(to, &aside))?;
        }
        let renamed = self.pass(Call::Rename, || std::fs::rename(from, to));
        if is_torn {
            // As when it is closed; another process may have done so.
            let _ = std::fs::remove_file(aside);
        }
        renamed
    }
}
