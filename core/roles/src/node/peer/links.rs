//! Connections of a peer to the other members of its group.
//!
//! Of two neighbors the one with the higher rank dials, or the one that reaches the other, and
//! introduces itself; it sends values once the other has answered. Values of two that do not reach
//! each other go by way of the meeting point. Each group has connections of its own: a connection
//! of an earlier group is closed, and one of a later group is answered once the meeting point has
//! told this peer of that group.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::node::{Effect, Outbox};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_policy::job::heartbeat;
use pstrain_wire::identity::Identity;
use pstrain_wire::peers::{Connection, Meet, RankOf, Ranks, Route};
use pstrain_wire::worker::Heartbeat;
use pstrain_wire::{Limits, MemberMessage, Message, Relayed};

/// Most connections that are not of the group.
const MOST_EARLY: usize = 1024;

/// The group and its connections.
#[derive(Debug, Default)]
pub(super) struct Links {
    group: Option<Group>,
    /// The number of the last group, halted or not.
    generation: u64,
    /// Connections of peers that have not introduced themselves, or have as members of a later
    /// group.
    early: BTreeMap<PeerId, Early>,
}

/// A connection that is not of the group.
#[derive(Debug)]
struct Early {
    since: Time,
    identity: Identity,
    meet: Option<Meet>,
}

/// A group, as one of its members sees it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) rank: Rank,
    pub(super) members: Vec<RankOf>,
    links: BTreeMap<Rank, Link>,
    /// The neighbors that this rank dials.
    dials: BTreeSet<Rank>,
    /// The rank that is being dialled.
    dialling: Option<Rank>,
    /// No member is dialled before.
    dial_at: Time,
    /// Why the last dial of a rank failed.
    failures: BTreeMap<Rank, String>,
}

/// The connection to a neighbor.
#[derive(Clone, Copy, Debug)]
enum Link {
    /// There is none since then.
    Awaited(Time),
    /// The neighbor has been dialled, and has not answered since then.
    Met(PeerId, Time),
    Up {
        peer: PeerId,
        heard: Time,
        sent: Time,
    },
    /// By way of the meeting point, with which both have a connection.
    Relayed,
}

/// The way to a neighbor, for a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Direct(PeerId),
    /// Over the connection to the meeting point.
    Relayed {
        meeting: PeerId,
        generation: u64,
        to: WorkerId,
    },
}

impl Way {
    /// Sends a message.
    pub(super) fn send(self, message: MemberMessage) -> Effect {
        match self {
            Self::Direct(peer) => Effect::Send(peer, message.into()),
            Self::Relayed { meeting, generation, to: other } => {
                let relayed = Relayed { generation, other, message };
                Effect::Send(meeting, Message::Relayed(relayed))
            }
        }
    }
}

/// An action that is due at a link.
pub(super) enum Due {
    /// The neighbor has been silent for a lease.
    Lost(Rank, &'static str),
    /// There has been no connection to the neighbor, and no new one to another, for a lease.
    Unreached(Rank, Connection, String),
    /// A neighbor to dial.
    Dial(String),
    Nothing,
}

impl Group {
    fn rank_of(&self, worker: WorkerId) -> Option<Rank> {
        let place = self.members.iter().position(|member| member.worker == worker)?;
        Some(place as Rank)
    }

    /// The rank of a worker, if it is a neighbor that dials this one and has not done so yet. One
    /// that introduces itself again is not itself, or has a network that repeats its messages.
    fn awaits(&self, worker: WorkerId) -> Option<Rank> {
        let rank = self.rank_of(worker).filter(|rank| !self.dials.contains(rank))?;
        matches!(self.links.get(&rank), Some(Link::Awaited(_))).then_some(rank)
    }
}

impl Links {
    /// A peer has connected.
    pub(super) fn connected(
        &mut self,
        now: Time,
        peer: PeerId,
        identity: Identity,
        out: &mut Outbox,
    ) {
        if self.early.len() >= MOST_EARLY {
            return out.push(Effect::Close(peer));
        }
        out.push(Effect::Limit(peer, Limits::UNAUTHENTICATED));
        self.early.insert(peer, Early { since: now, identity, meet: None });
    }

    /// The group; none while it is halted.
    pub(super) const fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The member at a rank of the group.
    pub(super) fn member(&self, rank: Rank) -> &RankOf {
        let Some(group) = &self.group else { unreachable!("rank {rank} without a group") };
        &group.members[rank as usize]
    }

    /// The rank of a member of the group.
    pub(super) fn rank_of(&self, worker: WorkerId) -> Option<Rank> {
        self.group.as_ref()?.rank_of(worker)
    }

    /// Joins a group as `rank`, with connections to `neighbors`.
    pub(super) fn join(
        &mut self,
        now: Time,
        (rank, ranks): (Rank, Ranks),
        neighbors: impl IntoIterator<Item = Rank>,
        out: &mut Outbox,
    ) {
        self.halt(out);
        self.generation = ranks.generation;
        let (mut links, mut dials) = (BTreeMap::new(), BTreeSet::new());
        for other in neighbors {
            let route = ranks.route(rank, other);
            if route == Route::Dials {
                dials.insert(other);
            }
            let is_relayed = route == Route::Relayed;
            links.insert(other, if is_relayed { Link::Relayed } else { Link::Awaited(now) });
        }
        self.group = Some(Group {
            rank,
            members: ranks.members,
            links,
            dials,
            dialling: None,
            dial_at: now,
            failures: BTreeMap::new(),
        });
    }

    /// How far the connection to a rank has come: one over which the member has not answered may
    /// lead to another node.
    pub(super) fn connection(&self, rank: Rank) -> Connection {
        let link = self.group.as_ref().and_then(|group| group.links.get(&rank));
        link.map_or(Connection::Made, |link| link.connection())
    }

    /// The members that could not be dialled, and why.
    pub(super) fn failed(&mut self) -> Vec<(Rank, String)> {
        let Some(group) = &mut self.group else { return Vec::new() };
        let links = &group.links;
        group.failures.retain(|rank, _| matches!(links.get(rank), Some(Link::Awaited(_))));
        core::mem::take(&mut group.failures).into_iter().collect()
    }

    /// The neighbors whose messages go by way of the meeting point.
    pub(super) fn relayed(&self) -> impl Iterator<Item = Rank> + '_ {
        let links = self.group.iter().flat_map(|group| &group.links);
        links.filter(|(_, link)| matches!(link, Link::Relayed)).map(|(rank, _)| *rank)
    }

    /// Leaves the group: closes its connections.
    pub(super) fn halt(&mut self, out: &mut Outbox) {
        let links = self.group.take().into_iter().flat_map(|group| group.links.into_values());
        out.extend(links.filter_map(Link::peer).map(Effect::Close));
    }

    /// Closes all connections.
    pub(super) fn close(&mut self, out: &mut Outbox) {
        self.halt(out);
        out.extend(core::mem::take(&mut self.early).into_keys().map(Effect::Close));
    }

    /// The dial of a member is answered; returns its rank, if the group is still the same.
    pub(super) fn dialled(&mut self) -> Option<Rank> {
        self.group.as_mut()?.dialling.take()
    }

    /// A dial has failed: the next one waits.
    pub(super) fn dial_failed(&mut self, now: Time, why: String, lease: Duration) {
        if let Some(group) = &mut self.group {
            group.failures.extend(group.dialling.take().map(|rank| (rank, why)));
            group.dial_at = now + heartbeat(lease) / 4;
        }
    }

    /// A dialled member has been sent an introduction.
    pub(super) fn introduced(&mut self, now: Time, rank: Rank, peer: PeerId, out: &mut Outbox) {
        let Some(group) = &mut self.group else { return out.push(Effect::Close(peer)) };
        let older = group.links.insert(rank, Link::Met(peer, now)).and_then(Link::peer);
        out.extend(older.map(Effect::Close));
    }

    /// The rank that this peer has introduced itself to over a connection, if it has not answered.
    pub(super) fn introduced_to(&self, peer: PeerId) -> Option<Rank> {
        let links = self.group.iter().flat_map(|group| &group.links);
        links
            .filter(|(_, link)| matches!(link, Link::Met(met, _) if *met == peer))
            .map(|(rank, _)| *rank)
            .next()
    }

    /// Dials a rank again whose introduction, or the answer to it, was damaged on the way. Returns
    /// false if it was not introduced to, or has been dialled in vain before.
    pub(super) fn dial_again(
        &mut self,
        now: Time,
        rank: Rank,
        why: &str,
        lease: Duration,
        out: &mut Outbox,
    ) -> bool {
        let Some(group) = &mut self.group else { return false };
        let Some(link) = group.links.get_mut(&rank) else { return false };
        let Link::Met(peer, _) = *link else { return false };
        if group.failures.contains_key(&rank) {
            return false;
        }
        out.push(Effect::Close(peer));
        *link = Link::Awaited(now);
        group.failures.insert(rank, String::from(why));
        group.dial_at = now + heartbeat(lease) / 4;
        true
    }

    /// A dialled member has answered; returns its rank.
    pub(super) fn answered(&mut self, now: Time, from: PeerId) -> Option<Rank> {
        let links = &mut self.group.as_mut()?.links;
        let (rank, link) = links.iter_mut().find(|(_, link)| match link {
            Link::Met(peer, _) => *peer == from,
            Link::Awaited(_) | Link::Up { .. } | Link::Relayed => false,
        })?;
        *link = Link::Up { peer: from, heard: now, sent: now };
        let rank = *rank;
        self.progressed(now);
        Some(rank)
    }

    /// A connection is up: others may follow. Many neighbors are dialled one after another.
    fn progressed(&mut self, now: Time) {
        for link in self.group.iter_mut().flat_map(|group| group.links.values_mut()) {
            if let Link::Awaited(since) = link {
                *since = now;
            }
        }
    }

    /// The identity that a connection has proved which has not introduced itself.
    pub(super) fn stranger(&self, peer: PeerId) -> Option<Identity> {
        let early = self.early.get(&peer).filter(|early| early.meet.is_none())?;
        Some(early.identity)
    }

    /// A peer has introduced itself.
    pub(super) fn meet(&mut self, peer: PeerId, meet: Meet) {
        if let Some(early) = self.early.get_mut(&peer) {
            early.meet = Some(meet);
        }
    }

    /// Moves early connections into the group, and closes connections of earlier groups.
    /// Returns the new ranks.
    pub(super) fn admit(&mut self, now: Time, out: &mut Outbox) -> Vec<(Rank, PeerId)> {
        let met = self.early.iter().filter_map(|(peer, early)| Some((*peer, early.meet?)));
        let due: Vec<(PeerId, Meet)> =
            met.filter(|(_, meet)| meet.generation <= self.generation).collect();
        let mut admitted = Vec::new();
        for (peer, Meet { generation, worker, .. }) in due {
            self.early.remove(&peer);
            let group = self.group.as_mut().filter(|_| generation == self.generation);
            match group.and_then(|group| Some((group.awaits(worker)?, group))) {
                Some((rank, group)) => {
                    group.links.insert(rank, Link::Up { peer, heard: now, sent: now });
                    admitted.push((rank, peer));
                }
                None => out.push(Effect::Close(peer)),
            }
        }
        if !admitted.is_empty() {
            self.progressed(now);
        }
        admitted
    }

    /// A message has come; returns the rank of its sender, if it is a member of the group.
    pub(super) fn heard(&mut self, now: Time, from: PeerId) -> Option<Rank> {
        let links = &mut self.group.as_mut()?.links;
        links.iter_mut().find_map(|(rank, link)| match link {
            Link::Up { peer, heard, .. } if *peer == from => {
                *heard = now;
                Some(*rank)
            }
            Link::Met(peer, _) if *peer == from => Some(*rank),
            _ => None,
        })
    }

    /// The way to a rank, for a message that is sent now; none while there is no connection.
    /// `meeting` is the connection to the meeting point.
    pub(super) fn sends(&mut self, now: Time, rank: Rank, meeting: Option<PeerId>) -> Option<Way> {
        let group = self.group.as_mut()?;
        match group.links.get_mut(&rank)? {
            Link::Up { peer, sent, .. } => {
                *sent = now;
                Some(Way::Direct(*peer))
            }
            Link::Relayed => {
                let (generation, to) = (self.generation, group.members[rank as usize].worker);
                Some(Way::Relayed { meeting: meeting?, generation, to })
            }
            Link::Awaited(_) | Link::Met(..) => None,
        }
    }

    /// A connection is gone; returns the rank that was at its other end, if it is a member of the
    /// group, and how far the connection had come.
    pub(super) fn lost(&mut self, now: Time, gone: PeerId) -> Option<(Rank, Connection)> {
        self.early.remove(&gone);
        let links = &mut self.group.as_mut()?.links;
        let (rank, link) = links.iter_mut().find(|(_, link)| link.peer() == Some(gone))?;
        let connection = link.connection();
        *link = Link::Awaited(now);
        Some((*rank, connection))
    }

    /// Restarts the time limits: this process did not run to receive anything.
    pub(super) fn overslept(&mut self, now: Time) {
        let links = self.group.iter_mut().flat_map(|group| group.links.values_mut());
        for link in links {
            match link {
                Link::Awaited(since) | Link::Met(_, since) => *since = now,
                Link::Up { heard, .. } => *heard = now,
                Link::Relayed => {}
            }
        }
        self.early.values_mut().for_each(|early| early.since = now);
    }

    /// Sends heartbeats that are due, and closes connections that have been early for a lease;
    /// returns what else is due. A member is dialled only if `may_dial`.
    pub(super) fn wake(
        &mut self,
        now: Time,
        lease: Duration,
        may_dial: bool,
        out: &mut Outbox,
    ) -> Due {
        self.early.retain(|peer, early| {
            let is_late = now >= early.since + lease;
            out.extend(is_late.then_some(Effect::Close(*peer)));
            !is_late
        });
        let Some(group) = &mut self.group else { return Due::Nothing };
        let mut next = None;
        for (&rank, link) in &mut group.links {
            let dials = group.dials.contains(&rank);
            match link {
                Link::Awaited(since) if now >= *since + lease => {
                    return match group.failures.remove(&rank) {
                        Some(why) => Due::Unreached(rank, Connection::Outgoing, why),
                        None if dials => {
                            let why = String::from("its address does not answer");
                            Due::Unreached(rank, Connection::Outgoing, why)
                        }
                        None => {
                            let why = String::from("it has not connected");
                            Due::Unreached(rank, Connection::Incoming, why)
                        }
                    };
                }
                Link::Awaited(_) if dials => {
                    next.get_or_insert(rank);
                }
                Link::Met(_, since) if now >= *since + lease => {
                    return Due::Lost(rank, "it does not answer");
                }
                Link::Awaited(_) | Link::Met(..) => {}
                Link::Up { heard, .. } if now >= *heard + lease => {
                    return Due::Lost(rank, "it has been silent for a lease");
                }
                Link::Up { peer, sent, .. } if now >= *sent + heartbeat(lease) => {
                    *sent = now;
                    let beat = Message::Heartbeat(Heartbeat::default());
                    out.push(Effect::Send(*peer, beat));
                }
                Link::Up { .. } | Link::Relayed => {}
            }
        }
        match next.filter(|_| may_dial && group.dialling.is_none() && now >= group.dial_at) {
            Some(rank) => {
                group.dialling = Some(rank);
                Due::Dial(group.members[rank as usize].address.clone())
            }
            None => Due::Nothing,
        }
    }

    /// When something is due; `may_dial` as in [`Self::wake`].
    pub(super) fn deadline(&self, lease: Duration, may_dial: bool) -> Option<Time> {
        let late = self.early.values().map(|early| early.since + lease).min();
        let group = self.group.as_ref().and_then(|group| group.deadline(lease, may_dial));
        late.into_iter().chain(group).min()
    }
}

impl Group {
    fn deadline(&self, lease: Duration, may_dial: bool) -> Option<Time> {
        let awaits = |rank: &Rank| matches!(self.links.get(rank), Some(Link::Awaited(_)));
        let dials = may_dial && self.dialling.is_none() && self.dials.iter().any(awaits);
        let due = self.links.values().filter_map(|link| match link {
            Link::Awaited(since) | Link::Met(_, since) => Some(*since + lease),
            Link::Up { heard, sent, .. } => Some((*heard + lease).min(*sent + heartbeat(lease))),
            Link::Relayed => None,
        });
        due.chain(dials.then_some(self.dial_at)).min()
    }
}

impl Link {
    const fn connection(self) -> Connection {
        match self {
            Self::Met(..) => Connection::Outgoing,
            Self::Awaited(_) | Self::Up { .. } | Self::Relayed => Connection::Made,
        }
    }

    const fn peer(self) -> Option<PeerId> {
        match self {
            Self::Awaited(_) | Self::Relayed => None,
            Self::Met(peer, _) | Self::Up { peer, .. } => Some(peer),
        }
    }
}
