//! Where a worker's time goes, and figures of its connection.

use core::ops::{Add, AddAssign};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;

/// A worker's time: `compute`, `network` and `barrier` add up to the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpent {
    /// Computation, as the worker measures it.
    pub compute: Duration,
    /// The part of `compute` for gradients that were called off.
    pub called_off: Duration,
    /// Parameters or gradients were in transit or in a queue.
    pub network: Duration,
    /// The worker was idle, because the server withheld parameters.
    pub barrier: Duration,
}

impl TimeSpent {
    /// Returns the sum of the parts.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.compute + self.network + self.barrier
    }
}

impl Add for TimeSpent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            compute: self.compute + other.compute,
            called_off: self.called_off + other.called_off,
            network: self.network + other.network,
            barrier: self.barrier + other.barrier,
        }
    }
}

impl AddAssign for TimeSpent {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The last steps of a worker. A step ends with a gradient, or with the call that stops one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// Number of steps.
    pub steps: u32,
    /// Where their time went.
    pub spent: TimeSpent,
    /// Workers whose event ended this worker's waits for parameters, the longest total wait first.
    /// An array, so that a message cannot carry more than [`MOST_HOLDERS`].
    pub held_by: [Option<Held>; MOST_HOLDERS],
    /// Mean loss of the mini-batches of the steps that ended with a gradient.
    pub loss: f64,
}

/// Maximum number of workers in [`Recent::held_by`].
pub const MOST_HOLDERS: usize = 3;

/// How long one worker held back another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The worker that the other waited for.
    pub by: WorkerId,
    /// Total wait.
    pub waited: Duration,
}

/// Figures of a connection, as the server's side sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes that the operating system has not accepted yet.
    pub queued: u64,
    /// Figures of the kernel, where it provides them: for TCP on Linux.
    pub tcp: Option<TcpFigures>,
    /// True if both ends are on one machine.
    pub is_local: bool,
}

/// Figures of the kernel for a TCP connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFigures {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_deviation: Duration,
    /// Segments retransmitted since the connection was opened.
    pub retransmits: u32,
    /// Bytes sent and not yet acknowledged, in whole segments.
    pub unacknowledged: u64,
}
