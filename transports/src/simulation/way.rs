//! A modelled link: its two ways, and what is asked of them.

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;

use super::connection::End;
use crate::scenario::{LinkSpec, Loss, Pipe, WorkerLink};

/// Both ways of a link.
#[derive(Debug)]
pub(super) struct Ways {
    up: Pipe,
    down: Pipe,
    /// Whether the time on the way up, and down, depends on the size.
    weighs: [bool; 2],
}

impl Ways {
    /// Those of a worker's link.
    pub(super) fn new(link: WorkerLink, worker: WorkerId, stream: Stream) -> Self {
        let weighs = |link: &LinkSpec| {
            link.rate.is_some() || link.slow_start || link.loss != Loss::default()
        };
        let ways = [&link.up, &link.down];
        let weighs = ways.map(weighs);
        let (up, down) = link.pipes(worker, stream);
        Self { up, down, weighs }
    }

    /// Those between the server and its standby, where up is towards the machine of the server.
    pub(super) fn of_standby(link: WorkerLink, stream: Stream) -> Self {
        Self::new(link, WorkerId(0), stream.fork("standby", 0))
    }

    /// The way towards an end.
    pub(super) const fn pipe(&mut self, to: End) -> &mut Pipe {
        match to {
            End::Server => &mut self.up,
            End::Worker => &mut self.down,
        }
    }

    /// Whether the time that an item takes towards an end depends on its size.
    pub(super) const fn weighs(&self, to: End) -> bool {
        self.weighs[to as usize]
    }
}
