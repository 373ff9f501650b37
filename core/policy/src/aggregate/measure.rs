//! Two-phase update for rules that need a measurement over all keys: measure (norms, distances),
//! then apply.
//!
//! Each of several servers has only some of the keys. It sums over its own keys and continues once
//! it receives the result of the sums of all servers. The sums are exact, so that a single server
//! with all keys gets the same result.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Aggregator, Gradient, robust};
use crate::rules::Aggregation;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;

/// Result of sums over all keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Found {
    /// The positions of the workers whose vectors make up the update.
    Nearest(Vec<u32>),
    /// The factor of the combined gradient.
    Scale(f32),
}

impl Aggregator {
    /// Returns true if updates depend on the distances between gradients.
    #[must_use]
    pub fn wants_distances(&self) -> bool {
        self.is_robust() && matches!(self.settings.aggregation, Aggregation::Krum { .. })
    }

    /// Returns true if updates depend on the norm of the combined gradient.
    #[must_use]
    pub const fn wants_norm(&self) -> bool {
        self.updater.clips()
    }

    /// Returns the pairwise squared distances of the gradients over the local keys; empty if
    /// updates do not depend on distances.
    #[must_use]
    pub fn distances<'a>(&self, gradients: impl Iterator<Item = Gradient<'a>>) -> Vec<ExactSum> {
        if !self.wants_distances() {
            return Vec::new();
        }
        let trained = self.trained();
        // A gradient that was merged into another has no values.
        let of_parameters = move |gradient: Gradient<'a>| Gradient {
            values: gradient.values.get(..trained).unwrap_or_default(),
            ..gradient
        };
        robust::distances(gradients.map(of_parameters))
    }

    /// Returns the positions of the workers whose gradients make up the update, by their distances;
    /// empty if updates do not depend on distances.
    #[must_use]
    pub fn nearest(&self, distances: &[ExactSum]) -> Vec<u32> {
        match self.settings.aggregation {
            Aggregation::Krum { faulty, chosen } => robust::nearest(distances, faulty, chosen),
            _ => Vec::new(),
        }
    }

    /// Combines gradients with the robust rule; `nearest` are the positions of the selected
    /// workers.
    pub fn combine_nearest<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>>,
        nearest: &[u32],
    ) {
        let combined = self.combined.room();
        robust::combine(self.settings.aggregation, gradients, nearest, combined);
        self.state.round(combined);
    }

    /// Returns the sum of the squares of the combined gradient over the local keys.
    #[must_use]
    pub fn squares(&self) -> ExactSum {
        ExactSum::of_squares(self.combined.values.get(..self.trained()).unwrap_or_default())
    }

    /// Returns the clip factor of a combined gradient whose sum of squares is `squares`.
    #[must_use]
    pub fn scale(&self, squares: &ExactSum) -> f32 {
        self.updater.scale(squares)
    }

    /// Returns true if steps use the gradients' bounds on the curvature of the loss.
    #[must_use]
    pub const fn uses_curvature(&self) -> bool {
        self.updater.uses_curvature()
    }

    /// Saves or restores the combined gradient of an update that is not applied yet.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not hold this state.
    pub fn archive_combined(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.own("combined", &mut self.combined.values)?;
        if self.uses_curvature() {
            archive.own("curvature", &mut self.combined.curvature)?;
        }
        Ok(())
    }
}
