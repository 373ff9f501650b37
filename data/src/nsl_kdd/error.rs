//! What can be wrong with a file, told so that it can be put right.

use std::fmt;
use std::io;

use super::schema::{COLUMN_NAMES, category_groups};

/// A file that could not be read as NSL-KDD.
#[derive(Debug)]
pub struct ReadError {
    /// The file, as it was named.
    pub file: String,
    /// The line, counted from 1, where the problem belongs to one.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a file or one of its lines. Columns are counted from 1.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be opened or read.
    Io(io::Error),
    /// A compressed file that ends early or is damaged.
    Damaged {
        /// The compression, as its file name ending is known.
        compression: &'static str,
        /// What the decompressor said.
        source: io::Error,
    },
    /// No line at all.
    Empty,
    /// A folder without a file of a known name.
    NoFile {
        /// The names that were looked for.
        tried: Vec<String>,
    },
    /// The line is not text, or longer than any record.
    NotText,
    /// The first line names the columns.
    Header,
    /// A wrong number of columns.
    Width {
        /// How many the line has.
        found: usize,
        /// How many the lines before it have, if there are any.
        before: Option<usize>,
    },
    /// Not a number.
    NotNumber {
        /// The column.
        column: usize,
        /// What stands there.
        value: String,
    },
    /// A number that is infinite, not a number, or too large to compute with.
    NotFinite {
        /// The column.
        column: usize,
        /// What stands there.
        value: String,
    },
    /// A protocol, service or flag that the data set does not know.
    Category {
        /// The column.
        column: usize,
        /// What stands there.
        value: String,
    },
    /// A label that is neither `normal` nor a known attack.
    Attack {
        /// What stands there.
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
                        "a record has 43 (41 features, label, difficulty) or 42 (without \
                         difficulty), separated by commas",
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

/// A column by number and name.
struct Column(usize);

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.checked_sub(1).and_then(|index| COLUMN_NAMES.get(index));
        write!(f, "column {} ({})", self.0, name.unwrap_or(&"unnamed"))
    }
}
