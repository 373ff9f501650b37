//! Connections of a world: two pipes, each in order, each with a cut that nobody need notice.

use std::collections::VecDeque;

use pstrain_compute::time::Time;
use pstrain_wire::Message;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Server = 0,
    Worker = 1,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::Server, Self::Worker];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Server => Self::Worker,
            Self::Worker => Self::Server,
        }
    }
}

/// What arrives at an end.
#[derive(Debug)]
pub(crate) enum Item {
    /// The connection itself.
    Open,
    Message(Message),
    /// The other end has closed it.
    Hangup,
}

/// The way to one end.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    items: VecDeque<Item>,
    /// When the last item arrives: the next one cannot overtake it.
    last: Time,
    /// Whether the connection has broken in this direction.
    cut: bool,
    /// Whether the end has heard of the connection.
    opened: bool,
    /// Whether the end has closed it, or knows that it is gone, and since when.
    closed: Option<Time>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The process that dialled; none if it is a stranger.
    pub(crate) process: Option<usize>,
    /// The shard that dialled, if it was one.
    pub(crate) shard: Option<usize>,
    /// The shard that was dialled; none if it was the coordinator.
    pub(crate) callee: Option<usize>,
    pub(super) pipes: [Pipe; 2],
}

impl Link {
    /// From a worker's process to the coordinator.
    pub(crate) fn new(process: Option<usize>) -> Self {
        Self { process, shard: None, callee: None, pipes: Default::default() }
    }

    /// Sends an item towards `to`, to arrive at `at` or as soon as those before it have arrived.
    /// Returns when that is, or nothing if it never does.
    pub(crate) fn send(&mut self, to: End, item: Item, at: Time) -> Option<Time> {
        if self.pipes[to.other() as usize].closed.is_some() && !matches!(item, Item::Hangup) {
            return None;
        }
        let pipe = &mut self.pipes[to as usize];
        if pipe.cut {
            return None;
        }
        pipe.last = pipe.last.max(at);
        pipe.items.push_back(item);
        Some(pipe.last)
    }

    /// What arrives at `end` now. A driver that took several inputs at once hands in those behind
    /// the one that made the node close the connection, so what comes in that very moment does
    /// arrive.
    pub(crate) fn arrive(&mut self, end: End, now: Time) -> Option<Item> {
        let pipe = &mut self.pipes[end as usize];
        let item = pipe.items.pop_front()?;
        pipe.opened = true;
        pipe.closed.is_none_or(|at| at == now).then_some(item)
    }

    /// Closes `end`; false if it was.
    pub(crate) fn close(&mut self, end: End, now: Time) -> bool {
        let pipe = &mut self.pipes[end as usize];
        let first = pipe.closed.is_none();
        pipe.closed.get_or_insert(now);
        first
    }

    /// Whether `end` has closed it, or knows that it is gone.
    pub(crate) fn is_closed(&self, end: End) -> bool {
        self.pipes[end as usize].closed.is_some()
    }

    /// Whether `end` has heard of the connection.
    pub(crate) fn is_known(&self, end: End) -> bool {
        self.pipes[end as usize].opened
    }

    /// Breaks the way to `end`: what is under way is lost, and so is all that follows.
    pub(crate) fn cut(&mut self, end: End) {
        let pipe = &mut self.pipes[end as usize];
        pipe.cut = true;
        pipe.items.clear();
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.pipes.iter().all(|pipe| !pipe.cut && pipe.closed.is_none())
    }
}
