//! Encoding of values as 16-bit floating-point numbers.

use alloc::vec::Vec;

use super::encoded::Values;
use super::{Memory, ValueEncoder};
use crate::float16::Float16;
use crate::rng::Random;

/// IEEE 754 half precision.
#[derive(Debug)]
pub(super) struct Half;

/// bfloat16.
#[derive(Debug)]
pub(super) struct Brain;

impl ValueEncoder for Half {
    fn code(&self, values: Vec<f32>, _memory: &mut Memory, _random: &mut Random) -> Values {
        Values::Half(values.iter().map(|value| Float16::Half.encode(*value)).collect())
    }
}

impl ValueEncoder for Brain {
    fn code(&self, values: Vec<f32>, _memory: &mut Memory, _random: &mut Random) -> Values {
        Values::Brain(values.iter().map(|value| Float16::Brain.encode(*value)).collect())
    }
}
