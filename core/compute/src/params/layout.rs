//! Which keys hold which tensor.

use alloc::string::String;
use alloc::vec::Vec;

use super::KeyRange;

/// A named matrix or vector inside the parameter vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The name, as a PyTorch `nn.Sequential` of the same layers would call it (`0.weight`).
    pub name: String,
    /// Rows and columns in the order of the keys (row-major); a vector has one entry.
    pub shape: Vec<usize>,
    /// The keys of its values.
    pub keys: KeyRange,
}

/// The tensors of a model, in key order, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    len: u64,
}

impl Layout {
    /// A layout without tensors.
    #[must_use]
    pub const fn new() -> Self {
        Self { tensors: Vec::new(), len: 0 }
    }

    /// Adds a tensor after the last one and returns its keys; a tensor without values gets none
    /// and is left out.
    pub fn push(&mut self, name: String, shape: Vec<usize>) -> Option<KeyRange> {
        let values: usize = shape.iter().product();
        let keys = KeyRange::new(self.len, self.len + values as u64).ok()?;
        self.len = keys.end();
        self.tensors.push(Tensor { name, shape, keys });
        Some(keys)
    }

    /// The tensors in key order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The number of parameters.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no parameters at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
