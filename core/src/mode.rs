//! The mode of a run: what may be changed while it goes on.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::aggregate::{ParticipationSpec, StalenessSpec};
use crate::consistency::ConsistencySpec;

/// When gradients are applied, and what they count for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// When gradients are applied and workers go on.
    pub consistency: ConsistencySpec,
    /// Mini-batches of one worker that may be under way; what the consistency says if not given.
    pub in_flight: Option<u32>,
    /// What becomes of stale gradients.
    pub staleness: StalenessSpec,
    /// Updates since its parameters beyond which a gradient is thrown away.
    pub max_staleness: Option<u64>,
    /// What is done about workers that contribute more often than others.
    pub participation: ParticipationSpec,
}

/// The most mini-batches of one worker that may be under way, whatever the mode.
pub const MOST_IN_FLIGHT: u32 = 64;

impl Mode {
    /// A mode with nothing but a consistency.
    #[must_use]
    pub fn of(consistency: ConsistencySpec) -> Self {
        Self { consistency, ..Self::default() }
    }

    /// Mini-batches of one worker that may be under way, unless the run changes it.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.in_flight.unwrap_or_else(|| self.consistency.build().window()).clamp(1, MOST_IN_FLIGHT)
    }

    /// Checks what the types cannot: numbers out of range, and rules that say different things
    /// about the same gradient.
    ///
    /// # Errors
    /// [`ModeError`] names the settings and what to do.
    pub fn validate(&self) -> Result<(), ModeError> {
        if let Some(in_flight) = self.in_flight
            && !(1..=MOST_IN_FLIGHT).contains(&in_flight)
        {
            return Err(ModeError::InFlight(in_flight));
        }
        if self.in_flight.is_some_and(|in_flight| in_flight > 1) && !self.consistency.pipelines() {
            return Err(ModeError::OneByOne(self.consistency));
        }
        if !self.staleness.is_valid() {
            return Err(ModeError::Staleness(self.staleness));
        }
        let weighs_workers = matches!(
            self.consistency,
            ConsistencySpec::Malenia { .. } | ConsistencySpec::Ringleader
        );
        let plain = self.participation == ParticipationSpec::Plain;
        if weighs_workers && !(plain && self.staleness != StalenessSpec::DynSgd) {
            return Err(ModeError::WeighedTwice(self.consistency));
        }
        let in_table = self.participation == ParticipationSpec::Incremental;
        if in_table && self.staleness == StalenessSpec::DynSgd {
            return Err(ModeError::TwoTables);
        }
        Ok(())
    }
}

/// A mode that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModeError {
    /// No mini-batch under way, or too many.
    InFlight(u32),
    /// Several mini-batches under way where each must wait for the update with the one before.
    OneByOne(ConsistencySpec),
    /// A rule with numbers out of range.
    Staleness(StalenessSpec),
    /// Two rules that each replace a worker's gradient by what they remember of the others.
    TwoTables,
    /// A consistency that says itself what each worker counts for, with another rule for that.
    WeighedTwice(ConsistencySpec),
}

impl fmt::Display for ModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight(in_flight) => {
                write!(f, "in-flight = {in_flight}: must be 1 to {MOST_IN_FLIGHT}, or auto")
            }
            Self::OneByOne(consistency) => write!(
                f,
                "in-flight above 1 with consistency = {consistency}, which gives a worker one \
                 mini-batch at a time; use 1 or auto, or another consistency such as asp or delay:4"
            ),
            Self::Staleness(rule) => {
                write!(f, "staleness = {rule}: a number is out of its range")
            }
            Self::TwoTables => f.write_str(
                "staleness = dynsgd with participation = incremental: each makes an update of \
                 what it remembers of other gradients; choose one of them",
            ),
            Self::WeighedTwice(consistency) => write!(
                f,
                "consistency = {consistency} weighs workers by their data itself: choose \
                 participation = plain with it, and no staleness = dynsgd"
            ),
        }
    }
}

impl core::error::Error for ModeError {}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.consistency)?;
        if let Some(in_flight) = self.in_flight {
            write!(f, ", {in_flight} in flight")?;
        }
        if self.staleness != StalenessSpec::Plain {
            write!(f, ", staleness {}", self.staleness)?;
        }
        if let Some(most) = self.max_staleness {
            write!(f, ", at most {most} updates stale")?;
        }
        if self.participation != ParticipationSpec::Plain {
            write!(f, ", participation {}", self.participation)?;
        }
        Ok(())
    }
}
