//! Mode of a run: the settings that may change while it runs.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::consistency::{ConsistencySpec, ImpossibleConsistency};
use crate::rules::{ParticipationSpec, StalenessSpec};
use pstrain_compute::id::Version;
use pstrain_compute::named::{Number, check};
use pstrain_compute::task::MOST_IN_FLIGHT;

/// The settings that decide when gradients are applied, and with which weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// When gradients are applied and workers continue.
    pub consistency: ConsistencySpec,
    /// Mini-batches of one worker that may be under way; by default the policy's window.
    pub in_flight: Option<u32>,
    /// The rule for stale gradients.
    pub staleness: StalenessSpec,
    /// Largest staleness in updates; a staler gradient is dropped.
    pub max_staleness: Option<u64>,
    /// The rule for workers that contribute more often than others.
    pub participation: ParticipationSpec,
}

impl Mode {
    /// Creates a mode with this consistency and defaults otherwise.
    #[must_use]
    pub fn of(consistency: ConsistencySpec) -> Self {
        Self { consistency, ..Self::default() }
    }

    /// The largest number of mini-batches of one worker that may be under way, unless the run
    /// changes it.
    #[must_use]
    pub fn window(&self) -> u32 {
        if self.consistency == ConsistencySpec::Auto {
            return MOST_IN_FLIGHT;
        }
        self.in_flight.unwrap_or_else(|| self.consistency.build().window()).clamp(1, MOST_IN_FLIGHT)
    }

    /// Returns true if gradients are applied at the same time and with the same weight as under
    /// `other`. A change between such modes needs no barrier, because the window and the staleness
    /// limit affect future gradients only.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        let Self { in_flight, max_staleness, .. } = *other;
        Self { in_flight, max_staleness, ..*self } == *other
    }

    /// Returns this mode with another consistency, and without settings that contradict it.
    #[must_use]
    pub fn with(self, consistency: ConsistencySpec) -> Self {
        if consistency == ConsistencySpec::Auto {
            return Self::of(consistency); // it chooses the rest itself
        }
        let in_flight = self.in_flight.filter(|_| consistency.pipelines());
        let mode = Self { consistency, in_flight, ..self };
        if mode.validate().is_ok() { mode } else { Self { in_flight, ..Self::of(consistency) } }
    }

    /// Returns this mode with one setting changed: key and value as in a job file.
    ///
    /// # Errors
    /// A message, if there is no such setting, or if the value or the resulting mode is not valid.
    pub fn set(self, key: &str, value: &str) -> Result<Self, String> {
        let mut mode = self;
        match key {
            "consistency" => mode = self.with(parse(key, value)?),
            "in-flight" => mode.in_flight = named(key, value, read_in_flight(value))?,
            "staleness" => mode.staleness = parse(key, value)?,
            "max-staleness" => mode.max_staleness = named(key, value, read_max_staleness(value))?,
            "participation" => mode.participation = parse(key, value)?,
            _ => {
                return Err(alloc::format!(
                    "{key:?} cannot be set in a running job: use consistency, in-flight, \
                     staleness, max-staleness or participation"
                ));
            }
        }
        mode.validate().map_err(|error| error.to_string())?;
        Ok(mode)
    }

    /// Checks constraints that the types do not express: ranges of numbers, and rules that
    /// contradict each other about the same gradient.
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
        check(self.staleness, ModeError::Staleness)?;
        let is_auto = self.consistency == ConsistencySpec::Auto;
        if is_auto && *self != Self::of(ConsistencySpec::Auto) {
            return Err(ModeError::ChosenByAuto);
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

fn parse<T: FromStr<Err: fmt::Display>>(key: &str, value: &str) -> Result<T, String> {
    named(key, value, value.parse())
}

/// Adds the name of the setting to the error.
fn named<T, E: fmt::Display>(key: &str, value: &str, read: Result<T, E>) -> Result<T, String> {
    read.map_err(|error| alloc::format!("{key} = {value}: {error}"))
}

/// Reads `in-flight`: `auto` or a number.
///
/// # Errors
/// A message with the allowed values.
pub fn read_in_flight(text: &str) -> Result<Option<u32>, String> {
    let must = || alloc::format!("must be 1 to {MOST_IN_FLIGHT}, or auto");
    read_unless(text, "auto").ok_or_else(must)
}

/// Reads `max-staleness`: `none` or a number.
///
/// # Errors
/// A message with the allowed values.
pub fn read_max_staleness(text: &str) -> Result<Option<u64>, String> {
    let must = || alloc::format!("must be a number of updates, 0 to {}, or none", u64::MAX);
    read_unless(text, "none").ok_or_else(must)
}

fn read_unless<T: FromStr>(text: &str, none: &str) -> Option<Option<T>> {
    if text == none { Some(None) } else { text.parse().ok().map(Some) }
}

/// A change of consistency scheduled in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The new consistency.
    pub to: ConsistencySpec,
    /// The time of the change.
    pub at: SwitchAt,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            SwitchAt::Version(at) => write!(f, "{}@{at}", self.to),
            SwitchAt::Time(at) => write!(f, "{}@{at:?}", self.to),
        }
    }
}

impl Switch {
    /// Checks the changes scheduled in a job with `workers` workers: each consistency must fit the
    /// job, and each time must be after the start and not before the previous change.
    ///
    /// # Errors
    /// [`SwitchError`] names the change and what is wrong with it.
    pub fn check_all(switches: &[Self], workers: u32) -> Result<(), SwitchError> {
        let (mut version, mut time) = (Version(0), Duration::ZERO);
        for &switch in switches {
            switch.to.check(workers).map_err(|why| SwitchError::Impossible(switch, why))?;
            match switch.at {
                SwitchAt::Version(Version(0)) | SwitchAt::Time(Duration::ZERO) => {
                    return Err(SwitchError::TooEarly(switch));
                }
                SwitchAt::Version(at) if at >= version => version = at,
                SwitchAt::Time(at) if at >= time => time = at,
                _ => return Err(SwitchError::OutOfOrder(switch)),
            }
        }
        Ok(())
    }
}

/// A change of consistency that cannot be scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The number of the new consistency does not fit the job.
    #[error("switch = {0}: {1}")]
    Impossible(Switch, ImpossibleConsistency),
    /// The change would come before the first update.
    #[error(
        "switch = {switch}: must come after the first update or later; with consistency = {to} the \
         run begins that way",
        switch = .0, to = .0.to
    )]
    TooEarly(Switch),
    /// The change would come before one that precedes it in the list.
    #[error("switch = {0}: comes before one that is listed ahead of it; list them in their order")]
    OutOfOrder(Switch),
}

/// The time of a change of consistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwitchAt {
    /// At this version.
    Version(Version),
    /// After this much training time.
    Time(Duration),
}

impl SwitchAt {
    /// Returns true if the change is due at `version`, `spent` after the training began.
    #[must_use]
    pub fn is_due(self, version: Version, spent: Duration) -> bool {
        match self {
            Self::Version(at) => version >= at,
            Self::Time(at) => spent >= at,
        }
    }

    /// Returns the training time, if the change is scheduled by time.
    #[must_use]
    pub const fn time(self) -> Option<Duration> {
        match self {
            Self::Version(_) => None,
            Self::Time(at) => Some(at),
        }
    }
}

/// A mode with invalid or contradictory settings.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModeError {
    /// No mini-batch under way, or too many.
    #[error("in-flight = {0}: must be 1 to {MOST_IN_FLIGHT}, or auto")]
    InFlight(u32),
    /// Several mini-batches under way although each must wait for the update with the previous one.
    #[error(
        "in-flight above 1 with consistency = {0}, which gives a worker one mini-batch at a time; \
         use 1 or auto, or another consistency such as asp or delay:4"
    )]
    OneByOne(ConsistencySpec),
    /// `auto` together with settings that it chooses itself.
    #[error(
        "consistency = auto chooses in-flight, staleness, max-staleness and participation itself: \
         leave them out, or choose a consistency"
    )]
    ChosenByAuto,
    /// A staleness rule with numbers out of range.
    #[error("staleness = {}: {}", .0, .1.must())]
    Staleness(StalenessSpec, Number),
    /// Two rules that each replace a worker's gradient by state of other gradients.
    #[error(
        "staleness = dynsgd with participation = incremental: each makes an update of what it \
         remembers of other gradients; choose one of them"
    )]
    TwoTables,
    /// A consistency that determines the weights of workers, with another rule for them.
    #[error(
        "consistency = {0} weighs workers by their data itself: choose participation = plain with \
         it, and no staleness = dynsgd"
    )]
    WeighedTwice(ConsistencySpec),
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
