//! Half-open ranges of keys.

use core::fmt;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::pass::share;

/// The keys `begin..end` of the parameter vector. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct KeyRange {
    begin: u64,
    end: u64,
}

/// A range whose begin is not before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key range [{begin}, {end}) is empty: begin must be below end")]
pub struct EmptyRange {
    begin: u64,
    end: u64,
}

impl KeyRange {
    /// Creates the range `begin..end`.
    ///
    /// # Errors
    /// [`EmptyRange`] if `begin >= end`.
    pub const fn new(begin: u64, end: u64) -> Result<Self, EmptyRange> {
        if begin < end { Ok(Self { begin, end }) } else { Err(EmptyRange { begin, end }) }
    }

    /// The first key.
    #[must_use]
    pub const fn begin(self) -> u64 {
        self.begin
    }

    /// One past the last key.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// The number of keys, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a key range is never empty")]
    pub const fn len(self) -> u64 {
        self.end - self.begin
    }

    /// True if every key of `other` is in this range.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }

    /// Returns the keys in both ranges, if there are any.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.begin.max(other.begin), self.end.min(other.end)).ok()
    }

    /// Returns the smallest range that contains both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { begin: self.begin.min(other.begin), end: self.end.max(other.end) }
    }

    /// Returns the indices of this range's keys in the values of `whole`, if `whole` contains all
    /// keys.
    #[must_use]
    pub fn within(self, whole: Self) -> Option<Range<usize>> {
        let first = whole.begin;
        whole.contains(self).then(|| (self.begin - first) as usize..(self.end - first) as usize)
    }

    /// Returns share number `place` of `keys` keys, cut into `shares` ranges whose lengths differ
    /// by at most one; `None` if `place` is out of range or the share would be empty.
    #[must_use]
    pub fn share(keys: u64, shares: u32, place: u32) -> Option<Self> {
        let Range { start, end } =
            (place < shares).then(|| share(keys, shares.into(), place.into()))?;
        Self::new(start, end).ok()
    }

    /// The range as slice indices.
    #[must_use]
    pub const fn indices(self) -> Range<usize> {
        self.begin as usize..self.end as usize
    }
}

impl TryFrom<(u64, u64)> for KeyRange {
    type Error = EmptyRange;

    fn try_from((begin, end): (u64, u64)) -> Result<Self, EmptyRange> {
        Self::new(begin, end)
    }
}

impl From<KeyRange> for (u64, u64) {
    fn from(range: KeyRange) -> Self {
        (range.begin, range.end)
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.begin, self.end)
    }
}
