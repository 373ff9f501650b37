//! Partitions: the assignment of training rows to workers.
//!
//! A [`PartitionSpec`] is the user's choice (`iid`, `dirichlet:0.1`, ...); [`assign()`] assigns
//! every training row to exactly one worker; [`Skew`] measures how much the workers' parts differ.

mod assign;
mod dirichlet;
mod error;
mod skew;
mod spec;

pub use assign::assign;
pub use error::PartitionError;
pub use skew::{Skew, WorkerSkew};
pub use spec::PartitionSpec;
