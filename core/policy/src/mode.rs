//! The mode of a run: what may be changed while it goes on.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::consistency::{ConsistencySpec, ImpossibleConsistency};
use crate::rules::{ParticipationSpec, StalenessSpec};
use pstrain_compute::id::Version;
use pstrain_compute::task::MOST_IN_FLIGHT;

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

impl Mode {
    /// A mode with nothing but a consistency.
    #[must_use]
    pub fn of(consistency: ConsistencySpec) -> Self {
        Self { consistency, ..Self::default() }
    }

    /// The most mini-batches of one worker that may be under way, unless the run changes it.
    #[must_use]
    pub fn window(&self) -> u32 {
        if self.consistency == ConsistencySpec::Auto {
            return MOST_IN_FLIGHT;
        }
        self.in_flight.unwrap_or_else(|| self.consistency.build().window()).clamp(1, MOST_IN_FLIGHT)
    }

    /// Whether gradients are applied when they are under `other`, and count for the same: between
    /// such modes nothing has to wait, since how much may be under way, and how stale it may be,
    /// concerns no gradient but the next.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        let Self { in_flight, max_staleness, .. } = *other;
        Self { in_flight, max_staleness, ..*self } == *other
    }

    /// This mode with another consistency, and without what does not go with that.
    #[must_use]
    pub fn with(self, consistency: ConsistencySpec) -> Self {
        if consistency == ConsistencySpec::Auto {
            return Self::of(consistency); // it chooses the rest itself
        }
        let in_flight = self.in_flight.filter(|_| consistency.pipelines());
        let mode = Self { consistency, in_flight, ..self };
        if mode.validate().is_ok() { mode } else { Self { in_flight, ..Self::of(consistency) } }
    }

    /// This mode with one of its settings changed: the key and the value as in a job file.
    ///
    /// # Errors
    /// In words, if there is no such setting, or the value or the mode it makes are not valid.
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
        let is_auto = self.consistency == ConsistencySpec::Auto;
        if is_auto && *self != Self::of(ConsistencySpec::Auto) {
            return Err(ModeError::NotUpToYou);
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

/// The same with the setting in its error.
fn named<T, E: fmt::Display>(key: &str, value: &str, read: Result<T, E>) -> Result<T, String> {
    read.map_err(|error| alloc::format!("{key} = {value}: {error}"))
}

/// Reads `in-flight`: `auto` or a number.
///
/// # Errors
/// In words, what it must be.
pub fn read_in_flight(text: &str) -> Result<Option<u32>, String> {
    let must = || alloc::format!("must be 1 to {MOST_IN_FLIGHT}, or auto");
    read_unless(text, "auto").ok_or_else(must)
}

/// Reads `max-staleness`: `none` or a number.
///
/// # Errors
/// In words, what it must be.
pub fn read_max_staleness(text: &str) -> Result<Option<u64>, String> {
    let must = || alloc::format!("must be a number of updates, 0 to {}, or none", u64::MAX);
    read_unless(text, "none").ok_or_else(must)
}

fn read_unless<T: FromStr>(text: &str, none: &str) -> Option<Option<T>> {
    if text == none { Some(None) } else { text.parse().ok().map(Some) }
}

/// A change of consistency that the job foresees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// To what.
    pub to: ConsistencySpec,
    /// When.
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
    /// Checks the changes that a job with so many workers foresees: each to a consistency that
    /// fits it, at a time that is neither before the first update nor before the one ahead of it.
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

/// A change of consistency that cannot be foreseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchError {
    /// To a consistency whose number does not fit the job.
    Impossible(Switch, ImpossibleConsistency),
    /// Before there is an update.
    TooEarly(Switch),
    /// Before one that comes ahead of it in the list.
    OutOfOrder(Switch),
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible(switch, why) => write!(f, "switch = {switch}: {why}"),
            Self::TooEarly(switch) => write!(
                f,
                "switch = {switch}: must come after the first update or later; with consistency = \
                 {} the run begins that way",
                switch.to
            ),
            Self::OutOfOrder(switch) => write!(
                f,
                "switch = {switch}: comes before one that is listed ahead of it; list them in \
                 their order"
            ),
        }
    }
}

impl core::error::Error for SwitchError {}

/// When a change of consistency is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwitchAt {
    /// With this version.
    Version(Version),
    /// After so much training time.
    Time(Duration),
}

impl SwitchAt {
    /// Whether it is time, `spent` after the training began.
    #[must_use]
    pub fn is_due(self, version: Version, spent: Duration) -> bool {
        match self {
            Self::Version(at) => version >= at,
            Self::Time(at) => spent >= at,
        }
    }

    /// The training time, if it is a time.
    #[must_use]
    pub const fn time(self) -> Option<Duration> {
        match self {
            Self::Version(_) => None,
            Self::Time(at) => Some(at),
        }
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
    /// `auto` with what it chooses itself.
    NotUpToYou,
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
            Self::NotUpToYou => f.write_str(
                "consistency = auto chooses in-flight, staleness, max-staleness and participation \
                 itself: leave them out, or choose a consistency",
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
