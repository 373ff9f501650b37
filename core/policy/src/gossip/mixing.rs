//! One rank's part of a round of averaging, without messages and time.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::collective::{Outgoing, Rank, ReductionError, most_of_piece};

/// The weighted average of a rank's parameters and its neighbors'.
///
/// Parameters of neighbors may arrive before the round begins. Values are added in the order of the
/// ranks, so that the result does not depend on the order of messages.
#[derive(Debug)]
pub struct Mixing {
    rank: Rank,
    /// The rank and its neighbors, in order, with their weights.
    weights: Arc<[(Rank, f64)]>,
    len: usize,
    /// The values of each of them that are here, by piece.
    pieces: Vec<Vec<Option<Arc<Vec<f32>>>>>,
    /// Values that are not here yet.
    open: usize,
}

impl Mixing {
    /// The part of `rank` in a round with vectors of `len` values. `weights` has the rank and its
    /// neighbors, in order ([`Graph::weights`](super::Graph::weights)).
    #[must_use]
    pub fn new(rank: Rank, weights: Arc<[(Rank, f64)]>, len: usize) -> Self {
        let pieces = vec![vec![None; weights.len()]; len.div_ceil(most_of_piece(len))];
        let open = weights.len() * pieces.len();
        Self { rank, weights, len, pieces, open }
    }

    fn keys(&self, piece: usize) -> Range<usize> {
        let most = most_of_piece(self.len);
        let start = piece * most;
        start..self.len.min(start + most)
    }

    /// Begins with the rank's own parameters.
    ///
    /// # Panics
    /// If it has begun already, or the number of values is another.
    pub fn begin(&mut self, own: &[f32], out: &mut Vec<Outgoing>) {
        assert!(own.len() == self.len, "{} values, of {}", own.len(), self.len);
        for piece in 0..self.pieces.len() {
            let values = Arc::new(own[self.keys(piece)].to_vec());
            let index = piece as u32;
            for (to, _) in self.weights.iter().filter(|(to, _)| *to != self.rank) {
                out.push(Outgoing { to: *to, piece: index, values: Arc::clone(&values) });
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
        let (index, pieces) = (piece as usize, self.pieces.len());
        if index >= pieces {
            return Err(ReductionError::Piece { piece, pieces });
        }
        let (wanted, given) = (self.keys(index).len(), values.len());
        if wanted != given {
            return Err(ReductionError::Length { piece, wanted, given });
        }
        let place = self.weights.iter().position(|(rank, _)| *rank == from);
        match place.map(|place| &mut self.pieces[index][place]) {
            Some(place) if place.is_none() => *place = Some(values),
            _ => return Err(ReductionError::Unexpected { piece }),
        }
        self.open -= 1;
        Ok(())
    }

    /// True if the round has begun and the parameters of all neighbors are here.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.open == 0
    }

    /// The average.
    ///
    /// # Panics
    /// If it is not done.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        assert!(self.is_done(), "values are missing");
        let mut average = Vec::with_capacity(self.len);
        let mut sum = Vec::new();
        for (piece, values) in self.pieces.iter().enumerate() {
            sum.clear();
            sum.resize(self.keys(piece).len(), 0.0_f64);
            for ((_, weight), values) in self.weights.iter().zip(values.iter().flatten()) {
                for (sum, value) in sum.iter_mut().zip(&**values) {
                    *sum += weight * f64::from(*value);
                }
            }
            average.extend(sum.iter().map(|sum| *sum as f32));
        }
        average
    }
}
