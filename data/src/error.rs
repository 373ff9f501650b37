//! Errors of data preparation.

use std::fmt;
use std::io;

use pstrain_compute::examples::ShapeError;
use pstrain_compute::id::PartId;

use crate::nsl_kdd::ReadError;
use crate::partition::PartitionError;
use crate::sparse::LibsvmError;
use crate::synthetic::ProfileError;

/// Why data could not be loaded, split, encoded or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// A file is missing, damaged or in another format.
    Read(ReadError),
    /// A file of sparse rows is missing, damaged or in another format.
    Libsvm(LibsvmError),
    /// The profile of the synthetic data is malformed.
    Profile(ProfileError),
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
        problem: &'static str,
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
        column: &'static str,
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

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Libsvm(error) => error.fmt(f),
            Self::Profile(error) => error.fmt(f),
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
            Self::Read(error) => error.source(),
            Self::Libsvm(error) => error.source(),
            Self::Write(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ReadError> for DataError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<LibsvmError> for DataError {
    fn from(error: LibsvmError) -> Self {
        Self::Libsvm(error)
    }
}

impl From<ProfileError> for DataError {
    fn from(error: ProfileError) -> Self {
        Self::Profile(error)
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
