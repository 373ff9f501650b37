//! Assignment of keys to servers, and its changes when a server joins or leaves.
//!
//! Each server owns one key range. A joining server takes the upper half of the longest range. The
//! range of a leaving server is divided between its two neighbours so that their lengths become as
//! equal as possible. This is the split of a ring node in Li et al. (OSDI 2014, section 4.3)
//! without the hashing, which is meant for clustered keys. Only keys of the server that joins or
//! leaves move, never keys between remaining servers. If servers only join, the longest range has
//! at most twice the length of the shortest, plus one key.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::KeyRange;
use crate::id::ServerId;

/// The key map: assigns every key to exactly one server, in every version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMap {
    version: u64,
    /// Servers and their ranges, in key order. The coordinator has the first range.
    shares: Vec<(ServerId, KeyRange)>,
}

/// A key range that one server hands over to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The key range.
    pub keys: KeyRange,
    /// The current owner.
    pub from: ServerId,
    /// The next owner.
    pub to: ServerId,
}

impl KeyMap {
    /// Creates the first version: `keys` keys in ranges whose lengths differ by at most one; `None`
    /// if there are no servers or fewer keys than servers.
    #[must_use]
    pub fn even(servers: u32, keys: u64) -> Option<Self> {
        let share = |server| Some((ServerId(server), KeyRange::share(keys, servers, server)?));
        let shares = (0..servers).map(share).collect::<Option<Vec<_>>>()?;
        (servers > 0).then_some(Self { version: 0, shares })
    }

    /// The version of the map: starts at 0, increases by one with each change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// All servers with their ranges, in key order.
    #[must_use]
    pub fn shares(&self) -> &[(ServerId, KeyRange)] {
        &self.shares
    }

    /// Returns the range of `server`, if it has one.
    #[must_use]
    pub fn keys_of(&self, server: ServerId) -> Option<KeyRange> {
        self.shares.iter().find(|(it, _)| *it == server).map(|&(_, keys)| keys)
    }

    /// True if the map assigns each of `keys` keys to exactly one server, the first range to the
    /// coordinator, and at most one range to each server.
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

    /// Returns the next version, in which `server` has a range; `None` if it already has one, or
    /// the longest range is a single key.
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

    /// Returns the next version, without `server`; `None` if it has no range, or is the
    /// coordinator.
    #[must_use]
    pub fn left(&self, server: ServerId) -> Option<Self> {
        let place = self.shares.iter().position(|(it, _)| *it == server)?;
        let mut next = self.next();
        let (_, keys) = next.shares.remove(place);
        // The coordinator's range is the first: nothing is before it, so the `?` below refuses its
        // removal.
        let (before, after) = next.shares.split_at_mut_checked(place)?;
        let (_, before) = before.last_mut()?;
        let Some((_, after)) = after.first_mut() else {
            *before = KeyRange::new(before.begin(), keys.end()).ok()?;
            return Some(next);
        };
        // The cut that makes both ranges equally long, clamped to the keys that are free.
        let middle = u64::midpoint(before.begin(), after.end());
        let cut = middle.clamp(keys.begin(), keys.end());
        *before = KeyRange::new(before.begin(), cut).ok()?;
        *after = KeyRange::new(cut, after.end()).ok()?;
        Some(next)
    }

    fn next(&self) -> Self {
        Self { version: self.version + 1, shares: self.shares.clone() }
    }

    /// Returns the ranges that change owners if `next`, over the same keys, replaces this map.
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
