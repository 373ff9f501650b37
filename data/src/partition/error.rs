//! Errors of partitions.

use pstrain_compute::counted::counted;
use pstrain_compute::id::WorkerId;
use pstrain_compute::named::Number;
use thiserror::Error;

/// Error of a partition that cannot be made of these rows for these workers.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum PartitionError {
    /// A parameter is outside its range.
    #[error("partition {partition}: {}", number.must())]
    Parameter {
        /// The partition in text form.
        partition: String,
        /// The declaration of the parameter.
        number: Number,
    },
    /// There are no workers, or more workers than rows.
    #[error(
        "{} for {}; at least one worker, and one row for each, is needed",
        counted(*.workers, "worker"),
        counted(*.rows as u64, "training row")
    )]
    Workers {
        /// The number of workers.
        workers: u32,
        /// Number of training rows.
        rows: usize,
    },
    /// Rows that are each worker's own were to be assigned to workers.
    #[error(
        "partition local: each worker has rows of its own: write {{worker}} in data, which stands \
         for the worker's number"
    )]
    Local,
    /// The number of sizes differs from the number of workers.
    #[error(
        "partition sizes: {} for {}; give one size per worker",
        counted(*.sizes as u64, "size"),
        counted(*.workers, "worker")
    )]
    Sizes {
        /// The number of sizes.
        sizes: usize,
        /// The number of workers.
        workers: u32,
    },
    /// A worker would have no training rows.
    #[error(
        "partition {partition} leaves worker {worker} of {workers} without rows; use fewer workers \
         or another partition"
    )]
    Idle {
        /// The partition in text form.
        partition: String,
        /// The worker.
        worker: WorkerId,
        /// The number of workers.
        workers: u32,
    },
    /// No draw gave every worker enough rows.
    #[error(
        "partition dirichlet:{alpha}: none of {tries} draws gave each of {workers} workers at \
         least {minimum} rows (a mini-batch, or half of an even share); use a larger alpha, fewer \
         workers or a smaller batch-size"
    )]
    Dirichlet {
        /// The concentration.
        alpha: f64,
        /// Minimum rows of every worker.
        minimum: u32,
        /// The number of workers.
        workers: u32,
        /// Number of draws.
        tries: u32,
    },
}
