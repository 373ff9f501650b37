//! Quantizers with a uniform grid: integer multiples of a scale per block, with stochastic rounding
//! so that the mean is the value. int8 and QSGD differ in the scale and the number of
//! multiples.

use alloc::vec::Vec;

use super::encoded::Values;
use super::{Memory, ValueEncoder};
use crate::optim::norm;
use crate::rng::Random;

/// Rounds each value to an integer multiple of its block's scale.
#[derive(Debug)]
pub(super) struct GridQuantizer {
    /// The largest multiple, 1 to 127.
    pub(super) levels: u8,
    /// Values per block.
    pub(super) block: u32,
    pub(super) length: Length,
}

/// The value of the largest multiple in a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// The largest magnitude in the block.
    Largest,
    /// The L2 norm of the block.
    Norm,
}

impl Length {
    fn of(self, values: &[f32]) -> f64 {
        match self {
            Self::Largest => {
                values.iter().fold(0.0, |most: f32, value| most.max(value.abs())).into()
            }
            Self::Norm => norm(values),
        }
    }
}

/// Quantized values: multiples of a scale per block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Multiples {
    pub(super) block: u32,
    /// Bits per multiple.
    pub(super) bits: u8,
    /// One scale per block.
    pub(super) scales: Vec<f32>,
    /// One multiple per value.
    pub(super) multiples: Vec<i8>,
}

impl GridQuantizer {
    /// Returns the scale of a block, rounded up so that no value exceeds the largest multiple.
    fn scale(&self, values: &[f32]) -> f32 {
        let length = self.length.of(values).min(f64::from(f32::MAX));
        let exact = length / f64::from(self.levels);
        let near = exact as f32;
        if f64::from(near) < exact { near.next_up() } else { near }
    }
}

/// The number of bits that distinguish `2 * levels + 1` multiples.
const fn bits(levels: u8) -> u8 {
    (u8::BITS - levels.leading_zeros()) as u8 + 1
}

impl ValueEncoder for GridQuantizer {
    fn code(&self, values: Vec<f32>, _memory: &mut Memory, random: &mut Random) -> Values {
        let mut coded = Multiples {
            block: self.block,
            bits: bits(self.levels),
            scales: Vec::with_capacity(values.len().div_ceil(self.block as usize)),
            multiples: Vec::with_capacity(values.len()),
        };
        let most = f64::from(self.levels);
        for block in values.chunks(self.block as usize) {
            let scale = self.scale(block);
            coded.scales.push(scale);
            let round = |value: &f32| {
                if scale == 0.0 {
                    return 0;
                }
                let exact = f64::from(*value) / f64::from(scale);
                let floor = libm::floor(exact);
                // Rounds up with a probability equal to the fractional part.
                let up = random.unit() < exact - floor;
                (floor + f64::from(u8::from(up))).clamp(-most, most) as i8
            };
            coded.multiples.extend(block.iter().map(round));
        }
        Values::Multiples(coded)
    }
}
