//! A payload that comes piece by piece.

use alloc::vec::Vec;

use bytemuck::allocation::cast_vec;

const WORD: usize = size_of::<u32>();

/// So many words are believed in before they come: 256 KiB.
const BELIEVED_WORDS: usize = 64 * 1024;

/// The bytes of a payload, in memory that can become its values without being copied.
///
/// Words, for a vector of bytes could not: what a vector allocates is aligned for what it was made for.
#[derive(Debug)]
pub(super) struct Received {
    /// As this machine has them.
    words: Vec<u32>,
    /// The first bytes of a word that is not whole yet.
    part: Vec<u8>,
    /// How many words are announced.
    announced: usize,
}

impl Received {
    /// A payload of so many bytes, of which nothing has come. What is only announced gets no memory beyond a
    /// little, and as much again as has come.
    pub(super) fn of(bytes: usize) -> Self {
        let announced = bytes / WORD;
        let words = Vec::with_capacity(announced.min(BELIEVED_WORDS));
        Self { words, part: Vec::new(), announced }
    }

    /// A payload that has come as a whole.
    pub(super) fn whole(bytes: &[u8]) -> Self {
        let mut received = Self::of(bytes.len());
        received.take(bytes);
        received
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.words.is_empty() && self.part.is_empty()
    }

    /// Takes the bytes that follow.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        if !self.part.is_empty() {
            let more = bytes.len().min(WORD - self.part.len());
            self.part.extend_from_slice(&bytes[..more]);
            bytes = &bytes[more..];
            if let Some(&word) = self.part.first_chunk() {
                self.words.push(u32::from_le_bytes(word));
                self.part.clear();
            }
        }
        let (words, rest) = bytes.as_chunks();
        let (length, room) = (self.words.len(), self.words.capacity());
        let needed = length + words.len();
        if needed > room {
            self.words.reserve_exact(needed.max(self.announced.min(2 * room)) - length);
        }
        self.words.extend(words.iter().map(|&word| u32::from_le_bytes(word)));
        self.part.extend_from_slice(rest);
    }

    /// The bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.words.len() * WORD + self.part.len());
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(&self.part);
        bytes
    }

    /// The values that the bytes are; none if they are no whole number of them.
    pub(super) fn into_values(self) -> Option<Vec<f32>> {
        self.part.is_empty().then(|| cast_vec(self.words))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn however_it_is_cut_the_same_comes_out() {
        let bytes: Vec<u8> = (0..=66).collect();
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            for piece in 1..9 {
                let mut received = Received::of(length);
                bytes.chunks(piece).for_each(|piece| received.take(piece));
                assert_eq!(received.is_empty(), length == 0);
                assert_eq!(received.into_bytes(), bytes);
            }
            let values = Received::whole(bytes).into_values();
            let words = bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word));
            assert_eq!(values, (length % WORD == 0).then(|| words.collect()));
        }
    }
}
