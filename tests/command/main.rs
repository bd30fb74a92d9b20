//! The command as its users see it: what every verb prints, where, and with which code it ends.
#![cfg(target_os = "linux")]

mod claim;
mod holder;
mod judge;
mod output;
mod show;
#[path = "../support/mod.rs"]
mod support;
