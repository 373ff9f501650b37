//! Values as whole multiples of a scale for each block, rounded at random so that their mean is
//! the value: int8, TernGrad and QSGD, which differ in the scale and in how many multiples there
//! are.

use alloc::vec::Vec;

use super::coded::Values;
use super::{Code, Memory};
use crate::optim::norm;
use crate::rng::Random;

/// Rounds to whole multiples of each block's scale.
#[derive(Debug)]
pub(super) struct Lattice {
    /// The greatest multiple, 1 to 127.
    pub(super) levels: u8,
    /// Values of a block.
    pub(super) block: u32,
    pub(super) length: Length,
}

/// What the greatest multiple of a block's scale is.
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

/// Multiples of scales.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Multiples {
    pub(super) block: u32,
    /// Bits of a multiple.
    pub(super) bits: u8,
    /// One for each block.
    pub(super) scales: Vec<f32>,
    /// One for each value.
    pub(super) multiples: Vec<i8>,
}

impl Lattice {
    /// The scale of a block: never so small that a value would be beyond the greatest multiple.
    fn scale(&self, values: &[f32]) -> f32 {
        let length = self.length.of(values).min(f64::from(f32::MAX));
        let exact = length / f64::from(self.levels);
        let near = exact as f32;
        if f64::from(near) < exact { near.next_up() } else { near }
    }
}

/// The bits that tell `2 * levels + 1` multiples apart.
const fn bits(levels: u8) -> u8 {
    (u8::BITS - levels.leading_zeros()) as u8 + 1
}

impl Code for Lattice {
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
                // The coin falls on the upper side as often as the value is near it.
                let up = random.unit() < exact - floor;
                (floor + f64::from(u8::from(up))).clamp(-most, most) as i8
            };
            coded.multiples.extend(block.iter().map(round));
        }
        Values::Multiples(coded)
    }
}
