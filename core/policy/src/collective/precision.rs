//! Precision of the values that ranks send.

use alloc::vec::Vec;

use pstrain_compute::filter::{FilterSpec, Filters};
use pstrain_compute::float16::Float16;

/// The precision of the values that ranks send. Ranks add up in single precision.
///
/// A rank rounds a value before it sends it, and goes on with the rounded one, so that all ranks
/// end with the same bits. Two values of 16 bits travel in the place of one of 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// The values as they are.
    #[default]
    Single,
    /// Values of 16 bits.
    Sixteen(Float16),
}

impl Precision {
    /// The precision that filters stand for; none if they do anything else.
    #[must_use]
    pub fn of(filters: &Filters) -> Option<Self> {
        match filters.chain.as_slice() {
            [] => Some(Self::Single),
            _ if filters.feeds_back() => None,
            [FilterSpec::Fp16] => Some(Self::Sixteen(Float16::Half)),
            [FilterSpec::Bf16] => Some(Self::Sixteen(Float16::Brain)),
            _ => None,
        }
    }

    /// The number of values in a word of 32 bits.
    #[must_use]
    pub const fn values_of_word(self) -> u32 {
        match self {
            Self::Single => 1,
            Self::Sixteen(_) => 2,
        }
    }

    /// The number of words of 32 bits for so many values.
    pub(super) const fn words(self, values: usize) -> usize {
        values.div_ceil(self.values_of_word() as usize)
    }
}

/// Rounds values, and overwrites `words` with two of them a word; the last word has one if their
/// number is odd.
pub(super) fn pack(format: Float16, values: &mut [f32], words: &mut Vec<f32>) {
    let round = |value: &mut f32| {
        let bits = format.encode(*value);
        *value = format.decode(bits);
        u32::from(bits)
    };
    words.clear();
    words.extend(values.chunks_mut(2).map(|pair| {
        let bits = match pair {
            [low, high] => round(low) | round(high) << 16,
            [low] => round(low),
            _ => 0,
        };
        f32::from_bits(bits)
    }));
}

/// Gives each packed value to `take`, with the place for it in `values`.
pub(super) fn unpack(
    format: Float16,
    words: &[f32],
    values: &mut [f32],
    mut take: impl FnMut(&mut f32, f32),
) {
    for (pair, word) in values.chunks_mut(2).zip(words) {
        let bits = word.to_bits();
        let halves = [bits as u16, (bits >> 16) as u16];
        for (value, bits) in pair.iter_mut().zip(halves) {
            take(value, format.decode(bits));
        }
    }
}
