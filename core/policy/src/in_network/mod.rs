//! In-network aggregation: a node on the way adds up the gradients of all workers as integers.
//!
//! A vector is cut into chunks, one for each packet. The aggregator has a pool of slots. Each
//! worker has one packet in flight in each slot; once the packets of all workers have come, all
//! get the sum, and send the next chunk of the slot (Sapio et al., "Scaling distributed machine
//! learning with in-network aggregation", NSDI 2021, section 3). So the aggregator needs memory
//! for its slots alone, however long the vectors are.
//!
//! Each use of a slot is a turn, with a number that every packet carries. The aggregator keeps the
//! last two turns of a slot: a worker that begins a turn has the sum of the turn before, so that
//! no worker needs the one before that. A sum that was lost is sent again to a worker that repeats
//! its packet, and packets of turns that are over are ignored, in whichever order they arrive.
//!
//! Integers are sums of fixed point: the workers agree on the exponent of a chunk one turn before
//! they send it ([`Exponent`]). The first turn of a slot in a vector agrees on the exponent alone.

mod aggregator;
mod exponent;
mod layout;
mod streaming;

use alloc::sync::Arc;
use alloc::vec::Vec;

pub use aggregator::{Aggregator, Answer, PacketError};
pub use exponent::Exponent;
pub use layout::Layout;
pub use streaming::Streaming;

/// A chunk of one worker, or the sum of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The index of the slot.
    pub slot: u32,
    /// The turns of the slot before this one, since the group of workers was formed.
    pub turn: u64,
    /// The greatest exponent of the chunk in the slot's next turn.
    pub next: Exponent,
    /// The values in fixed point; none in a turn that agrees on an exponent.
    pub values: Arc<Vec<i32>>,
}

#[cfg(test)]
mod tests;
