//! A number computed from the runs, with draws of what it would be with other repetitions.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::bounds::{Bounds, readable};
use super::draws::Draws;
use crate::statistics::{estimate, quantile};

/// Share of the draws below, and above, a 95 % interval.
const TAIL: f64 = 0.025;

/// A number as observed, and in each draw. Without draws it does not vary.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sampled {
    observed: Bounds,
    drawn: Vec<Bounds>,
    /// The repetitions and their values of which the number is the mean. Sums, differences and
    /// multiples of means of the same repetitions are means, too. Empty for other numbers.
    of_reps: Vec<(u32, f64)>,
}

/// The 95 % confidence interval of a number: Student's if the number is a mean of repetitions, else
/// the central 95 % of its draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// Its lower end.
    pub(crate) low: f64,
    /// Its upper end.
    pub(crate) high: f64,
}

/// Truth of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Truth {
    /// True (or false) of the observed values, and of at least 97.5 % of the draws.
    Is(bool),
    /// Observed, but in too few draws; the share of the draws in which the statement is true.
    Varies(f64),
    /// The known bounds do not decide it.
    Unknown,
}

impl Sampled {
    pub(crate) const fn exactly(observed: Bounds) -> Self {
        Self::new(observed, Vec::new())
    }

    pub(crate) const fn new(observed: Bounds, drawn: Vec<Bounds>) -> Self {
        Self { observed, drawn, of_reps: Vec::new() }
    }

    /// The mean of the values of these repetitions.
    pub(crate) fn mean(values: &[(u32, f64)], draws: &Draws) -> Self {
        let all: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let estimate = estimate(&all);
        let observed = Bounds::exactly(estimate.mean);
        if estimate.sd == 0.0 {
            // All draws would be equal.
            return Self::exactly(observed);
        }
        let drawn = draws.means(values).into_iter().map(Bounds::exactly).collect();
        Self { observed, drawn, of_reps: values.to_vec() }
    }

    pub(crate) const fn observed(&self) -> Bounds {
        self.observed
    }

    pub(crate) const fn draws(&self) -> usize {
        self.drawn.len()
    }

    /// The value in a draw.
    pub(crate) fn drawn(&self, draw: usize) -> Bounds {
        self.drawn.get(draw).copied().unwrap_or(self.observed)
    }

    pub(super) fn map(mut self, apply: impl Fn(Bounds) -> Bounds) -> Self {
        self.observed = apply(self.observed);
        self.drawn.iter_mut().for_each(|drawn| *drawn = apply(*drawn));
        self.of_reps.clear();
        self
    }

    pub(super) fn with(self, other: Self, apply: impl Fn(Bounds, Bounds) -> Bounds) -> Self {
        let draws = self.draws().max(other.draws());
        let drawn = (0..draws).map(|draw| apply(self.drawn(draw), other.drawn(draw))).collect();
        Self::new(apply(self.observed, other.observed), drawn)
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let of_reps = self.rep_by_rep(&other, |one, other| one + other);
        Self { of_reps, ..self.with(other, Bounds::plus) }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        let of_reps = self.rep_by_rep(&other, |one, other| one - other);
        Self { of_reps, ..self.with(other, Bounds::minus) }
    }

    pub(super) fn negated(self) -> Self {
        Self::exactly(Bounds::exactly(0.0)).minus(self)
    }

    pub(super) fn times(self, other: Self) -> Self {
        // The product of two means is no mean.
        let is_multiple = self.constant().is_some() || other.constant().is_some();
        let of_reps = self.rep_by_rep(&other, |one, other| one * other);
        let of_reps = if is_multiple { of_reps } else { Vec::new() };
        Self { of_reps, ..self.with(other, Bounds::times) }
    }

    pub(super) fn over(self, other: Self) -> Self {
        let of_reps = self.rep_by_rep(&other, |one, other| one / other);
        let of_reps = if other.constant().is_some() { of_reps } else { Vec::new() };
        Self { of_reps, ..self.with(other, Bounds::over) }
    }

    /// The value, if it is the same in every repetition.
    fn constant(&self) -> Option<f64> {
        self.observed.exact().filter(|_| self.drawn.is_empty())
    }

    /// A function of two numbers, repetition by repetition; empty if these are not of the same
    /// repetitions.
    fn rep_by_rep(&self, other: &Self, apply: impl Fn(f64, f64) -> f64) -> Vec<(u32, f64)> {
        let (one, two) = (&self.of_reps, &other.of_reps);
        match (self.constant(), other.constant()) {
            (Some(one), _) => two.iter().map(|(rep, two)| (*rep, apply(one, *two))).collect(),
            (_, Some(two)) => one.iter().map(|(rep, one)| (*rep, apply(*one, two))).collect(),
            _ if one.iter().map(|(rep, _)| rep).eq(two.iter().map(|(rep, _)| rep)) => {
                let pairs = one.iter().zip(two);
                pairs.map(|((rep, one), (_, two))| (*rep, apply(*one, *two))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The 95 % confidence interval. `None` if the number does not vary, or if only bounds of it
    /// are known.
    pub(crate) fn interval(&self) -> Option<Interval> {
        let observed = self.observed.exact()?;
        let (low, high) = if self.of_reps.is_empty() {
            let of = |end: fn(&Bounds) -> f64, share| {
                quantile(&self.drawn.iter().map(end).collect::<Vec<_>>(), share)
            };
            (of(|bounds| bounds.low, TAIL)?, of(|bounds| bounds.high, 1.0 - TAIL)?)
        } else {
            let values: Vec<f64> = self.of_reps.iter().map(|(_, value)| *value).collect();
            let estimate = estimate(&values);
            (estimate.low, estimate.high)
        };
        // A spread by rounding errors does not count.
        let least = f64::EPSILON.sqrt() * observed.abs();
        (high - low > least).then_some(Interval { low, high })
    }

    pub(crate) fn truth(&self) -> Truth {
        let Some(observed) = self.observed.truth() else { return Truth::Unknown };
        if self.drawn.is_empty() {
            return Truth::Is(observed);
        }
        let share = |wanted| {
            let agree = self.drawn.iter().filter(|drawn| drawn.truth() == Some(wanted));
            agree.count() as f64 / self.draws() as f64
        };
        if share(observed) >= 1.0 - TAIL { Truth::Is(observed) } else { Truth::Varies(share(true)) }
    }
}

impl FromStr for Sampled {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self::exactly)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", readable(self.low), readable(self.high))
    }
}

/// Positions that may hold the extreme value, the observed ones first. `find` returns the positions
/// in a draw, if they are known: several if their values are equal.
pub(crate) fn candidates(
    draws: usize,
    observed: Vec<usize>,
    find: impl Fn(usize) -> Option<Vec<usize>>,
) -> Vec<usize> {
    let mut count = std::collections::BTreeMap::<usize, usize>::new();
    for place in (0..draws).filter_map(find).flatten() {
        *count.entry(place).or_default() += 1;
    }
    count.retain(|place, count| *count as f64 >= TAIL * draws as f64 && !observed.contains(place));
    observed.into_iter().chain(count.into_keys()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varying(observed: f64, drawn: impl Iterator<Item = f64>) -> Sampled {
        Sampled::new(Bounds::exactly(observed), drawn.map(Bounds::exactly).collect())
    }

    #[test]
    fn arithmetic_goes_draw_by_draw() {
        let a = varying(50.0, (0..=100).map(f64::from));
        let twice = a.clone().with(a.clone(), Bounds::plus);
        assert_eq!(twice.interval(), Some(Interval { low: 5.0, high: 195.0 }));
        let nothing = a.clone().with(a.clone(), Bounds::minus);
        assert_eq!((nothing.observed().exact(), nothing.interval()), (Some(0.0), None));
        let shifted = a.with("100".parse().unwrap(), Bounds::plus);
        assert_eq!(shifted.interval(), Some(Interval { low: 102.5, high: 197.5 }));
    }

    #[test]
    fn what_is_a_mean_of_repetitions_has_students_interval() {
        let (one, other) = ([1.0, 2.0, 4.0, 3.5], [2.5, 2.0, 7.0, 3.0]);
        let draws = Draws::new(4);
        let mean = |values: [f64; 4]| {
            Sampled::mean(&[0, 1, 2, 3].map(|rep| (rep, values[rep as usize])), &draws)
        };
        let constant = |value: f64| Sampled::exactly(Bounds::exactly(value));
        let students = |values: [f64; 4]| {
            let estimate = estimate(&values);
            (estimate.low, estimate.high)
        };
        let pairs =
            |apply: fn(f64, f64) -> f64| [0, 1, 2, 3].map(|rep| apply(one[rep], other[rep]));
        for (number, values) in [
            (mean(one), one),
            (mean(one).plus(mean(other)), pairs(|one, other| one + other)),
            (mean(one).minus(mean(other)), pairs(|one, other| one - other)),
            (mean(one).negated(), one.map(|value| -value)),
            (constant(100.0).times(mean(one)), one.map(|value| 100.0 * value)),
            (mean(one).over(constant(-3.0)), one.map(|value| value / -3.0)),
            (
                constant(2.0).minus(mean(one).over(constant(4.0))).plus(mean(other)),
                pairs(|one, other| 2.0 - one / 4.0 + other),
            ),
        ] {
            let (found, (low, high)) = (number.interval().unwrap(), students(values));
            assert!((found.low - low).abs() < 1e-12 * low.abs(), "{found}: {low}");
            assert!((found.high - high).abs() < 1e-12 * high.abs(), "{found}: {high}");
        }
        // Other numbers have the interval of their draws.
        let drawn = |number: &Sampled| Sampled::new(number.observed, number.drawn.clone());
        for number in [
            mean(one).times(mean(other)),
            mean(one).over(mean(other)),
            constant(1.0).over(mean(one)),
            mean(one).map(Bounds::abs),
            mean(one).plus(Sampled::mean(&[(0, 1.0), (1, 2.0)], &draws)),
            mean(one).with(mean(other), Bounds::lesser),
        ] {
            assert_eq!(number.interval(), drawn(&number).interval());
        }
    }

    #[test]
    fn what_the_draws_do_not_agree_on_varies() {
        let a = varying(50.0, (0..=100).map(f64::from));
        let above = |limit: &str| a.clone().with(limit.parse().unwrap(), |a, b| b.below(a)).truth();
        assert_eq!(above("1.5"), Truth::Is(true));
        assert_eq!(above("99.5"), Truth::Is(false));
        assert_eq!(above("24"), Truth::Varies(76.0 / 101.0));
        assert_eq!(Sampled::exactly(Bounds::at_least(1.0)).truth(), Truth::Is(true));
        assert_eq!(Sampled::exactly(Bounds::at_least(0.0)).truth(), Truth::Unknown);
    }

    #[test]
    fn the_observed_place_comes_first_and_rare_ones_are_left_out() {
        let find = |draw: usize| Some(vec![if draw < 60 { 2 } else { usize::from(draw < 99) }]);
        assert_eq!(candidates(100, vec![2], find), [2, 1]);
        assert_eq!(candidates(0, vec![2], find), [2]);
        assert_eq!(candidates(0, vec![0, 2], find), [0, 2]);
        assert_eq!(candidates(10, vec![0], |_| Some(vec![1, 3])), [0, 1, 3]);
    }
}
