//! Encoding of values as 16-bit floating-point numbers.

use alloc::vec::Vec;

use half::{bf16, f16};

use super::encoded::Values;
use super::{Memory, ValueEncoder};
use crate::rng::Random;

/// IEEE 754 half precision: rounds to nearest, ties to even, and saturates at the largest number.
#[derive(Debug)]
pub(super) struct Half;

/// bfloat16: rounds to nearest, ties to even, and saturates at the largest number.
#[derive(Debug)]
pub(super) struct Brain;

impl ValueEncoder for Half {
    fn code(&self, values: Vec<f32>, _memory: &mut Memory, _random: &mut Random) -> Values {
        let code = |value: &f32| {
            let near = f16::from_f32(*value);
            if near.is_infinite() { f16::MAX.copysign(near) } else { near }.to_bits()
        };
        Values::Half(values.iter().map(code).collect())
    }
}

impl ValueEncoder for Brain {
    fn code(&self, values: Vec<f32>, _memory: &mut Memory, _random: &mut Random) -> Values {
        let code = |value: &f32| {
            let near = bf16::from_f32(*value);
            if near.is_infinite() { bf16::MAX.copysign(near) } else { near }.to_bits()
        };
        Values::Brain(values.iter().map(code).collect())
    }
}

/// Decodes a half.
pub(super) fn of_half(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// Decodes a bfloat16.
pub(super) fn of_brain(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}
