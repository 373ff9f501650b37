//! Times of gradients as observed by workers that share the server's clock.

use std::sync::atomic::{AtomicU64, Ordering};

use pstrain_compute::id::{Sequence, WorkerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::Event;
use serde::{Deserialize, Serialize};

/// When a worker received its parameters, and when it sent its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(super) received: Time,
    pub(super) sent: Time,
}

/// The times of a push.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushTimes {
    /// When its parameters were sent; without a server, when its gradient was begun.
    pub(super) granted: Time,
    pub(super) came: Time,
    /// The worker's own times, if they are known.
    pub(super) seen: Option<Seen>,
}

/// Times of the newest gradients of each worker, as many as may be under way. The worker's thread
/// writes its own cells; the server's thread reads a cell when the push has arrived. Until the
/// server answers, the worker does not write to that cell.
#[derive(Debug)]
pub(super) struct WorkerTimes {
    cells: Vec<Cell>,
    /// Number of cells of each worker.
    each: usize,
}

/// Aligned to a cache line, to avoid false sharing between workers.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    sequence: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl WorkerTimes {
    /// Creates cells for workers that each have at most `each` gradients under way.
    pub(super) fn new(workers: usize, each: usize) -> Self {
        Self { cells: (0..workers * each).map(|_| Cell::default()).collect(), each }
    }

    fn cell(&self, worker: WorkerId, sequence: Sequence) -> Option<&Cell> {
        let place = (sequence.0 % self.each as u64) as usize;
        self.cells.get(worker.0 as usize * self.each + place)
    }

    pub(super) fn note(&self, now: Time, worker: WorkerId, event: &Event) {
        let (Event::Received { sequence, .. } | Event::Sent { sequence, .. }) = event else {
            return;
        };
        let Some(cell) = self.cell(worker, *sequence) else { return };
        match event {
            Event::Received { .. } => {
                // Marks the cell as incomplete until the gradient is sent.
                cell.sequence.store(0, Ordering::Relaxed);
                cell.received.store(now.as_nanos(), Ordering::Relaxed);
            }
            Event::Sent { sequence, .. } => {
                cell.sent.store(now.as_nanos(), Ordering::Relaxed);
                // Stored last: the `Acquire` load in `of` then sees both times.
                cell.sequence.store(sequence.0, Ordering::Release);
            }
            _ => {}
        }
    }

    /// Returns the times of a gradient that has just arrived, if they are known.
    pub(super) fn of(&self, worker: WorkerId, sequence: Sequence) -> Option<Seen> {
        let cell = self.cell(worker, sequence)?;
        let time = |cell: &AtomicU64| Time::from_nanos(cell.load(Ordering::Relaxed));
        (cell.sequence.load(Ordering::Acquire) == sequence.0)
            .then(|| Seen { received: time(&cell.received), sent: time(&cell.sent) })
    }
}

#[cfg(test)]
mod tests {
    use pstrain_compute::id::Version;

    use super::*;

    #[test]
    fn a_gradient_is_known_once_it_was_sent_and_under_its_own_number_only() {
        let side = WorkerTimes::new(2, 3);
        let (worker, sequence) = (WorkerId(1), Sequence(7));
        let sent = Event::Sent { sequence, base: Version(3), samples: 64, loss: 1.0 };
        side.note(Time::from_nanos(5), worker, &Event::Received { sequence, version: Version(3) });
        assert_eq!(side.of(worker, sequence), None);
        side.note(Time::from_nanos(9), worker, &sent);
        let seen = Seen { received: Time::from_nanos(5), sent: Time::from_nanos(9) };
        assert_eq!(side.of(worker, sequence), Some(seen));
        // The next gradient is under way before the server reads the cell of this one.
        let next = Event::Received { sequence: Sequence(8), version: Version(3) };
        side.note(Time::from_nanos(9), worker, &next);
        assert_eq!(side.of(worker, sequence), Some(seen));
        assert_eq!(side.of(worker, Sequence(8)), None);
        assert_eq!(side.of(WorkerId(0), sequence), None);
        assert_eq!(side.of(WorkerId(9), sequence), None);
    }
}
