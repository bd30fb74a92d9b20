//! Work on a filesystem that may hang: done by a thread that can be left behind, with a filesystem that knows which of
//! its calls has not returned, and that refuses further ones when a signal has come, so that the work tidies up and ends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::facts::Hang;
use crate::fs::{Fs, Space, Stat};
use crate::platform::Interrupts;

/// How often it is looked whether a call hangs, or a signal has come.
const TICK: Duration = Duration::from_millis(20);

/// How long the work may take to tidy up after a signal.
const TIDY: Duration = Duration::from_secs(3);

/// A filesystem that is watched.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    fs: Arc<dyn Fs>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What each thread is waiting for, and since when.
    calls: Mutex<HashMap<ThreadId, (String, Instant)>>,
    /// Nothing new is begun.
    stopped: AtomicBool,
}

/// Why work did not come to its end.
#[derive(Debug)]
pub(super) enum Cut {
    /// A call has not returned in time.
    Hang(Hang),
    /// This signal has come.
    Signal(i32),
}

impl Watched {
    pub fn new(fs: Arc<dyn Fs>) -> Self {
        Self {
            fs,
            state: Arc::default(),
        }
    }

    /// Whether the work is to end.
    pub fn is_stopped(&self) -> bool {
        self.state.stopped.load(Ordering::Relaxed)
    }

    fn call<T>(&self, what: &str, on: &Path, make: impl FnOnce(&dyn Fs) -> io::Result<T>) -> io::Result<T> {
        if self.is_stopped() {
            return Err(io::Error::other("interrupted"));
        }
        self.tidy(what, on, make)
    }

    /// A call that takes something away: made also when the work is to end.
    fn tidy<T>(&self, what: &str, on: &Path, make: impl FnOnce(&dyn Fs) -> io::Result<T>) -> io::Result<T> {
        let calls = || self.state.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = std::thread::current().id();
        let operation = format!("{what} {}", on.display());
        calls().insert(thread, (operation.trim_end().to_owned(), Instant::now()));
        let made = make(&*self.fs);
        calls().remove(&thread);
        made
    }

    /// The call that has been under way for longest, if that is too long.
    fn hangs(&self, limit: Duration) -> Option<Hang> {
        let calls = self.state.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (operation, since) = calls.values().min_by_key(|(_, since)| *since)?;
        let time = since.elapsed();
        (time > limit).then(|| Hang {
            operation: operation.clone(),
            seconds: time.as_secs_f64(),
        })
    }

    /// Does work in a thread of its own, until it has ended, hangs, or a signal has come. Returns the last of what it
    /// sent, and why it was cut short, if it was.
    pub fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        interrupts: Option<&Interrupts>,
        work: impl FnOnce(Sender<T>) + Send + 'static,
    ) -> (Option<T>, Option<Cut>) {
        let (out, results) = mpsc::channel();
        let worker = std::thread::spawn(move || work(out));
        let (mut last, mut signal) = (None, None);
        loop {
            match results.recv_timeout(TICK) {
                Ok(result) => last = Some(result),
                Err(RecvTimeoutError::Disconnected) => {
                    if let Err(panic) = worker.join() {
                        std::panic::resume_unwind(panic);
                    }
                    return (last, signal.map(|(signal, _)| Cut::Signal(signal)));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if signal.is_none()
                && let Some(number) = interrupts.and_then(Interrupts::take)
            {
                self.state.stopped.store(true, Ordering::Relaxed);
                signal = Some((number, Instant::now()));
            }
            if let Some((number, since)) = signal
                && since.elapsed() > TIDY
            {
                return (last, Some(Cut::Signal(number)));
            }
            if let Some(hang) = self.hangs(limit) {
                return (last, Some(Cut::Hang(hang)));
            }
        }
    }
}

impl Fs for Watched {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.call("stat", path, |fs| fs.stat(path))
    }

    fn stat_file(&self, file: &File) -> io::Result<Stat> {
        self.call("fstat", Path::new(""), |fs| fs.stat_file(file))
    }

    fn is_named(&self, file: &File, path: &Path) -> io::Result<bool> {
        self.call("lookup", path, |fs| fs.is_named(file, path))
    }

    fn ask(&self, path: &Path) -> io::Result<()> {
        self.call("lookup", path, |fs| fs.ask(path))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.call("open", path, |fs| fs.open(path))
    }

    fn reopen(&self, path: &Path) -> io::Result<File> {
        self.call("open", path, |fs| fs.reopen(path))
    }

    fn read(&self, file: &File, limit: usize) -> io::Result<Vec<u8>> {
        self.call("read", Path::new(""), |fs| fs.read(file, limit))
    }

    fn create(&self, path: &Path, like: Option<&Stat>) -> io::Result<File> {
        self.call("create", path, |fs| fs.create(path, like))
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.call("write", Path::new(""), |fs| fs.write_at(file, bytes, offset))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.call("sync", Path::new(""), |fs| fs.sync(file))
    }

    fn lock(&self, file: &File) -> io::Result<()> {
        self.call("flock", Path::new(""), |fs| fs.lock(file))
    }

    fn is_locked(&self, file: &File) -> io::Result<bool> {
        self.call("fcntl F_OFD_GETLK", Path::new(""), |fs| fs.is_locked(file))
    }

    fn read_link(&self, link: &Path) -> io::Result<OsString> {
        self.call("readlink", link, |fs| fs.read_link(link))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("link", to, |fs| fs.link(from, to))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename onto", to, |fs| fs.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.tidy("unlink", path, |fs| fs.unlink(path))
    }

    fn list(&self, dir: &Path, limit: usize) -> io::Result<Vec<OsString>> {
        self.tidy("list", dir, |fs| fs.list(dir, limit))
    }

    fn touch(&self, file: &File) -> io::Result<()> {
        self.call("futimens", Path::new(""), |fs| fs.touch(file))
    }

    fn lock_range(&self, file: &File) -> io::Result<()> {
        self.call("fcntl F_OFD_SETLK", Path::new(""), |fs| fs.lock_range(file))
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.call("statvfs", dir, |fs| fs.space(dir))
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.call("mkdir", dir, |fs| fs.make_dir(dir))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.tidy("rmdir", dir, |fs| fs.remove_dir(dir))
    }
}
