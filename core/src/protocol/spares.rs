//! Memory that nobody needs any more, to be filled anew.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::BodyId;

/// The most bytes that are kept beside the latest vector.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The most vectors.
const MOST: usize = 1024;

/// The most stretches of bytes, and the longest.
const MOST_STRETCHES: usize = 16;
const LONGEST_STRETCH: usize = 256 * 1024;

/// Memory for the values of messages, and for the bytes of those that are not whole: to ask the system for
/// it anew for each message, and to have it cleared, takes as long as it takes to receive them.
#[derive(Debug, Default)]
pub struct Spares {
    vectors: Vec<Arc<Vec<f32>>>,
    bytes: usize,
    stretches: Vec<Vec<u8>>,
    /// Payloads that were numbered.
    bodies: u64,
    /// Whether none are.
    is_unnumbered: bool,
}

fn bytes_of(vector: &Arc<Vec<f32>>) -> usize {
    vector.capacity() * size_of::<f32>()
}

impl Spares {
    /// For one message: its payload gets no number, which others would get as well.
    pub(super) fn unnumbered() -> Self {
        Self { is_unnumbered: true, ..Self::default() }
    }

    /// A number that no other payload has.
    pub(super) fn next_body(&mut self) -> Option<BodyId> {
        self.bodies += 1;
        (!self.is_unnumbered).then_some(BodyId(self.bodies))
    }

    /// Takes a vector, unless somebody else has it too or there are enough.
    pub fn give(&mut self, mut vector: Arc<Vec<f32>>) {
        if vector.capacity() == 0 || Arc::get_mut(&mut vector).is_none() {
            return;
        }
        // The oldest have been of no use for the longest.
        while !self.vectors.is_empty() && (self.bytes > MOST_BYTES || self.vectors.len() >= MOST) {
            self.bytes -= bytes_of(&self.vectors.remove(0));
        }
        self.bytes += bytes_of(&vector);
        self.vectors.push(vector);
    }

    /// One with room for so many values and not for many times as many; if there is none, one without.
    pub(super) fn take(&mut self, values: usize) -> Arc<Vec<f32>> {
        if values == 0 {
            return Arc::default();
        }
        let fits = |vector: &Arc<Vec<f32>>| {
            (values..=values.saturating_mul(2)).contains(&vector.capacity())
        };
        let Some(place) = self.vectors.iter().rposition(fits) else { return Arc::default() };
        let vector = self.vectors.swap_remove(place);
        self.bytes -= bytes_of(&vector);
        vector
    }

    /// Takes a stretch of bytes, unless it is too long or there are enough.
    pub(super) fn give_bytes(&mut self, mut stretch: Vec<u8>) {
        let is_of_use = (1..=LONGEST_STRETCH).contains(&stretch.capacity());
        if is_of_use && self.stretches.len() < MOST_STRETCHES {
            stretch.clear();
            self.stretches.push(stretch);
        }
    }

    /// Room for bytes; if there is none, a vector without.
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
        let mut spares = Spares::default();
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
        let mut spares = Spares::default();
        let half = MOST_BYTES / size_of::<f32>() / 2;
        for _ in 0..5 {
            spares.give(Arc::new(Vec::with_capacity(half)));
        }
        assert!(spares.bytes <= MOST_BYTES + MOST_BYTES / 2 && spares.vectors.len() > 1);
        // One that is larger than all that may be kept is kept, since the next will be, too.
        spares.give(Arc::new(Vec::with_capacity(3 * half)));
        assert!(spares.take(3 * half).capacity() >= 3 * half);
        for _ in 0..2 * MOST {
            spares.give(Arc::new(vec![0.0]));
            spares.give_bytes(vec![0]);
        }
        assert_eq!((spares.vectors.len(), spares.stretches.len()), (MOST, MOST_STRETCHES));
    }

    #[test]
    fn bytes_come_back_empty_and_only_if_they_are_of_use() {
        let mut spares = Spares::default();
        spares.give_bytes(Vec::new());
        spares.give_bytes(Vec::with_capacity(2 * LONGEST_STRETCH));
        assert_eq!(spares.take_bytes().capacity(), 0);
        spares.give_bytes(vec![1; 100]);
        let stretch = spares.take_bytes();
        assert!(stretch.is_empty() && stretch.capacity() >= 100);
    }
}
