//! Tasks: the mini-batches of gradients.

use serde::{Deserialize, Serialize};

use crate::id::{BatchId, PartId, WorkerId};

/// The most tasks of one worker that may be under way, whatever the mode.
pub const MOST_IN_FLIGHT: u32 = 256;

/// The examples that one gradient is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Task {
    /// The part of the data; under gradient coding the first of those that are combined.
    pub part: PartId,
    /// The mini-batch of that part. Where it has a size of its own, the number of its first example
    /// in the sequence of the passes over the part.
    pub batch: BatchId,
    /// Its examples, of which there are fewer where a pass ends before; 0 for the job's batch size.
    pub examples: u32,
}

impl Task {
    /// Mini-batch `batch` of the worker's own partition.
    #[must_use]
    pub const fn own(worker: WorkerId, batch: BatchId) -> Self {
        Self { part: PartId(worker.0), batch, examples: 0 }
    }
}
