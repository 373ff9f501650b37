//! A payload that arrives piece by piece.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::buffer_pool::BufferPool;
use pstrain_compute::params::are_finite;

const WORD: usize = size_of::<f32>();

/// Words that are allocated before they arrive: 256 KiB. A length in a header alone cannot make
/// this side allocate more.
const UNVERIFIED_WORDS: usize = 64 * 1024;

/// Receiver-side metadata; ignored by `==` and `Debug`.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// True if all values are known to be finite.
    pub finite: bool,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl PartialEq for Seen {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// The bytes of a payload, in memory that can become its values without a copy.
#[derive(Debug)]
pub(super) struct Received {
    /// The words in wire order. Words that have not arrived hold arbitrary old values.
    values: Arc<Vec<f32>>,
    /// Length of the payload in bytes.
    announced: usize,
    /// Bytes that have arrived.
    come: usize,
    /// True if the values are checked for NaN and infinity, while they are still in the cache.
    looks: bool,
    /// Number of values that were checked.
    seen: usize,
    /// True if all checked values are finite.
    finite: bool,
}

impl Received {
    /// Starts a payload of `bytes` bytes. It allocates little more than has arrived: at most
    /// [`UNVERIFIED_WORDS`], or twice the bytes that have arrived, unless `spares` has a buffer of
    /// the size.
    pub(super) fn of(bytes: usize, looks: bool, spares: &mut BufferPool) -> Self {
        let words = bytes.div_ceil(WORD);
        let mut values = spares.take(words);
        let vector: &mut Vec<f32> = Arc::make_mut(&mut values);
        // A pooled vector with the capacity keeps its old values: `resize` zeroes only what it
        // adds.
        vector.resize(if vector.capacity() < words { 0 } else { words }, 0.0);
        Self { values, announced: bytes, come: 0, looks, seen: 0, finite: true }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.announced == 0
    }

    /// Returns the number of bytes that have not arrived.
    pub(super) const fn missing(&self) -> usize {
        self.announced - self.come
    }

    /// Returns the memory for the next bytes: at most `most`, and no more than are missing.
    pub(super) fn room(&mut self, most: usize) -> &mut [u8] {
        let end = self.come + most.min(self.missing());
        let (words, all) = (end.div_ceil(WORD), self.announced.div_ceil(WORD));
        let values: &mut Vec<f32> = Arc::make_mut(&mut self.values);
        let had = values.len();
        if words > had {
            let believed = all.min(words.max(UNVERIFIED_WORDS).max(2 * had));
            values.reserve_exact(believed - had);
            values.resize(believed, 0.0);
        }
        &mut bytemuck::cast_slice_mut(values)[self.come..end]
    }

    /// Notes that `bytes` bytes were written to [`Self::room`], and returns them.
    pub(super) fn filled(&mut self, bytes: usize) -> &[u8] {
        let begin = self.come;
        self.come += bytes.min(self.missing());
        if self.looks {
            let whole = self.come / WORD;
            self.finite &= are_finite(&self.values[self.seen..whole], u32::from_le);
            self.seen = whole;
        }
        &bytemuck::cast_slice(&self.values)[begin..self.come]
    }

    /// Copies the bytes that come next; no more than are missing.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.missing() > 0 {
            // Piecewise, because memory grows only to twice the bytes that have arrived.
            let room = self.room(rest.len().min((WORD * UNVERIFIED_WORDS).max(self.come)));
            let (piece, after) = rest.split_at(room.len());
            room.copy_from_slice(piece);
            self.filled(piece.len());
            rest = after;
        }
    }

    /// Returns the bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        bytemuck::cast_slice(&self.values)[..self.come].to_vec()
    }

    /// Returns the values that the bytes are, with the result of the check; none if the length is
    /// not a multiple of a value's size.
    pub(super) fn into_values(mut self) -> Option<(Arc<Vec<f32>>, Seen)> {
        if cfg!(target_endian = "big") {
            let values: &mut Vec<f32> = Arc::make_mut(&mut self.values);
            values.iter_mut().for_each(|it| *it = f32::from_bits(u32::from_le(it.to_bits())));
        }
        let seen = Seen { finite: self.looks && self.finite };
        self.announced.is_multiple_of(WORD).then_some((self.values, seen))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn however_it_is_cut_the_same_comes_out() {
        let bytes: Vec<u8> = (0..=66).collect();
        let mut spares = BufferPool::default();
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            for piece in 1..9 {
                let mut received = Received::of(length, false, &mut spares);
                bytes.chunks(piece).for_each(|piece| received.take(piece));
                assert_eq!(received.is_empty(), length == 0);
                assert_eq!(received.into_bytes(), bytes);
                let mut received = Received::of(length, true, &mut spares);
                while received.missing() > 0 {
                    let (done, room) = (length - received.missing(), received.room(piece));
                    let more = room.len();
                    room.copy_from_slice(&bytes[done..done + more]);
                    assert_eq!(received.filled(more), &bytes[done..done + more]);
                }
                let values = received.into_values();
                let words = bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word));
                let expected = (length % WORD == 0).then(|| Arc::new(words.collect()));
                assert!(values.iter().all(|(_, seen)| seen.finite));
                let values = values.map(|(values, _)| values);
                assert_eq!(values, expected);
                values.into_iter().for_each(|values| spares.give(values));
            }
        }
    }

    #[test]
    fn a_value_that_is_no_finite_number_is_seen_wherever_it_is() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in 0..20 {
                let mut values = [1.5_f32; 20];
                values[place] = bad;
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let mut received = Received::of(80, true, &mut BufferPool::default());
                bytes.chunks(7).for_each(|piece| received.take(piece));
                let (values, seen) = received.into_values().unwrap();
                assert!(!seen.finite && !values[place].is_finite());
            }
        }
    }

    #[test]
    fn memory_comes_with_the_bytes_unless_there_is_some_to_spare() {
        let mut spares = BufferPool::default();
        let mut received = Received::of(1 << 30, false, &mut spares);
        received.take(&[1; 1000]);
        assert_eq!(received.values.capacity(), UNVERIFIED_WORDS);
        received.take(&[1; 2_000_000]);
        assert!(received.values.capacity() <= 2_000_000);
        let spare = Arc::new(vec![1.0; 1 << 20]);
        let place = spare.as_ptr();
        spares.give(spare);
        assert_eq!(Received::of(1 << 22, false, &mut spares).room(8).as_ptr(), place.cast());
    }
}
