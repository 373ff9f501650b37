//! Bytes of all connections of a transport, for those who count them from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that came and went.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
}

impl Traffic {
    /// Bytes that came.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes that went out.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}
