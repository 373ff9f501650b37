//! The layout of tensors in the parameter vector.

use alloc::string::String;
use alloc::vec::Vec;

use super::KeyRange;

/// A named matrix or vector inside the parameter vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The name, as in a PyTorch `nn.Sequential` of the same layers (`0.weight`).
    pub name: String,
    /// The dimensions in key order (row-major): rows and columns, or one entry for a vector.
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
    /// Creates a layout without tensors.
    #[must_use]
    pub const fn new() -> Self {
        Self { tensors: Vec::new(), len: 0 }
    }

    /// Creates a layout of tensors with these names and dimensions, in their order.
    #[must_use]
    pub fn of<const N: usize>(tensors: [(&str, &[u32]); N]) -> Self {
        let mut layout = Self::new();
        for (name, shape) in tensors {
            let _keys = layout.push(name.into(), shape.iter().map(|&size| size as usize).collect());
        }
        layout
    }

    /// Appends a tensor and returns its keys; a tensor without values is omitted and has none.
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

    /// True if there are no parameters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
