//! Hooks for replication: a standby keeps the same inputs, without the values of gradients if their
//! combination is enough.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Server;
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_wire::replica::Combined;

impl Server {
    /// Records combined gradients from now until [`Self::given`]; not if the norm of each gradient
    /// decides how it counts (`clip_contribution`).
    pub(in crate::node) fn record_combined(&mut self) {
        if self.job.update.clip_contribution.is_none() {
            self.store.record_combined();
        }
    }

    /// Returns the combined gradients that were recorded.
    pub(in crate::node) fn given(&mut self) -> Vec<Combined> {
        self.store.given()
    }

    /// Makes updates from these combined gradients, from now until [`Self::left`].
    pub(in crate::node) fn apply_combined(&mut self, combined: VecDeque<Combined>) {
        self.store.apply_combined(combined);
    }

    /// Returns the combined gradients that no update has used.
    pub(in crate::node) fn left(&mut self) -> VecDeque<Combined> {
        self.store.left()
    }

    /// The number of parameters of the model, on all servers: a rebalance moves keys between them.
    pub(in crate::node) const fn all_parameters(&self) -> usize {
        self.keys.len() as usize
    }

    /// The worker behind a connection.
    pub(in crate::node) fn worker_of(&self, peer: PeerId) -> Option<WorkerId> {
        self.members.roster.worker_of(peer)
    }
}
