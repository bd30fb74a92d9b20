//! scripts/leasehold.sh in every shell that it is for, and scripts/sample-launcher.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod answers;
mod caller;
mod sample;
mod shells;
#[path = "../support/mod.rs"]
mod support;
mod tick;
