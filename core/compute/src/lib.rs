//! Arithmetic of data-parallel training: parameters, examples, models, gradients, optimisers and
//! gradient compression. It does not depend on messages, jobs or nodes.
//!
//! The crate is `no_std` + `alloc`. It has no clock, socket, thread or hidden randomness.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

#[macro_use]
pub mod named;

pub mod codec;
pub mod coding;
pub mod counted;
pub mod decided;
pub mod evaluation;
pub mod examples;
pub mod filter;
pub mod fingerprint;
pub mod float16;
pub mod id;
#[cfg(feature = "std")]
pub mod likeness;
pub mod local_training;
pub mod model;
pub mod optim;
pub mod params;
pub mod pass;
pub mod reference;
pub mod rng;
pub mod saved;
mod simd;
pub mod source;
pub mod sum;
pub mod task;
pub mod time;
