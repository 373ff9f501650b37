//! Combined gradients that a primary sends its standby, which replays the same input stream: the
//! standby applies them in place of the gradients themselves.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Chosen, Store};
use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;
use pstrain_policy::aggregate::Aggregator;
use pstrain_policy::rules::Closing;
use pstrain_wire::replica::{Combined, CombinedHeader};

/// Combined gradients in transfer while the store handles one input; empty between inputs.
#[derive(Debug, Default)]
pub(super) enum Relay {
    /// There is no standby, or it has the values of all gradients.
    #[default]
    None,
    /// Primary: the standby may lack gradient values and is sent these combined gradients.
    Gives(Vec<Combined>),
    /// Standby: combined gradients that the primary may have sent in place of values.
    Takes(VecDeque<Combined>),
}

impl Relay {
    /// True if the combination of this many gradients must be recorded. A single gradient is its
    /// own combination.
    pub(super) const fn wants(&self, gradients: usize) -> bool {
        matches!(self, Self::Gives(_)) && gradients > 1
    }

    /// Records the combined gradient of the update of `version`, for a store of the keys `own`.
    pub(super) fn give(&mut self, own: KeyRange, version: Version, aggregator: &Aggregator) {
        if let (Self::Gives(given), Some(header)) = (self, header(own, version, aggregator)) {
            let values = Arc::new(aggregator.combined().to_vec());
            given.push(Combined { header, values });
        }
    }

    /// Removes and returns the combined gradient of this update, if the primary sent it.
    fn take(&mut self, update: CombinedHeader) -> Option<Combined> {
        let Self::Takes(came) = self else { return None };
        let first = came.front()?;
        let is_its = first.header == update && first.values.len() as u64 == update.keys.len();
        if is_its { came.pop_front() } else { None }
    }
}

/// Identifies the update of `version` in a store of the keys `own`; none if it changes no key here.
fn header(own: KeyRange, version: Version, aggregator: &Aggregator) -> Option<CombinedHeader> {
    let changes = aggregator.changes();
    let (begin, end) = (own.begin() + changes.start as u64, own.begin() + changes.end as u64);
    let keys = KeyRange::new(begin, end).ok()?;
    Some(CombinedHeader { version, keys })
}

impl Store {
    /// Records the combined gradient of each update until [`Self::given`] is called.
    pub(crate) fn record_combined(&mut self) {
        self.relay = Relay::Gives(Vec::new());
    }

    /// Stops recording and returns the recorded combined gradients.
    pub(crate) fn given(&mut self) -> Vec<Combined> {
        match core::mem::take(&mut self.relay) {
            Relay::Gives(given) => given,
            Relay::None | Relay::Takes(_) => Vec::new(),
        }
    }

    /// Applies these combined gradients, oldest first, to the next updates until [`Self::left`] is
    /// called.
    pub(crate) fn apply_combined(&mut self, came: VecDeque<Combined>) {
        self.relay = Relay::Takes(came);
    }

    /// Returns the combined gradients that no update consumed.
    pub(crate) fn left(&mut self) -> VecDeque<Combined> {
        match core::mem::take(&mut self.relay) {
            Relay::Takes(left) => left,
            Relay::None | Relay::Gives(_) => VecDeque::new(),
        }
    }

    /// Makes the update of `version` from the combined gradient that the primary sent; returns
    /// false if it sent none.
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
