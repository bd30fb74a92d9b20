//! Leases and run state for programs that share a home directory between machines: *who holds this, and can I tell from
//! here?*
//!
//! A lease is a small file that its user names. Its first line, the owner line, says which process of which host and
//! boot holds it; the shared filesystem is the only coordinator. [`judge`] reads such a file and answers with one of five
//! verdicts; [`Lease::claim`] takes one. There is deliberately no function that answers "is it alive?" with yes or no:
//! what cannot be told from here is [`Verdict::Undetermined`], and is never to be treated as dead.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("bridge.lease");
//! use leasehold::{Lease, Verdict, judge};
//!
//! let lease = Lease::claim(&path)?; // released on drop, also by a panic
//! match judge(&path).verdict {
//!     Verdict::Held => println!("in use"),
//!     Verdict::Free | Verdict::Dead => println!("a claim may take it"),
//!     Verdict::Lapsed => println!("its owner did not renew it; a claim that says so may take it"),
//!     Verdict::Undetermined => println!("ask the owner's host"),
//! }
//! # drop(lease);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The pure parts ([`verdict`], [`ballot`], [`Record`]) do no I/O; [`fs::Fs`] is the only door to the disk.

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
#[cfg(all(target_os = "linux", not(leasehold_portable)))]
mod heart;
pub mod identity;
pub mod key;
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
