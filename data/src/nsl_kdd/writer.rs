//! Writes records in the format of the original files.

use std::io::{self, Write};

use super::record::Record;
use super::schema::{FLAGS, NUMERIC, PROTOCOLS, SERVICES, numeric_name};

/// The difficulty level that is written for every record: 21, the data set's level of records
/// that every one of its authors' learners labelled correctly. Nothing reads it.
pub const DIFFICULTY: u8 = 21;

/// Writes one record as a line of 43 columns: counts as whole numbers, rates with 2 decimals.
///
/// # Errors
/// What `out` returns.
pub fn write(record: &Record, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        "{},{},{},{}",
        record.numbers[0],
        PROTOCOLS[usize::from(record.protocol)],
        SERVICES[usize::from(record.service)],
        FLAGS[usize::from(record.flag)]
    )?;
    for numeric in 1..NUMERIC {
        let value = record.numbers[numeric];
        if is_rate(numeric) {
            write!(out, ",{value:.2}")?;
        } else {
            write!(out, ",{value}")?;
        }
    }
    writeln!(out, ",{},{DIFFICULTY}", record.attack)
}

/// Whether a numeric feature is a share in 0..=1 that the files give with two decimals.
fn is_rate(numeric: usize) -> bool {
    numeric_name(numeric).ends_with("_rate")
}
