//! Errors of partitions.

use std::fmt;

use pstrain_compute::id::WorkerId;

/// Error for a text that does not describe a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownPartition {
    text: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq)]
enum Reason {
    Form(&'static str),
    Parameter(f64, &'static str),
}

impl UnknownPartition {
    pub(super) fn new(text: &str, forms: &'static str) -> Self {
        Self { text: text.to_owned(), reason: Reason::Form(forms) }
    }

    pub(super) fn parameter(text: &str, value: f64, allowed: &'static str) -> Self {
        Self { text: text.to_owned(), reason: Reason::Parameter(value, allowed) }
    }
}

impl fmt::Display for UnknownPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Form(forms) => {
                write!(f, "unknown partition {:?}; allowed are {forms}", self.text)
            }
            Reason::Parameter(value, allowed) => {
                write!(f, "partition {}: {value} must be {allowed}", self.text)
            }
        }
    }
}

impl std::error::Error for UnknownPartition {}

/// Error of a partition that cannot be made of these rows for these workers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PartitionError {
    /// A parameter is outside its range.
    Parameter {
        /// The partition in text form.
        partition: String,
        /// The value of the parameter.
        value: f64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// There are no workers, or more workers than rows.
    Workers {
        /// The number of workers.
        workers: u32,
        /// Number of training rows.
        rows: usize,
    },
    /// The number of sizes differs from the number of workers.
    Sizes {
        /// The number of sizes.
        sizes: usize,
        /// The number of workers.
        workers: u32,
    },
    /// A worker would have no training rows.
    Idle {
        /// The partition in text form.
        partition: String,
        /// The worker.
        worker: WorkerId,
        /// The number of workers.
        workers: u32,
    },
    /// No draw gave every worker enough rows.
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

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { partition, value, allowed } => {
                write!(f, "partition {partition}: {value} must be {allowed}")
            }
            Self::Workers { workers, rows } => write!(
                f,
                "{workers} workers for {rows} training rows; at least one worker, and one row for \
                 each, is needed"
            ),
            Self::Sizes { sizes, workers } => write!(
                f,
                "partition sizes: {sizes} sizes for {workers} workers; give one size per worker"
            ),
            Self::Idle { partition, worker, workers } => write!(
                f,
                "partition {partition} leaves worker {worker} of {workers} without rows; use fewer \
                 workers or another partition"
            ),
            Self::Dirichlet { alpha, minimum, workers, tries } => write!(
                f,
                "partition dirichlet:{alpha}: none of {tries} draws gave each of {workers} workers \
                 at least {minimum} rows (a mini-batch, or half of an even share); use a \
                 larger alpha, fewer workers or a smaller batch-size"
            ),
        }
    }
}

impl std::error::Error for PartitionError {}
