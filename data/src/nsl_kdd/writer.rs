//! Writes records in the format of the original files.

use std::io::{self, Write};

use super::record::Record;
use super::schema::{FLAGS, NUMERIC, PROTOCOLS, SERVICES, numeric_name};

/// The difficulty level in every written record: 21, the data set's level for records that all
/// learners of its authors labelled correctly. No reader uses it.
pub const DIFFICULTY: u8 = 21;

/// Writes one record as a line of 43 columns: rates with 2 decimals, other numbers in their
/// shortest form.
///
/// # Errors
/// The error of `out`.
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

/// True if a numeric feature is a rate in 0..=1, which the files write with two decimals.
fn is_rate(numeric: usize) -> bool {
    numeric_name(numeric).ends_with("_rate")
}
