//! One rank's part of a round of averaging, without messages and time.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::pieces::Pieces;
use crate::collective::{Content, Outgoing, Rank, ReductionError};

/// The weighted average of a rank's parameters and its neighbors'.
///
/// Parameters of neighbors may arrive before the round begins. Values are added in the order of the
/// ranks, so that the result does not depend on the order of messages.
#[derive(Debug)]
pub struct Mixing {
    rank: Rank,
    /// The rank and its neighbors, in order, with their weights.
    weights: Arc<[(Rank, f64)]>,
    /// The values of each of them.
    vectors: Vec<Pieces>,
}

impl Mixing {
    /// The part of `rank` in a round with vectors of `len` values. `weights` has the rank and its
    /// neighbors, in order ([`JobGraph::weights`](super::JobGraph::weights)).
    #[must_use]
    pub fn new(rank: Rank, weights: Arc<[(Rank, f64)]>, len: usize) -> Self {
        let vectors = vec![Pieces::new(len); weights.len()];
        Self { rank, weights, vectors }
    }

    /// Begins with the rank's own parameters.
    ///
    /// # Panics
    /// If it has begun already, or the number of values is another.
    pub fn begin(&mut self, own: &[f32], out: &mut Vec<Outgoing>) {
        let pieces: Vec<Arc<Vec<f32>>> = self.vectors[0].cut(own).collect();
        for (index, values) in (0..).zip(pieces) {
            for (to, _) in self.weights.iter().filter(|(to, _)| *to != self.rank) {
                let content = Content::Values(Arc::clone(&values));
                out.push(Outgoing { to: *to, piece: index, content });
            }
            let taken = self.receive(self.rank, index, values);
            assert!(taken.is_ok(), "the round has begun");
        }
    }

    /// Receives values of a neighbor.
    ///
    /// # Errors
    /// [`ReductionError`] if the sender had not to send them.
    pub fn receive(
        &mut self,
        from: Rank,
        piece: u32,
        values: Arc<Vec<f32>>,
    ) -> Result<(), ReductionError> {
        let place = self.weights.iter().position(|(rank, _)| *rank == from);
        let place = place.ok_or(ReductionError::Unexpected { piece })?;
        self.vectors[place].take(piece, values)
    }

    /// True if the round has begun and the parameters of all neighbors are here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.vectors.iter().all(Pieces::is_whole)
    }

    /// The average.
    ///
    /// # Panics
    /// If it is not done.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        assert!(self.is_done(), "values are missing");
        let first = &self.vectors[0];
        let (mut average, mut sum) = (Vec::new(), Vec::new());
        for piece in 0..first.count() {
            sum.clear();
            sum.resize(first.keys(piece).len(), 0.0_f64);
            for ((_, weight), vector) in self.weights.iter().zip(&self.vectors) {
                for (sum, value) in sum.iter_mut().zip(vector.piece(piece).unwrap_or_default()) {
                    *sum += weight * f64::from(*value);
                }
            }
            average.extend(sum.iter().map(|sum| *sum as f32));
        }
        average
    }
}
