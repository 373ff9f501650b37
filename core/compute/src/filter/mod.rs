//! Filters: what of a gradient travels to the server, and in which form.
//!
//! A job names a chain of them ([`Filters`]). First come those that choose keys, one after another,
//! then at most one that says how the values of these travel. Each worker has a [`Carrier`] that
//! applies the chain to the whole of a gradient and keeps what it takes away, if that is to be
//! added to the next; what it leaves can be encoded for any range of keys by itself. The form says
//! how the bytes are to be read, without memory of earlier messages: the receiving end makes a
//! gradient of them before a node sees the push.
//!
//! Knows gradients and random streams; connections and nodes it does not.

mod bits;
mod carry;
mod choose;
mod coded;
mod float;
mod lattice;
mod low_rank;
mod pull;
mod signs;
mod spec;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

pub use carry::{Carrier, Filtered};
use choose::{At, Choose, Kkt, RandomK, RandomSkip, Significant, TopK, ZeroSkip};
use coded::Values;
pub use coded::{Encoded, Form, KeyForm, PieceForm, ValueForm};
pub use coded::{Malformed, decode, read_keys, write_keys};
use float::{Brain, Half};
use lattice::{Lattice, Length};
pub use pull::PullFilter;
use signs::OneBit;
pub use spec::{
    ErrorFeedback, FilterError, FilterSpec, Filters, GREATEST_RANK, KeyCaching, MOST_FILTERS,
    UnknownFilter,
};

use crate::rng::Random;

/// Values of a block of int8.
const INT8_BLOCK: u32 = 256;
/// Values of a block of the others: the bucket that QSGD's authors recommend.
const BLOCK: u32 = 512;

/// Says how values travel.
trait Code: fmt::Debug + Send {
    /// Values as they travel. `memory` is what the filter keeps from one gradient to the next.
    fn code(&self, values: Vec<f32>, memory: &mut Memory, random: &mut Random) -> Values;
}

/// What a filter keeps from one gradient to the next, beside the residual.
type Memory = Vec<Vec<f32>>;

/// The filter that chooses keys as `spec` says, if it does; `scales` if random choices are to be
/// right in the mean.
fn choice_of(spec: FilterSpec, scales: bool) -> Option<Box<dyn Choose>> {
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

/// The filter that says how values travel, where it needs no model for that.
fn code_of(spec: FilterSpec) -> Option<Box<dyn Code>> {
    Some(match spec {
        FilterSpec::Fp16 => Box::new(Half),
        FilterSpec::Bf16 => Box::new(Brain),
        FilterSpec::Int8 => {
            Box::new(Lattice { levels: 127, block: INT8_BLOCK, length: Length::Largest })
        }
        FilterSpec::OneBit => Box::new(OneBit { block: BLOCK }),
        FilterSpec::TernGrad => {
            Box::new(Lattice { levels: 1, block: BLOCK, length: Length::Largest })
        }
        FilterSpec::Qsgd { levels } => {
            Box::new(Lattice { levels, block: BLOCK, length: Length::Norm })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
