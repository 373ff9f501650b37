//! What training on a parameter server *is*, without anything that needs an operating system.
//!
//! The crate is `no_std` + `alloc` and sans-IO: server and worker are state machines that take an
//! input with the time it happened at and append effects to an outbox. It has no clock, socket,
//! thread or hidden randomness; transports plug in beneath it.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod aggregate;
pub mod auto;
mod codec;
pub mod coding;
pub mod consistency;
pub mod decided;
pub mod evaluation;
pub mod examples;
pub mod filter;
pub mod fingerprint;
pub mod id;
pub mod identity;
pub mod job;
pub mod mode;
pub mod model;
pub mod node;
pub mod optim;
pub mod params;
pub mod protocol;
pub mod reference;
pub mod rng;
pub mod rules;
pub mod saved;
mod simd;
pub mod store;
pub mod sum;
pub mod task;
pub mod time;
pub mod trainer;
pub mod work;
