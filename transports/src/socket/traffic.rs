//! Byte counters of all connections of a transport, to be read from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes received and sent.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

impl Traffic {
    /// Returns the number of bytes received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}
