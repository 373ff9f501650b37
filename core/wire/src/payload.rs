//! Payloads: what they contain, and how a message is split into control part and payload.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::peers::MOST_INHERIT_BYTES;
use crate::received::Received;
use pstrain_compute::codec::Malformed;

/// Maximum bytes of the control part of any message.
pub(super) const MOST_CONTROL_BYTES: u32 = 16 * 1024 * 1024;

/// The payload bytes of a frame.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Borrowed from the message.
    Borrowed(&'a [u8]),
    /// Copied with the bytes swapped (on a big-endian machine).
    Owned(Vec<u8>),
}

impl<'a> Payload<'a> {
    pub(super) const NONE: Self = Self::Borrowed(&[]);

    pub(super) fn of(values: &'a [f32]) -> Self {
        Self::of_words(bytemuck::cast_slice(values))
    }

    fn of_words(words: &'a [u32]) -> Self {
        if cfg!(target_endian = "little") {
            Self::Borrowed(bytemuck::cast_slice(words))
        } else {
            Self::Owned(words.iter().flat_map(|word| word.to_le_bytes()).collect())
        }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// True if the payload is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The content of a payload. It bounds the payload's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Values of a gradient, which are checked for NaN and infinity as they arrive; or their
    /// encoding, which is shorter.
    Gradient,
    /// Values, or their encoding, which is shorter.
    Values,
    /// A list of keys with a value for each.
    KeyList,
    /// An input of a server: the frame of a message with values, and more.
    Input,
    /// Some of the values of a model, in at most this number of bytes.
    Part(u32),
    /// Values, or a part of a state, that one worker sends to another.
    Relayed,
    /// At most this number of bytes.
    Bytes(u32),
    /// Bytes of any number: the receiver asked for them.
    Unlimited,
}

impl Content {
    /// Returns the maximum length of the payload, in bytes, for a model with `parameters` values.
    #[must_use]
    pub const fn most_bytes(self, parameters: usize) -> u32 {
        match self {
            Self::Gradient | Self::Values => bytes_of(parameters),
            // A key list is at most as long as a bitmap with one bit for each key.
            Self::KeyList => {
                bytes_of(parameters.saturating_add(parameters.div_ceil(8 * size_of::<f32>())))
            }
            Self::Input => bytes_of(parameters).saturating_add(MOST_CONTROL_BYTES),
            Self::Part(most) => {
                let all = bytes_of(parameters);
                if all < most { all } else { most }
            }
            Self::Relayed => {
                let all = bytes_of(parameters);
                if all < MOST_INHERIT_BYTES { MOST_INHERIT_BYTES } else { all }
            }
            Self::Bytes(most) => most,
            Self::Unlimited => u32::MAX,
        }
    }
}

const fn bytes_of(values: usize) -> u32 {
    let bytes = values.saturating_mul(size_of::<f32>());
    if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 }
}

/// The split of a message into control part and payload. The [table](crate::message) implements it
/// for most messages.
pub(super) trait Parts: Sized {
    /// The content of the payload; none if the message has no payload.
    const CONTENT: Option<Content>;

    /// Appends the encoded control part to `bytes`.
    fn append_control(&self, bytes: &mut Vec<u8>);

    /// Returns the payload.
    fn payload(&self) -> Payload<'_>;

    /// Assembles the message. `most_values` bounds the values that a short payload may stand for.
    fn of_parts(control: &[u8], payload: Received, most_values: usize) -> Result<Self, Malformed>;
}

/// A field that is the payload of its message: sent from its own memory, and received into it.
pub(super) trait PayloadField: Sized {
    /// Returns the bytes to send.
    fn payload(&self) -> Payload<'_>;

    /// Takes the received bytes.
    fn of_received(payload: Received) -> Result<Self, Malformed>;
}

impl PayloadField for Vec<u8> {
    fn payload(&self) -> Payload<'_> {
        Payload::Borrowed(self)
    }

    fn of_received(payload: Received) -> Result<Self, Malformed> {
        Ok(payload.into_bytes())
    }
}

impl PayloadField for Arc<Vec<u8>> {
    fn payload(&self) -> Payload<'_> {
        Payload::Borrowed(self)
    }

    fn of_received(payload: Received) -> Result<Self, Malformed> {
        Ok(Self::new(payload.into_bytes()))
    }
}

impl PayloadField for Arc<Vec<f32>> {
    fn payload(&self) -> Payload<'_> {
        Payload::of(self)
    }

    fn of_received(payload: Received) -> Result<Self, Malformed> {
        payload.into_values().map(|(values, _)| values).ok_or(Malformed)
    }
}

impl PayloadField for Arc<Vec<i32>> {
    fn payload(&self) -> Payload<'_> {
        Payload::of_words(bytemuck::cast_slice(self))
    }

    fn of_received(payload: Received) -> Result<Self, Malformed> {
        let (values, _) = payload.into_values().ok_or(Malformed)?;
        Ok(Self::new(values.iter().map(|value| value.to_bits() as i32).collect()))
    }
}
