//! The decisions of data-parallel training, as pure functions of counts and times: which worker may
//! go on (consistency), which gradients make an update and with which weights (aggregation), which
//! mini-batches are whose (work), and the job that fixes all of it.
//!
//! The crate is `no_std` + `alloc`. It has no clock, socket, thread or hidden randomness.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod aggregate;
pub mod auto;
pub mod consistency;
pub mod job;
pub mod mode;
pub mod rules;
pub mod trainer;
pub mod work;
