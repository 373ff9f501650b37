//! The arithmetic of a network's layers: products, sums and activations, in one fixed order.
//!
//! The values of a block of samples are a row for each sample. A row is held in *strips*,
//! registers' worth of neighbouring columns; the last may be wider than the row: what its surplus
//! lanes hold means nothing, and no kernel lets it into another lane.
//!
//! Results depend on the input alone, and not on the processor: there is no fused multiply-add, and
//! each sum runs over samples or columns in one order, however many lanes there are.
//!
//! Kernels are inlined into whoever has them [run](crate::simd::widest): only so are they compiled
//! for the registers that were chosen. The largest, which go through tiles, stand
//! [apart](crate::simd::Simd::apart). Their loops are over numbers, for what iterators add to a
//! function of this size is not inlined any more.
#![expect(clippy::needless_range_loop, clippy::manual_memcpy, reason = "see above")]

mod activation;
mod hot;
mod lanes;
mod memory;
mod outer;
mod product;
mod tiles;

pub(super) use self::activation::{exp, relu, relu_backward, tanh, tanh_backward};
pub(super) use self::hot::{scatter, start};
pub(super) use self::memory::Memory;
pub(super) use self::outer::{outer, sum};
pub(super) use self::product::{Weights, multiply};
