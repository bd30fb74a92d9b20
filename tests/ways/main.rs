//! The ways out of `undetermined`: asking the file server, asking the owner's host, and an operator's decision.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod ask;
mod breaking;
mod place;
mod policy;
mod server;
mod ssh;
#[path = "../support/mod.rs"]
mod support;
