//! Reads the records of a table.

use std::fmt::Display;
use std::io::{BufRead as _, Read};
use std::path::{Path, PathBuf};

use csv::{ByteRecord, ReaderBuilder, Trim};

use crate::decompress::open;
use crate::error::DataError;

/// Separators of columns; the most frequent one in the header is the file's.
const SEPARATORS: [u8; 3] = *b",;\t";
/// Maximum length of a text in an error, in characters.
const QUOTED: usize = 40;
/// Texts that stand for a missing value, whatever their case.
const MISSING: [&str; 6] = ["", "?", "na", "n/a", "nan", "null"];

/// The records of a table, one at a time.
pub(super) struct Reader {
    path: PathBuf,
    records: csv::Reader<Box<dyn Read>>,
    record: ByteRecord,
    /// Lines that the CSV reader has not counted yet where a record begins: after a CR it takes
    /// the LF for a part of the next record.
    uncounted: u64,
    /// The names of the columns.
    header: Vec<String>,
}

impl Reader {
    /// Opens a file and reads its header, which shows the delimiter if none is given.
    pub(super) fn open(path: &Path, delimiter: Option<u8>) -> Result<Self, DataError> {
        let unread = |error| broken(path, None, &format!("cannot be read: {error}"));
        let mut bytes = open(path).map_err(unread)?.bytes;
        let begin = bytes.fill_buf().map_err(unread)?;
        let first = begin.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let uncounted = u64::from(first.ends_with(b"\r"));
        let count = |separator: &u8| first.iter().filter(|byte| *byte == separator).count();
        // Of separators that are equally frequent, the last one is taken: the comma.
        let frequent = || SEPARATORS.into_iter().rev().max_by_key(count).unwrap_or(b',');
        let separator = delimiter.unwrap_or_else(frequent);
        let bytes: Box<dyn Read> = Box::new(bytes);
        let builder = &mut ReaderBuilder::new();
        let mut records = builder.delimiter(separator).trim(Trim::All).from_reader(bytes);
        let header = records.headers().map_err(|error| broken(path, None, &problem(&error)))?;
        let names = header.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned());
        let header: Vec<String> = names.collect();
        check_header(&header, separator).map_err(|problem| broken(path, None, &problem))?;
        let (path, record) = (path.to_owned(), ByteRecord::new());
        Ok(Self { path, records, record, uncounted, header })
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    /// The index of the column called `name`.
    pub(super) fn place(&self, name: &str) -> Result<usize, DataError> {
        self.header.iter().position(|it| it == name).ok_or_else(|| {
            let names = self.header.join(", ");
            broken(&self.path, None, &format!("it has no column {name:?}; its columns are {names}"))
        })
    }

    /// Reads the next record; false at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, DataError> {
        let Self { records, record, path, uncounted, .. } = self;
        records.read_byte_record(record).map_err(|error| {
            let line = error.position().map(|begin| begin.line() + *uncounted);
            broken(path, line, &problem(&error))
        })
    }

    /// A value of the record; none if it is missing.
    pub(super) fn value(&self, column: usize) -> Result<Option<&str>, DataError> {
        let bytes = self.record.get(column).unwrap_or_default();
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(self.refused(column, "is no text in UTF-8"));
        };
        Ok((!MISSING.iter().any(|it| it.eq_ignore_ascii_case(text))).then_some(text))
    }

    /// True if the record lacks one of these values.
    pub(super) fn lacks(&self, columns: &[usize]) -> Result<bool, DataError> {
        for &column in columns {
            if self.value(column)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The line of the record.
    pub(super) fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line) + self.uncounted
    }

    /// The error of a value of the record.
    pub(super) fn refused(&self, column: usize, problem: &str) -> DataError {
        let value = String::from_utf8_lossy(self.record.get(column).unwrap_or_default());
        let quoted: String = value.chars().take(QUOTED).collect();
        let name = &self.header[column];
        broken(&self.path, Some(self.line()), &format!("column {name}: {quoted:?} {problem}"))
    }

    /// The error of a whole column.
    pub(super) fn refused_column(&self, column: usize, problem: &str) -> DataError {
        broken(&self.path, None, &format!("column {}: {problem}", self.header[column]))
    }

    /// The error of the whole file.
    pub(super) fn refused_whole(&self, problem: &str) -> DataError {
        broken(&self.path, None, &problem)
    }
}

fn check_header(header: &[String], separator: u8) -> Result<(), String> {
    if header.len() < 2 {
        let separators = match SEPARATORS.contains(&separator) {
            true => "commas, semicolons or tabs, or by the character of delimiter=CHARACTER".into(),
            false => format!("{:?}", char::from(separator)),
        };
        return Err(format!(
            "no table: its first line must name two columns or more, separated by {separators}"
        ));
    }
    for (index, name) in header.iter().enumerate() {
        if name.is_empty() {
            return Err(format!("column {} has no name in the first line", index + 1));
        }
        if header[..index].contains(name) {
            return Err(format!("two columns are called {name:?} in the first line"));
        }
    }
    Ok(())
}

fn problem(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the line has {len} values, and the first line {expected_len} names")
        }
        csv::ErrorKind::Io(error) => format!("cannot be read: {error}"),
        csv::ErrorKind::Utf8 { .. } => "the names of the columns are no text in UTF-8".into(),
        _ => error.to_string(),
    }
}

fn broken(path: &Path, line: Option<u64>, problem: &dyn Display) -> DataError {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    DataError::format(format!("{}{line}: {problem}", path.display()))
}
