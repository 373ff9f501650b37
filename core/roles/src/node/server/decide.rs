//! Decisions: each is carried out here and recorded for the other servers, which follow.

use super::Server;
use super::group::Shown;
use crate::node::{Evaluate, Outbox, Point};
use alloc::collections::BTreeSet;
use pstrain_compute::id::WorkerId;
use pstrain_compute::params::KeyRange;
use pstrain_policy::rules::Closing;
use pstrain_wire::decision::{Contribution, Decision};
use pstrain_wire::worker::Push;

/// Operations on the parameters: each is applied to this server's store and recorded as a decision
/// for the other servers, so that all stores go through the same sequence.
impl Server {
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.store.forget(worker);
        self.group.tell(|| Decision::Forget { worker });
    }

    pub(super) fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        self.store.set_rows(worker, rows);
        self.group.tell(|| Decision::Rows { worker, rows });
    }

    pub(super) fn gather(&mut self, contribution: Contribution, push: Push, factor: Option<f32>) {
        self.store.gather(contribution, push, factor);
        self.group.tell(|| Decision::Gather { contribution, factor });
    }

    pub(super) fn merge(&mut self) {
        let version = self.version();
        self.store.merge(version);
        self.group.tell(|| Decision::Merge { version });
    }

    pub(super) fn discard(&mut self) {
        self.store.discard();
        self.group.tell(|| Decision::Discard);
    }

    pub(super) fn tell_close(&mut self, closing: Closing, weights: Option<&[f32]>) {
        let (oldest, version) = (self.rounds.cohort.oldest(), self.rounds.cohort.version());
        self.group.tell(|| Decision::Close {
            closing,
            oldest,
            version,
            weights: weights.map(<[f32]>::to_vec),
        });
    }

    /// Requests an evaluation of the current parameters, once they have arrived from all servers.
    pub(super) fn show(&mut self, point: Point, out: &mut Outbox) {
        let own = self.store.parameters();
        if self.group.is_alone() {
            return self.evaluations.request(Evaluate { point, parameters: own.clone() }, out);
        }
        if let Some(parameters) = self.group.whole(point.version).cloned() {
            return self.evaluations.request(Evaluate { point, parameters }, out);
        }
        self.collect(point, self.keys, true);
    }

    /// Collects the current parameters of `keys` from all servers that hold some of them: all keys
    /// for an evaluation, any range for a client.
    pub(super) fn collect(&mut self, point: Point, keys: KeyRange, evaluates: bool) {
        let version = point.version;
        let (mut keys, mut evaluates) = (keys, evaluates);
        if let Some(shown) = self.group.shown.get_mut(&version) {
            shown.evaluates |= evaluates;
            if shown.keys.contains(keys) {
                return;
            }
            // The whole range is requested again, at the same version: the version is still
            // current.
            (keys, evaluates) = (keys.hull(shown.keys), shown.evaluates);
        }
        let mut values = alloc::vec![0.0; keys.len() as usize];
        // A snapshot of this server's part: the decision asks the others for the same version.
        let own = self.store.keys();
        if let Some(part) = own.overlap(keys)
            && let Some((to, from)) = part.within(keys).zip(part.within(own))
            && let Some((to, from)) = values.get_mut(to).zip(self.store.parameters().get(from))
        {
            to.copy_from_slice(from);
        }
        let came = BTreeSet::new();
        let shown = Shown { point: point.into(), evaluates, keys, values, came };
        self.group.shown.insert(version, shown);
        self.group.tell(|| Decision::Show { version, keys });
    }
}
