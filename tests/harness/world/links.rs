//! Connections of a world: two pipes, each in order, each of which can be cut without notice.

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

/// An item that arrives at an end.
#[derive(Debug)]
pub(crate) enum Item {
    /// The connection itself.
    Open,
    Message(Message),
    /// The other end has closed the connection.
    Hangup,
}

/// The pipe to one end.
#[derive(Debug, Default)]
pub(super) struct LinkModel {
    items: VecDeque<Item>,
    /// When the last item arrives: the next one cannot overtake it.
    last: Time,
    /// True if the connection has broken in this direction.
    cut: bool,
    /// True if the end knows of the connection.
    opened: bool,
    /// When the end closed the connection, or learned that it is gone.
    closed: Option<Time>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The worker process that dialled, if it was one.
    pub(crate) process: Option<usize>,
    /// The shard that dialled, if it was one.
    pub(crate) shard: Option<usize>,
    /// The shard that was dialled; `None` if it was the coordinator.
    pub(crate) callee: Option<usize>,
    pub(super) pipes: [LinkModel; 2],
}

impl Link {
    /// A connection to the coordinator, from a worker process or an unauthenticated client.
    pub(crate) fn new(process: Option<usize>) -> Self {
        Self { process, shard: None, callee: None, pipes: Default::default() }
    }

    /// Sends an item towards `to`, to arrive at `at`, or with those before it if they are later.
    /// Returns the time of arrival, or `None` if it never arrives.
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

    /// Takes the item that arrives at `end` now. After a close, items still arrive in the same
    /// instant: a driver that took several inputs at once also hands in those behind the one that
    /// made the node close the connection.
    pub(crate) fn arrive(&mut self, end: End, now: Time) -> Option<Item> {
        let pipe = &mut self.pipes[end as usize];
        let item = pipe.items.pop_front()?;
        pipe.opened = true;
        pipe.closed.is_none_or(|at| at == now).then_some(item)
    }

    /// Closes `end`. Returns false if it was closed before.
    pub(crate) fn close(&mut self, end: End, now: Time) -> bool {
        let pipe = &mut self.pipes[end as usize];
        let first = pipe.closed.is_none();
        pipe.closed.get_or_insert(now);
        first
    }

    /// True if `end` has closed the connection, or knows that it is gone.
    pub(crate) fn is_closed(&self, end: End) -> bool {
        self.pipes[end as usize].closed.is_some()
    }

    /// True if `end` knows of the connection.
    pub(crate) fn is_known(&self, end: End) -> bool {
        self.pipes[end as usize].opened
    }

    /// Breaks the pipe to `end`: everything under way is lost, and so is everything later.
    pub(crate) fn cut(&mut self, end: End) {
        let pipe = &mut self.pipes[end as usize];
        pipe.cut = true;
        pipe.items.clear();
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.pipes.iter().all(|pipe| !pipe.cut && pipe.closed.is_none())
    }
}
