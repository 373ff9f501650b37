//! Working sets: the keys that a worker touches.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use sha2::{Digest as _, Sha256};

use super::KeyRange;

/// Keys in ascending order, without duplicates. The vectors of a worker with such a list hold one
/// value per listed key, at the key's index in the list, and no others.
///
/// The list may carry an upper bound of the loss's second derivative per key, for an optimiser that
/// uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyList {
    keys: Arc<Vec<u32>>,
    curvature: Option<Arc<Vec<f32>>>,
}

impl KeyList {
    /// Creates the list of `keys`; `None` unless they ascend strictly.
    #[must_use]
    pub fn new(keys: Vec<u32>) -> Option<Self> {
        let ascend = keys.is_sorted_by(|one, next| one < next);
        ascend.then(|| Self { keys: Arc::new(keys), curvature: None })
    }

    /// Attaches an upper bound of the second derivative for each key; `None` if the number of
    /// bounds differs, or a bound is negative or not finite.
    #[must_use]
    pub fn with_curvature(self, curvature: Vec<f32>) -> Option<Self> {
        let fits = curvature.len() == self.len()
            && curvature.iter().all(|bound| bound.is_finite() && *bound >= 0.0);
        fits.then(|| Self { curvature: Some(Arc::new(curvature)), ..self })
    }

    /// The upper bound of the second derivative of the worker's mean loss for each key, if the list
    /// has bounds.
    #[must_use]
    pub fn curvature(&self) -> Option<&[f32]> {
        self.curvature.as_ref().map(|bounds| bounds.as_slice())
    }

    /// Creates the list of `touched` keys, plus the first key of each of `ranges` without a touched
    /// key. A vector then has a part at every server, if only a zero.
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
        Self { keys: Arc::new(touched), curvature: None }
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[u32] {
        &self.keys
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the indices of the listed keys that are in `range`.
    #[must_use]
    pub fn places(&self, range: KeyRange) -> Range<usize> {
        let place = |key: u64| self.keys.partition_point(|&other| u64::from(other) < key);
        place(range.begin())..place(range.end())
    }

    /// Returns the sub-list of keys in `range`, relative to the begin of `range`.
    #[must_use]
    pub fn part(&self, range: KeyRange) -> Self {
        let (begin, places) = (range.begin() as u32, self.places(range));
        let curvature = self.curvature.as_ref().map(|all| Arc::new(all[places.clone()].to_vec()));
        let keys = self.keys[places].iter().map(|key| key - begin).collect();
        Self { keys: Arc::new(keys), curvature }
    }

    /// Returns the values of `all` at these keys.
    ///
    /// # Panics
    /// If a key is not below the number of values.
    #[must_use]
    pub fn gather(&self, all: &[f32]) -> Vec<f32> {
        self.keys.iter().map(|&key| all[key as usize]).collect()
    }

    /// Returns the SHA-256 of the list and of its position (`place`, `total`) in the whole list.
    /// Lists with different contents have different digests.
    #[must_use]
    pub fn digest(&self, place: KeyRange, total: u64) -> [u8; 32] {
        let mut hash = Sha256::new();
        for number in [place.begin(), place.end(), total] {
            hash.update(number.to_le_bytes());
        }
        for keys in self.keys.chunks(1024) {
            let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
            hash.update(&bytes);
        }
        for bounds in self.curvature.iter().flat_map(|bounds| bounds.chunks(1024)) {
            let bytes: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
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
        // Longer than the 2,048 bytes that the OSDI paper's released code hashes.
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
        let curved = |last| {
            let bounds = (0..5000).map(|key| if key == 4999 { last } else { 0.5 });
            list.clone().with_curvature(bounds.collect()).unwrap().digest(range(0, 5000), 9000)
        };
        assert_ne!(curved(0.25), whole);
        assert_ne!(curved(0.25), curved(0.5));
        assert_eq!(list.clone().with_curvature(vec![0.5; 4999]), None);
        assert_eq!(list.with_curvature(vec![-0.5; 5000]), None);
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
