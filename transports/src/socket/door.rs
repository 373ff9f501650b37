//! Those at the door: connections that were accepted and have not been taken in.
//!
//! Anybody can make connections. So there are only so many places, and whoever comes when all are
//! taken gets the place of the oldest connection from where the most come: a flood from one host
//! drives out itself. Those who have proved who they are have places of their own, and count by
//! their certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use pstrain_core::id::PeerId;
use pstrain_core::node::Identity;
use pstrain_core::time::Time;

use super::files::allowed_files;
use crate::sparing::{Sparing, SparingBy};

/// Where a connection comes from, as far as one is to be told from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// This machine, over a Unix socket.
    Here,
    Host(IpAddr),
    Known(Identity),
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

/// The most places, of each kind.
const MOST_PLACES: usize = 1024;

/// The places before the door.
#[derive(Debug)]
pub(super) struct Door {
    unproved: Places,
    proved: Places,
    of: BTreeMap<PeerId, (bool, Origin)>,
}

#[derive(Debug)]
struct Places {
    most: usize,
    taken: usize,
    by_origin: BTreeMap<Origin, BTreeSet<PeerId>>,
}

impl Places {
    fn new() -> Self {
        Self { most: places(), taken: 0, by_origin: BTreeMap::new() }
    }

    fn enter(&mut self, origin: Origin, id: PeerId) -> Option<PeerId> {
        self.taken += usize::from(self.by_origin.entry(origin).or_default().insert(id));
        if self.taken > self.most { self.first_to_go() } else { None }
    }

    /// The oldest connection from where the most come.
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

/// As many places as leave half of the files that this process may open to those inside.
fn places() -> usize {
    allowed_files()
        .map_or(MOST_PLACES, |files| MOST_PLACES.min(usize::try_from(files / 4).unwrap_or(1)))
}

impl Door {
    pub(super) fn new() -> Self {
        Self { unproved: Places::new(), proved: Places::new(), of: BTreeMap::new() }
    }

    /// Whether a connection has not been taken in.
    pub(super) fn has(&self, id: PeerId) -> bool {
        self.of.contains_key(&id)
    }

    /// Where one at the door comes from.
    pub(super) fn origin(&self, id: PeerId) -> Option<Origin> {
        self.of.get(&id).map(|&(_, origin)| origin)
    }

    /// Somebody has come; returns who must go for it.
    pub(super) fn enter(&mut self, id: PeerId, origin: Origin) -> Option<PeerId> {
        self.of.insert(id, (false, origin));
        self.unproved.enter(origin, id)
    }

    /// Somebody has proved who it is; returns who must go for it.
    pub(super) fn prove(&mut self, id: PeerId, identity: Identity) -> Option<PeerId> {
        let origin = self.leave(id)?;
        let origin = if identity == Identity::Anyone { origin } else { Origin::Known(identity) };
        self.of.insert(id, (true, origin));
        self.proved.enter(origin, id)
    }

    /// A connection was taken in, or is gone; returns where it came from if it was at the door.
    pub(super) fn leave(&mut self, id: PeerId) -> Option<Origin> {
        let (is_proved, origin) = self.of.remove(&id)?;
        let places = if is_proved { &mut self.proved } else { &mut self.unproved };
        places.leave(origin, id);
        Some(origin)
    }

    /// Who must go so that there is room.
    pub(super) fn first_to_go(&self) -> Option<PeerId> {
        self.unproved.first_to_go()
    }
}

/// A flood is told of in few words: in such a time so many different things, each of them once.
const PERIOD: Duration = Duration::from_secs(10);
const MOST_TOLD: u32 = 10;

/// Tells somebody who was turned away, and why.
pub(super) struct Notices {
    tell: Box<dyn FnMut(&str) + Send>,
    sparing: SparingBy<String>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("sparing", &self.sparing).finish_non_exhaustive()
    }
}

impl Notices {
    pub(super) fn new(tell: impl FnMut(&str) + Send + 'static) -> Self {
        let [each, all] = [1, MOST_TOLD].map(|most| Sparing::new(most, PERIOD));
        Self { tell: Box::new(tell), sparing: SparingBy::new(each, all) }
    }

    /// The same by a clock that begins anew.
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
        let mut door = Door::new();
        assert_eq!(door.enter(PeerId(0), honest), None);
        let most = door.unproved.most as u64;
        for id in 1..10 * most {
            let gone = door.enter(PeerId(id), flood);
            assert_eq!(gone, (id >= most).then(|| PeerId(id + 1 - most)));
            if let Some(gone) = gone {
                assert_eq!(door.leave(gone), Some(flood));
            }
        }
        assert!(door.has(PeerId(0)));
        // Once it has proved who it is, it does not even count among them.
        assert_eq!(door.prove(PeerId(0), Identity::Worker(None)), None);
        assert_eq!(door.unproved.taken as u64, most - 1);
        assert_eq!(door.leave(PeerId(0)), Some(Origin::Known(Identity::Worker(None))));
        assert!(!door.has(PeerId(0)) && door.proved.by_origin.is_empty());
    }
}
