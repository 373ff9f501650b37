//! Stream decoder: bytes, split at any point, to messages.

use alloc::vec::Vec;

use crate::buffer_pool::BufferPool;
use crate::checksum::crc32c_append;
use crate::frame::{
    CHECKSUM_BYTES, FrameError, HEADER_BYTES, Header, decode, is_heartbeat, parse_header,
};
use crate::limits::Limits;
use crate::message::Message;
use crate::received::Received;

/// Finds the messages in a stream of bytes that may be split at any point.
///
/// Call [`Self::next`] until it returns none, then [`Self::feed`] the next bytes, and repeat. The
/// decoder holds at most one frame within its limits and the bytes that were fed since. It
/// allocates for a frame only once its header has passed every check.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that belong to messages already returned.
    used: usize,
    /// The frame whose payload is arriving, if the frame did not arrive in one piece.
    body: Option<Body>,
    /// True if `buffer` holds exactly one incomplete frame, as of the last search for a message.
    is_cut: bool,
    failed: Option<FrameError>,
}

/// A payload that is arriving.
#[derive(Debug)]
struct Body {
    header: Header,
    control: Vec<u8>,
    received: Received,
    /// Checksum of the bytes so far. Each piece is added while it is still in the cache.
    checksum: u32,
}

impl Body {
    /// Takes the bytes that belong to the payload, and returns the rest.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (piece, rest) = bytes.split_at(bytes.len().min(self.received.missing()));
        self.checksum = crc32c_append(self.checksum, piece);
        self.received.take(piece);
        rest
    }
}

impl Decoder {
    /// Makes a decoder at the start of a stream.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, buffer: Vec::new(), used: 0, body: None, is_cut: false, failed: None }
    }

    /// Changes the limits for the frames that follow.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// True if the stream has stopped inside a frame.
    #[must_use]
    pub const fn is_mid_frame(&self) -> bool {
        self.used < self.buffer.len() || self.body.is_some()
    }

    /// Adds bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.feed_in(bytes, &mut BufferPool::default());
    }

    /// As [`Self::feed`], with the buffer taken from `spares`. It goes back there once it is empty:
    /// of many streams, few are inside a frame at a time.
    pub fn feed_in(&mut self, mut bytes: &[u8], spares: &mut BufferPool) {
        if self.failed.is_some() {
            return;
        }
        // Checked first: otherwise the heartbeat would become part of the payload.
        if (self.is_cut || self.missing() > 0) && is_heartbeat(bytes) {
            return self.fail(FrameError::Gap);
        }
        if let Some(body) = &mut self.body {
            bytes = body.take(bytes);
        }
        self.is_cut &= bytes.is_empty();
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        if self.buffer.capacity() == 0 && !bytes.is_empty() {
            self.buffer = spares.take_bytes();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the memory for the next bytes of the stream, if at least `least` of them belong to
    /// one payload. The caller may read up to `most` bytes into it and report them by
    /// [`Self::fed`], instead of feeding them: this saves a copy.
    pub fn room(&mut self, least: usize, most: usize) -> Option<&mut [u8]> {
        let body = self.body.as_mut().filter(|body| body.received.missing() >= least)?;
        Some(body.received.room(most))
    }

    /// Notes that `bytes` bytes were written into the last [`Self::room`].
    pub fn fed(&mut self, bytes: usize) {
        let Some(body) = &mut self.body else { return };
        let piece = body.received.filled(bytes);
        body.checksum = crc32c_append(body.checksum, piece);
        let is_heartbeat = is_heartbeat(piece);
        if is_heartbeat && self.missing() > 0 {
            self.fail(FrameError::Gap);
        }
    }

    /// Returns the number of payload bytes that have not arrived.
    fn missing(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.received.missing())
    }

    /// Makes every further call return `error`, because the frame boundaries are lost.
    fn fail(&mut self, error: FrameError) {
        *self = Self { failed: Some(error), ..Self::new(self.limits) };
    }

    /// Returns the next message; none until more bytes have arrived.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes are not a frame. The frame boundaries are lost then, and every
    /// further call returns the same error.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first None")]
    pub fn next(&mut self) -> Result<Option<Message>, FrameError> {
        self.next_in(&mut BufferPool::for_one())
    }

    /// As [`Self::next`], with the values in buffers of `spares`.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_in(&mut self, spares: &mut BufferPool) -> Result<Option<Message>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let found = self.find(spares);
        match found {
            Err(error) => self.fail(error),
            Ok(None) => self.is_cut = self.used < self.buffer.len(),
            Ok(Some(_)) => {}
        }
        if self.used == self.buffer.len() {
            spares.give_bytes(core::mem::take(&mut self.buffer));
            self.used = 0;
        }
        found
    }

    fn find(&mut self, spares: &mut BufferPool) -> Result<Option<Message>, FrameError> {
        if let Some(body) = &self.body {
            // Bytes that follow the payload, the checksum first, collect in `buffer`.
            if body.received.missing() > 0 || self.buffer.len() < CHECKSUM_BYTES {
                return Ok(None);
            }
        }
        if let Some(Body { header, control, received, checksum }) = self.body.take() {
            let stated = self.buffer.first_chunk().copied().unwrap_or_default();
            self.used = CHECKSUM_BYTES;
            return header.message(&control, received, (stated, checksum), self.limits).map(Some);
        }
        if let Some((message, length)) = decode(&self.buffer[self.used..], self.limits, spares)? {
            self.used += length;
            return Ok(Some(message));
        }
        self.begin_body(spares)?;
        Ok(None)
    }

    /// Starts a payload once header and control part of its frame are complete. Its further bytes
    /// go directly to their final memory.
    fn begin_body(&mut self, spares: &mut BufferPool) -> Result<(), FrameError> {
        let bytes = &self.buffer[self.used..];
        let Some(header) = parse_header(bytes, self.limits)? else { return Ok(()) };
        let Some((head, begun)) = bytes.split_at_checked(HEADER_BYTES + header.control) else {
            return Ok(());
        };
        let mut body = Body {
            control: head[HEADER_BYTES..].to_vec(),
            received: header.receive(spares),
            checksum: crc32c_append(0, head),
            header,
        };
        let rest = body.take(begun).len();
        self.body = Some(body);
        self.used = self.buffer.len() - rest;
        self.buffer.drain(..self.used);
        self.used = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;

    use super::*;
    use crate::encode;
    use crate::group::{Slice, SliceHeader};
    use crate::message::Kind;
    use crate::worker::Heartbeat;
    use pstrain_compute::id::Version;
    use pstrain_compute::params::KeyRange;

    const ANY: Limits = Limits { control: u32::MAX, payload: u32::MAX };

    fn frame(message: &Message) -> Vec<u8> {
        let mut frame = Vec::new();
        encode(message, &mut frame).append_to(&mut frame);
        frame
    }

    fn heartbeat() -> Vec<u8> {
        frame(&Message::Heartbeat(Heartbeat::default()))
    }

    /// The frame of a long message.
    fn long() -> Vec<u8> {
        let header = SliceHeader { version: Version(1), keys: KeyRange::new(0, 4000).unwrap() };
        frame(&Message::Slice(Slice { header, values: Arc::new(vec![0.5; 4000]) }))
    }

    #[test]
    fn a_message_of_which_bytes_were_lost_ends_with_the_next_sign_of_life() {
        let whole = long();
        // The frame stops inside the payload, the checksum, the control part, and the header.
        for kept in [12_000, whole.len() - 2, HEADER_BYTES + 3, 5] {
            let mut decoder = Decoder::new(ANY);
            decoder.feed(&whole[..kept]);
            assert_eq!(decoder.next(), Ok(None));
            decoder.feed(&heartbeat());
            assert_eq!(decoder.next(), Err(FrameError::Gap), "{kept}");
        }
        let mut decoder = Decoder::new(ANY);
        decoder.feed(&whole[..12_000]);
        assert_eq!(decoder.next(), Ok(None));
        let beat = heartbeat();
        decoder.room(1, 1000).unwrap()[..beat.len()].copy_from_slice(&beat);
        decoder.fed(beat.len());
        assert_eq!(decoder.next(), Err(FrameError::Gap));
    }

    #[test]
    fn a_message_whose_length_was_damaged_ends_with_the_next_sign_of_life() {
        // The second byte of the control length, and of the payload length.
        for place in [9, 13] {
            let mut damaged = long();
            damaged[place] ^= 0x40;
            let mut decoder = Decoder::new(ANY);
            decoder.feed(&damaged);
            assert_eq!(decoder.next(), Ok(None));
            decoder.feed(&heartbeat());
            assert_eq!(decoder.next(), Err(FrameError::Gap), "{place}");
        }
    }

    #[test]
    fn a_sign_of_life_between_messages_is_one_wherever_the_stream_is_cut() {
        let (whole, beat) = (long(), heartbeat());
        let mut decoder = Decoder::new(ANY);
        let mut kinds = Vec::new();
        for cut in [1, HEADER_BYTES, whole.len() - 1] {
            for bytes in [&beat[..], &whole[..cut], &whole[cut..], &beat[..], &beat[..]] {
                decoder.feed(bytes);
                kinds.extend(core::iter::from_fn(|| decoder.next().unwrap()).map(|it| it.kind()));
            }
        }
        // Feeds all frames before it looks for messages.
        for bytes in [&beat, &whole, &beat, &beat] {
            decoder.feed(bytes);
        }
        kinds.extend(core::iter::from_fn(|| decoder.next().unwrap()).map(|it| it.kind()));
        assert_eq!(kinds.len(), 3 * 4 + 4);
        assert_eq!(kinds.iter().filter(|&&kind| kind == Kind::Heartbeat).count(), 3 * 3 + 3);
    }
}
