//! The nodes of a training run as sans-IO state machines: server, shard and worker, primary and
//! standby, and without a server peer and meeting point.
//!
//! A node takes an input with the time at which it happened and appends effects to an outbox;
//! transports plug in beneath it. The crate is `no_std` + `alloc`: it has no clock, socket, thread
//! or hidden randomness.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod node;
pub mod store;
