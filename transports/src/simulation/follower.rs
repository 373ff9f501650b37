//! The servers that do not coordinate.
//!
//! Each has a link of its own, of the rate of the first, that all who talk to it share: workers and
//! the other servers. Between servers there is no other link and no delay: they stand side by side.

use pstrain_compute::id::ServerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Effect, Input, Node, Shard, ShardConfig};
use pstrain_wire::group::Place;

use super::connection::{Caller, End};
use super::{Due, Host, Item, Simulation, kind, traced};

/// What a server's address begins with; its place among those that do not coordinate follows.
const ADDRESS: &str = "virtual server ";

/// A server that does not coordinate.
#[derive(Debug)]
pub(super) struct Follower {
    /// None once it has come to its end.
    node: Option<Shard>,
    wake: Option<Time>,
}

impl Follower {
    /// Server `place + 2` of so many.
    pub(super) fn new(
        place: usize,
        servers: u32,
        lease: std::time::Duration,
        stream: Stream,
    ) -> Self {
        let server = ServerId(place as u32 + 1);
        let node = Shard::new(ShardConfig {
            place: Place::First { server, servers },
            address: format!("{ADDRESS}{place}"),
            lease,
            stream: stream.fork("server", server.0.into()),
        });
        Self { node: Some(node), wake: None }
    }

    /// Which server has an address, as [`super::connection::Connection::callee`].
    pub(super) fn callee(address: &str) -> Option<usize> {
        Some(1 + address.strip_prefix(ADDRESS)?.parse::<usize>().ok()?)
    }
}

impl<H: Host> Simulation<'_, H> {
    /// Hands an input to a server that does not coordinate, and obeys what follows.
    pub(super) fn follower_input(&mut self, place: usize, input: Input) {
        let now = self.now;
        let Some(follower) = self.followers.get_mut(place) else { return };
        let Some(node) = &mut follower.node else { return };
        let mut outbox = std::mem::take(&mut self.outbox);
        node.handle(now, input, &mut outbox);
        for effect in outbox.drain(..) {
            match effect {
                Effect::Send(peer, message) => {
                    let number = peer.0 as u32;
                    let to = self.end_of(number, place).other();
                    self.send(number, to, Item::Message(message));
                }
                Effect::Close(peer) => {
                    let number = peer.0 as u32;
                    self.close(number, self.end_of(number, place));
                }
                Effect::Dial(_) => drop(self.connect(Caller::Follower(place), 0)),
                Effect::Done(_) => self.followers[place].node = None,
                // It is the coordinator that reports; the others are a worker's.
                Effect::Report(_)
                | Effect::Limit(..)
                | Effect::SendExamples { .. }
                | Effect::SendStatus { .. }
                | Effect::Checkpoint(_)
                | Effect::Write
                | Effect::Spare(_)
                | Effect::Evaluate(_)
                | Effect::Prepare(_)
                | Effect::Compute(_) => {}
            }
        }
        self.outbox = outbox;
        self.plan_follower_wake(place);
    }

    /// The end of a connection at which a server is that does not coordinate.
    fn end_of(&self, number: u32, place: usize) -> End {
        match self.connections[number as usize].caller {
            Caller::Follower(caller) if caller == place => End::Worker,
            _ => End::Server,
        }
    }

    pub(super) fn wake_follower(&mut self, place: usize, at: Time) {
        let follower = &mut self.followers[place];
        if follower.wake != Some(at) {
            return; // an earlier one was planned after this
        }
        follower.wake = None;
        let deadline = follower.node.as_ref().and_then(Node::deadline);
        if deadline.is_some_and(|deadline| deadline <= at) {
            self.trace.note(at, kind::WAKE, traced(1 + place), 0);
            self.follower_input(place, Input::Wake);
        } else {
            self.plan_follower_wake(place);
        }
    }

    fn plan_follower_wake(&mut self, place: usize) {
        let follower = &mut self.followers[place];
        let deadline = follower.node.as_ref().and_then(Node::deadline);
        if let Some(at) = deadline
            && follower.wake.is_none_or(|wake| at < wake)
        {
            let at = at.max(self.now);
            follower.wake = Some(at);
            self.agenda.put(at, Due::WakeFollower(place));
        }
    }
}
