//! `leasehold run` with real processes, signals, terminals and descriptors: what a user would see of each promise.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod contain;
mod descendants;
mod end;
mod keys;
mod line;
mod loss;
mod recipes;
mod scene;
mod signals;
mod start;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
