//! All-reduce: every rank of a group ends with the sum of the vectors of all ranks.
//!
//! A vector is cut into chunks, and chunks into pieces. For each chunk every rank has a program: a
//! list of [`Op`]s that sends and receives values and adds them up. Ranks run the programs of their
//! pieces independently of each other, so that pieces follow one another through the group. A
//! [`Reduction`] runs them.
//!
//! In every program each value is summed once, in one order, and then copied: all ranks end with
//! the same bits. The sums of `all-to-all` and `all-gather` are in the order of the ranks.
//!
//! With N ranks, a vector of m bytes, a latency `a` for a message and `b` for a byte, a ring takes
//! `2 (N-1) a + 2 (N-1)/N m b`, and halving-doubling `2 log2(N) a + 2 (N-1)/N m b` where N is a
//! power of two. A rank sends `2 (N-1)/N m` bytes in each. Short vectors want fewer latencies: a
//! butterfly takes `log2(N) (a + m b)`, and an all-gather `a + (N-1) m b` (Thakur, Rabenseifner and
//! Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005; Patarasuk
//! and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009).

mod all_gather;
mod all_to_all;
mod butterfly;
mod encoding;
mod gathering;
mod halving_doubling;
mod hierarchical;
mod precision;
pub(crate) mod presence;
mod reduction;
mod ring;
mod tree;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use pstrain_compute::filter::Encoded;

pub use encoding::Encoding;
pub use gathering::Gathering;
pub use precision::Precision;
pub use reduction::Reduction;
pub(crate) use reduction::most_of_piece;

/// A rank: the place of a worker in its group, from 0 on.
pub type Rank = u32;

/// A piece to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The receiver.
    pub to: Rank,
    /// The index of the piece.
    pub piece: u32,
    /// The values.
    pub content: Content,
}

/// The values of a piece.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A value for each key of the piece, or two in one if the precision is 16 bits; empty if no
    /// rank has had a part in them so far.
    Values(Arc<Vec<f32>>),
    /// The values of a rank's filtered gradient, and their factor in the sum.
    Encoded(f32, Arc<Encoded>),
}

impl Content {
    /// Bytes of the values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Values(values) => values.len() * size_of::<f32>(),
            Self::Encoded(_, encoded) => encoded.bytes.len(),
        };
        bytes as u64
    }
}

/// Values that do not belong to an all-reduce: their sender does not do the same.
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
    /// The bytes of a filtered gradient are not of their form, or not of the piece.
    #[error("it sent piece {piece} of a filtered gradient, which cannot be decoded")]
    Malformed {
        /// The index of the piece.
        piece: u32,
    },
    /// The rank has nothing to send of this piece, or has sent it already.
    #[error("it sent piece {piece}, which is not expected from it")]
    Unexpected {
        /// The index of the piece.
        piece: u32,
    },
}

/// An algorithm of all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Along a ring: a reduce-scatter, then an all-gather.
    Ring,
    /// Recursive halving, then recursive doubling.
    HalvingDoubling,
    /// Each rank sums a share of the keys, and sends it to all others.
    AllToAll,
    /// Up and down a binary tree.
    Tree,
    /// Recursive doubling: pairs exchange whole sums.
    Butterfly,
    /// Each rank sends its vector to all others, and sums all vectors itself.
    AllGather,
    /// Up and down a tree of sites.
    Hierarchical {
        /// The ranks, or sites, of a site.
        fanout: u32,
    },
}

/// Most values of a short vector, for which fewer steps are worth more bytes: 64 KiB.
const SHORT: usize = 16 * 1024;
/// Most values of a vector that is not long: 4 MiB.
const LONG: usize = 1024 * 1024;

/// The algorithm of a job's all-reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Always the same one.
    One(Collective),
    /// By the size of the group and the length of the vector.
    BySize,
}

impl Algorithm {
    /// The algorithm for vectors of `len` values in a group of `ranks`. The number of ranks and the
    /// length are the same at all ranks, and so is the choice.
    #[must_use]
    pub const fn choose(self, ranks: u32, len: usize) -> Collective {
        match self {
            Self::One(collective) => collective,
            Self::BySize if len <= SHORT => Collective::Butterfly,
            Self::BySize if len <= LONG || ranks <= 2 => Collective::HalvingDoubling,
            Self::BySize => Collective::Ring,
        }
    }
}

/// A step of a rank's program for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The value becomes the rank's own.
    Own,
    /// Adds the rank's own value.
    AddOwn,
    /// Sends the value.
    Send(Rank),
    /// Receives the value.
    Take(Rank),
    /// Adds a received value.
    Add(Rank),
}

impl Collective {
    /// The chunks of a vector of `len` values, in order; some may be empty.
    #[must_use]
    pub fn chunks(self, ranks: u32, len: usize) -> Vec<Range<usize>> {
        match self {
            Self::Ring | Self::AllToAll => even(ranks, len),
            Self::HalvingDoubling => halving_doubling::chunks(ranks, len),
            Self::Tree | Self::Butterfly | Self::AllGather | Self::Hierarchical { .. } => {
                core::iter::once(0..len).collect()
            }
        }
    }

    /// The program of `rank` for the chunk at index `chunk`; empty if it is the only rank.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn program(self, rank: Rank, ranks: u32, chunk: u32) -> Vec<Op> {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        if ranks == 1 {
            return Vec::from([Op::Own]);
        }
        match self {
            Self::Ring => ring::program(rank, ranks, chunk),
            Self::HalvingDoubling => halving_doubling::program(rank, ranks, chunk),
            Self::AllToAll => all_to_all::program(rank, ranks, chunk),
            Self::Tree => tree::program(rank, ranks),
            Self::Butterfly => butterfly::program(rank, ranks),
            Self::AllGather => all_gather::program(rank, ranks),
            Self::Hierarchical { fanout } => hierarchical::program(fanout, rank, ranks),
        }
    }

    /// The ranks that `rank` sends to or receives from, in order.
    #[must_use]
    pub fn neighbors(self, rank: Rank, ranks: u32) -> Vec<Rank> {
        let chunks = self.chunks(ranks, 0).len() as u32;
        let programs = (0..chunks).flat_map(|chunk| self.program(rank, ranks, chunk));
        let mut neighbors: Vec<Rank> = programs.filter_map(Op::other).collect();
        neighbors.sort_unstable();
        neighbors.dedup();
        neighbors
    }
}

impl Op {
    /// The other rank, if values are sent or received.
    const fn other(self) -> Option<Rank> {
        match self {
            Self::Own | Self::AddOwn => None,
            Self::Send(rank) | Self::Take(rank) | Self::Add(rank) => Some(rank),
        }
    }
}

/// All ranks but `rank`. Each rank begins with another one: no rank receives from all others at
/// once.
fn others(rank: Rank, ranks: u32) -> impl Iterator<Item = Rank> {
    (1..ranks).map(move |distance| (rank + distance) % ranks)
}

/// As many chunks as ranks, of sizes that differ by one at most.
fn even(ranks: u32, len: usize) -> Vec<Range<usize>> {
    let bound = |rank: u32| (len as u128 * u128::from(rank) / u128::from(ranks)) as usize;
    (0..ranks).map(|rank| bound(rank)..bound(rank + 1)).collect()
}

#[cfg(test)]
mod tests;
