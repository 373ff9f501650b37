//! Tasks: the mini-batches from which workers compute gradients.

use serde::{Deserialize, Serialize};

use crate::id::{BatchId, PartId, WorkerId};

/// The largest number of tasks that a worker may have in flight, in any mode.
pub const MOST_IN_FLIGHT: u32 = 256;

/// The examples of one gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Task {
    /// The part of the data; with gradient coding the first of the combined parts.
    pub part: PartId,
    /// The mini-batch of that part. If `examples` is not 0, the number of the first example in the
    /// sequence of passes over the part.
    pub batch: BatchId,
    /// The number of examples; 0 for a mini-batch of a [`Pass`](crate::pass::Pass) of the job's
    /// batch size.
    pub examples: u32,
}

impl Task {
    /// Creates the task of mini-batch `batch` of the worker's own partition.
    #[must_use]
    pub const fn own(worker: WorkerId, batch: BatchId) -> Self {
        Self { part: PartId(worker.0), batch, examples: 0 }
    }
}
