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
}

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
