//! An update of the parameters here, which may have to wait until something is known of all keys.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Chosen, Contribution, Store};
use crate::aggregate::Found;
use crate::consistency::Closing;
use crate::id::Version;
use crate::sum::ExactSum;

/// An update that is being made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Making {
    chosen: Chosen,
    version: Version,
    stage: Stage,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// It goes by the distances of its gradients.
    Apart,
    /// The gradients are combined, and it goes by the norm of that.
    Combined,
    /// It is made.
    Made,
}

impl Making {
    /// Whether there is a combined gradient that has not changed the parameters.
    pub(super) fn is_combined(&self) -> bool {
        self.stage == Stage::Combined
    }
}

impl Store {
    /// Begins to make the next version of the parameters, which are `version`, of what was chosen; each
    /// gradient counts as its one of `weights` says, or without them as the mode does. Returns the
    /// part here of what must be known of all keys for [`Self::go_on`], or nothing if the update is
    /// made.
    ///
    /// Until then nothing else may be done that is about the open round.
    pub fn update(
        &mut self,
        chosen: Chosen,
        closing: Closing,
        version: Version,
        weights: Option<&[f32]>,
    ) -> Option<Vec<ExactSum>> {
        let Self { contributions, aggregator, parameters, .. } = self;
        let gathered = contributions.at(chosen.0.clone());
        let gradients = gathered.iter().map(|gathered| gathered.gradient(version));
        let mut stage = Stage::Combined;
        let mut sums = Vec::new();
        if let Some(weights) = weights {
            let values = gradients.map(|gradient| gradient.values);
            aggregator.combine_with(weights.iter().copied().zip(values));
        } else if aggregator.wants_distances() {
            stage = Stage::Apart;
            sums = aggregator.distances(gradients);
        } else if aggregator.wants_norm() {
            aggregator.combine(gradients, parameters, closing);
        } else {
            aggregator.update(gradients, parameters, closing, version);
            stage = Stage::Made;
        }
        self.making = Some(Making { chosen, version, stage });
        match stage {
            Stage::Apart => Some(sums),
            Stage::Combined => self.combined(version),
            Stage::Made => None,
        }
    }

    /// Goes on once the gradients are combined.
    fn combined(&mut self, version: Version) -> Option<Vec<ExactSum>> {
        if self.aggregator.wants_norm() {
            return Some(Vec::from([self.aggregator.squares()]));
        }
        self.apply(version, 1.0);
        None
    }

    fn apply(&mut self, version: Version, scale: f32) {
        let parameters: &mut Vec<f32> = Arc::make_mut(&mut self.parameters);
        self.aggregator.apply_scaled(parameters, version, scale);
        if let Some(making) = &mut self.making {
            making.stage = Stage::Made;
        }
    }

    /// What comes of the sums over all keys.
    #[must_use]
    pub fn find(&self, sums: &[ExactSum]) -> Found {
        match (self.making.as_ref().map(|making| making.stage), sums) {
            (Some(Stage::Combined), [squares]) => Found::Scale(self.aggregator.scale(squares)),
            _ => Found::Nearest(self.aggregator.nearest(sums)),
        }
    }

    /// Goes on with an update that was begun; returns what else must be known of all keys, or nothing
    /// if it is made.
    pub fn go_on(&mut self, found: &Found) -> Option<Vec<ExactSum>> {
        let Self { contributions, aggregator, making, .. } = self;
        let Making { chosen, version, stage } = making.as_mut()?;
        let version = *version;
        match found {
            Found::Nearest(nearest) => {
                let gathered = contributions.at(chosen.0.clone());
                let gradients = gathered.iter().map(|gathered| gathered.gradient(version));
                aggregator.combine_nearest(gradients, nearest);
                *stage = Stage::Combined;
                self.combined(version)
            }
            Found::Scale(scale) => {
                self.apply(version, *scale);
                None
            }
        }
    }

    /// Takes out what became part of the update that was made.
    pub fn finish(&mut self) -> impl Iterator<Item = Contribution> {
        let taken = self.making.take().map_or(0..0, |making| making.chosen.0);
        self.contributions.take(taken).map(|gathered| gathered.contribution)
    }
}
