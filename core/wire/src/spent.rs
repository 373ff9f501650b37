//! Where a worker's time went, and how its link is.

use core::ops::{Add, AddAssign};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;

/// The time of a worker, in three parts that add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpent {
    /// It computed, by its own measure.
    pub compute: Duration,
    /// Parameters or gradients were under way, or lay in a queue.
    pub network: Duration,
    /// It had nothing to do, for the server gave it no parameters.
    pub barrier: Duration,
}

impl TimeSpent {
    /// All of it.
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

/// The last steps of a worker. A step is the time from one of its gradients to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// How many.
    pub steps: u32,
    /// Where their time went.
    pub spent: TimeSpent,
    /// Whose coming or going ended its waits for parameters, those that took longest first. As many
    /// as are named have their place, so that nobody can say that there are many more.
    pub held_by: [Option<Held>; MOST_HOLDERS],
    /// Mean loss of their mini-batches.
    pub loss: f64,
}

/// As many as are named of those who hold a worker back.
pub const MOST_HOLDERS: usize = 3;

/// How long a worker was held back by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// By whom.
    pub by: WorkerId,
    /// For how long, in all.
    pub waited: Duration,
}

/// What the server's side of a connection knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Bytes that came.
    pub received: u64,
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that the operating system has not taken yet.
    pub queued: u64,
    /// What the kernel knows, where it says so: of TCP, under Linux.
    pub tcp: Option<TcpFigures>,
}

/// What the kernel knows of a TCP connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFigures {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_deviation: Duration,
    /// Segments sent again since the connection was made.
    pub retransmits: u32,
    /// Bytes that are out and not acknowledged, in whole segments.
    pub unacknowledged: u64,
}
