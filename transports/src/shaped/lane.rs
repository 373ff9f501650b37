//! One direction of a shaped transport: the items in transit and their arrival times.

use std::collections::{BTreeMap, VecDeque};

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;

use crate::punctuality::Lateness;
use crate::scenario::{Bottleneck, LinkModel};

/// The model of one direction.
#[derive(Debug)]
pub(super) enum Delivery {
    /// Nothing is modelled.
    Open,
    /// A worker's own link, and when its time began.
    Link(Box<LinkModel>, Time),
    /// The server's link, shared by all workers.
    Shared(Bottleneck),
}

impl Delivery {
    /// Models a new connection.
    pub(super) fn reconnect(&mut self) {
        if let Self::Link(link, _) = self {
            link.reconnect();
        }
    }

    /// Returns when a message that is sent now arrives.
    fn pass(&mut self, now: Time, bytes: u64) -> Time {
        match self {
            Self::Open => now,
            Self::Link(link, origin) => {
                let arrival = link.send(Time::ZERO + (now - *origin), bytes);
                *origin + arrival.since(Time::ZERO)
            }
            Self::Shared(link) => link.pass(now, bytes),
        }
    }
}

/// Items in transit in one direction, in order.
#[derive(Debug)]
pub(super) struct Lane<I> {
    pub(super) delivery: Delivery,
    queue: VecDeque<Held<I>>,
    /// Numbers of items and bytes in transit, by peer.
    held: BTreeMap<PeerId, (usize, usize)>,
    last_due: Time,
    pub(super) lateness: Lateness,
}

#[derive(Debug)]
struct Held<I> {
    due: Time,
    peer: PeerId,
    bytes: usize,
    item: I,
}

impl<I> Lane<I> {
    pub(super) fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            queue: VecDeque::new(),
            held: BTreeMap::new(),
            last_due: Time::ZERO,
            lateness: Lateness::default(),
        }
    }

    /// True if nothing is modelled and nothing is in transit.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.delivery, Delivery::Open) && self.queue.is_empty()
    }

    /// Puts a message of `bytes` in transit. Returns it if it arrives at once.
    pub(super) fn begin(&mut self, now: Time, peer: PeerId, bytes: u64, item: I) -> Option<I> {
        let due = self.delivery.pass(now, bytes).max(self.last_due);
        if due <= now && self.queue.is_empty() {
            return Some(item);
        }
        self.last_due = due;
        self.push(due, peer, bytes as usize, item);
        None
    }

    /// Queues an item behind everything in transit from or to the peer. Returns it if nothing is.
    pub(super) fn follow(&mut self, peer: PeerId, item: I) -> Option<I> {
        if !self.held.contains_key(&peer) {
            return Some(item);
        }
        self.push(self.last_due, peer, 0, item);
        None
    }

    fn push(&mut self, due: Time, peer: PeerId, bytes: usize, item: I) {
        let held = self.held.entry(peer).or_default();
        held.0 += 1;
        held.1 += bytes;
        self.queue.push_back(Held { due, peer, bytes, item });
    }

    /// Returns when the next item arrives.
    pub(super) fn due(&self) -> Option<Time> {
        self.queue.front().map(|held| held.due)
    }

    /// Removes the next item if it has arrived by `now`.
    pub(super) fn arrived(&mut self, now: Time) -> Option<(PeerId, I)> {
        let due = self.due().filter(|&due| due <= now)?;
        self.lateness.note(now - due);
        self.hurry()
    }

    /// Removes the next item, whether it has arrived or not.
    pub(super) fn hurry(&mut self) -> Option<(PeerId, I)> {
        let held = self.queue.pop_front()?;
        self.let_go(held.peer, held.bytes);
        Some((held.peer, held.item))
    }

    fn let_go(&mut self, peer: PeerId, bytes: usize) {
        if let Some(held) = self.held.get_mut(&peer) {
            held.0 -= 1;
            held.1 -= bytes;
            if held.0 == 0 {
                self.held.remove(&peer);
            }
        }
    }

    /// Returns the peers that have items in transit.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.held.keys().copied()
    }

    /// Returns the number of bytes in transit from or to a peer.
    pub(super) fn bytes(&self, peer: PeerId) -> usize {
        self.held.get(&peer).map_or(0, |&(_, bytes)| bytes)
    }

    /// Drops the items in transit from or to a peer.
    pub(super) fn forget(&mut self, peer: PeerId) {
        if self.held.remove(&peer).is_some() {
            self.queue.retain(|held| held.peer != peer);
        }
    }
}
