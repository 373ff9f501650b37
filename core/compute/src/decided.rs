//! The fates of pushes: accepted, or dropped for a reason.

use serde::{Deserialize, Serialize};

use crate::id::Sequence;
use crate::task::MOST_IN_FLIGHT;

/// The fate of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The push.
    pub sequence: Sequence,
    /// The reason why it was dropped; none if it was accepted.
    pub dropped: Option<DropReason>,
    /// The fates of the pushes before it.
    pub earlier: Drops,
}

/// The fates of the last [`MOST_IN_FLIGHT`] pushes before one: a bit for each, the newest first,
/// set if the push was dropped. A worker that hears of many at once knows the fate of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops([u64; MOST_IN_FLIGHT as usize / 64]);

impl Drops {
    /// The fates one push later, with the push between them `dropped` or accepted.
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
    /// The fate of push `sequence`, where that of the push before it is `before`.
    #[must_use]
    pub fn after(before: Option<Self>, sequence: Sequence, dropped: Option<DropReason>) -> Self {
        let earlier = before
            .map_or_else(Drops::default, |before| before.earlier.then(before.dropped.is_some()));
        Self { sequence, dropped, earlier }
    }

    /// Whether push `sequence`, which is this one or an earlier one, was dropped.
    #[must_use]
    pub fn drops(&self, sequence: Sequence) -> bool {
        match self.sequence.0.checked_sub(sequence.0) {
            Some(0) => self.dropped.is_some(),
            Some(before) => self.earlier.has(before),
            None => false,
        }
    }
}

/// The reason why a gradient was dropped.
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
