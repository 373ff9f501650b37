//! A number computed from the runs, with draws of what it would be with other repetitions.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::bounds::{Bounds, readable};
use crate::statistics::quantile;

/// Share of the draws below, and above, a 95 % interval.
const TAIL: f64 = 0.025;

/// A number as observed, and in each draw. Without draws it does not vary.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sampled {
    observed: Bounds,
    drawn: Vec<Bounds>,
}

/// The central 95 % of the draws of a number.
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
        Self { observed, drawn: Vec::new() }
    }

    pub(crate) const fn new(observed: Bounds, drawn: Vec<Bounds>) -> Self {
        Self { observed, drawn }
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
        self
    }

    pub(super) fn with(mut self, other: Self, apply: impl Fn(Bounds, Bounds) -> Bounds) -> Self {
        let draws = self.draws().max(other.draws());
        self.drawn = (0..draws).map(|draw| apply(self.drawn(draw), other.drawn(draw))).collect();
        self.observed = apply(self.observed, other.observed);
        self
    }

    /// The 95 % confidence interval. `None` if the number does not vary, or if only bounds of it
    /// are known.
    pub(crate) fn interval(&self) -> Option<Interval> {
        let observed = self.observed.exact()?;
        let of = |end: fn(&Bounds) -> f64, share| {
            quantile(&self.drawn.iter().map(end).collect::<Vec<_>>(), share)
        };
        let low = of(|bounds| bounds.low, TAIL)?;
        let high = of(|bounds| bounds.high, 1.0 - TAIL)?;
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

/// Positions that may hold the extreme value, the observed one first. `find` returns the position
/// in a draw, if it is known.
pub(crate) fn candidates(
    draws: usize,
    observed: usize,
    find: impl Fn(usize) -> Option<usize>,
) -> Vec<usize> {
    let mut count = std::collections::BTreeMap::<usize, usize>::new();
    for place in (0..draws).filter_map(find) {
        *count.entry(place).or_default() += 1;
    }
    let often = |count: usize| count as f64 >= TAIL * draws as f64;
    let others = count.into_iter().filter(|(place, count)| *place != observed && often(*count));
    std::iter::once(observed).chain(others.map(|(place, _)| place)).collect()
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
        let find = |draw: usize| Some(if draw < 60 { 2 } else { usize::from(draw < 99) });
        assert_eq!(candidates(100, 2, find), [2, 1]);
        assert_eq!(candidates(0, 2, find), [2]);
    }
}
