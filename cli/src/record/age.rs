//! Age of information: how old the newest is that the server knows of a worker's data.
//!
//! At any moment the age is the time since the parameters were given out that the worker's newest
//! applied gradient was computed on. It is a saw-tooth: it grows with time, and each gradient that
//! is applied brings it down to that gradient's own age. Everything is by the server's clock.

use std::time::Duration;

use pstrain_core::time::Time;
use serde::{Deserialize, Serialize};

/// The saw-tooth of one worker, from its first applied gradient on.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Age {
    /// When a gradient was applied last, and how old it was then.
    last: Option<(Time, Duration)>,
    /// The time it has been watched, and the integral of the age over it.
    watched: Duration,
    area: f64,
    peaks: u64,
    peaks_sum: Duration,
}

/// A stretch over which the age grew from one value to another, as fast as time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

/// Age of information of a run or a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct AgeOfInformation {
    /// The average over time.
    pub(crate) mean_s: Option<f64>,
    /// The average of the values just before each drop.
    pub(crate) peak_mean_s: Option<f64>,
}

impl Age {
    /// A gradient of this age was applied.
    pub(super) fn applied(&mut self, now: Time, age: Duration) -> Option<Growth> {
        let growth = self.grow(now);
        if let Some(growth) = growth {
            self.peaks += 1;
            self.peaks_sum += growth.to;
        }
        self.last = Some((now, age));
        growth
    }

    /// What was applied meanwhile is not known: the age is watched anew from the next gradient on.
    pub(super) const fn lost_sight(&mut self) {
        self.last = None;
    }

    /// The run is over: the age is not watched any more.
    pub(super) fn ended(&mut self, now: Time) -> Option<Growth> {
        let growth = self.grow(now);
        self.last = None;
        growth
    }

    fn grow(&mut self, now: Time) -> Option<Growth> {
        let (since, from) = self.last?;
        let span = now.since(since);
        self.watched += span;
        self.area += span.as_secs_f64() * (from.as_secs_f64() + span.as_secs_f64() / 2.0);
        Some(Growth { from, to: from + span })
    }

    pub(super) fn summary(&self) -> AgeOfInformation {
        let over = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
        AgeOfInformation {
            mean_s: over(self.area, self.watched.as_secs_f64()),
            peak_mean_s: over(self.peaks_sum.as_secs_f64(), self.peaks as f64),
        }
    }
}

impl AgeOfInformation {
    /// The average over workers, of those that have one.
    pub(super) fn mean(all: &[Self]) -> Self {
        let mean = |part: fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = all.iter().filter_map(part).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Self { mean_s: mean(|age| age.mean_s), peak_mean_s: mean(|age| age.peak_mean_s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn the_mean_is_the_area_under_the_saw_tooth() {
        let mut age = Age::default();
        assert_eq!(age.summary(), AgeOfInformation::default());
        // Applied at 10 s with age 2 s, at 14 s with age 1 s, over at 15 s.
        assert_eq!(age.applied(at(10_000), Duration::from_secs(2)), None);
        let growth = Growth { from: Duration::from_secs(2), to: Duration::from_secs(6) };
        assert_eq!(age.applied(at(14_000), Duration::from_secs(1)), Some(growth));
        age.ended(at(15_000));
        // 4 s at 4 s on average, then 1 s at 1.5 s.
        let expected = AgeOfInformation { mean_s: Some(17.5 / 5.0), peak_mean_s: Some(6.0) };
        assert_eq!(age.summary(), expected);
        assert_eq!(age.ended(at(20_000)), None, "it is not watched after the end");
        assert_eq!(age.summary(), expected);
    }

    #[test]
    fn workers_without_an_age_do_not_count_in_the_average() {
        let one = AgeOfInformation { mean_s: Some(1.0), peak_mean_s: None };
        let other = AgeOfInformation { mean_s: Some(2.0), peak_mean_s: Some(4.0) };
        let mean = AgeOfInformation::mean(&[one, other, AgeOfInformation::default()]);
        assert_eq!(mean, AgeOfInformation { mean_s: Some(1.5), peak_mean_s: Some(4.0) });
    }
}
