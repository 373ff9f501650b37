//! Working sets on the wire: the keys that a worker's vectors have values for.
//!
//! Once both sides know the list, only values travel (key caching: Li et al., OSDI 2014). After a
//! reconnect a worker sends the digest of the whole list, and the list itself only if the server
//! requests it. A server never guesses: it refuses a list that does not match the digest.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::filter::KeyForm;
use pstrain_compute::params::{KeyList, KeyRange};

/// Worker to server, on each connection before any message with values: which keys of this server
/// the worker's vectors have values for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysHeader {
    /// Position of their values in the worker's vectors. The key ranges of parameters and pushes
    /// count these positions.
    pub place: KeyRange,
    /// Number of values in the worker's vectors, for the keys of all servers.
    pub total: u64,
    /// [`KeyList::digest`] of the list.
    pub digest: [u8; 32],
    /// True if the list includes an upper bound of the loss's curvature at each key.
    pub curved: bool,
}

/// Server to worker: whether the server knows the list with this digest. If not, the worker sends
/// the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysKnown {
    /// The digest.
    pub digest: [u8; 32],
    /// True if the server knows the list.
    pub known: bool,
}

/// Worker to server: the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    /// Position and digest of the list.
    pub header: KeysHeader,
    /// The encoding of the keys.
    pub form: KeyForm,
    /// The payload: the curvature bounds as `f32`, if the list has them; then the keys, relative to
    /// the server's first key.
    pub bytes: Vec<u8>,
}

impl Keys {
    /// Encodes a list.
    #[must_use]
    pub fn of(header: KeysHeader, list: &KeyList) -> Self {
        let mut keys = Vec::new();
        let end = list.keys().last().map_or(0, |&last| last as usize + 1);
        let form = pstrain_compute::filter::write_keys(list.keys(), &(0..end), &mut keys);
        let bounds = list.curvature().unwrap_or_default().iter();
        let mut bytes: Vec<u8> = bounds.flat_map(|bound| bound.to_le_bytes()).collect();
        bytes.extend(keys);
        Self { header, form, bytes }
    }

    /// Decodes the list; none if the bytes are malformed or do not match the digest.
    #[must_use]
    pub fn list(&self) -> Option<KeyList> {
        let KeysHeader { place, total, digest, curved } = self.header;
        let width = if curved { size_of::<f32>() as u64 } else { 0 };
        let values = usize::try_from(place.len().checked_mul(width)?).ok()?;
        let (bounds, keys) = self.bytes.split_at_checked(values)?;
        let mut list = KeyList::new(pstrain_compute::filter::read_keys(self.form, keys)?)?;
        if curved {
            let bounds = bounds.as_chunks().0.iter().map(|&bound| f32::from_le_bytes(bound));
            list = list.with_curvature(bounds.collect())?;
        }
        let fits = list.len() as u64 == place.len() && place.end() <= total;
        (fits && list.digest(place, total) == digest).then_some(list)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;
    use crate::Limits;

    fn header(list: &KeyList, begin: u64) -> KeysHeader {
        let place = KeyRange::new(begin, begin + list.len() as u64).unwrap();
        let total = place.end() + 3;
        let curved = list.curvature().is_some();
        KeysHeader { place, total, digest: list.digest(place, total), curved }
    }

    proptest! {
        #[test]
        fn a_list_comes_back_as_it_was(
            keys in btree_set(0_u32..5000, 1..300),
            begin in 0_u64..9,
            flipped in 0_usize..10_000,
            curved: bool,
        ) {
            let mut list = KeyList::new(keys.into_iter().collect()).unwrap();
            if curved {
                let bounds = list.keys().iter().map(|key| *key as f32 / 7.0).collect();
                list = list.with_curvature(bounds).unwrap();
            }
            let mut sent = Keys::of(header(&list, begin), &list);
            prop_assert_eq!(sent.list(), Some(list.clone()));
            let parameters = list.keys().last().map_or(0, |last| *last as usize + 1);
            prop_assert!(sent.bytes.len() <= Limits::of_worker(parameters).payload as usize);
            let bit = flipped % (8 * sent.bytes.len());
            sent.bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(sent.list(), Some(list));
        }
    }

    #[test]
    fn a_list_that_is_not_what_its_header_says_is_none() {
        let list = KeyList::new(vec![3, 4, 900]).unwrap();
        let right = Keys::of(header(&list, 2), &list);
        let mut wrong = right.clone();
        wrong.header.total += 1;
        assert_eq!(wrong.list(), None);
        let mut wrong = right.clone();
        wrong.header.place = KeyRange::new(2, 6).unwrap();
        assert_eq!(wrong.list(), None);
        let mut wrong = right.clone();
        wrong.form = KeyForm::All;
        assert_eq!(wrong.list(), None);
        let mut wrong = right;
        wrong.bytes.push(0);
        assert_eq!(wrong.list(), None);
    }
}
