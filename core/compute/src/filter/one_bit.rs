//! 1-bit quantizer: one sign bit per value, and two means per block (Seide et al. 2014, whose
//! blocks are the columns of a matrix).

use alloc::vec::Vec;

use super::encoded::Values;
use super::{Memory, ValueEncoder};
use crate::rng::Random;

/// Replaces the negative values of a block by their mean, and the others by theirs.
#[derive(Debug)]
pub(super) struct OneBit {
    /// Values per block.
    pub(super) block: u32,
}

/// Sign bits with the means that decode them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SignBits {
    pub(super) block: u32,
    /// Per block: the mean of the negative values, then the mean of the others.
    pub(super) means: Vec<[f32; 2]>,
    /// Per value: true if it is not negative.
    pub(super) signs: Vec<bool>,
}

impl ValueEncoder for OneBit {
    fn code(&self, values: Vec<f32>, _memory: &mut Memory, _random: &mut Random) -> Values {
        let mean = |block: &[f32], negative: bool| {
            let mut sum = (0.0_f64, 0_u32);
            for &value in block.iter().filter(|value| (**value < 0.0) == negative) {
                sum = (sum.0 + f64::from(value), sum.1 + 1);
            }
            if sum.1 == 0 { 0.0 } else { (sum.0 / f64::from(sum.1)) as f32 }
        };
        let blocks = values.chunks(self.block as usize);
        Values::SignBits(SignBits {
            block: self.block,
            means: blocks.map(|block| [mean(block, true), mean(block, false)]).collect(),
            signs: values.iter().map(|value| *value >= 0.0).collect(),
        })
    }
}
