//! The numbers that name things, each its own type so that none is taken for another.

use core::fmt;

use serde::{Deserialize, Serialize};

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

number! {
    /// A worker of the job, counted from 0. It also names the worker's partition of the data.
    WorkerId(u32)
}
number! {
    /// One connection, as the driver counts them. A reconnected worker has a new one.
    PeerId(u64)
}
number! {
    /// Issued by the server each time a worker id is (re)claimed; an older one can never push.
    Incarnation(u64)
}
number! {
    /// The number of a push within its incarnation, from 1. Each is decided exactly once.
    Sequence(u64)
}
number! {
    /// The version of the parameters: updates applied so far.
    Version(u64)
}
number! {
    /// Iterations (pushes accepted) of one worker: the logical clock of SSP.
    Clock(u64)
}
number! {
    /// The number of a mini-batch in a worker's endless, reshuffled pass over its partition.
    BatchId(u64)
}

impl Incarnation {
    /// The incarnation that follows this one.
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

    /// Updates applied from `base` to `self`: the staleness of a gradient computed on `base`.
    #[must_use]
    pub const fn since(self, base: Self) -> u64 {
        self.0.saturating_sub(base.0)
    }
}
