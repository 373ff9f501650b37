//! Decisions of data-parallel training as pure functions of counts and times.
//!
//! They cover which worker may continue (consistency), which gradients make up an update and with
//! which weights (aggregation), which mini-batches each worker computes (work), and the job that
//! fixes all of these.
//!
//! The crate is `no_std` + `alloc`. It has no clock, socket, thread or hidden randomness.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod aggregate;
pub mod architecture;
pub mod auto;
mod batches;
pub mod collective;
pub mod combining;
pub mod consistency;
pub mod gossip;
pub mod in_network;
pub mod job;
pub mod lockstep;
pub mod mode;
pub mod rules;
pub mod trainer;
pub mod work;
