//! All-gather of filtered gradients: every rank sends its own to all others, and adds up all of
//! them.
//!
//! A filtered gradient cannot be added up on its way: the sum of two has more keys than each, and
//! no scale of an encoded value suits both. So each rank receives all of them. They are added in
//! the order of the ranks: all ranks end with the same bits, and a server that adds in this order
//! ends with them, too.
//!
//! With N ranks, c bytes of a filtered gradient, a latency `a` for a message and `b` for a byte it
//! takes `a + (N-1) c b`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Content, Outgoing, Rank, ReductionError, others};
use pstrain_compute::filter::{Encoded, Filtered};
use pstrain_compute::params::KeyRange;

/// The most values of a piece. Each has the keys or the factors of its own values: longer pieces
/// than a reduction's take fewer bytes, and shorter ones less memory to decode.
const MOST_OF_PIECE: usize = 1024 * 1024;

/// The all-gather of the filtered gradients of an update at one rank.
///
/// Outgoing pieces are appended to a list; the owner sends them in order. Pieces of others may
/// arrive before the rank's own gradient is there.
#[derive(Debug)]
pub struct Gathering {
    rank: Rank,
    ranks: u32,
    own: Own,
    pieces: Vec<Piece>,
    /// Pieces that are not summed yet.
    open: usize,
    sum: Vec<f32>,
}

/// The rank's own gradient.
#[derive(Debug)]
enum Own {
    Awaited,
    /// The gradient as others decode it, and its factor in the sum.
    Here(Arc<Vec<f32>>, f32),
    /// The rank has no part in the sum.
    Absent,
}

/// A piece of the vector.
#[derive(Debug)]
struct Piece {
    keys: Range<usize>,
    /// The rank whose values are added next.
    next: Rank,
    /// Values of later ranks that have arrived, with their factors. They stay encoded: each stands
    /// for as many values as the piece has.
    arrived: BTreeMap<Rank, (f32, Arc<Encoded>)>,
}

impl Gathering {
    /// The part of `rank` in the all-gather of gradients of `len` values by `ranks` ranks.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn new(rank: Rank, ranks: u32, len: usize) -> Self {
        Self::of_pieces(rank, ranks, len, MOST_OF_PIECE)
    }

    /// The same, with so many values in a piece at most.
    fn of_pieces(rank: Rank, ranks: u32, len: usize, most: usize) -> Self {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let piece = |start: usize| {
            let keys = start..len.min(start + most);
            Piece { keys, next: 0, arrived: BTreeMap::new() }
        };
        let pieces: Vec<Piece> = (0..len).step_by(most).map(piece).collect();
        let open = pieces.len();
        Self { rank, ranks, own: Own::Awaited, pieces, open, sum: vec![0.0; len] }
    }

    /// Begins with the rank's own gradient, which is summed `factor` times.
    ///
    /// # Panics
    /// If it has begun already, or the number of values is another.
    pub fn begin(&mut self, own: &Filtered, factor: f32, out: &mut Vec<Outgoing>) {
        let (values, len) = (own.gradient.len(), self.sum.len());
        assert!(values == len, "{values} values, of {len}");
        self.begin_with(Own::Here(Arc::clone(&own.gradient), factor));
        for piece in 0..self.pieces.len() {
            let Range { start, end } = self.pieces[piece].keys;
            let Ok(keys) = KeyRange::new(start as u64, end as u64) else {
                unreachable!("piece {piece} has no values")
            };
            self.send(piece, factor, own.encode_or_plain(keys), out);
            self.advance(piece);
        }
    }

    /// Begins without a gradient of the rank's own.
    ///
    /// # Panics
    /// If it has begun already.
    pub fn begin_without(&mut self, out: &mut Vec<Outgoing>) {
        self.begin_with(Own::Absent);
        for piece in 0..self.pieces.len() {
            self.send(piece, 0.0, Encoded::of_none(), out);
            self.advance(piece);
        }
    }

    fn begin_with(&mut self, own: Own) {
        assert!(matches!(self.own, Own::Awaited), "the all-gather has begun");
        self.own = own;
    }

    /// Sends the rank's own values of a piece to all others.
    fn send(&self, piece: usize, factor: f32, values: Encoded, out: &mut Vec<Outgoing>) {
        let (piece, values) = (piece as u32, Arc::new(values));
        let content = || Content::Encoded(factor, Arc::clone(&values));
        let all = others(self.rank, self.ranks);
        out.extend(all.map(|to| Outgoing { to, piece, content: content() }));
    }

    /// Receives values of another rank, and their factor in the sum.
    ///
    /// # Errors
    /// [`ReductionError`] if the sender had not to send them.
    pub fn receive(
        &mut self,
        from: Rank,
        piece: u32,
        factor: f32,
        values: Arc<Encoded>,
    ) -> Result<(), ReductionError> {
        let (index, pieces) = (piece as usize, self.pieces.len());
        let Some(it) = self.pieces.get_mut(index) else {
            return Err(ReductionError::Piece { piece, pieces });
        };
        let is_due = from >= it.next && from < self.ranks && from != self.rank;
        if !is_due || it.arrived.contains_key(&from) {
            return Err(ReductionError::Unexpected { piece });
        }
        let malformed = |_| ReductionError::Malformed { piece };
        // A rank sends the values as they are if their encoding is not shorter. The check bounds
        // the memory of pieces that are kept.
        if !factor.is_finite() || values.bytes.len() > it.keys.len() * size_of::<f32>() {
            return Err(ReductionError::Malformed { piece });
        }
        if from == it.next {
            values.add_to(&mut self.sum[it.keys.clone()], factor).map_err(malformed)?;
            it.next += 1;
        } else {
            // Judged now, while it is known whose they are.
            values.add_to(&mut vec![0.0; it.keys.len()], factor).map_err(malformed)?;
            it.arrived.insert(from, (factor, values));
        }
        self.advance(index);
        Ok(())
    }

    /// Adds the values of a piece that are here, as far as it is their turn.
    fn advance(&mut self, index: usize) {
        let Self { rank, ranks, own, pieces, open, sum } = self;
        let piece = &mut pieces[index];
        let sum = &mut sum[piece.keys.clone()];
        while piece.next < *ranks {
            match own {
                Own::Awaited if piece.next == *rank => return,
                Own::Absent if piece.next == *rank => {}
                Own::Here(values, factor) if piece.next == *rank => {
                    let own = &values[piece.keys.clone()];
                    sum.iter_mut().zip(own).for_each(|(sum, value)| *sum += *factor * value);
                }
                _ => {
                    let Some((factor, values)) = piece.arrived.remove(&piece.next) else {
                        return; // on its way
                    };
                    let added = values.add_to(sum, factor);
                    assert!(added.is_ok(), "the values were judged as they arrived");
                }
            }
            piece.next += 1;
        }
        *open -= 1;
    }

    /// True if all sums are here.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.open == 0 && !matches!(self.own, Own::Awaited)
    }

    /// The sums.
    ///
    /// # Panics
    /// If they are not all here.
    #[must_use]
    pub fn into_sum(self) -> Vec<f32> {
        assert!(self.is_done(), "gradients are missing");
        self.sum
    }
}

#[cfg(test)]
mod tests;
