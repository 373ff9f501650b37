//! Updates: in one phase, or in two if sums over all keys (norms, distances) are measured first.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::contributions::HeldGradient;
use super::lists::Lists;
use super::{Chosen, Store};
use pstrain_compute::id::Version;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_policy::aggregate::{Aggregator, Found};
use pstrain_policy::rules::Closing;

/// An update that waits for sums over all keys.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PendingUpdate {
    version: Version,
    stage: Stage,
}

/// The sums that the update waits for.
#[derive(Debug, Serialize, Deserialize)]
enum Stage {
    /// Distances between these gradients.
    Apart(Vec<HeldGradient>),
    /// The norm of the combined gradient.
    Combined,
}

impl PendingUpdate {
    /// Saves or restores the arrays, after serde has handled the other fields.
    pub(super) fn archive(
        &mut self,
        archive: &mut Archive<'_>,
        aggregator: &mut Aggregator,
        lists: Option<&Lists>,
    ) -> Result<(), SavedError> {
        match &mut self.stage {
            Stage::Apart(all) => all.iter_mut().try_for_each(|one| one.archive(archive, lists)),
            Stage::Combined => {
                aggregator.begin(self.version);
                aggregator.archive_combined(archive)
            }
        }
    }
}

impl Store {
    /// Makes the next version of the parameters, which are at `version`, from the chosen gradients,
    /// weighted by `weights` or, without them, as the mode says.
    ///
    /// If [`Self::is_making`] holds afterwards, the parameters do not change until [`Self::go_on`]
    /// receives the result of [`Self::sums`].
    pub fn update(
        &mut self,
        chosen: Chosen,
        closing: Closing,
        version: Version,
        weights: Option<&[f32]>,
    ) {
        self.aggregator.begin(version);
        if self.update_as_told(&chosen, closing, version, weights.is_some()) {
            return;
        }
        let Self { contributions, aggregator, parameters, relay, .. } = self;
        let gathered = contributions.at(chosen.0.clone());
        let gives = relay.wants(gathered.len()) && aggregator.needs_only_combined();
        let gradients = gathered.iter().map(|gathered| gathered.gradient(version));
        if let Some(weights) = weights {
            let values = gradients.map(|gradient| gradient.values);
            aggregator.combine_with(weights.iter().copied().zip(values));
        } else if aggregator.wants_distances() {
            let stage = Stage::Apart(contributions.take(chosen.0).collect());
            self.making = Some(PendingUpdate { version, stage });
            return;
        } else if aggregator.wants_norm() || gives {
            aggregator.combine(gradients, parameters, closing);
        } else {
            aggregator.update(gradients, parameters, closing, version);
            self.release(chosen);
            return;
        }
        if gives {
            relay.give(self.keys, version, aggregator);
        }
        self.release(chosen);
        self.combined(version);
    }

    /// Removes the chosen gradients, which are part of the parameters now, and pools their buffers.
    fn release(&mut self, chosen: Chosen) {
        let taken = self.contributions.take(chosen.0);
        self.spares.extend(taken.filter_map(|gathered| gathered.values));
    }

    /// Continues an update whose gradients are combined: waits for their norm or applies them.
    pub(super) fn combined(&mut self, version: Version) {
        if self.aggregator.wants_norm() {
            self.making = Some(PendingUpdate { version, stage: Stage::Combined });
        } else {
            self.apply(version, 1.0);
        }
    }

    fn apply(&mut self, version: Version, scale: f32) {
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut self.parameters);
        self.aggregator.apply_scaled(parameters, version, scale);
    }

    /// True if an update waits for sums over all keys.
    #[must_use]
    pub const fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// This store's part of the sums that an update waits for; none if no update waits.
    #[must_use]
    pub fn sums(&self) -> Option<Vec<ExactSum>> {
        let PendingUpdate { version, stage } = self.making.as_ref()?;
        Some(match stage {
            Stage::Apart(all) => {
                self.aggregator.distances(all.iter().map(|gathered| gathered.gradient(*version)))
            }
            Stage::Combined => Vec::from([self.aggregator.squares()]),
        })
    }

    /// The result of the sums over all keys.
    #[must_use]
    pub fn find(&self, sums: &[ExactSum]) -> Found {
        match (self.making.as_ref().map(|making| &making.stage), sums) {
            (Some(Stage::Combined), [squares]) => Found::Scale(self.aggregator.scale(squares)),
            _ => Found::Nearest(self.aggregator.nearest(sums)),
        }
    }

    /// Continues the waiting update with the result of the sums over all keys.
    pub fn go_on(&mut self, found: &Found) {
        let Some(PendingUpdate { version, stage }) = self.making.take() else {
            return; // a result that this server was not asked to measure for
        };
        match (found, stage) {
            (Found::Nearest(nearest), Stage::Apart(all)) => {
                let gradients = all.iter().map(|gathered| gathered.gradient(version));
                self.aggregator.combine_nearest(gradients, nearest);
                self.combined(version);
            }
            (Found::Scale(scale), _) => self.apply(version, *scale),
            (Found::Nearest(_), Stage::Combined) => {}
        }
    }
}
