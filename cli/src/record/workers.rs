//! What workers of the same clock saw of their gradients.

use std::sync::atomic::{AtomicU64, Ordering};

use pstrain_core::id::{Sequence, WorkerId};
use pstrain_core::node::Event;
use pstrain_core::time::Time;

/// When a worker had its parameters, and when its gradient was on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(super) received: Time,
    pub(super) sent: Time,
}

/// The newest gradient of each worker. Each worker's thread writes its own cell, and the server's
/// reads it when the push is there. Until the server answers, the worker has nothing to write.
#[derive(Debug)]
pub(super) struct WorkersSide(Vec<Cell>);

/// A cell has a cache line of its own, so that workers do not slow each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    sequence: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl WorkersSide {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Cell::default()).collect())
    }

    pub(super) fn note(&self, now: Time, worker: WorkerId, event: &Event) {
        let Some(cell) = self.0.get(worker.0 as usize) else { return };
        match event {
            Event::Received { .. } => {
                cell.sequence.store(0, Ordering::Relaxed);
                cell.received.store(now.as_nanos(), Ordering::Relaxed);
            }
            Event::Sent { sequence, .. } => {
                cell.sent.store(now.as_nanos(), Ordering::Relaxed);
                cell.sequence.store(sequence.0, Ordering::Release);
            }
            _ => {}
        }
    }

    /// What is known of a gradient that has just arrived.
    pub(super) fn of(&self, worker: WorkerId, sequence: Sequence) -> Option<Seen> {
        let cell = self.0.get(worker.0 as usize)?;
        let time = |cell: &AtomicU64| Time::from_nanos(cell.load(Ordering::Relaxed));
        (cell.sequence.load(Ordering::Acquire) == sequence.0)
            .then(|| Seen { received: time(&cell.received), sent: time(&cell.sent) })
    }
}

#[cfg(test)]
mod tests {
    use pstrain_core::id::Version;

    use super::*;

    #[test]
    fn a_gradient_is_known_once_it_was_sent_and_under_its_own_number_only() {
        let side = WorkersSide::new(2);
        let (worker, sequence) = (WorkerId(1), Sequence(7));
        let sent = Event::Sent { sequence, base: Version(3), samples: 64, loss: 1.0 };
        side.note(Time::from_nanos(5), worker, &Event::Received { sequence, version: Version(3) });
        assert_eq!(side.of(worker, sequence), None);
        side.note(Time::from_nanos(9), worker, &sent);
        let seen = Seen { received: Time::from_nanos(5), sent: Time::from_nanos(9) };
        assert_eq!(side.of(worker, sequence), Some(seen));
        assert_eq!(side.of(worker, Sequence(8)), None);
        assert_eq!(side.of(WorkerId(0), sequence), None);
        assert_eq!(side.of(WorkerId(9), sequence), None);
    }
}
