//! The ranks whose gradients a sum has, as values that travel with it.
//!
//! A value has a bit for each of 24 ranks. Each rank adds the bit of its own, if it gives a
//! gradient: sums of distinct bits are exact in single precision, whatever their order.

use alloc::vec::Vec;

use super::Rank;

/// Ranks of a value: the bits of an `f32` that are exact.
const RANKS: u32 = f32::MANTISSA_DIGITS;

/// The values for so many ranks.
pub(crate) const fn words(ranks: u32) -> usize {
    ranks.div_ceil(RANKS) as usize
}

/// Appends the values of one rank that gives a gradient.
pub(crate) fn append(rank: Rank, ranks: u32, values: &mut Vec<f32>) {
    let bit = (1_u32 << (rank % RANKS)) as f32;
    let word_of = |word| if word == rank / RANKS { bit } else { 0.0 };
    values.extend((0..words(ranks) as u32).map(word_of));
}

/// Removes the values from a sum; returns the ranks that gave no gradient, in order.
pub(crate) fn take_absent(ranks: u32, sum: &mut Vec<f32>) -> Vec<Rank> {
    let words = sum.split_off(sum.len() - words(ranks));
    let gave = |rank: &Rank| words[(rank / RANKS) as usize] as u32 & (1 << (rank % RANKS)) != 0;
    (0..ranks).filter(|rank| !gave(rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ranks_that_gave_nothing_are_named_whatever_the_order_of_the_sum(
            gave in proptest::collection::vec(any::<bool>(), 1..100),
            order in any::<u64>(),
        ) {
            let ranks = gave.len() as u32;
            let mut sum = Vec::from([0.25; 3]);
            sum.resize(3 + words(ranks), 0.0);
            for place in 0..ranks {
                let rank = ((u64::from(place) + order) % u64::from(ranks)) as Rank;
                if gave[rank as usize] {
                    let mut own = Vec::from([0.0; 3]);
                    append(rank, ranks, &mut own);
                    super::super::reduction::add(&mut sum, &own);
                }
            }
            let absent = take_absent(ranks, &mut sum);
            prop_assert_eq!(sum, [0.25; 3]);
            let wanted = (0..ranks).filter(|rank| !gave[*rank as usize]);
            prop_assert_eq!(absent, wanted.collect::<Vec<_>>());
        }
    }
}
