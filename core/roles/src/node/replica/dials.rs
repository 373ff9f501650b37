//! The dials of whoever leads: its driver makes one at a time, and two want some.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::node::{Effect, Outbox, Target};

/// Who wants somebody dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Caller {
    /// The server itself.
    Subject,
    /// Whoever looks for the other: the one that led before, or stood by.
    Seeker,
}

/// The dial that is under way, and those after it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Dials(VecDeque<(Caller, Target)>);

impl Dials {
    /// One is under way already, which a standby began.
    pub(super) fn begun(target: Target) -> Self {
        Self([(Caller::Seeker, target)].into())
    }

    /// Dials, now or once it is its turn.
    pub(super) fn dial(&mut self, caller: Caller, target: Target, out: &mut Outbox) {
        self.0.push_back((caller, target));
        if self.0.len() == 1 {
            self.begin(out);
        }
    }

    /// The one under way has been answered; whose it was. The next begins.
    pub(super) fn answered(&mut self, out: &mut Outbox) -> Option<Caller> {
        let (caller, _) = self.0.pop_front()?;
        self.begin(out);
        Some(caller)
    }

    /// Whether one is under way.
    pub(super) fn is_dialling(&self) -> bool {
        !self.0.is_empty()
    }

    fn begin(&self, out: &mut Outbox) {
        out.extend(self.0.front().map(|(_, target)| Effect::Dial(target.clone())));
    }
}
