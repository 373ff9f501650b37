//! Values of the next version, before the gradients of its update have all arrived.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Store;
use super::contributions::{gradient_of, place};
use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;
use pstrain_wire::decision::Contribution;

impl Store {
    /// The keys of the parameters, without those of state.
    #[must_use]
    pub fn trained_keys(&self) -> KeyRange {
        let trained = self.aggregator.trained() as u64;
        KeyRange::new(self.keys.begin(), self.keys.begin() + trained).unwrap_or(self.keys)
    }

    /// True if values of the next update can be known before it.
    #[must_use]
    pub fn foresees(&self) -> bool {
        self.lists.is_none()
            && self.pull.is_none()
            && self.aggregator.is_by_key()
            && self.contributions.vectors() == self.contributions.len()
    }

    /// The contributions of the next update if `incoming` follow those of the open round, in the
    /// order in which they are combined.
    #[must_use]
    pub fn expected(&self, incoming: impl Iterator<Item = Contribution>) -> Vec<Contribution> {
        let all = self.contributions.at(0..self.gathered()).iter().map(|it| it.contribution);
        let mut all: Vec<_> = all.chain(incoming).collect();
        all.sort_by_key(place);
        all
    }

    /// Returns the values that the next update, which is made on `version`, will have at `keys`, if
    /// it is made of the gradients of the open round and of `incoming`. These have a value for each
    /// key of the store, of which those at `keys` count. Call it once for a key of an update, and
    /// only if [`Self::foresees`].
    pub fn foresee(
        &mut self,
        version: Version,
        incoming: &[(Contribution, &[f32])],
        keys: &[KeyRange],
    ) -> Vec<Arc<Vec<f32>>> {
        let Self { contributions, aggregator, parameters, .. } = self;
        let held = contributions.at(0..contributions.len()).iter();
        let held = held.map(|it| (it.contribution, it.gradient(version)));
        let incoming = incoming.iter().map(|(it, values)| (*it, gradient_of(it, values, version)));
        let mut all: Vec<_> = held.chain(incoming).collect();
        all.sort_by_key(|(contribution, _)| place(contribution));
        let gradients = all.iter().map(|(_, gradient)| *gradient);
        let places = keys.iter().filter_map(|range| range.within(self.keys));
        let mut foresee =
            |keys| Arc::new(aggregator.foresee(gradients.clone(), parameters, version, keys));
        places.map(&mut foresee).collect()
    }
}
