//! Reads the records of a table.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use csv::ByteRecord;

use super::dates;
use super::head::{Allowance, Head, Records, SEPARATORS, have_row_names};
use super::options::{Dialect, Header};
use super::values::{Notation, Value};
use crate::decompress::open;
use crate::error::DataError;

/// Maximum length of a text in an error, in characters.
const QUOTED: usize = 40;

/// The records of a table, one at a time.
pub(super) struct Reader {
    path: PathBuf,
    dialect: Dialect,
    records: Records,
    allowance: Allowance,
    record: ByteRecord,
    /// True if the record is the first row, which was read to count the columns.
    is_waiting: bool,
    /// Lines before the CSV reader's first.
    skipped: u64,
    /// Lines that the CSV reader has not counted yet where a record begins: after a CR it takes
    /// the LF for a part of the next record.
    uncounted: u64,
    header: Names,
}

/// The names of the columns, and their places.
struct Names {
    names: Vec<String>,
    places: BTreeMap<String, usize>,
}

impl Reader {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path, dialect: &Dialect) -> Result<Self, DataError> {
        let whole = |problem: String| broken(path, None, &problem);
        let bytes = open(path).map_err(|error| whole(format!("cannot be read: {error}")))?.bytes;
        let names = match dialect.header {
            Header::Line(line) => line,
            Header::None => 1,
        };
        let head = Head::read(bytes, dialect, names).map_err(whole)?;
        let has_header = dialect.header != Header::None;
        let first = head.records();
        let is_comment = |line: &[u8]| dialect.comment.is_none() && sign_of_comment(line).is_some();
        let has_row_names = has_header && !is_comment(head.first_line()) && have_row_names(&first);
        let (separator, skipped) = (head.separator, head.skipped);
        let uncounted = u64::from(head.has_carriage_returns());
        let advice = advice_on_header(&head, &first, dialect);
        let (mut records, allowance) = head.parser();
        let mut record = ByteRecord::new();
        allowance.renew();
        let is_one = records.read_byte_record(&mut record);
        is_one.map_err(|error| whole(problem(&error)))?;
        let mut names = match has_header {
            true => names_in(&record).map_err(whole)?,
            false => (1..=record.len()).map(|column| column.to_string()).collect(),
        };
        if names.last().is_some_and(String::is_empty) && names.len() > 2 {
            // Each line ends with a separator.
            names.pop();
        }
        if has_row_names {
            names.insert(0, String::new());
        }
        let header =
            Names::of(names, separator).map_err(|problem| whole(format!("{problem}{advice}")))?;
        let (path, dialect, is_waiting) = (path.to_owned(), dialect.clone(), !has_header);
        Ok(Self {
            path,
            dialect,
            records,
            allowance,
            record,
            is_waiting,
            skipped,
            uncounted,
            header,
        })
    }

    /// The names of the columns. The first one is empty if it is an index without a name.
    pub(super) fn header(&self) -> &[String] {
        &self.header.names
    }

    /// How the file is written.
    pub(super) const fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// The index of the column called `name`.
    pub(super) fn place(&self, name: &str) -> Result<usize, DataError> {
        self.header.places.get(name).copied().ok_or_else(|| {
            let names = self.header.names.join(", ");
            broken(&self.path, None, &format!("it has no column {name:?}; its columns are {names}"))
        })
    }

    /// Reads the next record; false at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, DataError> {
        while !std::mem::take(&mut self.is_waiting) {
            let Self { records, record, path, allowance, .. } = self;
            allowance.renew();
            let is_one = records.read_byte_record(record);
            if !is_one.map_err(|error| broken(path, None, &problem(&error)))? {
                return Ok(false);
            }
            let is_blank = record.len() == 1 && record[0].is_empty();
            if !is_blank {
                break;
            }
        }
        let names = &self.header.names;
        // Each line may end with a separator.
        let ends =
            |record: &ByteRecord| record.len() == names.len() + 1 && record[names.len()].is_empty();
        if self.record.len() != names.len() && !ends(&self.record) {
            return Err(broken(&self.path, Some(self.line()), &self.uneven()));
        }
        if self.dialect.header != Header::None
            && &self.record[0] == names[0].as_bytes()
            && self.record.iter().zip(names).all(|(value, name)| value == name.as_bytes())
        {
            let problem = "the line has the names of the columns again; files were put together \
                           with their first lines: remove this line";
            return Err(broken(&self.path, Some(self.line()), &problem));
        }
        Ok(true)
    }

    /// The problem of a record with another number of values than there are names.
    fn uneven(&self) -> String {
        let (values, names) = (self.record.len(), self.header.names.len());
        let name = self.header.names[0].as_bytes();
        let sign = self.record.get(0).and_then(sign_of_comment).or_else(|| sign_of_comment(name));
        let told = match self.dialect.header {
            Header::None => format!("the line has {values} values, and the first line {names}"),
            Header::Line(_) => {
                format!("the line has {values} values, and the first line {names} names")
            }
        };
        match sign.filter(|_| self.dialect.comment.is_none()) {
            Some(sign) => {
                format!("{told}; if lines that begin with {sign} are comments, say comment={sign}")
            }
            None => format!("{told}: repair or remove the line"),
        }
    }

    /// A value of the record; none if it is missing.
    pub(super) fn value(&self, column: usize) -> Result<Option<&str>, DataError> {
        let text = self.text(column)?;
        Ok((!self.dialect.words.is_missing(text)).then_some(text))
    }

    /// A text of the record, missing or not.
    pub(super) fn text(&self, column: usize) -> Result<&str, DataError> {
        let bytes = self.record.get(column).unwrap_or_default();
        std::str::from_utf8(bytes)
            .map_err(|_error| self.refused(column, "is no text in UTF-8; save the file in UTF-8"))
    }

    /// A finite number; none if it is missing. `problem` tells of a text that is no number.
    pub(super) fn finite(
        &self,
        column: usize,
        problem: fn(&str) -> String,
    ) -> Result<Option<f32>, DataError> {
        match self.number(column)? {
            Value::Missing => Ok(None),
            Value::Number(number) => Ok(Some(number)),
            Value::Text(text) => {
                let notations = Notation::of(&[text], &self.dialect.words);
                let problem = match notations.first() {
                    Some(notation) => format!("is a number in another notation: say {notation}"),
                    None => problem(text),
                };
                Err(self.refused(column, &problem))
            }
        }
    }

    /// A value of a column of numbers.
    pub(super) fn number(&self, column: usize) -> Result<Value<'_>, DataError> {
        let Dialect { notation, words, .. } = &self.dialect;
        Ok(notation.value(self.text(column)?, words))
    }

    /// A value of a column of dates, in seconds; none if it is missing.
    pub(super) fn date(&self, column: usize) -> Result<Option<i64>, DataError> {
        let Some(text) = self.value(column)? else { return Ok(None) };
        dates::seconds(text).map(Some).ok_or_else(|| {
            let problem = "is no date: write it as 2024-01-31, 2024-01-31 12:30:00, 31.1.2024, or \
                           in seconds since 1970";
            self.refused(column, problem)
        })
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
        let Some(begin) = self.record.position() else { return 0 };
        let inside = self.record.as_slice().iter().filter(|&&byte| byte == b'\n').count() as u64;
        // Lines of the record, its end, and before it, lines that are blank or comments.
        let passed = self.records.position().line() - begin.line();
        let before = passed.saturating_sub(inside + 1);
        let uncounted = if begin.byte() > 0 { self.uncounted } else { 0 };
        begin.line() + uncounted + before + self.skipped
    }

    /// The error of a value of the record.
    pub(super) fn refused(&self, column: usize, problem: &str) -> DataError {
        let value = String::from_utf8_lossy(self.record.get(column).unwrap_or_default());
        self.refused_value(column, self.line(), &value, problem)
    }

    /// The error of a value in another line.
    pub(super) fn refused_value(
        &self,
        column: usize,
        line: u64,
        value: &str,
        problem: &str,
    ) -> DataError {
        let name = &self.header.names[column];
        let value = quoted(value);
        broken(&self.path, Some(line), &format!("column {name}: {value} {problem}"))
    }

    /// The error of a whole column.
    pub(super) fn refused_column(&self, column: usize, problem: &str) -> DataError {
        DataError::format(self.remark(column, problem))
    }

    /// A sentence about a column.
    pub(super) fn remark(&self, column: usize, told: &str) -> String {
        let name = &*self.header.names[column];
        let name = if name.is_empty() { "1" } else { name };
        format!("{}: column {name}: {told}", self.path.display())
    }

    /// The error of the whole file.
    pub(super) fn refused_whole(&self, problem: &str) -> DataError {
        broken(&self.path, None, &problem)
    }
}

impl Names {
    /// Refuses columns that cannot be told apart. Only the first may have no name: it is an index.
    fn of(names: Vec<String>, separator: u8) -> Result<Self, String> {
        if names.len() < 2 {
            let separators = match SEPARATORS.contains(&separator) {
                true => {
                    "commas, semicolons or tabs, or by the character of delimiter=CHARACTER".into()
                }
                false => format!("{:?}", char::from(separator)),
            };
            return Err(format!(
                "no table: its first line must name two columns or more, separated by {separators}"
            ));
        }
        let mut places = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() && index > 0 {
                return Err(format!("column {} has no name in the first line", index + 1));
            }
            if places.insert(name.clone(), index).is_some() {
                return Err(format!("two columns are called {name:?} in the first line"));
            }
        }
        Ok(Self { names, places })
    }
}

fn names_in(record: &ByteRecord) -> Result<Vec<String>, String> {
    let name = |name: &[u8]| String::from_utf8(name.to_vec());
    record.iter().map(name).collect::<Result<_, _>>().map_err(|_error| {
        "the names of the columns are no text in UTF-8; save the file in UTF-8".into()
    })
}

/// The character with which comments begin usually, if the line begins with it.
fn sign_of_comment(line: &[u8]) -> Option<char> {
    line.first().filter(|sign| matches!(sign, b'#' | b'%')).map(|&sign| char::from(sign))
}

/// Ways to read a table whose first line cannot name its columns.
fn advice_on_header(head: &Head, records: &[ByteRecord], dialect: &Dialect) -> String {
    let Header::Line(line) = dialect.header else { return String::new() };
    let Some(names) = records.first() else { return String::new() };
    let first = head.first_line();
    let are_numbers = names.iter().any(|name| {
        std::str::from_utf8(name).is_ok_and(|name| dialect.notation.number(name).is_some())
    });
    if let Some(sign) = sign_of_comment(first).filter(|_| dialect.comment.is_none()) {
        return format!("; if lines that begin with {sign} are comments, say comment={sign}");
    }
    if names.len() > 1 && are_numbers {
        return "; if the first line is a row, say header=no".into();
    }
    let words = first.split(|byte| matches!(byte, b' ' | b'\t')).filter(|it| !it.is_empty());
    let usual = records.get(1..).unwrap_or_default().iter().map(ByteRecord::len).max();
    let at = records.iter().position(|record| Some(record.len()) == usual).unwrap_or_default();
    if names.len() == 1 && usual.is_some_and(|usual| usual > 1) && at > 0 {
        let begin = records[at].position().map_or(0, csv::Position::line);
        let place = line.max(begin + u64::from(head.has_carriage_returns()) + head.skipped);
        return format!("; if line {place} names the columns, say header={place}");
    }
    if let Some(sign) = first.iter().find(|byte| matches!(byte, b'|' | b':' | b'^')) {
        let sign = char::from(*sign);
        return format!("; if {sign} separates them, say delimiter={sign}");
    }
    match names.len() == 1 && words.count() > 1 {
        true => "; if spaces separate them, say delimiter=space".into(),
        false => String::new(),
    }
}

/// The beginning of a text, in quotation marks.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED).collect::<String>())
}

fn problem(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Io(error) => format!("cannot be read: {error}"),
        _ => error.to_string(),
    }
}

fn broken(path: &Path, line: Option<u64>, problem: &dyn Display) -> DataError {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    DataError::format(format!("{}{line}: {problem}", path.display()))
}
