//! Identifiers and counters, each a separate type so that the compiler rejects a mix-up.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Defines an identifier that is counted as workers are: an index from 0 internally, a number from
/// 1 for people.
macro_rules! counted_as_workers {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(from = "WorkerId", into = "WorkerId")]
        pub struct $name(pub u32);

        impl From<WorkerId> for $name {
            fn from(same_number: WorkerId) -> Self {
                Self(same_number.0)
            }
        }

        impl From<$name> for WorkerId {
            fn from(same_number: $name) -> Self {
                Self(same_number.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                WorkerId::from(*self).fmt(f)
            }
        }
    };
}

/// The largest number of workers per server.
pub const MAX_WORKERS: u32 = 65_536;

/// A worker of the job. The same index identifies the worker's partition of the data.
///
/// Internally an index from 0; messages and files for people number workers from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

impl WorkerId {
    /// The worker's number for people: 1 for the first worker.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 as u64 + 1
    }

    /// Returns the worker with this number; `None` for 0 and for numbers that are too large.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        u32::try_from(number.checked_sub(1)?).ok().map(Self)
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl FromStr for WorkerId {
    type Err = NotAWorker;

    fn from_str(text: &str) -> Result<Self, NotAWorker> {
        text.parse().ok().and_then(Self::from_number).ok_or_else(|| NotAWorker(text.into()))
    }
}

counted_as_workers! {
    /// A part of the training data, from which mini-batches are cut: the partition of the worker
    /// with the same number, or a shard if the job cuts the data into shards.
    ///
    /// Internally an index from 0, for people a number from 1, as [`WorkerId`].
    PartId
}

/// A text that is not the number of a worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no worker: they are numbered 1, 2, ...")]
pub struct NotAWorker(String);

impl Serialize for WorkerId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.serialize_u64(self.number())
        } else {
            to.serialize_u32(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for WorkerId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            let number = u64::deserialize(from)?;
            Self::from_number(number).ok_or_else(|| {
                D::Error::invalid_value(Unexpected::Unsigned(number), &"a worker's number from 1")
            })
        } else {
            u32::deserialize(from).map(Self)
        }
    }
}

number! {
    /// A connection, numbered by the driver. A reconnected worker has a new one.
    PeerId(u64)
}
counted_as_workers! {
    /// A server of the job. The first server is the coordinator: it decides, and the others follow.
    ///
    /// Internally an index from 0, for people a number from 1, as [`WorkerId`].
    ServerId
}

impl ServerId {
    /// The coordinator.
    pub const COORDINATOR: Self = Self(0);
}

number! {
    /// The number of a period of leadership, for a server with a standby: at most one of the two
    /// nodes leads in a term.
    Term(u64)
}
number! {
    /// Issued by the server each time a worker id is (re)claimed. An older incarnation can never
    /// push.
    Incarnation(u64)
}
number! {
    /// The number of a push within its incarnation, from 1. Each push is decided exactly once.
    Sequence(u64)
}
number! {
    /// The version of the parameters: the number of updates applied so far.
    Version(u64)
}
number! {
    /// The number of accepted pushes of one worker: the logical clock of SSP.
    Clock(u64)
}
number! {
    /// The number of a mini-batch in a worker's endless, reshuffled pass over its partition.
    BatchId(u64)
}

/// A checkpoint of all servers of a job, taken at the same decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CheckpointId {
    /// The run that took the checkpoint. A run that resumes from a checkpoint is a new run, which
    /// uses the later checkpoint numbers again.
    pub run: u64,
    /// The number of the checkpoint, from 1; 0 is the beginning of the run.
    pub number: u64,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => f.write_str("the beginning of the run"),
            number => write!(f, "checkpoint {number}"),
        }
    }
}

impl Incarnation {
    /// The incarnation that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Term {
    /// The term that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Sequence {
    /// The sequence number that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Version {
    /// The version after one more update.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of updates from `base` to `self`: the staleness of a gradient computed on
    /// `base`.
    #[must_use]
    pub const fn since(self, base: Self) -> u64 {
        self.0.saturating_sub(base.0)
    }
}
