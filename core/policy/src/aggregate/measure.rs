//! An update in steps, where it goes by something that is known once all keys are looked at.
//!
//! Of several servers each has some keys only: it adds up what it has, and goes on once it is told
//! what came of the sums of all. Sums are exact, so that one server with all keys comes to the
//! same.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Aggregator, Gradient, robust};
use crate::rules::Aggregation;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::sum::ExactSum;

/// What came of sums over all keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Found {
    /// Of the workers' vectors those at these places come into the update.
    Nearest(Vec<u32>),
    /// So many times the combined gradient makes the update.
    Scale(f32),
}

impl Aggregator {
    /// Whether updates go by the distances of gradients.
    #[must_use]
    pub fn wants_distances(&self) -> bool {
        self.is_robust() && matches!(self.aggregation, Aggregation::Krum { .. })
    }

    /// Whether updates go by the norm of the combined gradient.
    #[must_use]
    pub const fn wants_norm(&self) -> bool {
        self.updater.clips()
    }

    /// The squared distances of the gradients, as far as their keys are here; none if nothing goes
    /// by them.
    #[must_use]
    pub fn distances<'a>(&self, gradients: impl Iterator<Item = Gradient<'a>>) -> Vec<ExactSum> {
        if self.wants_distances() { robust::distances(gradients) } else { Vec::new() }
    }

    /// Which workers' gradients come into the update, by their distances; none if nothing goes by
    /// them.
    #[must_use]
    pub fn nearest(&self, distances: &[ExactSum]) -> Vec<u32> {
        match self.aggregation {
            Aggregation::Krum { faulty, chosen } => robust::nearest(distances, faulty, chosen),
            _ => Vec::new(),
        }
    }

    /// Combines gradients by looking at them side by side; `nearest` are those that come into it.
    pub fn combine_nearest<'a>(
        &mut self,
        gradients: impl Iterator<Item = Gradient<'a>>,
        nearest: &[u32],
    ) {
        self.combined.resize(self.parameters, 0.0);
        robust::combine(self.aggregation, gradients, nearest, &mut self.combined);
    }

    /// The sum of the squares of the combined gradient, as far as its keys are here.
    #[must_use]
    pub fn squares(&self) -> ExactSum {
        ExactSum::of_squares(&self.combined)
    }

    /// What the combined gradient with this sum of squares is to be multiplied with.
    #[must_use]
    pub fn scale(&self, squares: &ExactSum) -> f32 {
        self.updater.scale(squares)
    }

    /// Whether steps go by how much the loss can bend.
    #[must_use]
    pub const fn bends(&self) -> bool {
        self.updater.bends()
    }

    /// Saves or restores the combined gradient, of an update that is not made yet.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved.
    pub fn archive_combined(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.own("combined", &mut self.combined)?;
        if self.bends() {
            archive.own("curvature", &mut self.scattered.curvature)?;
        }
        Ok(())
    }
}
