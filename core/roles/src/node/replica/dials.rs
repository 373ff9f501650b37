//! Queue of the primary's dials: the driver makes one at a time, and two parties need dials.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::node::{Effect, Outbox, Target};

/// The party that needs a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Caller {
    /// The server itself.
    Replicated,
    /// The search for the other server of the pair: the deposed primary, or the lost standby.
    Seeker,
}

/// The dial under way, and those queued behind it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Dials(VecDeque<(Caller, Target)>);

impl Dials {
    /// A queue with a dial under way that the standby started.
    pub(super) fn begun(target: Target) -> Self {
        Self([(Caller::Seeker, target)].into())
    }

    /// Dials now, or once the queue has advanced.
    pub(super) fn dial(&mut self, caller: Caller, target: Target, out: &mut Outbox) {
        self.0.push_back((caller, target));
        if self.0.len() == 1 {
            self.begin(out);
        }
    }

    /// Removes the answered dial and starts the next; returns the party that needed it.
    pub(super) fn answered(&mut self, out: &mut Outbox) -> Option<Caller> {
        let (caller, _) = self.0.pop_front()?;
        self.begin(out);
        Some(caller)
    }

    /// True if a dial is under way.
    pub(super) fn is_dialling(&self) -> bool {
        !self.0.is_empty()
    }

    fn begin(&self, out: &mut Outbox) {
        out.extend(self.0.front().map(|(_, target)| Effect::Dial(target.clone())));
    }
}
