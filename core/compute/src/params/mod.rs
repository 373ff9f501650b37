//! Parameters: one contiguous `f32` vector, addressed by key range, with a layout of named tensors.

mod blocks;
mod coverage;
mod finite;
mod key_list;
mod key_map;
mod key_range;
mod layout;
mod reuse;

pub use blocks::{BlockOrder, Blocks, Cut, MOST_BLOCKS};
pub use coverage::Coverage;
pub use finite::{are_finite, first_not_finite};
pub use key_list::KeyList;
pub use key_map::{KeyMap, Move};
pub use key_range::{EmptyRange, KeyRange};
pub use layout::{Combine, Layout, Role, StateRun, Tensor};
pub use reuse::cleared;
