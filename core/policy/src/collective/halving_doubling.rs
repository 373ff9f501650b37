//! Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005, section 4.5).
//!
//! Of N ranks, `p` take part: the largest power of two that is not above N. The `N - p` others each
//! give their values to a neighbor first, which adds them to its own, and receive the sum from it
//! at the end: ranks `2 i` and `2 i + 1` are such a pair for `i < N - p`.
//!
//! The ranks that take part are numbered from 0 to p - 1. At distance p/2, p/4, ..., 1 each sends
//! one half of its interval to the partner whose number differs in that bit, and adds the half that
//! it receives. Then the intervals, one for each, go the same way back.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Op, Rank};

/// The number of ranks that take part.
const fn participants(ranks: u32) -> u32 {
    1 << ranks.ilog2()
}

/// The distances between partners, the longest first.
pub(super) fn distances(ranks: u32) -> impl Iterator<Item = u32> {
    let distances =
        core::iter::successors(Some(participants(ranks) / 2), |distance| Some(distance / 2));
    distances.take_while(|distance| *distance > 0)
}

/// The rank of a participant.
pub(super) const fn rank_of(participant: u32, ranks: u32) -> Rank {
    let extra = ranks - participants(ranks);
    if participant < extra { 2 * participant } else { participant + extra }
}

/// The part of a rank before and after the exchanges of the participants.
pub(super) enum Folded {
    /// It gives its values to this rank, and receives the sum from it.
    Into(Rank),
    Participant {
        number: u32,
        /// The rank whose values it adds first.
        extra: Option<Rank>,
    },
}

impl Folded {
    pub(super) const fn of(rank: Rank, ranks: u32) -> Self {
        let extra = ranks - participants(ranks);
        match (rank < 2 * extra, rank % 2) {
            (true, 1) => Self::Into(rank - 1),
            (true, _) => Self::Participant { number: rank / 2, extra: Some(rank + 1) },
            (false, _) => Self::Participant { number: rank - extra, extra: None },
        }
    }

    /// The program of a rank that does not take part; the beginning of a participant's.
    pub(super) fn program(&self) -> Vec<Op> {
        let mut program = Vec::from([Op::Own]);
        match *self {
            Self::Into(other) => program.extend([Op::Send(other), Op::Take(other)]),
            Self::Participant { extra, .. } => program.extend(extra.map(Op::Add)),
        }
        program
    }
}

/// A chunk for each participant: its interval after all halvings.
pub(super) fn chunks(ranks: u32, len: usize) -> Vec<Range<usize>> {
    let mut intervals: Vec<Range<usize>> = core::iter::once(0..len).collect();
    while intervals.len() < participants(ranks) as usize {
        let halves = |whole: Range<usize>| {
            let middle = whole.start + whole.len() / 2;
            [whole.start..middle, middle..whole.end]
        };
        intervals = intervals.into_iter().flat_map(halves).collect();
    }
    intervals
}

pub(super) fn program(rank: Rank, ranks: u32, chunk: u32) -> Vec<Op> {
    let folded = Folded::of(rank, ranks);
    let mut program = folded.program();
    let Folded::Participant { number, .. } = folded else { return program };
    // At the first distance whose bit differs, the participant gives this chunk away.
    for distance in distances(ranks) {
        let partner = rank_of(number ^ distance, ranks);
        if (number ^ chunk) & distance != 0 {
            program.extend([Op::Send(partner), Op::Take(partner)]);
            break;
        }
        program.push(Op::Add(partner));
    }
    // On the way back it passes the chunk on at the distances below that one, the smallest first:
    // the partners are those whose values it has added.
    let added = program.clone().into_iter().rev().filter_map(|op| match op {
        Op::Add(from) => Some(Op::Send(from)),
        _ => None,
    });
    program.extend(added);
    program
}
