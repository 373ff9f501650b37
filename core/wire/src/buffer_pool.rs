//! Buffer pool for received messages.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Maximum bytes of pooled vectors, not counting the newest. It does not apply when a vector comes
/// back that `take` handed out.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Requests per pooled vector until vectors that stayed unused are freed.
const PATIENCE: usize = 16;
/// Maximum number of pooled vectors, and of vectors that are remembered as taken.
const MOST: usize = 1024;

/// Maximum number of pooled byte buffers, and the maximum capacity of each.
const MOST_STRETCHES: usize = 16;
const LONGEST_STRETCH: usize = 256 * 1024;

/// Buffers for the values of messages, and for the bytes of incomplete messages. Allocating and
/// zeroing a buffer for each message takes as long as receiving it.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// Oldest first. Of the vectors that fit, `take` chooses the newest, so the vectors at the
    /// front are unused for the longest.
    vectors: Vec<Arc<Vec<f32>>>,
    bytes: usize,
    /// Requested sizes, in values, of the vectors that were taken and are not back; of the last
    /// `MOST` at most.
    lent: VecDeque<usize>,
    /// Requests until unused vectors are freed.
    patience: usize,
    /// Minimum number of pooled vectors since the last vectors were freed: so many stayed unused.
    fewest: usize,
    stretches: Vec<Vec<u8>>,
    /// True if nothing that is taken comes back: `lent` stays empty.
    is_for_one: bool,
}

fn bytes_of(vector: &Arc<Vec<f32>>) -> usize {
    vector.capacity() * size_of::<f32>()
}

/// True if the capacity is at least `values`, and at most twice as many.
fn fits(vector: &Arc<Vec<f32>>, values: usize) -> bool {
    (values..=values.saturating_mul(2)).contains(&vector.capacity())
}

impl BufferPool {
    /// Makes a pool for one message, whose payload does not come back.
    pub(super) fn for_one() -> Self {
        Self { is_for_one: true, ..Self::default() }
    }

    /// Pools a vector, unless it is shared, and evicts the oldest vectors beyond the limits. A
    /// vector that comes back after a `take` is exempt from the byte limit: as many as were needed
    /// at once will be needed again.
    pub fn give(&mut self, mut vector: Arc<Vec<f32>>) {
        if vector.capacity() == 0 || Arc::get_mut(&mut vector).is_none() {
            return;
        }
        let lent = self.lent.iter().rposition(|&values| fits(&vector, values));
        let is_back = lent.and_then(|place| self.lent.remove(place)).is_some();
        let most_bytes = if is_back { usize::MAX } else { MOST_BYTES };
        while !self.vectors.is_empty() && (self.bytes > most_bytes || self.vectors.len() >= MOST) {
            self.bytes -= bytes_of(&self.vectors.remove(0));
        }
        self.bytes += bytes_of(&vector);
        self.vectors.push(vector);
    }

    /// Returns a vector with capacity for `values` values and at most twice as many; an empty one
    /// without capacity if the pool has none.
    pub(super) fn take(&mut self, values: usize) -> Arc<Vec<f32>> {
        if values == 0 {
            return Arc::default();
        }
        if !self.is_for_one {
            if self.lent.len() >= MOST {
                self.lent.pop_front();
            }
            self.lent.push_back(values);
        }
        let place = self.vectors.iter().rposition(|vector| fits(vector, values));
        let vector = place.map(|place| self.vectors.remove(place)).unwrap_or_default();
        self.bytes -= bytes_of(&vector);
        self.fewest = self.fewest.min(self.vectors.len());
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            for unneeded in self.vectors.drain(..self.fewest) {
                self.bytes -= bytes_of(&unneeded);
            }
            self.fewest = self.vectors.len();
            self.patience = PATIENCE * (self.fewest + 1);
        }
        vector
    }

    /// Pools a byte buffer, unless it is too large or the pool is full.
    pub(super) fn give_bytes(&mut self, mut stretch: Vec<u8>) {
        let is_of_use = (1..=LONGEST_STRETCH).contains(&stretch.capacity());
        if is_of_use && self.stretches.len() < MOST_STRETCHES {
            stretch.clear();
            self.stretches.push(stretch);
        }
    }

    /// Returns an empty byte buffer, with capacity if the pool has one.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        self.stretches.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn only_what_nobody_else_has_is_used_again_and_for_what_is_of_its_size() {
        let mut spares = BufferPool::default();
        let shared = Arc::new(vec![1.0; 10]);
        spares.give(Arc::clone(&shared));
        assert_eq!(spares.take(10).capacity(), 0);
        let own = Arc::new(vec![2.0; 10]);
        let place = own.as_ptr();
        spares.give(own);
        assert_eq!((spares.take(11).capacity(), spares.take(4).capacity()), (0, 0));
        assert_eq!(spares.take(5).as_ptr(), place);
        assert_eq!(spares.bytes, 0);
    }

    #[test]
    fn no_more_are_kept_than_are_of_use() {
        let mut spares = BufferPool::default();
        let half = MOST_BYTES / size_of::<f32>() / 2;
        for _ in 0..5 {
            spares.give(Arc::new(Vec::with_capacity(half)));
        }
        assert!(spares.bytes <= MOST_BYTES + MOST_BYTES / 2 && spares.vectors.len() > 1);
        // A vector larger than the limit is pooled, because the next request will be as large.
        spares.give(Arc::new(Vec::with_capacity(3 * half)));
        assert!(spares.take(3 * half).capacity() >= 3 * half);
        for _ in 0..2 * MOST {
            spares.give(Arc::new(vec![0.0]));
            spares.give_bytes(vec![0]);
        }
        assert_eq!((spares.vectors.len(), spares.stretches.len()), (MOST, MOST_STRETCHES));
    }

    #[test]
    fn of_the_size_that_is_asked_for_as_many_are_kept_as_are_needed_at_once() {
        let mut spares = BufferPool::default();
        let size = MOST_BYTES / size_of::<f32>();
        let mut round = |needed: usize| -> usize {
            let taken: Vec<_> = (0..needed).map(|_| spares.take(size)).collect();
            let had = taken.iter().filter(|vector| vector.capacity() > 0).count();
            for mut vector in taken {
                Arc::make_mut(&mut vector).reserve_exact(size);
                spares.give(vector);
            }
            assert_eq!(spares.bytes, spares.vectors.iter().map(bytes_of).sum());
            had
        };
        assert_eq!([round(5), round(5), round(2), round(5)], [0, 5, 2, 5]);
        // Vectors that stay unused for long are freed; vectors in use are not.
        assert!((0..PATIENCE * 6).all(|_| round(2) == 2));
        assert_eq!(round(5), 2);
        assert!((0..PATIENCE * 6).all(|_| round(5) == 5));
    }

    #[test]
    fn what_was_made_of_shorter_ones_is_not_kept_without_end() {
        let mut spares = BufferPool::default();
        let size = MOST_BYTES / size_of::<f32>();
        // Payloads of encoded gradients: most are much shorter than the decoded values.
        for _ in 0..100 {
            for payload in [size / 3, size / 3, size / 3, size - 1] {
                drop(spares.take(payload));
            }
            for _ in 0..4 {
                spares.give(Arc::new(Vec::with_capacity(size)));
            }
            assert!(spares.vectors.len() <= 4, "{}", spares.vectors.len());
        }
    }

    #[test]
    fn bytes_come_back_empty_and_only_if_they_are_of_use() {
        let mut spares = BufferPool::default();
        spares.give_bytes(Vec::new());
        spares.give_bytes(Vec::with_capacity(2 * LONGEST_STRETCH));
        assert_eq!(spares.take_bytes().capacity(), 0);
        spares.give_bytes(vec![1; 100]);
        let stretch = spares.take_bytes();
        assert!(stretch.is_empty() && stretch.capacity() >= 100);
    }
}
