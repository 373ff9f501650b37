//! What two servers that keep the same stream of inputs tell each other of updates: the one that
//! leads gives what the gradients of each were combined to, and the other takes that in their
//! place.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Chosen, Store};
use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;
use pstrain_policy::aggregate::Aggregator;
use pstrain_policy::rules::Closing;
use pstrain_wire::replica::{Combined, CombinedHeader};

/// What is passed on while an input is dealt with; nothing in between.
#[derive(Debug, Default)]
pub(super) enum Relay {
    /// Nobody else keeps the stream, or it has the values of all gradients.
    #[default]
    None,
    /// Somebody may have no values, and is sent these.
    Gives(Vec<Combined>),
    /// These may have come in the place of values.
    Takes(VecDeque<Combined>),
}

impl Relay {
    /// Whether others want to know what so many gradients are combined to. One alone is that
    /// itself.
    pub(super) const fn wants(&self, gradients: usize) -> bool {
        matches!(self, Self::Gives(_)) && gradients > 1
    }

    /// Takes note of what was combined for the update of `version`, of a store of `own` keys.
    pub(super) fn give(&mut self, own: KeyRange, version: Version, aggregator: &Aggregator) {
        if let (Self::Gives(given), Some(header)) = (self, header(own, version, aggregator)) {
            let values = Arc::new(aggregator.combined().to_vec());
            given.push(Combined { header, values });
        }
    }

    /// What the gradients of this update were combined to, if that has come.
    fn take(&mut self, update: CombinedHeader) -> Option<Combined> {
        let Self::Takes(came) = self else { return None };
        let first = came.front()?;
        let is_its = first.header == update && first.values.len() as u64 == update.keys.len();
        if is_its { came.pop_front() } else { None }
    }
}

/// The update of `version`, of a store of `own` keys; none if it changes none of them.
fn header(own: KeyRange, version: Version, aggregator: &Aggregator) -> Option<CombinedHeader> {
    let changes = aggregator.changes();
    let (begin, end) = (own.begin() + changes.start as u64, own.begin() + changes.end as u64);
    let keys = KeyRange::new(begin, end).ok()?;
    Some(CombinedHeader { version, keys })
}

impl Store {
    /// From now on until [`Self::given`], notes what updates are combined of.
    pub(crate) fn give_combined(&mut self) {
        self.relay = Relay::Gives(Vec::new());
    }

    /// What was noted.
    pub(crate) fn given(&mut self) -> Vec<Combined> {
        match core::mem::take(&mut self.relay) {
            Relay::Gives(given) => given,
            Relay::None | Relay::Takes(_) => Vec::new(),
        }
    }

    /// From now on until [`Self::left`], updates are made of these, the first of which is the next.
    pub(crate) fn take_combined(&mut self, came: VecDeque<Combined>) {
        self.relay = Relay::Takes(came);
    }

    /// Those that were not needed.
    pub(crate) fn left(&mut self) -> VecDeque<Combined> {
        match core::mem::take(&mut self.relay) {
            Relay::Takes(left) => left,
            Relay::None | Relay::Gives(_) => VecDeque::new(),
        }
    }

    /// Makes the update of `version` of what came in the place of its gradients; whether something
    /// did.
    pub(super) fn update_as_told(
        &mut self,
        chosen: &Chosen,
        closing: Closing,
        version: Version,
        is_weighed: bool,
    ) -> bool {
        let update = header(self.keys, version, &self.aggregator);
        let Some(Combined { values, .. }) = update.and_then(|update| self.relay.take(update))
        else {
            return false;
        };
        let Self { contributions, aggregator, parameters, .. } = self;
        let gathered = contributions.at(chosen.0.clone());
        if !is_weighed {
            let gradients = gathered.iter().map(|gathered| gathered.gradient(version));
            aggregator.note(gradients, parameters, closing);
        }
        aggregator.give(&values);
        contributions.take(chosen.0.clone());
        self.combined(version);
        true
    }
}
