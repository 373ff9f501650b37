//! The layout of tensors in the parameter vector.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::KeyRange;

/// The kind of a tensor's values, which decides how a server changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Parameters: the optimiser changes them by gradients.
    #[default]
    Parameter,
    /// State besides the parameters, such as the running means of batch normalisation. A gradient
    /// has the change of the state in its place, which is added without optimiser, weight,
    /// correction or filter.
    State {
        /// Which changes of an update are added.
        combine: Combine,
        /// True if the values are whole numbers, such as counters.
        whole: bool,
    },
}

/// Which changes of the state an update adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// The mean of all.
    Mean,
    /// The change of the first part of the data, which is worker 1's unless work is divided
    /// otherwise: the mean if a worker has sent several.
    First,
}

/// A named matrix or vector inside the parameter vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The name, as in a PyTorch `nn.Sequential` of the same layers (`0.weight`).
    pub name: String,
    /// The dimensions in key order (row-major): rows and columns, or one entry for a vector.
    pub shape: Vec<usize>,
    /// The kind of its values.
    pub role: Role,
    /// The keys of its values.
    pub keys: KeyRange,
}

/// Consecutive keys of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRun {
    /// The keys, counted from the first key of a server.
    pub keys: Range<usize>,
    /// How their changes are combined.
    pub combine: Combine,
    /// True if the values are whole numbers.
    pub whole: bool,
}

/// The tensors of a model, in key order, without gaps: parameters first, then state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    len: u64,
    trained: u64,
}

impl Layout {
    /// Creates a layout without tensors.
    #[must_use]
    pub const fn new() -> Self {
        Self { tensors: Vec::new(), len: 0, trained: 0 }
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

    /// Appends a tensor of parameters and returns its keys; a tensor without values is omitted and
    /// has none.
    pub fn push(&mut self, name: String, shape: Vec<usize>) -> Option<KeyRange> {
        self.push_as(Role::Parameter, name, shape)
    }

    /// Appends a tensor and returns its keys; a tensor without values is omitted and has none.
    ///
    /// # Panics
    /// If parameters follow state.
    pub fn push_as(&mut self, role: Role, name: String, shape: Vec<usize>) -> Option<KeyRange> {
        let values: usize = shape.iter().product();
        let keys = KeyRange::new(self.len, self.len + values as u64).ok()?;
        if role == Role::Parameter {
            assert_eq!(self.trained, self.len, "parameters come before state");
            self.trained = keys.end();
        }
        self.len = keys.end();
        self.tensors.push(Tensor { name, shape, role, keys });
        Some(keys)
    }

    /// The tensors in key order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The number of keys: of parameters, and of state after them.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// The number of parameters: the keys from there on are state.
    #[must_use]
    pub const fn trained(&self) -> usize {
        self.trained as usize
    }

    /// The state at `keys`, tensor by tensor.
    pub fn state_at(&self, keys: KeyRange) -> impl Iterator<Item = StateRun> {
        self.tensors.iter().filter_map(move |tensor| match tensor.role {
            Role::Parameter => None,
            Role::State { combine, whole } => {
                let keys = tensor.keys.overlap(keys)?.within(keys)?;
                Some(StateRun { keys, combine, whole })
            }
        })
    }

    /// The number of `keys` that are parameters: the first ones.
    #[must_use]
    pub fn trained_at(&self, keys: KeyRange) -> usize {
        self.trained.clamp(keys.begin(), keys.end()).saturating_sub(keys.begin()) as usize
    }

    /// True if there are no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
