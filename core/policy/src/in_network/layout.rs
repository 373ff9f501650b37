//! Which chunk of a vector a slot has in which turn.

use core::ops::Range;

/// The division of vectors of one length among slots: chunk 0 has slot 0, chunk 1 slot 1, and so
/// on, and from the first slot again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    len: usize,
    values: usize,
    slots: u32,
}

impl Layout {
    /// The layout of vectors of `len` values in packets of up to `values`, with at most `slots`
    /// in flight.
    ///
    /// # Panics
    /// If there are no values, or no slots.
    #[must_use]
    pub fn new(len: usize, slots: u32, values: u32) -> Self {
        assert!(len > 0 && values > 0 && slots > 0, "{len} values, {slots} slots of {values}");
        let values = values as usize;
        let chunks = u32::try_from(len.div_ceil(values)).unwrap_or(u32::MAX);
        Self { len, values, slots: slots.min(chunks) }
    }

    /// Number of values of a vector.
    #[must_use]
    pub const fn vector_len(&self) -> usize {
        self.len
    }

    /// Number of slots that are used.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Turns of a slot for each vector: one for the first exponent, and one for each chunk.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub const fn turns(&self, slot: u32) -> u64 {
        assert!(slot < self.slots, "a slot of the layout");
        let after = self.len.div_ceil(self.values) - 1 - slot as usize;
        (after / self.slots as usize + 2) as u64
    }

    /// The chunk of a slot in a turn; empty in a turn that agrees on an exponent.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub const fn chunk(&self, slot: u32, turn: u64) -> Range<usize> {
        let Some(place) = (turn % self.turns(slot)).checked_sub(1) else { return 0..0 };
        let start = (place as usize * self.slots as usize + slot as usize) * self.values;
        let end = start + self.values;
        start..if end < self.len { end } else { self.len }
    }
}
