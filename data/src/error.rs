//! Errors of data preparation.

use std::fmt;
use std::io;

use pstrain_compute::examples::ShapeError;
use pstrain_compute::id::PartId;

use crate::partition::PartitionError;

/// Why data could not be loaded, split, encoded or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// A file is missing, damaged or in another format. The error is the format's own.
    Format(Box<dyn std::error::Error + Send + Sync>),
    /// The rows are of another kind than the job's.
    Kind {
        /// The source of the rows.
        source: String,
        /// The kind of its rows.
        kind: &'static str,
        /// The kind of the job's rows.
        wanted: String,
    },
    /// The rows cannot be partitioned as requested.
    Partition(PartitionError),
    /// A setting is outside its range.
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// There are fewer or more rows than can be trained on.
    Rows {
        /// The source of the rows.
        source: String,
        /// Number of rows.
        rows: u64,
        /// The allowed number.
        allowed: &'static str,
    },
    /// The job's model cannot be evaluated on the rows.
    Evaluation {
        /// The source of the rows.
        source: String,
        /// The problem.
        problem: String,
    },
    /// The job does not have the partition.
    Part {
        /// The partition.
        part: PartId,
        /// The number of partitions.
        parts: u32,
    },
    /// The data specification contradicts itself.
    Specification {
        /// The contradiction.
        problem: &'static str,
    },
    /// A value is so far from its column's mean that it exceeds `f32` after standardisation.
    Range {
        /// The column.
        column: String,
    },
    /// A file changed while it was read.
    Changed {
        /// The file.
        source: String,
    },
    /// An encoded record does not fit the recipe's shape.
    Shape(ShapeError),
    /// Records cannot be written.
    Write(io::Error),
}

impl DataError {
    /// An error of a data format.
    pub fn format(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Format(error.into())
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(error) => error.fmt(f),
            Self::Kind { source, kind, wanted } => write!(
                f,
                "{source}: its rows are {kind}, those of the job are {wanted}; give a copy of the \
                 job's data"
            ),
            Self::Partition(error) => error.fmt(f),
            Self::Shape(error) => error.fmt(f),
            Self::Setting { name, value, allowed } => {
                write!(f, "{name} {value}: must be {allowed}")
            }
            Self::Rows { source, rows, allowed } => {
                write!(f, "{source}: {rows} rows, but {allowed}")
            }
            Self::Evaluation { source, problem } => write!(
                f,
                "{source} cannot be evaluated on: {problem}; give rows of the kind that the model \
                 is trained on"
            ),
            Self::Part { part, parts } => {
                write!(f, "partition {part} is none of the job's {parts} (1 to {parts})")
            }
            Self::Specification { problem } => write!(
                f,
                "data specification: {problem}; use the same pstrain release on server and workers"
            ),
            Self::Range { column } => write!(
                f,
                "column {column}: a value is too far from the column's mean to be standardised; \
                 repair or remove the record"
            ),
            Self::Changed { source } => {
                write!(f, "{source}: the file changed while it was read; try again")
            }
            Self::Write(_) => f.write_str("cannot write records"),
        }
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The text of the inner error is already the text of this error, so only its source is
            // returned.
            Self::Format(error) => error.source(),
            Self::Write(error) => Some(error),
            _ => None,
        }
    }
}

impl From<PartitionError> for DataError {
    fn from(error: PartitionError) -> Self {
        Self::Partition(error)
    }
}

impl From<ShapeError> for DataError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}
