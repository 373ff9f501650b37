//! Harness shared by the whole-system tests: small jobs, whole clusters, an independent reference.

mod cluster;
mod reference;
mod toy;
mod watchdog;

pub use cluster::{Kind, Outcome, run_cluster, run_cluster_staggered};
pub use reference::sequential_bsp;
pub use toy::{Toy, partition_of};
pub use watchdog::within;
