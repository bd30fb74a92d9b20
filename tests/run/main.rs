//! `leasehold run` with real processes, signals, terminals and descriptors: what a user would see of each promise.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod contain;
mod descendants;
mod end;
mod keys;
mod line;
mod loss;
mod recipes;
mod signals;
#[path = "../support/stand_in.rs"]
mod stand_in;
mod start;
mod support;
mod terminal;
