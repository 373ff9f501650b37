//! Recursive doubling, the butterfly (Thakur, Rabenseifner and Gropp 2005, section 4.1).
//!
//! The ranks that take part are the same as in [halving and doubling](super::halving_doubling).
//! At distance p/2, p/4, ..., 1 each exchanges its whole sum with the partner whose number differs
//! in that bit, and adds the one that it receives. Both ends of an exchange add the same two
//! values, so that all sums have the same bits.

use alloc::vec::Vec;

use super::halving_doubling::{Folded, distances, rank_of};
use super::{Op, Rank};

pub(super) fn program(rank: Rank, ranks: u32) -> Vec<Op> {
    let folded = Folded::of(rank, ranks);
    let mut program = folded.program();
    let Folded::Participant { number, extra } = folded else { return program };
    for distance in distances(ranks) {
        let partner = rank_of(number ^ distance, ranks);
        program.extend([Op::Send(partner), Op::Add(partner)]);
    }
    program.extend(extra.map(Op::Send));
    program
}
