//! Weighted choice in constant time.

/// Draws a number from `0..n` in proportion to its weight (Walker's alias method, Vose 1991).
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Threshold and alias of each slot: a draw below the threshold yields the slot, otherwise the
    /// alias.
    slots: Vec<(u32, u32)>,
}

impl Choice {
    /// Makes a choice with these weights. If there are none, or all are 0, it always yields 0.
    pub(super) fn new(weights: impl IntoIterator<Item = u64>) -> Self {
        let weights: Vec<u128> = weights.into_iter().map(u128::from).collect();
        let total: u128 = weights.iter().sum();
        let count = weights.len() as u128;
        if total == 0 {
            return Self { slots: vec![(0, 0)] };
        }
        // A full slot weighs `total`. Integer arithmetic, so that every machine builds the same
        // table.
        let mut left: Vec<u128> = weights.iter().map(|weight| weight * count).collect();
        let mut slots: Vec<(u32, u32)> =
            (0..left.len() as u32).map(|slot| (u32::MAX, slot)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..left.len()).partition(|&slot| left[slot] < total);
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            slots[poor] = (((left[poor] << 32) / total) as u32, rich as u32);
            left[rich] -= total - left[poor];
            if left[rich] < total {
                large.pop();
                small.push(rich);
            }
        }
        Self { slots }
    }

    /// Returns the number for 64 random bits.
    pub(super) fn pick(&self, bits: u64) -> usize {
        let slot = (((bits >> 32) * self.slots.len() as u64) >> 32) as usize;
        let (threshold, other) = self.slots[slot];
        if (bits as u32) < threshold { slot } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use pstrain_compute::rng::Stream;

    use super::*;

    #[test]
    fn numbers_come_as_often_as_their_weights_say() {
        let weights = [1, 0, 700, 200, 99];
        let choice = Choice::new(weights);
        let mut rng = Stream::new(5).rng();
        let mut counts = [0_i64; 5];
        for _ in 0..1_000_000 {
            counts[choice.pick(rng.bits())] += 1;
        }
        assert_eq!(counts[1], 0);
        for (count, weight) in counts.iter().zip(weights) {
            assert!((count - 1000 * weight as i64).abs() < 2500, "{counts:?}");
        }
    }

    #[test]
    fn a_choice_of_one_or_of_nothing_is_the_first() {
        for choice in [Choice::new([7]), Choice::new([]), Choice::new([0, 0])] {
            for bits in [0, 1 << 31, u64::MAX] {
                assert_eq!(choice.pick(bits), 0);
            }
        }
    }
}
