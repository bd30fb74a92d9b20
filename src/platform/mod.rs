//! Every difference between operating systems, and every `unsafe`. The rest of the crate calls these functions only.
//!
//! Linux is complete. Elsewhere a function answers what it can, and what it cannot tell is `None`: the verdict rules
//! make that an `undetermined`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::facts::ProcessFacts;
use crate::fs::{Space, Stat};
use crate::mount::{LockReach, Mount};
use crate::owner::Pid;

#[cfg(all(target_os = "linux", not(leasehold_portable)))]
mod linux;
#[cfg(all(target_os = "linux", not(leasehold_portable)))]
use linux as os;

#[cfg(not(all(target_os = "linux", not(leasehold_portable))))]
mod other;
#[cfg(not(all(target_os = "linux", not(leasehold_portable))))]
use other as os;

#[cfg(fuzzing)]
pub use os::stat_fields;
pub(crate) use os::{ExitWatch, Interrupts};
#[cfg(all(target_os = "linux", not(leasehold_portable)))]
pub(crate) use os::{cgroup, child};

/// 128 bits from the kernel's generator.
pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers once the system has booted");
    u128::from_ne_bytes(bytes)
}

/// gethostname(2).
pub(crate) fn host_name() -> OsString {
    gethostname::gethostname()
}

/// The raw machine id, as it stands in its file, unchecked.
pub(crate) fn machine_id() -> Option<String> {
    os::machine_id()
}

/// The id of this boot.
pub(crate) fn boot_id() -> Option<String> {
    os::boot_id()
}

/// The inode of this process's pid namespace.
pub(crate) fn pid_namespace() -> Option<u64> {
    os::namespace("pid")
}

/// The inode of this process's time namespace.
pub(crate) fn time_namespace() -> Option<u64> {
    os::namespace("time")
}

/// Whether `/proc` shows the pid namespace in which this process lives.
pub(crate) fn proc_is_own() -> Option<bool> {
    os::proc_is_own()
}

/// Time since boot, suspend included: CLOCK_BOOTTIME, clock_gettime(2).
pub(crate) fn since_boot() -> Duration {
    os::since_boot()
}

/// The calling user.
pub(crate) fn uid() -> Option<u32> {
    os::uid()
}

/// The effective user and group of a process.
pub(crate) fn process_user(pid: Pid) -> Option<(u32, u32)> {
    os::process_user(pid)
}

/// Ends this process by a signal, without a core; returns where that is not possible.
pub(crate) fn end_by_signal(signal: i32) {
    os::end_by_signal(signal);
}

/// Asks the process table about one pid of this namespace; with `pidfd` also for its pidfs inode.
pub(crate) fn probe(pid: Pid, pidfd: bool) -> ProcessFacts {
    os::probe(pid, pidfd)
}

/// The beginning of a process's command line, for people only.
pub(crate) fn command_line(pid: Pid) -> Option<String> {
    os::command_line(pid).map(|line| shown(&line))
}

/// As much of a command line as a record keeps.
pub(crate) fn shown(line: &str) -> String {
    line.chars().take(256).collect()
}

/// The name of a process, for people only, where it has no command line.
pub(crate) fn process_name(pid: Pid) -> Option<String> {
    os::process_name(pid)
}

/// When a process with this start time was born: a reading of the wall clock in this host's zone, as the seconds since
/// 1970 that it would be in UTC. Never an identity.
pub(crate) fn born(start: u64) -> Option<i64> {
    os::born(start)
}

/// Whether some process of this host has a file locked, by flock(2) or fcntl(2); no lock is taken to find out.
pub(crate) fn has_local_lock(stat: &Stat) -> Option<bool> {
    os::has_local_lock(stat)
}

/// Whether a process sees the same mounts as this one, so that a path means the same to both.
pub(crate) fn shares_mounts(pid: Pid) -> Option<bool> {
    os::shares_mounts(pid)
}

/// A name or value of the system, out of its bytes.
pub(crate) fn os_string(bytes: &[u8]) -> OsString {
    os::os_string(bytes)
}

/// The number of a signal by its name, with or without `SIG`, or by its number.
pub(crate) fn signal_number(name: &str) -> Option<i32> {
    os::signal_number(name)
}

/// The name of a signal, with `SIG`.
pub(crate) fn signal_name(number: i32) -> Option<&'static str> {
    os::signal_name(number)
}

/// Opens a record for reading: never follows a link at the last component, never waits for a FIFO's other end.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    os::open(path)
}

/// Opens a record for reading and writing, as [`open`] does.
pub(crate) fn reopen(path: &Path) -> io::Result<File> {
    os::reopen(path)
}

/// Creates a file that must not exist, for reading and writing, with exactly this mode and group where given, and
/// 0666 less the umask otherwise.
pub(crate) fn create(path: &Path, like: Option<&Stat>) -> io::Result<File> {
    os::create(path, like)
}

/// What is at a path, not followed, asked of the file server itself where there is one (statx(2), AT_STATX_FORCE_SYNC).
pub(crate) fn stat(path: &Path) -> io::Result<Stat> {
    os::stat(path)
}

/// The same about an open file.
pub(crate) fn stat_file(file: &File) -> io::Result<Stat> {
    os::stat_file(file)
}

/// Whether a path, which the file server has just been asked about, is a name of this open file.
pub(crate) fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    os::is_named(file, path)
}

/// Reads from an offset; fewer bytes than asked for only at the end of the file.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    os::read_at(file, buffer, offset)
}

/// Writes all bytes at an offset.
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    os::write_at(file, bytes, offset)
}

/// Whether another open file description holds a lock on any part of the file (F_OFD_GETLK, fcntl(2)). On a local
/// filesystem flock(2) locks are not seen this way.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    os::is_locked(file)
}

/// Takes an exclusive lock on the whole file (F_OFD_SETLK, fcntl(2)), without waiting.
pub(crate) fn lock_range(file: &File) -> io::Result<()> {
    os::lock_range(file)
}

/// Sets a file's times to now: by the clock of whoever stores it, where the system has a way to say so.
pub(crate) fn touch(file: &File) -> io::Result<()> {
    os::touch(file)
}

/// What is left of a filesystem.
pub(crate) fn space(dir: &Path) -> io::Result<Space> {
    os::space(dir)
}

/// The mount that a path lies on.
pub(crate) fn mount_of(path: &Path) -> Option<Mount> {
    os::mount_of(path)
}

/// The name that this host is given when it boots, where that is written down.
pub(crate) fn static_host_name() -> Option<String> {
    os::static_host_name()
}

/// Does work in a process of its own, which is left behind if it cannot end; the code that it comes to, or the signal that
/// ended it. In this very process where it has other threads, or no other process can be had.
pub(crate) fn apart(work: impl Fn() -> u8) -> Result<u8, i32> {
    if os::is_single_threaded() {
        // SAFETY: this is the only thread.
        if let Ok(done) = unsafe { os::apart(&work) } {
            return done;
        }
    }
    Ok(work())
}

/// How far an advisory lock on a file in this directory reaches. Reads mountinfo only on filesystems that hosts share.
pub(crate) fn lock_reach(dir: &Path) -> LockReach {
    os::lock_reach(dir)
}

/// Whether a file lies on a filesystem that other hosts may see too; `false` where that cannot be told.
pub(crate) fn is_on_network(path: &Path) -> bool {
    os::is_on_network(path)
}

/// Whether an error says that this filesystem does not have the call at all.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error().is_some_and(os::is_unsupported)
}

/// Whether an error says that the file behind a name or descriptor is gone from its server: look again.
pub(crate) fn is_stale(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}

/// Whether an error says that the path is a symbolic link, which is not followed.
pub(crate) fn is_symlink_refusal(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(os::is_symlink_refusal)
}
