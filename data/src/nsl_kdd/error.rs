//! Errors of a file, with the information that is needed to repair it.

use std::fmt;
use std::io;

use super::schema::{COLUMN_NAMES, category_groups};

/// Error for a file that cannot be read as NSL-KDD.
#[derive(Debug)]
pub struct ReadError {
    /// The path of the file, as it was given.
    pub file: String,
    /// The line of the problem, counted from 1, if it is in a line.
    pub line: Option<u64>,
    /// The problem.
    pub problem: Problem,
}

/// A problem of a file or one of its lines. Columns are counted from 1.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be opened or read.
    Io(io::Error),
    /// A compressed file ends early or is damaged.
    Damaged {
        /// The name of the compression, such as `gzip`.
        compression: &'static str,
        /// The error of the decompressor.
        source: io::Error,
    },
    /// The file has no records.
    Empty,
    /// The folder has no file with a known name.
    NoFile {
        /// The names that were tried.
        tried: Vec<String>,
    },
    /// The line is not text, or longer than any record.
    NotText,
    /// The first line names the columns.
    Header,
    /// The line has a wrong number of columns.
    Width {
        /// Number of columns of the line.
        found: usize,
        /// Number of columns of the lines before it, if there are any.
        before: Option<usize>,
    },
    /// The field is not a number.
    NotNumber {
        /// The column.
        column: usize,
        /// The content of the field.
        value: String,
    },
    /// The number is NaN, infinite, or too large for `f32`.
    NotFinite {
        /// The column.
        column: usize,
        /// The content of the field.
        value: String,
    },
    /// The data set has no such protocol, service or flag.
    Category {
        /// The column.
        column: usize,
        /// The content of the field.
        value: String,
    },
    /// The label is neither `normal` nor a known attack.
    Attack {
        /// The content of the field.
        value: String,
    },
}

impl ReadError {
    pub(crate) fn whole(file: &str, problem: Problem) -> Self {
        Self { file: file.to_owned(), line: None, problem }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        self.problem.fmt(f)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(source) | Problem::Damaged { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("cannot be read"),
            Self::Damaged { compression, .. } => write!(
                f,
                "{compression}-compressed file is damaged or ends early; fetch or pack it again"
            ),
            Self::Empty => f.write_str(
                "empty file; expected NSL-KDD records (41 features, label, difficulty), one a line",
            ),
            Self::NoFile { tried } => {
                write!(f, "no data file in this folder; looked for {}", tried.join(", "))
            }
            Self::NotText => f.write_str(
                "not text; expected a plain NSL-KDD file, or one packed with gzip, xz or zstd",
            ),
            Self::Header => f.write_str(
                "the first line names the columns, but NSL-KDD files have no header; remove that \
                 line",
            ),
            Self::Width { found, before } => {
                let columns = if *found == 1 { "column" } else { "columns" };
                write!(f, "{found} {columns}, but ")?;
                match before {
                    Some(before) => write!(f, "the lines before have {before}; repair this line"),
                    None => f.write_str(
                        "a record of NSL-KDD has 43 (41 features, label, difficulty) or 42 \
                         (without difficulty), separated by commas; other data have their format \
                         before the path: csv:FILE is a table whose first line names its columns",
                    ),
                }
            }
            Self::NotNumber { column, value } => {
                write!(f, "{}: {value:?} is not a number", Column(*column))
            }
            Self::NotFinite { column, value } => write!(
                f,
                "{}: {value:?} is not a finite number; repair or remove the record",
                Column(*column)
            ),
            Self::Category { column, value } => {
                let (name, allowed) = category_groups()[(column - 2).min(2)];
                let what = name.trim_end_matches("_type");
                write!(f, "{}: unknown {what} {value:?}; allowed are ", Column(*column))?;
                f.write_str(&allowed.join(", "))
            }
            Self::Attack { value } => {
                write!(f, "{}: unknown attack {value:?}; ", Column(42))?;
                f.write_str(match value.strip_suffix('.') {
                    Some(_) => {
                        "names in NSL-KDD have no full stop; this may be a KDD Cup 1999 \
                        file"
                    }
                    None => "expected normal or one of the data set's 39 attacks, such as neptune",
                })
            }
        }
    }
}

/// A column with its name, for messages.
struct Column(usize);

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.checked_sub(1).and_then(|index| COLUMN_NAMES.get(index));
        write!(f, "column {} ({})", self.0, name.unwrap_or(&"unnamed"))
    }
}
