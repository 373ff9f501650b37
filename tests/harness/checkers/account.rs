//! Account of one worker: its pushes, and the mini-batches that it still has to compute.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{BatchId, Incarnation, PartId, Sequence, WorkerId};
use pstrain_roles::node::Event;

/// A worker's pushes and mini-batches.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) incarnation: Incarnation,
    /// The last decided push.
    pub(super) decided: Sequence,
    /// Granted pushes, with their mini-batches.
    pub(super) granted: VecDeque<(Sequence, PartId, BatchId)>,
    /// Called-off pushes that have not arrived.
    pub(super) called_off: BTreeMap<Sequence, (PartId, BatchId)>,
    /// The first mini-batch that was never assigned to this worker.
    pub(super) next: u64,
    /// Mini-batches that were assigned without becoming an update, to be assigned again.
    pub(super) again: BTreeSet<BatchId>,
    pub(super) accepted: u64,
    pub(super) applied: u64,
    pub(super) left_out: u64,
}

impl Account {
    /// Checks that `batch` is the next mini-batch of the worker's own sequence.
    pub(super) fn is_due(&mut self, worker: &WorkerId, batch: BatchId) {
        let expected = self.again.pop_first().unwrap_or_else(|| {
            self.next += 1;
            BatchId(self.next - 1)
        });
        assert_eq!(batch, expected, "{worker} skips or repeats a mini-batch");
    }

    pub(super) fn joins(&mut self, incarnation: Incarnation, resumed: bool) {
        if resumed {
            assert_eq!(incarnation, self.incarnation, "resumed as another incarnation");
        } else {
            assert!(incarnation > self.incarnation, "an old incarnation again");
            assert!(self.granted.is_empty(), "its place was not given up");
            self.incarnation = incarnation;
            self.decided = Sequence(0);
            self.called_off.clear();
        }
    }

    /// Replaces the pushes that have not arrived by new ones, numbered from `first`.
    pub(super) fn call_off(&mut self, first: Sequence) {
        let mut next = first;
        for (sequence, part, batch) in &mut self.granted {
            let void = std::mem::replace(sequence, next);
            self.called_off.insert(void, (*part, *batch));
            (self.decided, next) = (void, next.next());
        }
        assert_eq!(first, self.decided.next(), "pushes are skipped, or none was called off");
    }
}

/// The reason for which a push is dropped, if the event after it says so.
pub(super) fn reason_of(push: (WorkerId, Sequence), next: Option<&Event>) -> Option<DropReason> {
    match next {
        Some(&Event::Dropped { worker, sequence, reason }) if (worker, sequence) == push => {
            Some(reason)
        }
        _ => None,
    }
}
