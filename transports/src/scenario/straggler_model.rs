//! Durations of one worker's successive mini-batches.

use std::time::Duration;

use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use rand_distr::{Distribution as _, Exp1, StandardNormal};

use super::compute_times::{ComputeSpec, Slowdown, TimeModel};

/// Draws the durations of one worker's mini-batches.
#[derive(Clone, Debug)]
pub struct StragglerModel {
    time: TimeModel,
    factor: f64,
    /// Slowness in addition to `factor`, each value from a time on; sorted.
    slowness: Vec<(Time, f64)>,
    /// True in the slow state of a straggler; `None` before the first mini-batch.
    straggling: Option<bool>,
    random: Random,
}

impl StragglerModel {
    /// Returns the pace of a worker before its first mini-batch; randomness comes from `stream`.
    ///
    /// A duration that must be measured counts as 0 until [`ComputeSpec::with_measured`] supplies
    /// it.
    #[must_use]
    pub fn new(spec: ComputeSpec, stream: Stream) -> Self {
        Self {
            time: spec.time,
            factor: spec.factor,
            slowness: slowness(&spec.slow),
            straggling: None,
            random: stream.rng(),
        }
    }

    /// Returns the duration of `amount` mini-batches, which need not be whole, begun at `now`.
    pub fn take(&mut self, now: Time, amount: f64) -> Duration {
        let mut time = Duration::ZERO;
        let mut left = amount;
        while left > 0.0 {
            let next = self.draw();
            time += if left < 1.0 { nanos(float(next) * left) } else { next };
            left -= 1.0;
        }
        self.stretch(now, time)
    }

    /// Returns the duration of work begun at `now` that takes `time` at ordinary speed.
    #[must_use]
    pub fn stretch(&self, now: Time, time: Duration) -> Duration {
        if self.slowness.is_empty() && self.factor == 1.0 {
            return time;
        }
        let mut work = time.as_nanos() as f64 * self.factor;
        let mut passed = 0.0;
        let mut at = now;
        let mut next = self.slowness.partition_point(|&(from, _)| from <= now);
        let mut slower = next.checked_sub(1).map_or(1.0, |last| self.slowness[last].1);
        while let Some(&(from, then)) = self.slowness.get(next) {
            let span = (from - at).as_nanos() as f64;
            if work * slower <= span {
                break;
            }
            work -= span / slower;
            passed += span;
            (at, slower) = (from, then);
            next += 1;
        }
        nanos(passed + work * slower)
    }

    fn draw(&mut self) -> Duration {
        let random = &mut self.random;
        match self.time {
            TimeModel::Fixed(time) => time,
            TimeModel::Normal { mean, deviation } => {
                let off: f64 = StandardNormal.sample(random.generator());
                nanos(float(mean) + off * float(deviation))
            }
            TimeModel::LogNormal { median, sigma } => {
                let off: f64 = StandardNormal.sample(random.generator());
                nanos(float(median) * libm::exp(sigma * off))
            }
            TimeModel::Exponential { mean } => {
                let times: f64 = Exp1.sample(random.generator());
                nanos(float(mean) * times)
            }
            TimeModel::Pareto { minimum, alpha, plus } => {
                // The logarithm of a Pareto variable is exponentially distributed.
                let log: f64 = Exp1.sample(random.generator());
                nanos(float(plus) + float(minimum) * libm::exp(log / alpha))
            }
            TimeModel::Straggler { fast, slow, enter, leave } => {
                let straggling = match self.straggling {
                    None => false,
                    Some(false) => random.unit() < enter,
                    Some(true) => random.unit() >= leave,
                };
                self.straggling = Some(straggling);
                if straggling { slow } else { fast }
            }
            TimeModel::Measured => Duration::ZERO,
        }
    }
}

const fn float(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Returns a time in nanoseconds; negative values become 0.
fn nanos(value: f64) -> Duration {
    Duration::from_nanos(libm::round(value) as u64)
}

/// Returns the slowness of a machine, each value from a time on. Where windows overlap, their
/// factors multiply.
fn slowness(windows: &[Slowdown]) -> Vec<(Time, f64)> {
    let mut changes: Vec<Time> =
        windows.iter().flat_map(|window| [window.begin, window.begin + window.length]).collect();
    changes.sort_unstable();
    changes.dedup();
    let slower_at = |at: Time| {
        let open = |window: &&Slowdown| window.begin <= at && at < window.begin + window.length;
        windows.iter().filter(open).map(|window| window.factor).product()
    };
    changes.into_iter().map(|at| (at, slower_at(at))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pstrain_compute::id::WorkerId;

    use super::super::compute_times::ComputeTimes;
    use super::*;

    fn pace(text: &str, seed: u64) -> StragglerModel {
        let times: ComputeTimes = text.parse().unwrap();
        StragglerModel::new(times.of(WorkerId(0)).unwrap(), Stream::new(seed))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn closed_values() {
        for (text, begun, takes) in [
            ("10ms", 0, 10),
            ("10ms factor=4", 7, 40),
            ("10ms factor=0.5", 7, 5),
            ("10ms slow=10x@100ms+50ms", 90, 10),
            // Half of the work lies before the slow-down, half in it.
            ("10ms slow=10x@100ms+50ms", 95, 55),
            ("10ms slow=10x@100ms+50ms", 100, 55),
            ("10ms slow=10x@100ms+50ms", 140, 19),
            ("10ms slow=10x@100ms+50ms", 150, 10),
            ("20ms slow=10x@100ms+50ms", 95, 65),
            ("10ms slow=2x@0s+1s slow=3x@0s+1s", 0, 60),
        ] {
            assert_eq!(
                pace(text, 1).take(Time::ZERO + ms(begun), 1.0),
                ms(takes),
                "{text} at {begun}"
            );
        }
    }

    #[test]
    fn more_takes_as_much_longer() {
        for (amount, takes) in [(1.0, 10), (3.0, 30), (0.5, 5), (2.4, 24)] {
            assert_eq!(pace("10ms", 1).take(Time::ZERO, amount), ms(takes), "{amount}");
        }
        // Each mini-batch is drawn independently.
        let text = "lognormal:10ms,1";
        let mut one_by_one = pace(text, 7);
        let each: Duration = (0..3).map(|_| one_by_one.take(Time::ZERO, 1.0)).sum();
        assert_eq!(pace(text, 7).take(Time::ZERO, 3.0), each);
    }

    #[test]
    fn times_are_distributed_as_asked() {
        for (text, mean, median) in [
            ("normal:10ms,2ms", 10.0, 10.0),
            ("lognormal:10ms,0.5", 10.0 * (0.125_f64).exp(), 10.0),
            ("exponential:10ms", 10.0, 10.0 * std::f64::consts::LN_2),
            ("pareto:10ms,3", 15.0, 10.0 * 2.0_f64.powf(1.0 / 3.0)),
            ("pareto:10ms,3,7ms", 22.0, 7.0 + 10.0 * 2.0_f64.powf(1.0 / 3.0)),
            ("straggler:10ms,110ms,0.1,0.4", 30.0, 10.0),
        ] {
            let mut pace = pace(text, 3);
            let mut draws: Vec<f64> =
                (0..100_000).map(|_| pace.take(Time::ZERO, 1.0).as_secs_f64() * 1e3).collect();
            let found = draws.iter().sum::<f64>() / draws.len() as f64;
            assert!((found - mean).abs() < 0.03 * mean, "{text}: mean {found}");
            draws.sort_by(f64::total_cmp);
            let found = draws[draws.len() / 2];
            assert!((found - median).abs() < 0.03 * median, "{text}: median {found}");
        }
    }

    proptest! {
        #[test]
        fn work_cut_in_two_takes_as_long_as_in_one(
            windows in prop::collection::vec((1_u32..50, 0_u64..1_000, 1_u64..500), 0..5),
            begin in 0_u64..1_200,
            work in 1_u64..1_000,
            cut in 0.0..1.0,
        ) {
            let mut text = "1ms".to_owned();
            for (factor, at, length) in windows {
                text += &format!(" slow={factor}x@{at}ms+{length}ms");
            }
            let pace = pace(&text, 1);
            let begin = Time::ZERO + ms(begin);
            let whole = pace.stretch(begin, ms(work));
            let part = ms(work).mul_f64(cut);
            let first = pace.stretch(begin, part);
            let second = pace.stretch(begin + first, ms(work) - part);
            let differs = whole.abs_diff(first + second);
            prop_assert!(differs <= Duration::from_nanos(100), "{} {}", text, differs.as_nanos());
            prop_assert!(whole >= ms(work));
        }

        #[test]
        fn the_same_stream_gives_the_same_times(seed: u64) {
            let mut a = pace("lognormal:5ms,1", seed);
            let mut b = pace("lognormal:5ms,1", seed);
            for i in 0..50 {
                prop_assert_eq!(a.take(Time::from_nanos(i), 1.0), b.take(Time::from_nanos(i), 1.0));
            }
        }
    }
}
