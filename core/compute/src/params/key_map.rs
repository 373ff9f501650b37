//! Which server has which keys, and how that changes when one joins or leaves.
//!
//! Each server has one key range. Whoever joins takes the upper half of the longest range, and the
//! range of one that leaves goes to its two neighbours, so that these become as equal as may be:
//! the cut of a node of the ring in Li et al. (OSDI 2014, section 4.3) without the hashing, which
//! is there for keys that crowd. So what moves is what the one that joins or leaves has, and
//! nothing between those that stay. Where servers only join, no range is more than twice as long as
//! another, and one key more.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::KeyRange;
use crate::id::ServerId;

/// Which server has which keys: every key exactly one, in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMap {
    version: u64,
    /// In the order of the keys. The coordinator's are the first.
    shares: Vec<(ServerId, KeyRange)>,
}

/// Keys that go from one server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Which.
    pub keys: KeyRange,
    /// Who has them.
    pub from: ServerId,
    /// Who shall.
    pub to: ServerId,
}

impl KeyMap {
    /// The first version: `keys` keys cut into ranges that differ by one at most; none if there is
    /// not a key for each of the servers.
    #[must_use]
    pub fn even(servers: u32, keys: u64) -> Option<Self> {
        let share = |server| Some((ServerId(server), KeyRange::share(keys, servers, server)?));
        let shares = (0..servers).map(share).collect::<Option<Vec<_>>>()?;
        (servers > 0).then_some(Self { version: 0, shares })
    }

    /// Its version: 0, and one more with each change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// All servers with their keys, in the order of the keys.
    #[must_use]
    pub fn shares(&self) -> &[(ServerId, KeyRange)] {
        &self.shares
    }

    /// The keys of `server`; none if it has none.
    #[must_use]
    pub fn keys_of(&self, server: ServerId) -> Option<KeyRange> {
        self.shares.iter().find(|(it, _)| *it == server).map(|&(_, keys)| keys)
    }

    /// Whether it gives each of `keys` keys to one server, the first to the coordinator, and none
    /// to one twice.
    #[must_use]
    pub fn is_whole(&self, keys: u64) -> bool {
        let mut next = 0;
        let mut in_order = self.shares.iter().all(|(_, share)| {
            let follows = share.begin() == next;
            next = share.end();
            follows
        });
        let mut servers: Vec<ServerId> = self.shares.iter().map(|&(server, _)| server).collect();
        in_order &= servers.first() == Some(&ServerId::COORDINATOR);
        servers.sort_unstable();
        servers.dedup();
        in_order && next == keys && servers.len() == self.shares.len()
    }

    /// The next version, in which `server` has keys, too; none if it has some, or there is no range
    /// to cut.
    #[must_use]
    pub fn joined(&self, server: ServerId) -> Option<Self> {
        if self.keys_of(server).is_some() {
            return None;
        }
        let longest = self.shares.iter().map(|(_, keys)| keys.len()).max()?;
        let place = self.shares.iter().position(|(_, keys)| keys.len() == longest)?;
        let mut next = self.next();
        let (_, keys) = next.shares.get_mut(place)?;
        let cut = keys.begin() + longest.div_ceil(2);
        let upper = KeyRange::new(cut, keys.end()).ok()?;
        *keys = KeyRange::new(keys.begin(), cut).ok()?;
        next.shares.insert(place + 1, (server, upper));
        Some(next)
    }

    /// The next version, in which `server` has no keys; none if it has none, or is the coordinator.
    #[must_use]
    pub fn left(&self, server: ServerId) -> Option<Self> {
        let place = self.shares.iter().position(|(it, _)| *it == server)?;
        let mut next = self.next();
        let (_, keys) = next.shares.remove(place);
        let (before, after) = next.shares.split_at_mut_checked(place)?;
        let (_, before) = before.last_mut()?;
        let Some((_, after)) = after.first_mut() else {
            *before = KeyRange::new(before.begin(), keys.end()).ok()?;
            return Some(next);
        };
        // Where the two would be equal, if that is among the keys that are free.
        let middle = u64::midpoint(before.begin(), after.end());
        let cut = middle.clamp(keys.begin(), keys.end());
        *before = KeyRange::new(before.begin(), cut).ok()?;
        *after = KeyRange::new(cut, after.end()).ok()?;
        Some(next)
    }

    fn next(&self) -> Self {
        Self { version: self.version + 1, shares: self.shares.clone() }
    }

    /// What goes from whom to whom if `next`, of the same keys, takes its place.
    #[must_use]
    pub fn moves(&self, next: &Self) -> Vec<Move> {
        let pairs = self.shares.iter().flat_map(|&(from, has)| {
            next.shares.iter().map(move |&(to, gets)| (from, to, has.overlap(gets)))
        });
        let moved = pairs.filter(|(from, to, _)| from != to);
        moved.filter_map(|(from, to, keys)| Some(Move { keys: keys?, from, to })).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn owners(map: &KeyMap) -> BTreeMap<u64, ServerId> {
        let each = |&(server, keys): &(ServerId, KeyRange)| {
            (keys.begin()..keys.end()).map(move |key| (key, server))
        };
        map.shares().iter().flat_map(each).collect()
    }

    proptest! {
        #[test]
        fn only_what_joins_or_leaves_gains_or_loses_keys_and_each_has_one_owner(
            servers in 1_u32..6,
            keys in 6_u64..200,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..12),
        ) {
            let mut map = KeyMap::even(servers, keys).unwrap();
            let mut newest = servers;
            for (joins, which) in steps {
                let before = owners(&map);
                let (server, next) = if joins {
                    newest += 1;
                    (ServerId(newest), map.joined(ServerId(newest)))
                } else {
                    let server = map.shares()[which.index(map.shares().len())].0;
                    (server, map.left(server))
                };
                let Some(next) = next else {
                    let longest = map.shares().iter().map(|(_, keys)| keys.len()).max();
                    prop_assert!(server == ServerId::COORDINATOR || longest == Some(1));
                    continue;
                };
                prop_assert!(next.is_whole(keys), "{next:?}");
                prop_assert_eq!(next.version(), map.version() + 1);
                prop_assert_eq!(next.keys_of(server).is_some(), joins);
                let (after, moves) = (owners(&next), map.moves(&next));
                let mut moved = before.clone();
                for Move { keys, from, to } in &moves {
                    prop_assert_eq!(if joins { *to } else { *from }, server);
                    for key in keys.begin()..keys.end() {
                        prop_assert_eq!(moved.insert(key, *to), Some(*from));
                    }
                }
                prop_assert_eq!(moved, after);
                map = next;
            }
        }

        #[test]
        fn servers_that_only_join_have_no_more_than_twice_as_many_keys_as_another(
            servers in 1_u32..6,
            keys in 200_u64..2000,
            joins in 0_u32..20,
        ) {
            let mut map = KeyMap::even(servers, keys).unwrap();
            for server in servers..servers + joins {
                let before = map.shares().len() as u64;
                let next = map.joined(ServerId(server)).unwrap();
                let moved: u64 = map.moves(&next).iter().map(|it| it.keys.len()).sum();
                prop_assert!(moved <= keys / before + 1);
                map = next;
            }
            let lengths = map.shares().iter().map(|(_, keys)| keys.len());
            let (least, most) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            prop_assert!(most <= 2 * least + 1, "{least} to {most}");
        }
    }
}
