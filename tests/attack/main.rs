//! Another user may write to the directory, and plants what does harm elsewhere: no file outside is written, no process is
//! signalled, nothing hangs, and nothing that is printed drives a terminal. `docs/security.md` says what is left to them.
//!
//! Root's work: two users, and devices on a filesystem of the test's own. Single cases that need neither stand with their
//! verbs: `tests/odd_paths.rs` (paths of every kind, ballots of nobody), `tests/command/output.rs`, `tests/orphans/stop.rs`.
#![cfg(target_os = "linux")]

mod beside;
mod crowd;
mod forged;
mod place;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod writers;
