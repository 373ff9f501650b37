//! The trace of a simulation: everything that happened, in order, as one hash.

use pstrain_compute::time::Time;
use sha2::{Digest, Sha256};

// The kinds of events that are no messages; a message has its own kind.
pub(super) const OPEN: u8 = 128;
pub(super) const HANGUP: u8 = 129;
pub(super) const WAKE: u8 = 130;
pub(super) const INPUT: u8 = 131;
pub(super) const COMPUTED: u8 = 132;
pub(super) const FAULT: u8 = 133;
pub(super) const RESET: u8 = 134;
pub(super) const RECEIVING: u8 = 135;

/// Bytes that are gathered before they are hashed.
const BLOCK: usize = 4096;

/// Hashes what happens. Two simulations with the same hash were the same, event by event.
#[derive(Debug)]
pub(super) struct Trace {
    hash: Sha256,
    block: Vec<u8>,
    events: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { hash: Sha256::new(), block: Vec::with_capacity(BLOCK + 32), events: 0 }
    }

    /// Notes that something of this kind happened to `whom`; `what` tells it from others.
    pub(super) fn note(&mut self, at: Time, kind: u8, whom: u32, what: u64) {
        self.events += 1;
        self.block.extend_from_slice(&at.as_nanos().to_le_bytes());
        self.block.extend_from_slice(&whom.to_le_bytes());
        self.block.push(kind);
        self.block.extend_from_slice(&what.to_le_bytes());
        if self.block.len() >= BLOCK {
            self.hash.update(&self.block);
            self.block.clear();
        }
    }

    /// How many things happened.
    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    /// The hash over everything, the final parameters included.
    pub(super) fn finish(mut self, parameters: &[f32]) -> [u8; 32] {
        self.hash.update(&self.block);
        for value in parameters {
            self.hash.update(value.to_le_bytes());
        }
        self.hash.finalize().into()
    }
}
