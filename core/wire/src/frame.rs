//! Frames: encoding of messages, and decoding of whole frames.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::buffer_pool::BufferPool;
use crate::checksum::crc32c_append;
use crate::limits::Limits;
use crate::message::{Kind, Message};
use crate::payload::{Content, Payload};
use crate::received::Received;
use crate::refusal::Refusal;
use crate::release::{PROTOCOL, Protocol};

/// Bytes of a frame before its control part.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a frame after its payload.
pub const CHECKSUM_BYTES: usize = 4;
const MAGIC: [u8; 4] = *b"PSTR";

/// The rest of a frame after header and control part.
#[derive(Debug)]
pub struct Tail<'a> {
    /// The payload, borrowed if its layout in memory is the one on the wire.
    pub payload: Payload<'a>,
    /// The checksum of the whole frame before it; none in an empty tail.
    checksum: Option<[u8; CHECKSUM_BYTES]>,
}

impl Tail<'_> {
    /// An empty tail.
    pub const NONE: Self = Self { payload: Payload::NONE, checksum: None };

    /// Returns payload and checksum, in the order of the wire.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [self.payload.as_slice(), self.checksum.as_ref().map_or(&[], |checksum| checksum)]
    }

    /// Appends payload and checksum to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        self.parts().iter().for_each(|part| bytes.extend_from_slice(part));
    }
}

/// Appends header and control part of `message` to `head` and returns the rest of the frame.
pub fn encode<'a>(message: &'a Message, head: &mut Vec<u8>) -> Tail<'a> {
    let begin = head.len();
    let payload = message.payload();
    append_head(message, payload.len(), head);
    let sum = crc32c_append(crc32c_append(0, &head[begin..]), payload.as_slice());
    Tail { payload, checksum: Some(sum.to_le_bytes()) }
}

/// Appends header and control part of `message` to `head`; `payload` is the payload's length in
/// bytes.
pub(super) fn append_head(message: &Message, payload: usize, head: &mut Vec<u8>) {
    let begin = head.len();
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&[PROTOCOL.version, message.kind() as u8]);
    head.extend_from_slice(&PROTOCOL.layout.to_le_bytes());
    head.extend_from_slice(&[0; 8]);
    message.append_control(head);
    let control_len = (head.len() - begin - HEADER_BYTES) as u32;
    head[begin + 8..begin + 12].copy_from_slice(&control_len.to_le_bytes());
    head[begin + 12..begin + 16].copy_from_slice(&(payload as u32).to_le_bytes());
}

/// Returns the length of the frame of `message`, without encoding its payload. `scratch` is memory
/// for the control part; its content is overwritten.
pub fn frame_len(message: &Message, scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    message.append_control(scratch);
    (HEADER_BYTES + scratch.len() + message.payload().len() + CHECKSUM_BYTES) as u64
}

/// Decodes `bytes`, which must be exactly one frame.
///
/// # Errors
/// [`FrameError`] if the bytes are not exactly one valid frame.
pub fn decode_whole(bytes: &[u8]) -> Result<Message, FrameError> {
    let limits = Limits { control: u32::MAX, payload: u32::MAX };
    match decode(bytes, limits, &mut BufferPool::for_one())? {
        Some((message, length)) if length == bytes.len() => Ok(message),
        _ => Err(FrameError::Cut),
    }
}

/// Upper bound for the length of a heartbeat frame, in bytes.
const MOST_HEARTBEAT_BYTES: usize = 64;

/// True if `bytes` are exactly one heartbeat frame. A sender never starts a heartbeat inside
/// another frame. So if a heartbeat arrives while more bytes of a frame are awaited, some of these
/// were lost. A payload looks like a heartbeat with negligible probability, because the frame has a
/// checksum.
pub(super) fn is_heartbeat(bytes: &[u8]) -> bool {
    bytes.len() <= MOST_HEARTBEAT_BYTES
        && bytes.starts_with(&MAGIC)
        && matches!(decode_whole(bytes), Ok(Message::Heartbeat(_)))
}

/// Error for bytes that are not a frame of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The first four bytes are not `PSTR`.
    #[error(fmt = write_magic)]
    Magic([u8; 4]),
    /// The frame is of another protocol.
    #[error(
        "the other side speaks protocol {0}, this side {PROTOCOL}; use the same build on both \
         (`pstrain --version` tells)"
    )]
    Version(Protocol),
    /// The message kind does not exist in this version.
    #[error("kind {0} is no message of this protocol")]
    Kind(u8),
    /// The control part exceeds the limit.
    #[error("control part of {length} bytes is over the limit of {limit}")]
    Control {
        /// Its length in bytes.
        length: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// The payload exceeds the limit.
    #[error("payload of {length} bytes is over the limit of {limit}")]
    Payload {
        /// Its length in bytes.
        length: u32,
        /// The limit in bytes.
        limit: u32,
    },
    /// The checksum does not match the bytes.
    #[error("checksum {computed:#010x} where the frame says {stated:#010x}")]
    Checksum {
        /// The checksum in the frame.
        stated: u32,
        /// The computed checksum.
        computed: u32,
    },
    /// The fields do not decode.
    #[error("the fields of a {0:?} message do not decode")]
    Malformed(Kind),
    /// The bytes are not exactly one whole frame, where they must be.
    #[error("not one whole frame")]
    Cut,
    /// The next frame began before this one was complete: some of its bytes were lost, or its
    /// length fields were damaged.
    #[error("bytes of a message were missing when the next one began")]
    Gap,
}

fn write_magic(bytes: &[u8; 4], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match bytes {
        // The first bytes of a TLS record: content type, then version.
        [0x14..=0x17, 3, ..] => {
            f.write_str("the peer speaks TLS, this side plain text; use --tls on both")
        }
        [0, 0, b'p', b's'] => {
            f.write_str("the peer wants a shared key, this side has none; use --psk on both")
        }
        _ => write!(
            f,
            "bytes {bytes:02x?} do not begin a pstrain frame; is the peer a pstrain of the same \
             release, and this its port?"
        ),
    }
}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Self {
        Self::Frame { what: error.to_string() }
    }
}

/// The decoded header of a frame.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) control: usize,
    pub(super) payload: usize,
}

impl Header {
    /// Decodes the message once its control part and payload have arrived and the `stated` checksum
    /// equals the computed one.
    pub(super) fn message(
        &self,
        control: &[u8],
        payload: Received,
        (stated, computed): ([u8; CHECKSUM_BYTES], u32),
        limits: Limits,
    ) -> Result<Message, FrameError> {
        let stated = u32::from_le_bytes(stated);
        if computed != stated {
            return Err(FrameError::Checksum { stated, computed });
        }
        Message::of_parts(self.kind, control, payload, limits.values())
            .map_err(|_malformed| FrameError::Malformed(self.kind))
    }

    /// Allocates the receive buffer of the payload.
    pub(super) fn receive(&self, spares: &mut BufferPool) -> Received {
        let is_gradient = matches!(self.kind.content(), Some(Content::Gradient));
        Received::of(self.payload, is_gradient, spares)
    }
}

/// Decodes the message at the front of `bytes` and returns it with the length of its frame; none if
/// the frame is incomplete. Values are stored in buffers of `spares`.
pub(super) fn decode(
    bytes: &[u8],
    limits: Limits,
    spares: &mut BufferPool,
) -> Result<Option<(Message, usize)>, FrameError> {
    let Some(header) = parse_header(bytes, limits)? else { return Ok(None) };
    let checked = HEADER_BYTES + header.control + header.payload;
    let Some((checked, rest)) = bytes.split_at_checked(checked) else { return Ok(None) };
    let Some(&checksum) = rest.first_chunk() else { return Ok(None) };
    let (head, payload) = checked.split_at(HEADER_BYTES + header.control);
    let sums = (checksum, crc32c_append(0, checked));
    let mut received = header.receive(spares);
    received.take(payload);
    let message = header.message(&head[HEADER_BYTES..], received, sums, limits)?;
    Ok(Some((message, checked.len() + CHECKSUM_BYTES)))
}

/// Parses and checks a header; none if it is incomplete.
pub(super) fn parse_header(bytes: &[u8], limits: Limits) -> Result<Option<Header>, FrameError> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        // The header is incomplete, but if its magic is already wrong, more bytes cannot help.
        let begins = bytes.len().min(MAGIC.len());
        if bytes[..begins] != MAGIC[..begins] {
            let mut magic = [0; 4];
            magic[..begins].copy_from_slice(&bytes[..begins]);
            return Err(FrameError::Magic(magic));
        }
        return Ok(None);
    };
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let magic = [header[0], header[1], header[2], header[3]];
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    let protocol =
        Protocol { version: header[4], layout: u16::from_le_bytes([header[6], header[7]]) };
    if protocol != PROTOCOL {
        return Err(FrameError::Version(protocol));
    }
    let kind = Kind::from_number(header[5]).ok_or(FrameError::Kind(header[5]))?;
    let (control, payload) = (word(8), word(12));
    if control > limits.control {
        return Err(FrameError::Control { length: control, limit: limits.control });
    }
    if payload > limits.payload {
        return Err(FrameError::Payload { length: payload, limit: limits.payload });
    }
    Ok(Some(Header { kind, control: control as usize, payload: payload as usize }))
}
