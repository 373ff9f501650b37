//! Errors of data preparation.

use std::io;

use pstrain_compute::counted::counted;
use pstrain_compute::examples::ShapeError;
use pstrain_compute::id::PartId;
use thiserror::Error;

use crate::info::PREDICTED;
use crate::memory::Shortage;
use crate::partition::PartitionError;

/// Why data could not be loaded, split, encoded or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file is missing, damaged or in another format. The error is the format's own.
    #[error(transparent)]
    Format(Box<dyn std::error::Error + Send + Sync>),
    /// The rows are of another kind than the job's.
    #[error(
        "{data}: its rows are {kind}, those of the job are {wanted}; give a copy of the job's data"
    )]
    Kind {
        /// The description of the dataset.
        data: String,
        /// The kind of its rows.
        kind: &'static str,
        /// The kind of the job's rows.
        wanted: String,
    },
    /// The rows cannot be partitioned as requested.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A setting is outside its range.
    #[error("{name} {value}: must be {allowed}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// There are fewer or more rows than can be trained on.
    #[error("{data}: {}, but {allowed}", counted(*.rows, "row"))]
    Rows {
        /// The description of the dataset.
        data: String,
        /// Number of rows.
        rows: u64,
        /// The allowed number.
        allowed: &'static str,
    },
    /// The rows take more memory than is left.
    #[error(
        "{data}: {rows} {what} take {} MiB, but {} MiB of memory are left; {advice}",
        mebibytes(.shortage.needed),
        mebibytes(.shortage.left)
    )]
    Memory {
        /// The description of the dataset.
        data: String,
        /// Number of rows.
        rows: u64,
        /// The rows or buffers that take the memory.
        what: &'static str,
        /// The cure.
        advice: &'static str,
        /// The numbers of bytes.
        shortage: Shortage,
    },
    /// The job's model cannot be evaluated on the rows.
    #[error(
        "{data} cannot be evaluated on: {problem}; give rows of the kind that the model is trained \
         on"
    )]
    Evaluation {
        /// The description of the dataset.
        data: String,
        /// The problem.
        problem: String,
    },
    /// Nothing says which columns and classes the rows of workers have that each have their own.
    #[error(
        "partition local: the server has no training rows that show their columns and classes: \
         give a profile of them (csv:FILE,profile=PROFILE in data; `pstrain data profile` writes \
         it), or rows to evaluate on (evaluation-data)"
    )]
    Schemaless,
    /// Rows of the node's own do not have the columns or classes of the job.
    #[error(
        "{problem}; columns and classes of the job are those of its profile or of its evaluation \
         data: give this node's rows the same, or train with a profile of all workers' rows \
         (`pstrain data profile`)"
    )]
    Foreign {
        /// The difference.
        problem: Box<Self>,
    },
    /// The job does not have the partition.
    #[error("partition {part} is none of the job's {parts} (1 to {parts})")]
    Part {
        /// The partition.
        part: PartId,
        /// The number of partitions.
        parts: u32,
    },
    /// The data specification contradicts itself.
    #[error("data specification: {problem}; use the same pstrain release on server and workers")]
    Specification {
        /// The contradiction.
        problem: &'static str,
    },
    /// A value is so far from its column's mean that it exceeds `f32` after standardisation.
    #[error(
        "column {column}: a value is too far from the column's mean to be standardised; repair or \
         remove the record"
    )]
    Range {
        /// The column.
        column: String,
    },
    /// A file changed while it was read.
    #[error("{data}: the file changed while it was read; try again")]
    Changed {
        /// The description of its dataset.
        data: String,
    },
    /// An encoded record does not fit the recipe's shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Records cannot be written.
    #[error("cannot write records")]
    Write(#[source] io::Error),
}

/// Bytes in MiB, with one decimal.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1024.0 / 1024.0)
}

impl DataError {
    /// Reads a worker's own rows by `read`. Says in the error how they get the columns and classes
    /// of the job.
    pub(crate) fn of_local<T>(read: impl FnOnce() -> Result<T, Self>) -> Result<T, Self> {
        read().map_err(|error| match error {
            Self::Format(_) | Self::Shape(_) => Self::Foreign { problem: Box::new(error) },
            other => other,
        })
    }

    /// The error of a value of a dense column, of those with these names.
    pub(crate) fn range(names: &[String], column: usize) -> Self {
        Self::Range { column: names.get(column).cloned().unwrap_or_default() }
    }

    /// The error of a number to predict that cannot be standardised.
    pub(crate) fn of_label() -> Self {
        Self::Range { column: PREDICTED.into() }
    }

    /// An error of a data format.
    pub fn format(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Format(error.into())
    }
}
