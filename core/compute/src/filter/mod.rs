//! Filters: gradient compression. They select the keys that are sent and encode their values.
//!
//! A job names a chain of filters ([`Filters`]): first sparsifiers, one after another, then at most
//! one filter that encodes the remaining values. Each worker has a [`FilterChain`] that applies the
//! chain to a whole gradient and keeps the residual for the next gradient if error feedback is on.
//! The result can be encoded for any key range separately. The [`Form`] specifies how to decode the
//! bytes, without state from earlier messages: the receiver decodes the gradient before a node sees
//! the push.
//!
//! The module depends on gradients and random streams, not on connections or nodes.

mod bits;
mod encoded;
mod error_feedback;
mod float;
mod low_rank;
mod one_bit;
mod pull;
mod quantize;
mod sparsify;
mod spec;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use encoded::Values;
pub use encoded::{Encoded, Form, KeyForm, PieceForm, ValueForm};
pub use encoded::{Malformed, decode, read_keys, write_keys};
pub use error_feedback::{FilterChain, Filtered};
use float::{Brain, Half};
use one_bit::OneBit;
pub use pull::PullFilter;
use quantize::{GridQuantizer, Length};
use sparsify::{At, Kkt, RandomK, RandomSkip, Significant, Sparsifier, TopK, ZeroSkip};
pub use spec::{
    ErrorFeedback, FilterError, FilterSpec, Filters, GREATEST_RANK, KeyCaching, MOST_FILTERS,
};

use crate::rng::Random;

/// Values per block of int8.
const INT8_BLOCK: u32 = 256;
/// Values per block of the other quantizers: the bucket size that the QSGD paper recommends.
const BLOCK: u32 = 512;

/// Encodes the values of the keys that are sent.
trait ValueEncoder: fmt::Debug + Send {
    /// Encodes `values`. `memory` is the filter's state from one gradient to the next.
    fn code(&self, values: Vec<f32>, memory: &mut Memory, random: &mut Random) -> Values;
}

/// The state of a filter from one gradient to the next, in addition to the residual.
type Memory = Vec<Vec<f32>>;

/// Returns the sparsifier of `spec`, if it is one. With `scales`, random sparsifiers are unbiased.
fn sparsifier_of(spec: FilterSpec, scales: bool) -> Option<Box<dyn Sparsifier>> {
    Some(match spec {
        FilterSpec::ZeroSkip => Box::new(ZeroSkip),
        FilterSpec::Significant { delta } => Box::new(Significant { delta }),
        FilterSpec::RandomSkip { share } => Box::new(RandomSkip { share, scales }),
        FilterSpec::RandomK { share } => Box::new(RandomK { share, scales }),
        FilterSpec::TopK { share } => Box::new(TopK { share }),
        FilterSpec::Kkt { share, every } => Box::new(Kkt { share, every }),
        _ => return None,
    })
}

/// Returns the encoder of `spec`, if it is one that does not need the model's layout.
fn encoder_of(spec: FilterSpec) -> Option<Box<dyn ValueEncoder>> {
    Some(match spec {
        FilterSpec::Fp16 => Box::new(Half),
        FilterSpec::Bf16 => Box::new(Brain),
        FilterSpec::Int8 => {
            Box::new(GridQuantizer { levels: 127, block: INT8_BLOCK, length: Length::Largest })
        }
        FilterSpec::OneBit => Box::new(OneBit { block: BLOCK }),
        FilterSpec::Qsgd { levels } => {
            Box::new(GridQuantizer { levels, block: BLOCK, length: Length::Norm })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
