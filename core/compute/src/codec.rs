//! Serialisation of the control part of a message. No other module names the serialiser, so that it
//! can be replaced here alone; payloads bypass it.

use alloc::vec::Vec;

use bincode::config::{self, Configuration, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A control part that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Bounds the allocation that a hostile length inside a control part can cause: the decoder
/// allocates a text before it checks that the text is present. A field counts with its size in
/// memory, at most 8 bytes per byte on the wire, so that neither bound ever rejects a valid
/// message.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// The bound for control parts of a few kilobytes: unauthenticated connections send no larger ones.
const MOST_BYTES_OF_SMALL: usize = 16 * SMALL;
const SMALL: usize = 4 * 1024;

const CONFIG: Configuration<LittleEndian, Varint, config::Limit<MOST_BYTES>> =
    config::standard().with_limit::<MOST_BYTES>();

struct Appender<'a>(&'a mut Vec<u8>);

impl bincode::enc::write::Writer for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Appends `fields` to `bytes`.
pub fn append<T: Serialize>(fields: &T, bytes: &mut Vec<u8>) {
    // Messages contain only numbers, text, options and lists, which always encode. Only a writer of
    // limited size could fail, and a vector grows.
    let encoded = bincode::serde::encode_into_writer(fields, Appender(bytes), CONFIG);
    debug_assert!(encoded.is_ok(), "control part does not encode: {encoded:?}");
}

/// Decodes fields that must fill `bytes` exactly.
///
/// # Errors
/// [`Malformed`] if `bytes` is not exactly such an encoding.
pub fn read<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let fields = read_first(&mut bytes)?;
    if bytes.is_empty() { Ok(fields) } else { Err(Malformed) }
}

/// Decodes the fields at the start of `bytes` and leaves the remaining bytes. The caller reads a
/// list of lists item by item with it, so that a claimed length can only affect one item at a time.
///
/// # Errors
/// [`Malformed`] if `bytes` does not start with such an encoding.
pub fn read_first<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, Malformed> {
    let read = if bytes.len() <= SMALL {
        let small = config::standard().with_limit::<MOST_BYTES_OF_SMALL>();
        bincode::serde::decode_from_slice(bytes, small)
    } else {
        bincode::serde::decode_from_slice(bytes, CONFIG)
    };
    let (fields, used) = read.map_err(|_error| Malformed)?;
    *bytes = bytes.get(used..).ok_or(Malformed)?;
    Ok(fields)
}
