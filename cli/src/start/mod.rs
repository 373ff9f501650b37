//! The way of a start: arguments become a [`Plan`], [`open()`] opens listener, state folder,
//! records and node from it, [`serve()`] runs the node to the end of the run, [`report()`] writes
//! the results and gives the exit code.
//!
//! A server has the job (the coordinator, a standby) or gets it from the coordinator (a shard): the
//! two differ in the plan, in what is opened and in the report, but not in the loop.

mod describe;
mod door;
mod host;
mod in_process;
mod kept;
mod last_words;
mod open;
mod plan;
mod report;
mod serve;

use std::hash::{BuildHasher, Hasher, RandomState};

pub(crate) use door::Door;
pub(crate) use host::{JobServer, Training, shard_config};
pub(crate) use in_process::{InProcess, KeptShard};
pub(crate) use open::open;
pub(crate) use plan::{Begins, Keeps, Plan, begins_with, gather};
pub(crate) use report::report;
pub(crate) use serve::{Lives, serve};

/// Returns a random number that tells a run from an earlier one at the same address: the one number
/// that no seed may decide.
fn fresh_run() -> u64 {
    RandomState::new().build_hasher().finish()
}
