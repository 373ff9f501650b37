//! Ring all-reduce: chunk `j` is summed from rank `j` on along the ring, and then goes round again.

use alloc::vec::Vec;

use super::{Op, Rank};

pub(super) fn program(rank: Rank, ranks: u32, chunk: u32) -> Vec<Op> {
    let (before, after) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
    // Ranks since the one at which the sum begins.
    let distance = (rank + ranks - chunk) % ranks;
    let mut program = Vec::new();
    if distance == 0 {
        program.extend([Op::Own, Op::Send(after), Op::Take(before)]);
    } else {
        program.extend([Op::Take(before), Op::AddOwn, Op::Send(after)]);
        if distance == ranks - 1 {
            return program; // the sum is whole here
        }
        program.push(Op::Take(before));
    }
    // The last rank that it reaches is the one before the rank at which it was whole.
    if distance != ranks - 2 {
        program.push(Op::Send(after));
    }
    program
}
