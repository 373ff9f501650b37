//! An update of the parameters here, which may have to wait until something is known of all keys.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::contributions::Gathered;
use super::lists::Lists;
use super::{Chosen, Store};
use pstrain_compute::id::Version;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;
use pstrain_policy::aggregate::{Aggregator, Found};
use pstrain_policy::rules::Closing;

/// An update that goes by something that is not known yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Making {
    version: Version,
    stage: Stage,
}

/// What it goes by next.
#[derive(Debug, Serialize, Deserialize)]
enum Stage {
    /// The distances of these.
    Apart(Vec<Gathered>),
    /// The norm of what they were combined to.
    Combined,
}

impl Making {
    /// Saves or restores the arrays, once serde has been over the rest.
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
    /// Makes the next version of the parameters, which are `version`, of what was chosen; each
    /// gradient counts as its one of `weights` says, or without them as the mode does.
    ///
    /// Where [`Self::is_making`] says so after that, the parameters are those before until
    /// [`Self::go_on`] is told what comes of [`Self::sums`].
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
        let gives = relay.wants(gathered.len()) && aggregator.is_known_by_sum();
        let gradients = gathered.iter().map(|gathered| gathered.gradient(version));
        if let Some(weights) = weights {
            let values = gradients.map(|gradient| gradient.values);
            aggregator.combine_with(weights.iter().copied().zip(values));
        } else if aggregator.wants_distances() {
            let stage = Stage::Apart(contributions.take(chosen.0).collect());
            self.making = Some(Making { version, stage });
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

    /// What was chosen has become part of the parameters.
    fn release(&mut self, chosen: Chosen) {
        let taken = self.contributions.take(chosen.0);
        self.spares.extend(taken.filter_map(|gathered| gathered.values));
    }

    /// Goes on once the gradients are combined.
    pub(super) fn combined(&mut self, version: Version) {
        if self.aggregator.wants_norm() {
            self.making = Some(Making { version, stage: Stage::Combined });
        } else {
            self.apply(version, 1.0);
        }
    }

    fn apply(&mut self, version: Version, scale: f32) {
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut self.parameters);
        self.aggregator.apply_scaled(parameters, version, scale);
    }

    /// Whether an update goes by something that is not known yet.
    #[must_use]
    pub const fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// The part here of what must be known of all keys before an update goes on, if one does not.
    #[must_use]
    pub fn sums(&self) -> Option<Vec<ExactSum>> {
        let Making { version, stage } = self.making.as_ref()?;
        Some(match stage {
            Stage::Apart(all) => {
                self.aggregator.distances(all.iter().map(|gathered| gathered.gradient(*version)))
            }
            Stage::Combined => Vec::from([self.aggregator.squares()]),
        })
    }

    /// What comes of the sums over all keys.
    #[must_use]
    pub fn find(&self, sums: &[ExactSum]) -> Found {
        match (self.making.as_ref().map(|making| &making.stage), sums) {
            (Some(Stage::Combined), [squares]) => Found::Scale(self.aggregator.scale(squares)),
            _ => Found::Nearest(self.aggregator.nearest(sums)),
        }
    }

    /// Goes on with an update by what is known of all keys now.
    pub fn go_on(&mut self, found: &Found) {
        let Some(Making { version, stage }) = self.making.take() else { return };
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
