//! Transports, clocks, the driver loop, the journal and the simulation beneath the nodes.
//!
//! - [`Transport`]: peers by id, messages in and out, a clock, bounded queues. [`SocketTransport`]
//!   (TCP and Unix sockets over mio) and [`MemoryTransport`] (threads of one process) pass one
//!   conformance suite.
//! - [`Shaped`]: wraps any of them so that messages take as long as a scenario says.
//! - [`drive`]: the loop that passes inputs to a node and performs its effects.
//! - [`WorkerServices`], [`ServerServices`]: long-running effects, on their own threads.
//! - [`process`]: gradients from a compute process of the user.
//! - [`journal`]: the inputs of a server on disk, for a restart.
//! - [`scenario`]: the model of network and machines, as values without a clock.
//!
//! This crate knows nodes and messages, but no file format except the journal's, and nothing
//! about training.

mod address;
mod clock;
mod compute;
mod driver;
mod evaluate;
mod gradient;
pub mod journal;
mod loaded;
mod log_limit;
mod memory;
mod paced;
pub mod process;
pub mod processors;
mod punctuality;
mod refusals;
pub mod scenario;
mod services;
mod shaped;
pub mod simulation;
mod socket;
mod threads;
mod transport;

pub use address::{Address, AddressError};
pub use clock::{WallClock, calendar_time};
pub use compute::Computer;
pub use driver::{
    Begin, DriveError, Handle, Journal, JournalError, Mailbox, Services, drive, drive_from,
};
pub use evaluate::Evaluator;
pub use loaded::{Loaded, Parts};
pub use log_limit::{LogLimit, LogLimitBySource};
pub use memory::{MemoryHub, MemoryTransport};
pub use punctuality::{Lateness, Punctuality};
pub use services::{ServerServices, ShardServices, WorkerServices};
pub use shaped::Shaped;
pub use socket::{KeyAccess, Security, SecurityError, SocketTransport, Traffic, allow_more_files};
pub use transport::{MAX_BACKLOG_BYTES, Transport, TransportError, TransportEvent, Waker};
