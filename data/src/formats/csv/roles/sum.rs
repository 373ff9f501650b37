//! The values of a column, summed up.

use super::super::super::range::Range;
use super::super::dates::{self, DAY, days};
use super::super::reader::Reader;
use super::super::values::Value;
use crate::error::DataError;

/// The values of a column, summed up.
#[derive(Clone, Default)]
pub(super) struct Sum {
    /// The first value that is no number, and its line.
    pub(super) text: Option<(u64, String)>,
    /// Number of such values.
    pub(super) texts: u64,
    /// Number of values that are numbers, or dates.
    pub(super) count: u64,
    sum: f64,
    range: Range<Option<f64>>,
    /// The first value that is a number.
    number: Option<String>,
    /// The first missing value, and its line.
    pub(super) gap: Option<(u64, String)>,
    pub(super) missing: u64,
    /// The first number, as long as each is one more than the number before it.
    pub(super) counts_from: Option<f32>,
    /// The beginning of the first day, in a column of dates.
    pub(super) origin: Option<i64>,
}

impl Sum {
    /// Adds the value of a row.
    pub(super) fn add(&mut self, reader: &Reader, column: usize) -> Result<(), DataError> {
        match reader.number(column)? {
            Value::Missing => self.add_missing(reader, column)?,
            Value::Number(value) => {
                let text = reader.text(column)?;
                self.range.add(value, || reader.dialect().notation.precise(text));
                self.number.get_or_insert_with(|| text.to_owned());
                self.add_number(value);
            }
            Value::Text(text) => {
                self.texts += 1;
                if self.text.is_none() {
                    self.text = Some((reader.line(), text.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Adds the date of a row.
    pub(super) fn add_date(&mut self, reader: &Reader, column: usize) -> Result<(), DataError> {
        match reader.date(column)? {
            None => self.add_missing(reader, column)?,
            Some(seconds) => {
                let origin = *self.origin.get_or_insert_with(|| seconds - seconds.rem_euclid(DAY));
                self.add_number(days(seconds, origin));
            }
        }
        Ok(())
    }

    fn add_number(&mut self, value: f32) {
        match self.counts_from {
            None if self.count == 0 => self.counts_from = Some(value),
            Some(first) if first + self.count as f32 != value => self.counts_from = None,
            _ => {}
        }
        self.count += 1;
        self.sum += f64::from(value);
    }

    fn add_missing(&mut self, reader: &Reader, column: usize) -> Result<(), DataError> {
        self.missing += 1;
        if self.gap.is_none() {
            self.gap = Some((reader.line(), reader.text(column)?.to_owned()));
        }
        Ok(())
    }

    /// The mean of the numbers.
    pub(super) fn mean(&self) -> f32 {
        (self.sum / self.count.max(1) as f64) as f32
    }

    /// The problem of the column `name` if its values differ by less than 32-bit numbers tell
    /// apart, with the cures.
    pub(super) fn problem(&self, name: &str) -> Option<String> {
        let problem = self.range.problem()?;
        let is_date = self.number.as_ref().is_some_and(|text| dates::seconds(text).is_some());
        let date = match is_date {
            true => format!(", say date={name} if they are dates or times"),
            false => String::new(),
        };
        Some(format!("{problem}{date}, or leave the column out with drop={name}"))
    }

    /// Number of values that are there.
    pub(super) const fn values(&self) -> u64 {
        self.count + self.texts
    }
}
