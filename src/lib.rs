//! Leases and run state for programs that share a home directory between machines: *who holds this, and can I tell from
//! here?*
//!
//! # The problem
//!
//! Login nodes of a cluster share one home directory, and no process table. A launcher on node A writes its bridge's pid
//! into a file. Node B reads that number, looks for it among its *own* processes, finds nothing or a stranger, and deletes
//! the record of a live bridge, kills the stranger, or starts a second writer. File locks are no help where the mount has
//! none, keeps them to itself, or loses them.
//!
//! A lease is a small file that its user names, such as `run/bridge.lease`. Its first line says which process of which
//! **host and boot** holds it. The shared filesystem is the only coordinator: no daemon, no database, no root.
//!
//! # The shortest example
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("bridge.lease");
//! use leasehold::{Lease, Verdict, judge};
//!
//! let lease = Lease::claim(&path)?; // released on drop, also by a panic that unwinds
//! let judgement = judge(&path);
//! match judgement.verdict {
//!     Verdict::Held => println!("in use: {}", judgement.sentence),
//!     Verdict::Free | Verdict::Dead => println!("a claim may take it"),
//!     Verdict::Lapsed => println!("its owner did not renew it; a claim that says so may take it"),
//!     Verdict::Undetermined => println!("{}", judgement.next("bridge.lease")),
//! }
//! # assert_eq!(judgement.verdict, Verdict::Held);
//! # drop(lease);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! There is deliberately no function that answers "is it alive?" with yes or no.
//!
//! # The verdicts
//!
//! | [`Verdict`] | it means | you may | you may not |
//! |---|---|---|---|
//! | [`Held`](Verdict::Held) | the recorded process, or its supervisor, is verified to run, here or by its own host or the file server | wait | take it; end it by its number ([`Stop`] ends it safely) |
//! | [`Dead`](Verdict::Dead) | verified *on its own host* that it does not run | claim it | repeat what it was doing, unless the [effect](verdict::Effect) says that it failed or was never noted |
//! | [`Undetermined`](Verdict::Undetermined) | it cannot be told from here; the [`Reason`] says why | see below | treat it as dead |
//! | [`Free`](Verdict::Free) | no record, or the claim was ended | claim it | |
//! | [`Lapsed`](Verdict::Lapsed) | not renewed within the owner's own ttl; it may still run | claim it with [`Claim::take_lapsed`] | assume that the owner has stopped |
//!
//! # What to do with undetermined
//!
//! Another host's process cannot be judged here, and nothing makes up an answer. For a caller that would *delete or take*,
//! undetermined is "in use"; for one that would *spawn or kill*, it is a refusal of its own. Then, from cheap to costly:
//!
//! - say what [`Judgement::next`] says: it names the host to ask, and the line to type;
//! - wait: [`Claim::wait`], or [`Judge::observe`] to see whether a lease with a ttl lapses;
//! - let the owner's host say it: [`Judge::settle`] there vacates the records of its own dead owners;
//! - let an operator decide: [`break_lease`] takes the lease away from whoever had it, and keeps the evidence.
//!
//! # Finding one's way
//!
//! | to | use |
//! |---|---|
//! | take a lease, on terms, in line | [`Claim`], [`Lease`] |
//! | work with a claim by its token, from any process | [`Holder`]: `verify` before a write, `renew`, `note`, `hand_over`, `release` |
//! | keep a lease while a command runs, and stop the command in time | [`Run`] |
//! | judge records | [`judge()`], [`Judge`]; a whole directory: [`Scan`] |
//! | end what certainly is the recorded process | [`Stop`] |
//! | name a record by any text | [`key::file_name`] |
//! | read what other programs' pid files and locks tell | [`legacy`] |
//! | judge saved [`Facts`] again elsewhere | [`verdict::judge`] |
//!
//! The pure parts ([`verdict`], [`ballot`], [`deadline`], [`Record`]) do no I/O; [`fs::Fs`], [`clock::Clock`] and
//! [`ProcessTable`] are the only doors to the disk, the time and the kernel, so that tests can stand in for them. Whole
//! programs to copy from are in the repository's `examples/`: `launcher`, `resume_guard`, `orphan_scan`.
//!
//! # What is guaranteed, and what is not
//!
//! - At most one claim is current, and its [epoch](Lease::epoch) is greater than that of every earlier one: a change of the
//!   record is a compare-and-swap on any filesystem whose rename and link are atomic. No crash wedges it. Over NFS a rename
//!   onto an open file may be two steps; a record is found by a second name then, where there are hard links.
//! - Dead is only said on evidence from the owner's own host, lapsed only by the owner's own ttl.
//! - A failing filesystem is an [`Error`] (or undetermined), never held and never free.
//!
//! - It guards those who ask. A program that writes without a lease, or deletes the record, is not stopped.
//! - A lease is not a fence: between [`Holder::verify`] and the write that follows a machine can pause for an hour. What must
//!   not mix goes into a file of its own epoch, or behind a resource that refuses smaller epochs.
//! - The [`Token`] is no secret. Authority is write permission on the record's directory.
//! - A lease without a ttl never lapses; one with a ttl has to be renewed, and nothing stops an owner that does not check.
//! - Not defended: a virtual machine cloned with its memory, a process restored by CRIU, one operator id on two hosts.
//!
//! # Features and platforms
//!
//! `cli`, on by default, is the command and what only it needs. A library user writes `default-features = false`. Nothing
//! else can be chosen. The oldest Rust is 1.88.
//!
//! Linux is complete. Elsewhere the library builds on the standard library alone: verdicts about processes are
//! undetermined, [`Run`] and [`Stop`] refuse, and nothing of that has been run on such a system.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod advice;
pub mod ballot;
mod breaking;
mod change;
mod claim;
pub mod clock;
pub mod deadline;
pub mod doctor;
mod error;
pub mod facts;
pub mod fs;
/// What only the fuzz targets of `fuzz/` call; no part of the library otherwise.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::platform::stat_fields;
}
#[cfg(all(target_os = "linux", not(leasehold_portable)))]
mod heart;
pub mod identity;
pub mod keeping;
pub mod key;
pub mod lapse;
mod lease;
pub mod legacy;
pub mod mount;
pub mod names;
mod observe;
mod orphans;
mod owner;
mod platform;
mod record;
mod run;
mod run_state;
mod scan;
mod settle;
mod stop;
#[cfg(all(target_os = "linux", not(leasehold_portable)))]
mod supervise;
pub mod testimony;
mod token;
pub mod verdict;

pub use breaking::{Broken, break_lease};
pub use claim::Claim;
pub use error::{Error, Result};
pub use facts::Facts;
pub use lease::{Holder, Lease, Unreleased};
pub use observe::{Judge, KernelTable, ProcessTable, judge, resolve};
pub use orphans::{Orphan, Standing};
pub use owner::{FORMAT, Keeper, OwnerLine, Pid, SHORTEST_TTL};
pub use record::{Flaw, LARGEST, Record};
pub use run::{Descendants, Ending, Report, Run, end_by_signal};
pub use run_state::{Outcome, RunState};
pub use scan::{Failure, Finding, MOST_JOBS, Scan, Swept, Tally};
pub use settle::Settlement;
pub use stop::{Signal, Stop, Stopped};
pub use token::{BadToken, Token};
pub use verdict::{Judgement, Reason, Verdict};

/// Its Rust is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
