//! Working sets: the keys that a worker touches.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use sha2::{Digest as _, Sha256};

use super::KeyRange;

/// Keys in ascending order, none twice. Where a worker has such a list, its vectors hold a value
/// for each of these keys, at the key's place in the list, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList(Arc<Vec<u32>>);

impl KeyList {
    /// The list of `keys`; none if they do not ascend.
    #[must_use]
    pub fn new(keys: Vec<u32>) -> Option<Self> {
        keys.is_sorted_by(|one, next| one < next).then(|| Self(Arc::new(keys)))
    }

    /// The list of `touched` keys, with at least one key of each of `ranges`: the first, where none
    /// is touched. So a vector has a part at every server, if only of a zero.
    #[must_use]
    pub fn covering(mut touched: Vec<u32>, ranges: &[KeyRange]) -> Self {
        let missing = |range: &&KeyRange| {
            let begin = touched.partition_point(|&key| u64::from(key) < range.begin());
            touched.get(begin).is_none_or(|&key| u64::from(key) >= range.end())
        };
        let firsts: Vec<u32> =
            ranges.iter().filter(missing).map(|range| range.begin() as u32).collect();
        touched.extend(firsts);
        touched.sort_unstable();
        touched.dedup();
        Self(Arc::new(touched))
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[u32] {
        &self.0
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The places of those that are in `range`.
    #[must_use]
    pub fn places(&self, range: KeyRange) -> Range<usize> {
        let place = |key: u64| self.0.partition_point(|&other| u64::from(other) < key);
        place(range.begin())..place(range.end())
    }

    /// Those that are in `range`, counted from its begin.
    #[must_use]
    pub fn part(&self, range: KeyRange) -> Self {
        let begin = range.begin() as u32;
        Self(Arc::new(self.0[self.places(range)].iter().map(|key| key - begin).collect()))
    }

    /// The values of `all` at these keys.
    ///
    /// # Panics
    /// If a key is not below the number of values.
    #[must_use]
    pub fn gather(&self, all: &[f32]) -> Vec<f32> {
        self.0.iter().map(|&key| all[key as usize]).collect()
    }

    /// SHA-256 of all of it, and of where in the whole list it belongs: the same for the same
    /// values only.
    #[must_use]
    pub fn digest(&self, place: KeyRange, total: u64) -> [u8; 32] {
        let mut hash = Sha256::new();
        for number in [place.begin(), place.end(), total] {
            hash.update(number.to_le_bytes());
        }
        for keys in self.0.chunks(1024) {
            let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
            hash.update(&bytes);
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_must_ascend() {
        assert!(KeyList::new(vec![1, 1]).is_none());
        assert!(KeyList::new(vec![2, 1]).is_none());
        assert_eq!(KeyList::new(vec![1, 7]).map(|list| list.len()), Some(2));
    }

    #[test]
    fn the_digest_is_of_every_key_and_of_the_place() {
        // More than the 2,048 bytes that the released code of the OSDI paper looks at.
        let keys: Vec<u32> = (0..5000).collect();
        let range = |begin, end| KeyRange::new(begin, end).unwrap();
        let digest = |keys: &[u32]| {
            KeyList::new(keys.to_vec()).unwrap().digest(range(0, keys.len() as u64), 9000)
        };
        let whole = digest(&keys);
        for place in [0, 1, 600, 4998, 4999] {
            let mut other = keys.clone();
            other.remove(place);
            other.push(6000);
            assert_ne!(digest(&other), whole, "{place}");
        }
        let list = KeyList::new(keys).unwrap();
        assert_ne!(list.digest(range(1, 5001), 9000), whole);
        assert_ne!(list.digest(range(0, 5000), 9001), whole);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_list(
            touched in btree_set(0_u32..1000, 0..40),
            servers in 1_u32..8,
        ) {
            let ranges: Vec<KeyRange> =
                (0..servers).filter_map(|place| KeyRange::share(1000, servers, place)).collect();
            let touched: Vec<u32> = touched.into_iter().collect();
            let list = KeyList::covering(touched.clone(), &ranges);
            prop_assert!(touched.iter().all(|key| list.keys().contains(key)));
            let mut next = 0;
            for range in ranges {
                let places = list.places(range);
                prop_assert_eq!(places.start, next);
                prop_assert!(!places.is_empty());
                next = places.end;
                let part = list.part(range);
                let back = part.keys().iter().map(|&key| key + range.begin() as u32);
                prop_assert!(back.eq(list.keys()[places].iter().copied()));
            }
            prop_assert_eq!(next, list.len());
        }
    }
}
