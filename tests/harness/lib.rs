//! Harness shared by the whole-system tests: small jobs, whole clusters, an independent reference,
//! and the means to disturb them.

mod cluster;
mod messages;
mod probe;
mod raw;
mod reference;
mod toy;
mod watchdog;

pub use cluster::{Kind, Outcome, run_cluster, run_cluster_staggered};
pub use messages::{KINDS, Messages, frame};
pub use probe::{Net, OPEN, Probe};
pub use raw::{RawPeer, Received, hello};
pub use reference::sequential_bsp;
pub use toy::{Toy, partition_of};
pub use watchdog::within;
