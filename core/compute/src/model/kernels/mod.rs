//! The arithmetic of a network's layers: products, sums and activations, in one fixed order.
//!
//! A block of samples is stored with one row per sample. A row is held in *strips*, register-sized
//! groups of adjacent columns. The last strip may be wider than the row: its surplus lanes hold
//! unspecified values, and no kernel lets them influence other lanes.
//!
//! Results depend on the input only, not on the processor: every product is fused with its sum, and
//! each sum runs over samples or columns in one order, regardless of the number of lanes.
//!
//! Kernels are inlined into the code that [runs](crate::simd::widest) them: only then does the
//! compiler use the selected registers. The largest kernels, which iterate over tiles, are
//! [separate functions](crate::simd::Simd::apart). Their loops use indices, because in functions of
//! this size the compiler stops inlining what iterators add.
#![expect(clippy::needless_range_loop, clippy::manual_memcpy, reason = "see above")]

mod activation;
mod hot;
mod lanes;
mod memory;
mod outer;
mod places;
mod product;
mod tiles;

pub(super) use self::activation::{exp, relu, relu_backward, tanh, tanh_backward};
pub(super) use self::hot::{scatter, start};
pub(super) use self::lanes::{load, put};
pub(super) use self::memory::Memory;
pub(super) use self::outer::{Terms, is_divisible, outer, repeat, sum, total};
pub(super) use self::places::{Class, Places, Tap};
pub(super) use self::product::{Weights, multiply};
