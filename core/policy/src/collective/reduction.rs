//! One rank's part of an all-reduce, without messages and time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Collective, Op, Rank};

/// The most values of a piece: 64 KiB. Larger pieces keep more ranks waiting, smaller ones cost
/// more messages.
pub const MOST_PIECE: usize = 16 * 1024;

/// The all-reduce of one vector at one rank.
///
/// Outgoing values are appended to a list; the owner sends them in order. Values may arrive before
/// the rank's own are there.
#[derive(Debug)]
pub struct Reduction {
    /// The rank's own values, which the sums replace piece by piece; none before they are there.
    values: Option<Vec<f32>>,
    pieces: Vec<Piece>,
    /// Pieces that are not summed yet.
    open: usize,
}

/// A piece of the vector.
#[derive(Debug)]
struct Piece {
    keys: Range<usize>,
    program: Arc<[Op]>,
    /// The index of the next step of the program.
    next: usize,
    /// The value so far.
    value: Arc<Vec<f32>>,
    /// Values that have arrived and were not used yet, in their order.
    arrived: Vec<(Rank, Arc<Vec<f32>>)>,
}

/// Values to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The receiver.
    pub to: Rank,
    /// The index of the piece.
    pub piece: u32,
    /// The values, one for each key of the piece.
    pub values: Arc<Vec<f32>>,
}

/// Values that do not belong to the reduction: their sender does not do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReductionError {
    /// There is no such piece.
    #[error("it sent piece {piece}, of {pieces}")]
    Piece {
        /// The index of the piece.
        piece: u32,
        /// The number of pieces.
        pieces: usize,
    },
    /// A piece has other values.
    #[error("it sent {given} values of piece {piece}, which has {wanted}")]
    Length {
        /// The index of the piece.
        piece: u32,
        /// The values that it has.
        wanted: usize,
        /// The values that were sent.
        given: usize,
    },
    /// The rank has nothing to send of this piece, or has sent it already.
    #[error("it sent piece {piece}, which is not expected from it")]
    Unexpected {
        /// The index of the piece.
        piece: u32,
    },
}

impl Reduction {
    /// The part of `rank` in the reduction of vectors of `len` values by `ranks` ranks.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn new(collective: Collective, rank: Rank, ranks: u32, len: usize) -> Self {
        let mut pieces = Vec::new();
        if ranks > 1 {
            for (chunk, keys) in (0..).zip(collective.chunks(ranks, len)) {
                let program: Arc<[Op]> = collective.program(rank, ranks, chunk).into();
                for start in keys.clone().step_by(MOST_PIECE) {
                    let keys = start..keys.end.min(start + MOST_PIECE);
                    let (program, value) = (Arc::clone(&program), Arc::default());
                    pieces.push(Piece { keys, program, next: 0, value, arrived: Vec::new() });
                }
            }
        }
        let open = pieces.len();
        Self { values: None, pieces, open }
    }

    /// Begins with the rank's own values.
    ///
    /// # Panics
    /// If it has begun already, or the number of values is another.
    pub fn begin(&mut self, own: Vec<f32>, out: &mut Vec<Outgoing>) {
        let len = self.pieces.iter().map(|piece| piece.keys.end).max();
        assert!(self.values.is_none(), "the reduction has begun");
        assert!(len.is_none_or(|len| len == own.len()), "{} values, of {len:?}", own.len());
        self.values = Some(own);
        for piece in 0..self.pieces.len() {
            self.advance(piece, out);
        }
    }

    /// Receives values.
    ///
    /// # Errors
    /// [`ReductionError`] if the sender had not to send them.
    pub fn receive(
        &mut self,
        from: Rank,
        piece: u32,
        values: Arc<Vec<f32>>,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), ReductionError> {
        let pieces = self.pieces.len();
        let index = piece as usize;
        let Some(it) = self.pieces.get_mut(index) else {
            return Err(ReductionError::Piece { piece, pieces });
        };
        let (wanted, given) = (it.keys.len(), values.len());
        if wanted != given {
            return Err(ReductionError::Length { piece, wanted, given });
        }
        let is_from = |op: &&Op| matches!(op, Op::Take(rank) | Op::Add(rank) if *rank == from);
        let due = it.program[it.next..].iter().filter(is_from).count();
        let here = it.arrived.iter().filter(|(rank, _)| *rank == from).count();
        if here >= due {
            return Err(ReductionError::Unexpected { piece });
        }
        it.arrived.push((from, values));
        self.advance(index, out);
        Ok(())
    }

    /// True if all sums are here.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.open == 0 && self.values.is_some()
    }

    /// The sums; the rank's own values if they are not all here.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        self.values.unwrap_or_default()
    }

    /// Runs the program of a piece as far as possible.
    fn advance(&mut self, piece: usize, out: &mut Vec<Outgoing>) {
        let Some(own) = &mut self.values else { return };
        let (index, it) = (piece as u32, &mut self.pieces[piece]);
        while let Some(op) = it.program.get(it.next) {
            match *op {
                Op::Own => it.value = Arc::new(own[it.keys.clone()].to_vec()),
                Op::AddOwn => {
                    let sum: &mut Vec<f32> = Arc::make_mut(&mut it.value);
                    add(sum, &own[it.keys.clone()]);
                }
                Op::Send(to) => {
                    out.push(Outgoing { to, piece: index, values: Arc::clone(&it.value) });
                }
                Op::Take(from) | Op::Add(from) => {
                    let Some(place) = it.arrived.iter().position(|(rank, _)| *rank == from) else {
                        return;
                    };
                    let (_, values) = it.arrived.remove(place);
                    match op {
                        Op::Add(_) => {
                            let sum: &mut Vec<f32> = Arc::make_mut(&mut it.value);
                            add(sum, &values);
                        }
                        _ => it.value = values,
                    }
                }
            }
            it.next += 1;
            if it.next == it.program.len() {
                own[it.keys.clone()].copy_from_slice(&it.value);
                it.value = Arc::default();
                self.open -= 1;
            }
        }
    }
}

pub(super) fn add(sum: &mut [f32], values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}
