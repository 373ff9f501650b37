//! Processes: nodes with the restarts, the wake-ups and the cuts of their machines.

use std::collections::BTreeSet;
use std::time::Duration;

use pstrain_compute::time::Time;

use super::connection::End;
use super::traffic::Item;
use crate::transport::LONGEST_DIAL;

/// A process of a simulation, by the order in which processes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// A node and the machine that it runs on.
#[derive(Debug)]
pub(super) struct Process<N> {
    /// Stays after the process has ended, for the environment to look at.
    pub(super) node: N,
    /// Names the process in the trace.
    pub(super) label: u32,
    /// False once the node has finished or crashed.
    pub(super) runs: bool,
    /// Counts restarts. An answer to an earlier life is void.
    pub(super) life: u32,
    /// The planned wake-up.
    pub(super) wake: Option<Time>,
    /// How long a dial may take, as for a socket.
    pub(super) dial_limit: Duration,
    /// Connections that it has dialled or accepted and that it does not know to be closed.
    pub(super) connections: BTreeSet<u32>,
    pub(super) is_cut: bool,
    /// Items that have arrived since the cut.
    pub(super) held_back: Vec<(u32, End, Item)>,
}

impl<N> Process<N> {
    pub(super) const fn new(node: N, label: u32) -> Self {
        Self {
            node,
            label,
            runs: true,
            life: 0,
            wake: None,
            dial_limit: LONGEST_DIAL,
            connections: BTreeSet::new(),
            is_cut: false,
            held_back: Vec::new(),
        }
    }

    /// Replaces the node by one that has not started.
    pub(super) const fn restart(&mut self, node: N) -> N {
        self.life += 1;
        self.runs = true;
        self.wake = None;
        self.dial_limit = LONGEST_DIAL;
        std::mem::replace(&mut self.node, node)
    }
}
