//! All-gather: every rank sends its values to all others, and sums all values in the order of the
//! ranks.

use alloc::vec::Vec;

use super::{Op, Rank, others};

pub(super) fn program(rank: Rank, ranks: u32) -> Vec<Op> {
    let mut program = Vec::from([Op::Own]);
    program.extend(others(rank, ranks).map(Op::Send));
    let summed = (0..ranks).filter(|from| rank > 0 || *from > 0);
    program.extend(summed.map(|from| match (from == 0, from == rank) {
        (true, _) => Op::Take(from),
        (false, true) => Op::AddOwn,
        (false, false) => Op::Add(from),
    }));
    program
}
