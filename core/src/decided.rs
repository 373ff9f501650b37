//! What became of pushes.

use serde::{Deserialize, Serialize};

use crate::id::Sequence;
use crate::task::MOST_IN_FLIGHT;

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Which push.
    pub sequence: Sequence,
    /// Why it was thrown away; none if it was accepted.
    pub dropped: Option<DropReason>,
    /// Which of the pushes before it were.
    pub earlier: Drops,
}

/// Which of the last [`MOST_IN_FLIGHT`] pushes before one were thrown away: a bit for each, that of
/// the newest first. A worker may hear of many at once, and knows then what became of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops([u64; MOST_IN_FLIGHT as usize / 64]);

impl Drops {
    /// The same one push later, of which the one between is known to be `dropped` or not.
    #[must_use]
    pub fn then(mut self, dropped: bool) -> Self {
        let mut carry = u64::from(dropped);
        for word in &mut self.0 {
            let next = *word >> 63;
            *word = *word << 1 | carry;
            carry = next;
        }
        self
    }

    /// Whether the push so many before was thrown away; 1 is the one right before.
    fn has(self, before: u64) -> bool {
        let bit = before.wrapping_sub(1);
        usize::try_from(bit / 64)
            .ok()
            .and_then(|word| self.0.get(word))
            .is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

impl Decided {
    /// What became of push `sequence`, with the one before it known to be as in `before`.
    #[must_use]
    pub fn after(before: Option<Self>, sequence: Sequence, dropped: Option<DropReason>) -> Self {
        let earlier = before
            .map_or_else(Drops::default, |before| before.earlier.then(before.dropped.is_some()));
        Self { sequence, dropped, earlier }
    }

    /// Whether this push, or one before it, was thrown away.
    #[must_use]
    pub fn drops(&self, sequence: Sequence) -> bool {
        match self.sequence.0.checked_sub(sequence.0) {
            Some(0) => self.dropped.is_some(),
            Some(before) => self.earlier.has(before),
            None => false,
        }
    }
}

/// Why a gradient was thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DropReason {
    /// It was computed on parameters that are no longer the current ones.
    Stale,
    /// What it was computed from is in the open round already.
    Redundant,
    /// It is not finite, or an earlier one of its worker is not and has no verdict.
    NotFinite,
    /// The run was over when it came.
    Over,
}
