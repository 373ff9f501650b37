//! Half-open ranges of keys.

use core::fmt;
use core::ops::Range;

use serde::{Deserialize, Serialize};

/// The keys `begin..end` of the parameter vector; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct KeyRange {
    begin: u64,
    end: u64,
}

/// A range whose begin is not before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyRange {
    begin: u64,
    end: u64,
}

impl fmt::Display for EmptyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key range [{}, {}) is empty: begin must be below end", self.begin, self.end)
    }
}

impl core::error::Error for EmptyRange {}

impl KeyRange {
    /// The keys `begin..end`.
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

    /// How many keys there are; at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a key range is never empty")]
    pub const fn len(self) -> u64 {
        self.end - self.begin
    }

    /// Whether every key of `other` is in this range.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }

    /// The keys that are in both; none if there are none.
    #[must_use]
    pub fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.begin.max(other.begin), self.end.min(other.end)).ok()
    }

    /// The smallest range that has both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { begin: self.begin.min(other.begin), end: self.end.max(other.end) }
    }

    /// Where the keys of this range are among the values of `whole`, if that has all of them.
    #[must_use]
    pub fn within(self, whole: Self) -> Option<Range<usize>> {
        let first = whole.begin;
        whole.contains(self).then(|| (self.begin - first) as usize..(self.end - first) as usize)
    }

    /// Share `place` of `keys` keys cut into `shares` that differ by one at most; none if there are
    /// not as many shares, or more shares than keys.
    #[must_use]
    pub fn share(keys: u64, shares: u32, place: u32) -> Option<Self> {
        let cut = |place: u32| (u128::from(keys) * u128::from(place) / u128::from(shares)) as u64;
        (place < shares).then(|| Self::new(cut(place), cut(place + 1)).ok())?
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
