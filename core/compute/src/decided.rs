//! Verdicts on pushes: accepted, or dropped for a reason.

use serde::{Deserialize, Serialize};

use crate::id::Sequence;
use crate::task::MOST_IN_FLIGHT;

/// The verdict on a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The push.
    pub sequence: Sequence,
    /// The reason for the drop; `None` if the push was accepted.
    pub dropped: Option<DropReason>,
    /// The verdicts on the preceding pushes.
    pub earlier: Drops,
}

/// Verdicts on the last [`MOST_IN_FLIGHT`] pushes before a given one: one bit per push, the newest
/// first, set if the push was dropped. They allow a worker to learn the verdicts on many pushes
/// from one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops([u64; MOST_IN_FLIGHT as usize / 64]);

impl Drops {
    /// Returns the verdicts one push later; `dropped` is the verdict on the push in between.
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

    /// True if the push `before` places earlier was dropped; 1 is the immediately preceding push.
    fn has(self, before: u64) -> bool {
        let bit = before.wrapping_sub(1);
        usize::try_from(bit / 64)
            .ok()
            .and_then(|word| self.0.get(word))
            .is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

impl Decided {
    /// Creates the verdict on push `sequence`; `before` is the verdict on the preceding push.
    #[must_use]
    pub fn after(before: Option<Self>, sequence: Sequence, dropped: Option<DropReason>) -> Self {
        let earlier = before
            .map_or_else(Drops::default, |before| before.earlier.then(before.dropped.is_some()));
        Self { sequence, dropped, earlier }
    }

    /// True if push `sequence`, which is this one or an earlier one, was dropped.
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
    /// The gradient's parameters are no longer the current ones.
    Stale,
    /// The open round already contains a gradient of the same data.
    Redundant,
    /// The gradient is not finite: its mini-batch is left out.
    NotFinite,
    /// The run had ended before the push arrived.
    Over,
}
