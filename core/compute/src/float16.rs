//! 16-bit floating-point numbers.

use half::{bf16, f16};

/// A format of 16-bit floating-point numbers. Numbers are rounded to nearest, ties to even, and
/// saturate at the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float16 {
    /// IEEE 754 half precision: 11 significant bits, at most 65504.
    Half,
    /// bfloat16: 8 significant bits, with the range of single precision.
    Brain,
}

impl Float16 {
    /// Encodes a number.
    #[must_use]
    pub fn encode(self, value: f32) -> u16 {
        match self {
            Self::Half => {
                let near = f16::from_f32(value);
                if near.is_infinite() { f16::MAX.copysign(near) } else { near }.to_bits()
            }
            Self::Brain => {
                let near = bf16::from_f32(value);
                if near.is_infinite() { bf16::MAX.copysign(near) } else { near }.to_bits()
            }
        }
    }

    /// Decodes a number.
    #[must_use]
    pub fn decode(self, bits: u16) -> f32 {
        match self {
            Self::Half => f16::from_bits(bits).to_f32(),
            Self::Brain => bf16::from_bits(bits).to_f32(),
        }
    }
}
