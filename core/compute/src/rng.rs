//! Deterministic randomness: named streams derived from one seed.
//!
//! Each consumer (initial parameters, the shuffle of worker 3, the back-off of worker 1, ...) draws
//! from its own stream, derived from the run's seed and the consumer's name. Adding a consumer, a
//! worker or a draw therefore shifts no other stream. The generator is xoshiro256++, and the
//! derived draws are implemented here, so that a seed keeps its meaning if a dependency changes its
//! sampling.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// A node in the tree of random streams: the run's seed, then a sequence of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream(u64);

impl Stream {
    /// Creates the root stream of a run.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Derives the child stream called `purpose` with number `index`.
    #[must_use]
    pub fn fork(self, purpose: &str, index: u64) -> Self {
        // FNV-1a over the name, then the SplitMix64 finaliser over parent, name and index.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in purpose.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(mix(mix(self.0 ^ hash).wrapping_add(index)))
    }

    /// Returns a generator at the start of this stream.
    #[must_use]
    pub fn rng(self) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(self.0))
    }
}

const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The random generator of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform integer in `0..bound` (Lemire 2019, with rejection).
    ///
    /// Returns 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            // Rejects the few low parts that would make some results more likely than others.
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Shuffles `items` (Fisher-Yates); every order is equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// Returns the generator itself, for distributions of a library.
    pub const fn generator(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn streams_of_other_names_or_numbers_differ() {
        let root = Stream::new(7);
        let draws: Vec<u64> = [
            root,
            root.fork("shuffle", 0),
            root.fork("shuffle", 1),
            root.fork("init", 0),
            root.fork("init", 0).fork("shuffle", 0),
            Stream::new(8).fork("shuffle", 0),
        ]
        .iter()
        .map(|stream| stream.rng().bits())
        .collect();
        for (i, draw) in draws.iter().enumerate() {
            assert!(!draws[..i].contains(draw), "stream {i} repeats another");
        }
    }

    #[test]
    fn a_seed_keeps_its_meaning() {
        let mut rng = Stream::new(1).fork("shuffle", 2).rng();
        let mut order: Vec<u32> = (0..8).collect();
        rng.shuffle(&mut order);
        let again = {
            let mut rng = Stream::new(1).fork("shuffle", 2).rng();
            let mut order: Vec<u32> = (0..8).collect();
            rng.shuffle(&mut order);
            order
        };
        assert_eq!(order, again);
        order.sort_unstable();
        assert_eq!(order, (0..8).collect::<Vec<u32>>());
    }

    #[test]
    fn below_is_even_and_in_range() {
        let mut rng = Stream::new(3).rng();
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }
}
