//! All-to-all: rank `j` receives chunk `j` of all others, sums it in the order of the ranks, and
//! sends the sum to all others.

use alloc::vec::Vec;

use super::{Op, Rank, others};

pub(super) fn program(rank: Rank, ranks: u32, chunk: u32) -> Vec<Op> {
    if rank != chunk {
        return Vec::from([Op::Own, Op::Send(chunk), Op::Take(chunk)]);
    }
    let summed = (0..ranks).map(|from| match (from == 0, from == rank) {
        (true, true) => Op::Own,
        (true, false) => Op::Take(from),
        (false, true) => Op::AddOwn,
        (false, false) => Op::Add(from),
    });
    summed.chain(others(rank, ranks).map(Op::Send)).collect()
}
