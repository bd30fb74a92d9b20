//! What is left over: scan, stop, settle, files of other programs, and pid files that are adopted. With real processes.

mod adopt;
mod legacy;
mod recipe;
mod records;
mod scan;
mod settle;
mod stop;
#[path = "../support/mod.rs"]
mod support;
