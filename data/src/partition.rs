//! Partitions: the assignment of training rows to workers.
//!
//! A [`PartitionSpec`] is the user's choice (`iid`, `dirichlet:0.1`, ...); [`assign()`] assigns
//! every training row to exactly one worker; [`Skew`] measures how much the workers' parts differ.
//! Partitions that go by class take the deciles of a number to predict for its classes.

mod assign;
mod dirichlet;
mod error;
mod parts;
mod skew;
mod spec;
mod strata;

pub use assign::assign;
pub use error::PartitionError;
pub(crate) use parts::Parts;
pub use skew::{Skew, WorkerSkew};
pub use spec::PartitionSpec;
pub use strata::{groups, groups_of};
