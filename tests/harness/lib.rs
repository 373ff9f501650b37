//! Harness shared by the whole-system tests: small jobs, whole clusters, an independent reference,
//! and the means to disturb them.

mod bits;
mod certificates;
mod checkers;
mod cluster;
mod dealt;
mod driven;
pub mod enumeration;
mod flood;
mod ledger;
mod messages;
mod nodes;
mod peers;
mod policies;
mod probe;
mod proxy;
mod raw;
mod real_data;
mod reference;
mod replicas;
mod seeds;
mod simulated;
mod softmax;
mod stepping;
mod stood_by;
mod toy;
mod trial;
mod virtual_job;
mod watchdog;
mod wire;
pub mod world;

pub use bits::bits;
pub use certificates::Certificates;
pub use cluster::{Kind, Outcome, run_cluster, run_cluster_staggered};
pub use dealt::{Dealt, faults_of, run_dealt};
pub use driven::Driven;
pub use flood::{Flood, FloodSpec, connect_from, tls_hello};
pub use ledger::check_exactly_once;
pub use messages::{KINDS, Messages, frame};
pub use nodes::{ServerEnd, ServerThread, WorkerThread};
pub use peers::{
    PeerFault, PeerFaults, PeersEnded, PeersRun, intervals, run_peer_cluster, run_peers,
    simulate_toy_peers,
};
pub use policies::{POLICIES, kind_of_policy};
pub use probe::{Net, OPEN, Probe};
pub use proxy::{Disturbance, Proxy};
pub use raw::{RawPeer, Received, hello};
pub use real_data::real_data;
pub use reference::sequential_bsp;
pub use replicas::{
    Disturbances, Rank, Replaced, ReplicaFault, Replicated, run_moving, run_replicated,
};
pub use seeds::{Ran, for_seeds};
pub use simulated::{Arrival, Simulated, VirtualRun};
pub use softmax::{Rows, accuracy_of_softmax};
pub use stepping::Stepping;
pub use stood_by::{StoodBy, run_stood_by};
pub use toy::{Toy, all_keys, partition_of, parts_of};
pub use trial::{Trial, trial_of};
pub use watchdog::within;
