//! The progress of a run: where every mini-batch went, and the position on the training curve.

use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use serde::{Deserialize, Serialize};

use crate::node::Point;

/// Where every mini-batch went. Invariant: `assigned = applied + discarded + lost + outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Mini-batches assigned; one that has to be computed again counts again.
    pub assigned: u64,
    /// Gradients that became part of an update.
    pub applied: u64,
    /// Gradients that arrived and were dropped, and mini-batches given up at the end of the run.
    pub discarded: u64,
    /// The discarded gradients that are not finite: their mini-batches are left out.
    pub left_out: u64,
    /// Mini-batches lost with their worker.
    pub lost: u64,
    /// Mini-batches under way, and gradients that are not part of an update yet.
    pub outstanding: u64,
}

/// The progress of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) ledger: Ledger,
    /// Examples applied.
    pub(super) samples: u64,
    /// When the first parameters were given out.
    pub(super) training_since: Option<Time>,
    pub(super) last_update: Time,
}

impl Progress {
    /// The position of `version` on the training curve, for a training split of so many rows.
    pub(super) fn point(&self, version: Version, rows: u64) -> Point {
        let since = self.training_since;
        Point {
            version,
            samples: self.samples,
            epoch: self.samples as f64 / rows as f64,
            time: since.map_or_else(Default::default, |at| self.last_update.since(at)),
        }
    }
}
