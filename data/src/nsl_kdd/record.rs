//! One record of the data set in memory.

use super::schema::{Attack, NUMERIC};

/// One connection: symbolic columns as indices, numeric features as the file has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Index into [`PROTOCOLS`](super::PROTOCOLS).
    pub protocol: u8,
    /// Index into [`SERVICES`](super::SERVICES).
    pub service: u8,
    /// Index into [`FLAGS`](super::FLAGS).
    pub flag: u8,
    /// The label.
    pub attack: Attack,
    /// The numeric features in the order of the file. Features that were not requested are 0.
    pub numbers: [f32; NUMERIC],
}

impl Default for Record {
    fn default() -> Self {
        Self {
            protocol: 0,
            service: 0,
            flag: 0,
            attack: Attack::default(),
            numbers: [0.0; NUMERIC],
        }
    }
}

/// A set of numeric features, so that only features in use are parsed or drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns(u64);

impl Columns {
    /// No numeric features: only labels and symbolic columns.
    pub const NONE: Self = Self(0);
    /// All numeric features.
    pub const ALL: Self = Self((1 << NUMERIC) - 1);

    /// Returns the set of the features with the given numbers.
    #[must_use]
    pub fn of(numerics: &[u8]) -> Self {
        Self(numerics.iter().fold(0, |set, &numeric| set | 1 << numeric))
    }

    /// True if feature `numeric` is in the set.
    #[must_use]
    pub const fn contains(self, numeric: usize) -> bool {
        self.0 >> numeric & 1 == 1
    }
}
