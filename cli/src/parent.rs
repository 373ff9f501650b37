//! The compute process that started this worker, while the worker has no server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

use pstrain_roles::node::Event;
use pstrain_transports::process::wait_for_parent;

use crate::signals::Drain;

/// Time for a signal that comes with the end, and between two looks at a worker that has a server.
const PAUSE: Duration = Duration::from_millis(200);

/// The end of the process. A worker that has a server finds it at its next request. A worker
/// without a server makes no request, and would go on dialling.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parent(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// A server has admitted the worker, and the connection is there.
    is_admitted: AtomicBool,
    /// The process has ended while the worker had no server.
    has_ended: AtomicBool,
}

impl Parent {
    /// Ends the worker by `drain` once the process has ended and the worker has no server.
    pub(crate) fn watch(&self, drain: Drain) {
        let Self(seen) = self.clone();
        spawn(move || {
            // A terminal or a file cannot be watched: the next request finds the end.
            if wait_for_parent().is_err() {
                return;
            }
            loop {
                sleep(PAUSE);
                if drain.is_asked() {
                    return;
                }
                if !seen.is_admitted.load(Ordering::Relaxed) {
                    seen.has_ended.store(true, Ordering::Relaxed);
                    return drain.ask();
                }
            }
        });
    }

    /// Takes note of what happens to the worker.
    pub(crate) fn hear(&self, event: &Event) {
        match event {
            Event::Welcomed { .. } => self.0.is_admitted.store(true, Ordering::Relaxed),
            Event::Redialling { .. } => self.0.is_admitted.store(false, Ordering::Relaxed),
            _ => {}
        }
    }

    /// True if the worker ends for this reason.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Relaxed)
    }
}
