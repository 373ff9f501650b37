//! A vector that comes in pieces.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::collective::{ReductionError, most_of_piece};

/// The values of a vector, as far as they are here.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    len: usize,
    pieces: Vec<Option<Arc<Vec<f32>>>>,
    /// Pieces that are not here yet.
    open: usize,
}

impl Pieces {
    /// A vector of `len` values, without any piece yet.
    pub(super) fn new(len: usize) -> Self {
        let open = len.div_ceil(most_of_piece(len));
        Self { len, pieces: vec![None; open], open }
    }

    /// Cuts a whole vector into pieces, in order.
    ///
    /// # Panics
    /// If the number of values is another.
    pub(super) fn cut(&self, values: &[f32]) -> impl Iterator<Item = Arc<Vec<f32>>> {
        assert!(values.len() == self.len, "{} values, of {}", values.len(), self.len);
        (0..self.count()).map(|piece| Arc::new(values[self.keys(piece)].to_vec()))
    }

    /// The number of pieces.
    pub(super) const fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The places of the values of a piece.
    pub(super) fn keys(&self, piece: usize) -> Range<usize> {
        let most = most_of_piece(self.len);
        let start = piece * most;
        start..self.len.min(start + most)
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// [`ReductionError`] if it is not one that is open.
    pub(super) fn take(&mut self, piece: u32, values: Arc<Vec<f32>>) -> Result<(), ReductionError> {
        let (index, pieces) = (piece as usize, self.pieces.len());
        if index >= pieces {
            return Err(ReductionError::Piece { piece, pieces });
        }
        let (wanted, given) = (self.keys(index).len(), values.len());
        if wanted != given {
            return Err(ReductionError::Length { piece, wanted, given });
        }
        if self.pieces[index].is_some() {
            return Err(ReductionError::Unexpected { piece });
        }
        self.pieces[index] = Some(values);
        self.open -= 1;
        Ok(())
    }

    /// True if all pieces are here.
    pub(super) const fn is_whole(&self) -> bool {
        self.open == 0
    }

    /// The values of a piece, if it is here.
    pub(super) fn piece(&self, piece: usize) -> Option<&[f32]> {
        self.pieces[piece].as_ref().map(|values| values.as_slice())
    }

    /// The values that are here.
    pub(super) fn values(&self) -> impl Iterator<Item = f32> + '_ {
        self.pieces.iter().flatten().flat_map(|values| values.iter().copied())
    }
}
