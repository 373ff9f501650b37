//! Tree all-reduce: up a binary tree, each rank adds its children's sums to its own values, and
//! down again. Rank 0 is the root; the children of rank `r` are `2 r + 1` and `2 r + 2`.

use alloc::vec::Vec;

use super::{Op, Rank};

pub(super) fn program(rank: Rank, ranks: u32) -> Vec<Op> {
    let children = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|child| *child < ranks);
    let mut program = Vec::from([Op::Own]);
    program.extend(children.clone().map(Op::Add));
    if let Some(above) = rank.checked_sub(1) {
        let parent = above / 2;
        program.extend([Op::Send(parent), Op::Take(parent)]);
    }
    program.extend(children.map(Op::Send));
    program
}
