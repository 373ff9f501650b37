//! The range of a column of numbers, and whether its values stay different as 32-bit numbers.

/// Fewest steps between the smallest and the largest value of a column: with fewer, rounding to
/// 32-bit numbers moves values by more than 1.6 % of their range.
const FEWEST_STEPS: f32 = 32.0;

/// The smallest and the largest value so far, and the first one as it is in the file.
#[derive(Clone)]
pub(super) struct Range<E> {
    low: f32,
    high: f32,
    /// The first value; none before that.
    first: Option<E>,
    /// True if there are values that differ from the first one, but not as 32-bit numbers.
    is_rounded: bool,
}

impl<E> Default for Range<E> {
    fn default() -> Self {
        Self { low: 0.0, high: 0.0, first: None, is_rounded: false }
    }
}

impl<E: PartialEq> Range<E> {
    /// Adds a value, which is `exact` in the file.
    pub(super) fn add(&mut self, value: f32, exact: impl FnOnce() -> E) {
        match &self.first {
            None => {
                self.first = Some(exact());
                (self.low, self.high) = (value, value);
            }
            // Most columns have two values soon, and exact ones are not looked at any more.
            Some(first) if self.low == self.high && value == self.low => {
                self.is_rounded = self.is_rounded || *first != exact();
            }
            Some(_) => (self.low, self.high) = (self.low.min(value), self.high.max(value)),
        }
    }

    /// The problem of the column if its values differ by less than 32-bit numbers tell apart, with
    /// the cure.
    pub(super) fn problem(&self) -> Option<String> {
        let Self { low, high, .. } = *self;
        let most = low.abs().max(high.abs());
        let step = most - most.next_down();
        let is_lost = match high > low {
            true => (high - low) / step < FEWEST_STEPS,
            false => self.is_rounded,
        };
        is_lost.then(|| {
            format!(
                "its values are between {low} and {high}, where 32-bit numbers have steps of \
                 {step}: too few are left apart to learn from; subtract {low} from each"
            )
        })
    }
}

/// The problem of the first column, counted from 0, whose values are lost.
pub(super) fn problem_of<E: PartialEq>(columns: &[Range<E>]) -> Option<String> {
    let problem = |(column, range): (usize, &Range<E>)| {
        Some(format!("column {column}: {}", range.problem()?))
    };
    columns.iter().enumerate().find_map(problem)
}
