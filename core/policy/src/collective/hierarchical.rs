//! Hierarchical all-reduce: `fanout` neighboring ranks form a site, whose first rank adds up their
//! values; the first ranks of `fanout` sites do the same, and so on up to rank 0. The whole sum
//! comes down the same way. With sites in one place each, only one sum of a site crosses the
//! network between places.
//!
//! The parent of a rank is the rank without its lowest digit to base `fanout` that is not 0.

use alloc::vec::Vec;

use super::{Op, Rank};

pub(super) fn program(fanout: u32, rank: Rank, ranks: u32) -> Vec<Op> {
    let (parent, width) = parent(fanout, rank, ranks);
    // Sites of 1, fanout, fanout^2, ... ranks: this rank adds up the ones that follow its own.
    let widths = core::iter::successors(Some(1), |width: &u64| Some(width * u64::from(fanout)));
    let children: Vec<Rank> = widths
        .take_while(|site| *site < width)
        .flat_map(|site| (1..u64::from(fanout)).map(move |place| u64::from(rank) + place * site))
        .filter(|child| *child < u64::from(ranks))
        .map(|child| child as Rank)
        .collect();
    let mut program = Vec::from([Op::Own]);
    program.extend(children.iter().copied().map(Op::Add));
    program.extend(parent.into_iter().flat_map(|parent| [Op::Send(parent), Op::Take(parent)]));
    program.extend(children.into_iter().map(Op::Send));
    program
}

/// The parent of a rank, and the ranks of the largest site that begins with this rank; for rank 0,
/// which has no parent, all ranks.
fn parent(fanout: u32, rank: Rank, ranks: u32) -> (Option<Rank>, u64) {
    if rank == 0 {
        return (None, ranks.into());
    }
    let (rank, fanout) = (u64::from(rank), u64::from(fanout));
    let mut width = 1;
    while rank.is_multiple_of(width * fanout) {
        width *= fanout;
    }
    let parent = rank - rank % (width * fanout);
    (Some(parent as Rank), width)
}
