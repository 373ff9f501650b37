//! Learning rate schedules.

use serde::{Deserialize, Serialize};

use super::error::{OptimError, check};
use crate::id::Version;
use crate::named::{self, Limits, Number, Presence, Word};

/// The learning rate as a function of the version, i.e. of the number of earlier updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The base rate at every version.
    #[default]
    Constant,
    /// `base * factor^floor(version / every)`.
    Step {
        /// Updates between two changes, 1 or more.
        every: u64,
        /// Factor of the rate at each change, above 0.
        factor: f32,
    },
    /// `floor + (base - floor) * (1 + cos(pi * version / updates)) / 2`, then `floor` (Loshchilov
    /// and Hutter 2017, without restarts).
    Cosine {
        /// Updates until the rate reaches `floor`, 1 or more.
        updates: u64,
        /// The final rate, from 0 to the base rate.
        floor: f32,
    },
    /// Over the whole run: [`Self::Cosine`] down to `floor`.
    CosineRun {
        /// The final rate, from 0 to the base rate.
        floor: f32,
        /// The share of the run in which the rate rises to the base rate along a line (Goyal et
        /// al. 2017, section 2.2), below 1.
        warm_up: f32,
        /// Updates of the run; 0 until they are known.
        updates: u64,
    },
    /// Over the whole run: `base`, multiplied by `factor` at two places.
    StepRun {
        /// Factor of the rate at each place, above 0.
        factor: f32,
        /// The share of the run before the first change.
        first: f32,
        /// The share of the run before the second change.
        second: f32,
        /// As for [`Self::CosineRun`].
        warm_up: f32,
        /// As for [`Self::CosineRun`].
        updates: u64,
    },
    /// `base / (1 + decay * version)`.
    Inverse {
        /// Increase of the denominator per update, 0 or more.
        decay: f32,
    },
}

impl Schedule {
    /// Returns the learning rate of the update from `version` to the next version.
    #[must_use]
    pub fn rate(self, base: f32, version: Version) -> f32 {
        let version = version.0;
        let exact = f64::from(base);
        match self {
            Self::Constant => base,
            Self::Step { every, factor } => {
                let changes = version.checked_div(every).unwrap_or(0);
                (exact * libm::pow(factor.into(), changes as f64)) as f32
            }
            Self::Cosine { updates, floor } => cosine(exact, floor, version as f64, updates as f64),
            Self::CosineRun { floor, warm_up, updates } => {
                let begin = f64::from(warm_up) * updates as f64;
                warmed(version, begin).map_or_else(
                    || cosine(exact, floor, version as f64 - begin, updates as f64 - begin),
                    |share| (exact * share) as f32,
                )
            }
            Self::StepRun { factor, first, second, warm_up, updates } => {
                let is_after = |share: f32| version as f64 >= f64::from(share) * updates as f64;
                let changes = [first, second].map(is_after).map(f64::from).iter().sum();
                let share = warmed(version, f64::from(warm_up) * updates as f64).unwrap_or(1.0);
                (exact * share * libm::pow(factor.into(), changes)) as f32
            }
            Self::Inverse { decay } => (exact / (1.0 + f64::from(decay) * version as f64)) as f32,
        }
    }

    /// The schedule of a run of so many updates.
    #[must_use]
    pub fn over(mut self, run: u64) -> Self {
        if let Self::CosineRun { updates, .. } | Self::StepRun { updates, .. } = &mut self
            && *updates == 0
        {
            *updates = run;
        }
        self
    }

    /// True if it needs the number of updates of the run, and does not know it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::CosineRun { updates: 0, .. } | Self::StepRun { updates: 0, .. })
    }

    pub(super) fn validate(self, base: f32) -> Result<(), OptimError> {
        named::check(self, OptimError::Schedule)?;
        match self {
            Self::Cosine { floor, .. } | Self::CosineRun { floor, .. } => {
                check("schedule floor", floor, "from 0 to the learning rate", floor <= base)
            }
            _ => Ok(()),
        }
    }
}

/// Half a cosine from `base` to `floor` in `length` updates, after `place` of them.
fn cosine(base: f64, floor: f32, place: f64, length: f64) -> f32 {
    if place >= length {
        return floor;
    }
    let floor = f64::from(floor);
    let angle = core::f64::consts::PI * (place / length);
    (floor + (base - floor) * (1.0 + libm::cos(angle)) / 2.0) as f32
}

/// The share of the rate at `version` of a warm-up in `length` updates; `None` after it.
fn warmed(version: u64, length: f64) -> Option<f64> {
    let share = (version as f64 + 1.0) / length;
    (share < 1.0).then_some(share)
}

/// The last numbers of a schedule over the run.
const WARM_UP: Number = Number::real("WARM-UP", Limits::PART).usual("0");
const UPDATES: Number = Number::any("UPDATES").with(Presence::Implied("0"));

named!(Schedule: "schedule", ',' {
    Constant = Word::new("constant", &[], "the learning rate stays"),
    Step { every, factor } = Word::new("step",
        &[Number::whole("EVERY", 1..=u64::MAX),
          Number::real("FACTOR", Limits::POSITIVE)],
        "multiplied by FACTOR at every EVERY-th update"),
    Cosine { updates, floor } = Word::new("cosine",
        &[Number::whole("UPDATES", 1..=u64::MAX),
          Number::real("FLOOR", Limits::NOT_NEGATIVE).usual("0")],
        "falls to FLOOR along half a cosine of UPDATES updates"),
    CosineRun { floor, warm_up, updates } = Word::new("cosine-run",
        &[Number::real("FLOOR", Limits::NOT_NEGATIVE).usual("0"), WARM_UP, UPDATES],
        "rises in the share WARM-UP of the run, then falls to FLOOR along half a cosine"),
    StepRun { factor, first, second, warm_up, updates } = Word::new("step-run",
        &[Number::real("FACTOR", Limits::POSITIVE).usual("0.1"),
          Number::real("FIRST", Limits::SHARE).usual("0.5"),
          Number::real("SECOND", Limits::SHARE).usual("0.75"),
          WARM_UP, UPDATES],
        "rises in the share WARM-UP of the run; multiplied by FACTOR after the shares FIRST and \
         SECOND"),
    Inverse { decay } = Word::new("inverse", &[Number::real("DECAY", Limits::NOT_NEGATIVE)],
        "divided by 1 + DECAY times the number of updates"),
});

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    fn rates<const N: usize>(schedule: Schedule, versions: [u64; N]) -> [f32; N] {
        versions.map(|version| schedule.rate(0.2, Version(version)))
    }

    fn close<const N: usize>(found: [f32; N], expected: [f64; N]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() <= 1e-7 * expected, "{found} {expected}");
        }
    }

    #[test]
    fn a_constant_rate_stays() {
        assert_eq!(rates(Schedule::Constant, [0, 1, u64::MAX]), [0.2; 3]);
    }

    #[test]
    fn a_step_schedule_multiplies_at_every_boundary() {
        let schedule = Schedule::Step { every: 10, factor: 0.5 };
        close(rates(schedule, [0, 9, 10, 19, 20, 55]), [0.2, 0.2, 0.1, 0.1, 0.05, 0.00625]);
        assert_eq!(rates(schedule, [u64::MAX]), [0.0]);
    }

    #[test]
    fn a_cosine_schedule_ends_on_its_floor() {
        let schedule = Schedule::Cosine { updates: 100, floor: 0.02 };
        // By hand: cos(pi / 4) = 0.70710678118..., cos(pi / 2) = 0.
        let quarter = 0.02 + 0.18 * (1.0 + core::f64::consts::FRAC_1_SQRT_2) / 2.0;
        close(rates(schedule, [0, 25, 50, 100, 101]), [0.2, quarter, 0.11, 0.02, 0.02]);
    }

    #[test]
    fn schedules_over_a_run_warm_up_and_end_with_it() {
        let schedule: Schedule = "cosine-run:0.02,0.1".parse().unwrap();
        assert!(schedule.is_open());
        let schedule = schedule.over(100);
        assert_eq!(schedule.over(7), schedule, "as it is known");
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
        close(rates(schedule, [0, 4, 9, 10, 55, 100]), [0.02, 0.1, 0.2, 0.2, 0.11, 0.02]);
        let schedule = "step-run:0.1,0.5,0.75,0.05,40".parse::<Schedule>().unwrap();
        assert!(!schedule.is_open());
        close(
            rates(schedule, [0, 1, 19, 20, 29, 30, 50]),
            [0.1, 0.2, 0.2, 0.02, 0.02, 0.002, 0.002],
        );
        let plain = "step-run".parse::<Schedule>().unwrap().over(4);
        close(rates(plain, [0, 1, 2, 3]), [0.2, 0.2, 0.02, 0.002]);
    }

    #[test]
    fn an_inverse_schedule_divides_by_the_version() {
        let schedule = Schedule::Inverse { decay: 0.25 };
        close(rates(schedule, [0, 2, 4, 36]), [0.2, 0.2 / 1.5, 0.1, 0.02]);
    }
}
