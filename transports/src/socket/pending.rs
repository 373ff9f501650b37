//! Pending connections: accepted, but not admitted by the node.
//!
//! Any host can connect. So the number of slots is limited, and a connection that comes when all
//! are taken replaces the oldest connection of the origin with the most: a flood from one host
//! displaces only itself. Authenticated connections have slots of their own, and count by their
//! certificate. Each origin has its [turn](super::turns).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_wire::identity::Identity;

use super::Ready;
use super::files::allowed_files;
use super::turns::{Standing, Step, Turns};
use crate::log_limit::{LogLimit, LogLimitBySource};

/// Origin of a connection, as far as origins are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// This machine, over a Unix socket.
    Here,
    Host(IpAddr),
    Known(Identity),
}

impl Origin {
    /// Returns the network that counts as one origin, since one subscriber can send from all of it:
    /// for IPv6 the 64-bit prefix.
    fn network(self) -> Self {
        match self {
            Self::Host(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_none() => {
                let [a, b, c, d, ..] = ip.segments();
                Self::Host(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            Self::Host(ip) => Self::Host(ip.to_canonical()),
            Self::Here | Self::Known(_) => self,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("a process of this machine"),
            Self::Host(ip) => ip.fmt(f),
            Self::Known(identity) => identity.fmt(f),
        }
    }
}

/// Maximum number of slots, for each kind.
const MOST_PLACES: usize = 1024;
/// Maximum number of known networks.
const MOST_KNOWN: usize = 4096;

/// All pending connections.
#[derive(Debug)]
pub(super) struct Pending {
    unproved: Slots,
    proved: Slots,
    of: BTreeMap<PeerId, PendingConnection>,
    turns: Turns,
    known: Known,
}

/// A pending connection.
#[derive(Clone, Copy, Debug)]
struct PendingConnection {
    /// Where it connects from.
    host: Origin,
    /// Its origin in limits: its host, or the identity that it has proved.
    origin: Origin,
    is_proved: bool,
}

/// Networks from which a connection was authenticated or admitted, the latest ones.
#[derive(Debug, Default)]
struct Known {
    since: BTreeMap<Origin, u64>,
    noted: u64,
}

impl Known {
    fn note(&mut self, host: Origin) {
        self.noted += 1;
        self.since.insert(host.network(), self.noted);
        if self.since.len() > MOST_KNOWN {
            let first = self.since.iter().min_by_key(|&(_, noted)| noted);
            let first = first.map(|(&host, _)| host);
            first.map(|host| self.since.remove(&host));
        }
    }

    fn has(&self, host: Origin) -> bool {
        self.since.contains_key(&host.network())
    }
}

#[derive(Debug)]
struct Slots {
    most: usize,
    taken: usize,
    by_origin: BTreeMap<Origin, BTreeSet<PeerId>>,
}

impl Slots {
    fn new() -> Self {
        Self { most: places(), taken: 0, by_origin: BTreeMap::new() }
    }

    fn enter(&mut self, origin: Origin, id: PeerId) -> Option<PeerId> {
        self.taken += usize::from(self.by_origin.entry(origin).or_default().insert(id));
        if self.taken > self.most { self.first_to_go() } else { None }
    }

    /// Returns the oldest connection of the origin with the most connections.
    fn first_to_go(&self) -> Option<PeerId> {
        let most = self.by_origin.values().max_by_key(|ids| ids.len())?;
        most.first().copied()
    }

    fn leave(&mut self, origin: Origin, id: PeerId) {
        let Some(ids) = self.by_origin.get_mut(&origin) else { return };
        self.taken -= usize::from(ids.remove(&id));
        if ids.is_empty() {
            self.by_origin.remove(&origin);
        }
    }
}

/// Returns the number of slots for each kind: both kinds together leave half of the files that this
/// process may open to members.
fn places() -> usize {
    allowed_files()
        .map_or(MOST_PLACES, |files| MOST_PLACES.min(usize::try_from(files / 4).unwrap_or(1)))
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            unproved: Slots::new(),
            proved: Slots::new(),
            of: BTreeMap::new(),
            turns: Turns::default(),
            known: Known::default(),
        }
    }

    /// True if a connection is pending.
    pub(super) fn has(&self, id: PeerId) -> bool {
        self.of.contains_key(&id)
    }

    /// Returns the origin of a pending connection.
    pub(super) fn origin(&self, id: PeerId) -> Option<Origin> {
        self.of.get(&id).map(|guest| guest.origin)
    }

    /// Adds a connection. Returns the one to drop for it, if all slots are taken.
    pub(super) fn enter(&mut self, id: PeerId, host: Origin) -> Option<PeerId> {
        self.of.insert(id, PendingConnection { host, origin: host, is_proved: false });
        self.unproved.enter(host.network(), id)
    }

    /// Marks a connection as authenticated. Returns the one to drop for it, if all slots are taken.
    pub(super) fn prove(&mut self, id: PeerId, identity: Identity) -> Option<PeerId> {
        let guest = self.of.get_mut(&id)?;
        let (host, before) = (guest.host, guest.is_proved);
        let origin = if identity == Identity::Anyone { host } else { Origin::Known(identity) };
        let was = std::mem::replace(guest, PendingConnection { host, origin, is_proved: true });
        let places = if before { &mut self.proved } else { &mut self.unproved };
        places.leave(was.origin.network(), id);
        self.known.note(host);
        self.proved.enter(origin.network(), id)
    }

    /// Removes a connection that has ended. Returns its origin if it was pending.
    pub(super) fn leave(&mut self, id: PeerId) -> Option<Origin> {
        self.take_out(id).map(|(guest, _)| guest.origin)
    }

    /// Removes a connection that the node has admitted. Returns its recorded events if it was
    /// pending.
    pub(super) fn take_in(&mut self, id: PeerId) -> Option<Ready> {
        let (guest, ready) = self.take_out(id)?;
        self.known.note(guest.host);
        ready
    }

    fn take_out(&mut self, id: PeerId) -> Option<(PendingConnection, Option<Ready>)> {
        let guest = self.of.remove(&id)?;
        let places = if guest.is_proved { &mut self.proved } else { &mut self.unproved };
        places.leave(guest.origin.network(), id);
        Some((guest, self.turns.leave(id)))
    }

    /// Returns the connection to drop when the system lacks resources.
    pub(super) fn first_to_go(&self) -> Option<PeerId> {
        self.unproved.first_to_go()
    }

    /// Records an event of a pending connection at the given step. Returns the connection to drop
    /// for it, if its origin has too many.
    pub(super) fn call(&mut self, id: PeerId, step: Step, ready: Ready) -> Option<PeerId> {
        let guest = self.of.get(&id)?;
        let is_known = guest.is_proved || self.known.has(guest.host);
        let standing = if is_known { Standing::Known } else { Standing::Stranger };
        self.turns.call(id, (standing, guest.origin.network()), step, ready)
    }

    /// True if events are waiting to be served.
    pub(super) fn is_called(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Returns the connection whose turn it is, with its recorded events.
    pub(super) fn next(&mut self) -> Option<(PeerId, Ready)> {
        self.turns.next()
    }
}

/// Per period only `MOST_TOLD` different messages are reported, each of them once.
const PERIOD: Duration = Duration::from_secs(10);
const MOST_TOLD: u32 = 10;

/// Reports refused connections, with the reason.
pub(super) struct Notices {
    tell: Box<dyn FnMut(&str) + Send>,
    sparing: LogLimitBySource<String>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("sparing", &self.sparing).finish_non_exhaustive()
    }
}

impl Notices {
    pub(super) fn new(tell: impl FnMut(&str) + Send + 'static) -> Self {
        let [each, all] = [1, MOST_TOLD].map(|most| LogLimit::new(most, PERIOD));
        Self { tell: Box::new(tell), sparing: LogLimitBySource::new(each, all) }
    }

    /// Returns the notices for a clock that starts again.
    pub(super) fn anew(self) -> Self {
        Self { sparing: self.sparing.restarted(), ..self }
    }

    pub(super) fn tell(&mut self, now: Time, what: &str) {
        if let Some(what) = self.sparing.say(now, what.to_owned(), what) {
            (self.tell)(&what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_one_host_drives_out_itself() {
        let [honest, flood] = [1, 2].map(|last| Origin::Host(IpAddr::from([10, 0, 0, last])));
        let mut pending = Pending::new();
        assert_eq!(pending.enter(PeerId(0), honest), None);
        let most = pending.unproved.most as u64;
        for id in 1..10 * most {
            let gone = pending.enter(PeerId(id), flood);
            assert_eq!(gone, (id >= most).then(|| PeerId(id + 1 - most)));
            if let Some(gone) = gone {
                assert_eq!(pending.leave(gone), Some(flood));
            }
        }
        assert!(pending.has(PeerId(0)));
        // Once authenticated, it no longer counts among the others.
        assert_eq!(pending.prove(PeerId(0), Identity::Worker(None)), None);
        assert_eq!(pending.unproved.taken as u64, most - 1);
        assert_eq!(pending.leave(PeerId(0)), Some(Origin::Known(Identity::Worker(None))));
        assert!(!pending.has(PeerId(0)) && pending.proved.by_origin.is_empty());
    }

    #[test]
    fn a_host_from_which_a_member_came_is_known_and_so_is_its_network() {
        let [first, second, other] = ["2001:db8:1:2::1", "2001:db8:1:2:3::9", "2001:db8:1:3::1"]
            .map(|ip| Origin::Host(ip.parse().unwrap()));
        let mut known = Known::default();
        known.note(first);
        assert!(known.has(first) && known.has(second) && !known.has(other));
        let [host, next] = [1, 2].map(|last| Origin::Host(IpAddr::from([10, 0, 0, last])));
        known.note(host);
        assert!(known.has(host) && !known.has(next));
        for ip in 0..MOST_KNOWN as u32 {
            known.note(Origin::Host(IpAddr::V4(ip.into())));
            known.note(host);
        }
        assert!(known.has(host) && !known.has(first) && known.since.len() == MOST_KNOWN);
    }
}
