//! A frame that is sent piece by piece, as fast as the writer accepts it.

use alloc::vec::Vec;

use crate::checksum::crc32c_append;
use crate::frame::{CHECKSUM_BYTES, append_head};
use crate::message::Message;
use crate::payload::Payload;

/// Bytes of the payload that are added to the checksum before they are offered. The piece is small
/// enough to be still in the cache when the writer copies it.
const PIECE_BYTES: usize = 256 * 1024;

/// A message as a frame, to be written piece by piece, directly from the message's own memory.
///
/// The receiver processes the first pieces while this side computes the checksum of later ones.
#[derive(Debug)]
pub struct Outgoing {
    message: Message,
    head: Vec<u8>,
    /// The payload with its bytes swapped, where that is needed (on a big-endian machine).
    turned: Vec<u8>,
    payload: usize,
    /// Bytes of the frame that were written.
    written: usize,
    /// Bytes of the payload that `sum` includes.
    summed: usize,
    sum: u32,
    checksum: [u8; CHECKSUM_BYTES],
}

impl Outgoing {
    /// Starts the frame of `message`. `head` is memory for header and control part; its content is
    /// overwritten.
    #[must_use]
    pub fn new(message: Message, mut head: Vec<u8>) -> Self {
        let (turned, length) = match message.payload() {
            Payload::Borrowed(bytes) => (Vec::new(), bytes.len()),
            Payload::Owned(bytes) => {
                let length = bytes.len();
                (bytes, length)
            }
        };
        head.clear();
        append_head(&message, length, &mut head);
        let sum = crc32c_append(0, &head);
        let checksum = sum.to_le_bytes();
        Self { message, head, turned, payload: length, written: 0, summed: 0, sum, checksum }
    }

    /// Returns the number of bytes that were not written.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.head.len() + self.payload + CHECKSUM_BYTES - self.written
    }

    /// Returns the memory of the head for reuse.
    #[must_use]
    pub fn into_head(self) -> Vec<u8> {
        self.head
    }

    /// Returns the slices to write next, in order. They are not all empty while bytes remain.
    pub fn parts(&mut self) -> [&[u8]; 3] {
        let Self { message, head, turned, payload: length, written, summed, sum, checksum } = self;
        let body: &[u8] = match message.payload() {
            Payload::Borrowed(bytes) if turned.is_empty() => bytes,
            _ => turned,
        };
        let out = written.saturating_sub(head.len()).min(*length);
        let end = (*length).min(out + PIECE_BYTES);
        if *summed < end {
            *sum = crc32c_append(*sum, &body[*summed..end]);
            *summed = end;
            *checksum = sum.to_le_bytes();
        }
        // The checksum is final only once it includes the whole payload.
        let after = if *summed == *length {
            &checksum[written.saturating_sub(head.len() + *length)..]
        } else {
            &[]
        };
        [head.get(*written..).unwrap_or_default(), &body[out..*summed], after]
    }

    /// Notes that `bytes` further bytes were written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes.min(self.remaining());
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;

    use super::*;
    use crate::encode;
    use crate::worker::{Heartbeat, Push, PushHeader};
    use pstrain_compute::id::{BatchId, Incarnation, Sequence, Version, WorkerId};
    use pstrain_compute::params::KeyRange;
    use pstrain_compute::rng::Stream;
    use pstrain_compute::task::Task;

    fn push(values: usize) -> Message {
        let header = PushHeader {
            incarnation: Incarnation(1),
            sequence: Sequence(1),
            base: Version(0),
            task: Task::own(WorkerId(0), BatchId(0)),
            samples: 64,
            loss: 1.0,
            compute_ns: 0,
            keys: KeyRange::new(0, values as u64).unwrap(),
            pull: true,
            allowed: Sequence(0),
        };
        Message::Push(Push::new(header, Arc::new(vec![0.5; values])))
    }

    #[test]
    fn however_little_is_taken_at_a_time_the_frame_is_the_same() {
        let mut rng = Stream::new(1).rng();
        let heartbeat = Message::Heartbeat(Heartbeat::of(Some(Incarnation(7))));
        let piece = PIECE_BYTES / size_of::<f32>();
        let long = [1, 5000, piece - 1, piece, piece + 1, 3 * piece].map(push);
        for message in [heartbeat].into_iter().chain(long) {
            let mut whole = Vec::new();
            encode(&message, &mut whole).append_to(&mut whole);
            for most in [1, 7, 1000, PIECE_BYTES, usize::MAX] {
                if most < 1000 && whole.len() > 30_000 {
                    continue;
                }
                let mut frame = Outgoing::new(message.clone(), vec![9; 50]);
                assert_eq!(frame.remaining(), whole.len());
                let mut bytes = Vec::new();
                while frame.remaining() > 0 {
                    let offered = frame.parts().concat();
                    assert!(!offered.is_empty() && whole[bytes.len()..].starts_with(&offered));
                    let taken = 1 + rng.below(offered.len().min(most) as u64) as usize;
                    bytes.extend_from_slice(&offered[..taken]);
                    frame.wrote(taken);
                }
                assert!(bytes == whole);
                assert!(frame.parts().iter().all(|part| part.is_empty()));
            }
        }
    }
}
