//! A server whose inputs another keeps as well, without the values of gradients where it can do
//! with what they were combined to.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Server;
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_wire::replica::Combined;

impl Server {
    /// From now on until [`Self::given`], notes what gradients are combined to. Not where the
    /// values of each decide what it counts.
    pub(in crate::node) fn give_combined(&mut self) {
        if self.job.update.clip_contribution.is_none() {
            self.store.give_combined();
        }
    }

    /// What was noted.
    pub(in crate::node) fn given(&mut self) -> Vec<Combined> {
        self.store.given()
    }

    /// From now on until [`Self::left`], makes updates of these.
    pub(in crate::node) fn take_combined(&mut self, combined: VecDeque<Combined>) {
        self.store.take_combined(combined);
    }

    /// Those that no update was made of.
    pub(in crate::node) fn left(&mut self) -> VecDeque<Combined> {
        self.store.left()
    }

    /// Parameters of the model, on all servers: keys move between them.
    pub(in crate::node) const fn all_parameters(&self) -> usize {
        self.keys.len() as usize
    }

    /// The worker behind a connection.
    pub(in crate::node) fn worker_of(&self, peer: PeerId) -> Option<WorkerId> {
        self.roster.worker_of(peer)
    }
}
