//! Reads records from an original file, one at a time.
//!
//! The format has neither quotes nor escapes, so a line is split at its commas. The reader goes
//! line by line to count lines as an editor does, including blank ones, and to limit their length.

use std::io::{self, BufRead, Read as _};
use std::path::Path;

use super::error::{Problem, ReadError};
use super::record::{Columns, Record};
use super::schema::{Attack, COLUMN_NAMES, FLAGS, NUMERIC, PROTOCOLS, SERVICES, file_column};
use crate::decompress;

/// Maximum length of a line in bytes, more than any record has.
const LONGEST: usize = 4096;
/// Columns of a record with difficulty.
const COLUMNS: usize = COLUMN_NAMES.len();
/// The column of the label, counted from 0; the difficulty may follow it.
const LABEL: usize = 41;
/// Maximum length in bytes of a field that is quoted in a message.
const QUOTED: usize = 40;

/// Reads the file at `path`, plain or compressed with gzip, xz or zstd, record by record.
///
/// Numbers outside `columns` are checked but not kept. `visit` may stop by an error.
///
/// # Errors
/// [`ReadError`] at the first problem, or the error of `visit`.
pub fn read_file<E: From<ReadError>>(
    path: &Path,
    columns: Columns,
    visit: impl FnMut(&Record) -> Result<(), E>,
) -> Result<(), E> {
    let name = path.display().to_string();
    let opened =
        decompress::open(path).map_err(|source| ReadError::whole(&name, Problem::Io(source)))?;
    read_from(opened.bytes, &name, opened.compression, columns, visit)
}

/// True if the first line of the file at `path` is a record.
pub(crate) fn begins(path: &Path) -> bool {
    let (mut line, mut record) = (Vec::new(), Record::default());
    let Ok(mut opened) = decompress::open(path) else { return false };
    let read = next_line(&mut opened.bytes, &mut line);
    let text = decompress::without_mark(&line, 1).trim_ascii_end();
    read.is_ok() && parse(text, &mut None, Columns::NONE, &mut record).is_ok()
}

/// Reads plain records from `bytes`; messages use `name` as the name of the file.
///
/// # Errors
/// As [`read_file`].
pub fn read<E: From<ReadError>>(
    bytes: impl BufRead,
    name: &str,
    columns: Columns,
    visit: impl FnMut(&Record) -> Result<(), E>,
) -> Result<(), E> {
    read_from(bytes, name, None, columns, visit)
}

fn read_from<E: From<ReadError>>(
    mut bytes: impl BufRead,
    name: &str,
    compression: Option<&'static str>,
    columns: Columns,
    mut visit: impl FnMut(&Record) -> Result<(), E>,
) -> Result<(), E> {
    let mut line = Vec::new();
    let mut number = 0;
    let mut record = Record::default();
    let mut width = None;
    while next_line(&mut bytes, &mut line)
        .map_err(|source| ReadError::whole(name, unreadable(source, compression)))?
    {
        number += 1;
        let text = decompress::without_mark(&line, number).trim_ascii_end();
        if text.is_empty() {
            continue;
        }
        parse(text, &mut width, columns, &mut record).map_err(|problem| ReadError {
            file: name.to_owned(),
            line: Some(number),
            problem,
        })?;
        visit(&record)?;
    }
    match width {
        Some(_) => Ok(()),
        None => Err(ReadError::whole(name, Problem::Empty).into()),
    }
}

/// Reads a line, or enough of it to show that it is too long; false at the end of the file.
fn next_line(bytes: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(bytes.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', line)? > 0)
}

fn unreadable(source: io::Error, compression: Option<&'static str>) -> Problem {
    match compression {
        Some(compression) => Problem::Damaged { compression, source },
        None => Problem::Io(source),
    }
}

fn parse(
    line: &[u8],
    width: &mut Option<usize>,
    columns: Columns,
    record: &mut Record,
) -> Result<(), Problem> {
    // Tells a picture or a database from a text file, so that its error does not mention columns.
    let text = || line.len() <= LONGEST && !line.contains(&0) && std::str::from_utf8(line).is_ok();
    let mut fields: [&[u8]; COLUMNS] = [b""; COLUMNS];
    let mut found = 0;
    for field in line.split(|&byte| byte == b',') {
        if let Some(place) = fields.get_mut(found) {
            *place = field;
        }
        found += 1;
    }
    if width.unwrap_or(found) != found || !(COLUMNS - 1..=COLUMNS).contains(&found) {
        return Err(if text() {
            Problem::Width { found, before: *width }
        } else {
            Problem::NotText
        });
    }
    if width.is_none() && fields[0].eq_ignore_ascii_case(b"duration") {
        return Err(Problem::Header);
    }
    for numeric in 0..NUMERIC {
        let column = file_column(numeric);
        if columns.contains(numeric) {
            record.numbers[numeric] = number(fields[column], column)?;
        } else if !is_plain(fields[column]) {
            number(fields[column], column)?;
        }
    }
    record.protocol = category(&PROTOCOLS, fields[1], 1)?;
    record.service = category(&SERVICES, fields[2], 2)?;
    record.flag = category(&FLAGS, fields[3], 3)?;
    let label = fields[LABEL];
    record.attack = Attack::named(label).ok_or_else(|| Problem::Attack { value: quoted(label) })?;
    if found == COLUMNS && !is_plain(fields[LABEL + 1]) {
        number(fields[LABEL + 1], LABEL + 1)?;
    }
    *width = Some(found);
    Ok(())
}

/// True if a field is a short decimal number without sign. Nearly all are, and need no parsing.
fn is_plain(field: &[u8]) -> bool {
    field.len() <= 12
        && field.first().is_some_and(u8::is_ascii_digit)
        && field.last().is_some_and(u8::is_ascii_digit)
        && field.iter().filter(|&&byte| byte == b'.').count() <= 1
        && field.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

fn number(field: &[u8], column: usize) -> Result<f32, Problem> {
    let parsed = std::str::from_utf8(field).ok().and_then(|text| text.trim().parse::<f32>().ok());
    match parsed {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err(Problem::NotFinite { column: column + 1, value: quoted(field) }),
        None => Err(Problem::NotNumber { column: column + 1, value: quoted(field) }),
    }
}

/// Returns the index of a symbolic value in its sorted list.
fn category(values: &[&str], field: &[u8], column: usize) -> Result<u8, Problem> {
    match values.binary_search_by(|value| value.as_bytes().cmp(field)) {
        Ok(index) => Ok(index as u8),
        Err(_) => Err(Problem::Category { column: column + 1, value: quoted(field) }),
    }
}

/// Formats a field for a message: lossily as text, and shortened.
fn quoted(field: &[u8]) -> String {
    match field.get(..QUOTED) {
        Some(begin) if field.len() > QUOTED => format!("{}...", String::from_utf8_lossy(begin)),
        _ => String::from_utf8_lossy(field).into_owned(),
    }
}
