//! What is left over: scan, stop, settle, files of other programs, and pid files that are adopted. With real processes.

mod adopt;
mod legacy;
mod recipe;
mod scan;
mod settle;
#[path = "../support/stand_in.rs"]
mod stand_in;
mod stop;
mod support;
