//! The range of a column of numbers, and whether its values stay different as 32-bit numbers.

use super::super::dates;
use super::super::values::Notation;

/// Fewest steps between the smallest and the largest value of a column: with fewer, rounding to
/// 32-bit numbers moves values by more than 1.6 % of their range.
const FEWEST_STEPS: f32 = 32.0;

/// The smallest and the largest value so far.
#[derive(Clone, Default)]
pub(super) struct Range {
    low: f32,
    high: f32,
    /// The text of the first value; none before that.
    first: Option<String>,
    /// True if there are values that differ from the first one in their texts alone.
    is_rounded: bool,
}

impl Range {
    /// Adds a value with its text.
    pub(super) fn add(&mut self, text: &str, value: f32, notation: Notation) {
        match &self.first {
            None => {
                self.first = Some(text.into());
                (self.low, self.high) = (value, value);
            }
            // Most columns have two values soon, and texts are not looked at any more.
            Some(first) if self.low == self.high && value == self.low => {
                let differ = || notation.precise(first) != notation.precise(text);
                self.is_rounded = self.is_rounded || (first != text && differ());
            }
            Some(_) => (self.low, self.high) = (self.low.min(value), self.high.max(value)),
        }
    }

    /// The problem of the column `name` if its values differ by less than 32-bit numbers tell
    /// apart, with the cure.
    pub(super) fn problem(&self, name: &str) -> Option<String> {
        let Self { low, high, .. } = *self;
        let most = low.abs().max(high.abs());
        let step = most - most.next_down();
        let is_lost = match high > low {
            true => (high - low) / step < FEWEST_STEPS,
            false => self.is_rounded,
        };
        let is_date = self.first.as_ref().is_some_and(|text| dates::seconds(text).is_some());
        let date = match is_date {
            true => format!(", say date={name} if they are dates or times"),
            false => String::new(),
        };
        is_lost.then(|| {
            format!(
                "its values are between {low} and {high}, where 32-bit numbers have steps of \
                 {step}: too few are left apart to learn from; subtract {low} from each{date}, or \
                 leave the column out with drop={name}"
            )
        })
    }
}
