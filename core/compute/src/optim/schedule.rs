//! Learning rate schedules.

use serde::{Deserialize, Serialize};

use super::error::{OptimError, check};
use crate::id::Version;
use crate::named::{self, Limits, Number, Word};

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
            Self::Cosine { updates, floor } if version >= updates => floor,
            Self::Cosine { updates, floor } => {
                let angle = core::f64::consts::PI * (version as f64 / updates as f64);
                let floor = f64::from(floor);
                (floor + (exact - floor) * (1.0 + libm::cos(angle)) / 2.0) as f32
            }
            Self::Inverse { decay } => (exact / (1.0 + f64::from(decay) * version as f64)) as f32,
        }
    }

    pub(super) fn validate(self, base: f32) -> Result<(), OptimError> {
        named::check(self, OptimError::Schedule)?;
        match self {
            Self::Cosine { floor, .. } => {
                check("schedule floor", floor, "from 0 to the learning rate", floor <= base)
            }
            _ => Ok(()),
        }
    }
}

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
    Inverse { decay } = Word::new("inverse", &[Number::real("DECAY", Limits::NOT_NEGATIVE)],
        "divided by 1 + DECAY times the number of updates"),
});

#[cfg(test)]
mod tests {
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
    fn an_inverse_schedule_divides_by_the_version() {
        let schedule = Schedule::Inverse { decay: 0.25 };
        close(rates(schedule, [0, 2, 4, 36]), [0.2, 0.2 / 1.5, 0.1, 0.02]);
    }
}
