//! Age of information: the age of the newest information that the server has of a worker's data.
//!
//! Kaul, Yates and Gruteser, "Real-time status: How often should one update?" (INFOCOM 2012): the
//! age at time `t` is `t - u(t)`, where `u(t)` is the time at which the newest status received was
//! made. Here a status is an applied gradient, made when the server sent the parameters that it was
//! computed on. All times are the server's. The age is a saw-tooth: it grows with time, and each
//! gradient reduces it to the gradient's own age. It is 0 when training begins and grows from then
//! on, also for a worker without an applied gradient. The mean is over time, until training ends.
//! Peaks are the values just before a gradient is applied (Costa, Codreanu and Ephremides, "Age of
//! information with packet management", ISIT 2014). A worker's first gradient makes no peak: the
//! time before it lies between the beginning and a gradient, not between two gradients.

use std::time::Duration;

use pstrain_compute::time::Time;
use serde::{Deserialize, Serialize};

/// The saw-tooth of one worker.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Age {
    watch: Watch,
    /// The observed time, and the integral of the age over it.
    watched: Duration,
    area: f64,
    peaks: u64,
    peaks_sum: Duration,
}

/// The start of the current tooth of the saw, if it is known.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum Watch {
    /// Training has not begun.
    #[default]
    Before,
    /// Training began then, and no gradient has been applied since.
    Begun(Time),
    /// When the last gradient was applied, and its age then.
    Applied(Time, Duration),
    /// Gradients may have been applied unseen, or training has ended.
    Unknown,
}

/// A span over which the age grew linearly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

/// Age of information of a run or a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct AgeOfInformation {
    /// The mean over time.
    pub(crate) mean_s: Option<f64>,
    /// The mean of the values just before each drop except the first.
    pub(crate) peak_mean_s: Option<f64>,
}

impl Age {
    /// Starts at age 0 when training begins.
    pub(super) const fn begun(&mut self, now: Time) {
        if let Watch::Before = self.watch {
            self.watch = Watch::Begun(now);
        }
    }

    /// Notes that a gradient of this age was applied.
    pub(super) fn applied(&mut self, now: Time, age: Duration) -> Option<Growth> {
        let growth = self.grow(now);
        if let (Watch::Applied(..), Some(growth)) = (self.watch, growth) {
            self.peaks += 1;
            self.peaks_sum += growth.to;
        }
        self.watch = Watch::Applied(now, age);
        growth
    }

    /// Notes that gradients may have been applied unseen: the age is known again from the next one.
    pub(super) const fn forget(&mut self) {
        if !matches!(self.watch, Watch::Before) {
            self.watch = Watch::Unknown;
        }
    }

    /// Stops at the end of the run.
    pub(super) fn ended(&mut self, now: Time) -> Option<Growth> {
        let growth = self.grow(now);
        self.watch = Watch::Unknown;
        growth
    }

    fn grow(&mut self, now: Time) -> Option<Growth> {
        let (since, from) = match self.watch {
            Watch::Begun(since) => (since, Duration::ZERO),
            Watch::Applied(since, from) => (since, from),
            Watch::Before | Watch::Unknown => return None,
        };
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
    /// The mean over the workers that have a value.
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
        // Applied at 10 s with age 2 s, at 14 s with age 1 s; ended at 15 s.
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
    fn the_age_grows_from_the_beginning_of_training_on_whether_or_not_gradients_are_applied() {
        let (mut never, mut once) = (Age::default(), Age::default());
        for age in [&mut never, &mut once] {
            age.forget();
            age.begun(at(5_000));
            age.begun(at(9_000));
        }
        let growth = Growth { from: Duration::ZERO, to: Duration::from_secs(4) };
        assert_eq!(once.applied(at(9_000), Duration::from_secs(3)), Some(growth));
        for age in [&mut never, &mut once] {
            age.ended(at(15_000));
        }
        let of = |mean_s| AgeOfInformation { mean_s: Some(mean_s), peak_mean_s: None };
        assert_eq!(never.summary(), of(5.0));
        // 4 s at 2 s on average, then 6 s at 6 s.
        assert_eq!(once.summary(), of(44.0 / 10.0));
        assert_eq!(AgeOfInformation::mean(&[never.summary(), once.summary()]), of(4.7));
    }

    #[test]
    fn after_a_time_that_was_not_seen_the_age_is_known_from_the_next_gradient_on() {
        let mut age = Age::default();
        age.begun(at(0));
        age.forget();
        age.begun(at(1_000));
        assert_eq!(age.applied(at(2_000), Duration::from_secs(1)), None);
        age.ended(at(3_000));
        assert_eq!(age.summary(), AgeOfInformation { mean_s: Some(1.5), peak_mean_s: None });
    }

    #[test]
    fn workers_without_an_age_do_not_count_in_the_average() {
        let one = AgeOfInformation { mean_s: Some(1.0), peak_mean_s: None };
        let other = AgeOfInformation { mean_s: Some(2.0), peak_mean_s: Some(4.0) };
        let mean = AgeOfInformation::mean(&[one, other, AgeOfInformation::default()]);
        assert_eq!(mean, AgeOfInformation { mean_s: Some(1.5), peak_mean_s: Some(4.0) });
    }
}
