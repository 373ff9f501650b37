//! Partitions: which worker trains on which rows.
//!
//! A [`PartitionSpec`] is what a person writes (`iid`, `dirichlet:0.1`, ...); [`assign()`] gives
//! every training row to exactly one worker; [`Skew`] measures how unlike the workers' parts are.

mod assign;
mod dirichlet;
mod error;
mod skew;
mod spec;

pub use assign::assign;
pub use error::{PartitionError, UnknownPartition};
pub use skew::{Skew, WorkerSkew};
pub use spec::PartitionSpec;
