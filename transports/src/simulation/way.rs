//! A modelled link: its two ways, and what is asked of them.

use std::time::Duration;

use pstrain_core::id::WorkerId;
use pstrain_core::rng::Stream;
use pstrain_core::time::Time;

use super::connection::End;
use crate::scenario::{LinkSpec, Loss, Pipe, WorkerLink};

/// Both ways of a link.
#[derive(Debug)]
pub(super) struct Ways {
    up: Pipe,
    down: Pipe,
    /// Whether the time on the way up, and down, depends on the size.
    weighs: [bool; 2],
    /// How long after its beginning the first of a long message arrives, where that is
    /// the same all the time.
    first_bytes: [Option<Duration>; 2],
}

impl Ways {
    /// Those of a worker's link.
    pub(super) fn new(link: WorkerLink, worker: WorkerId, stream: Stream) -> Self {
        let weighs = |link: &LinkSpec| {
            link.rate.is_some() || link.slow_start || link.loss != Loss::default()
        };
        let ways = [&link.up, &link.down];
        let weighs = ways.map(weighs);
        let is_constant = |way: &LinkSpec| way.outages.is_empty() && way.later.is_empty();
        let first_bytes = ways.map(|way| is_constant(way).then_some(way.delay));
        let (up, down) = link.pipes(worker, stream);
        Self { up, down, weighs, first_bytes }
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

    /// When the other end hears the first of a message that begins at `now`, if it does.
    pub(super) fn first_bytes(&self, to: End, now: Time) -> Option<Time> {
        self.first_bytes[to as usize].map(|delay| now + delay)
    }

    /// Whether the time that an item takes towards an end depends on its size.
    pub(super) const fn weighs(&self, to: End) -> bool {
        self.weighs[to as usize]
    }
}
