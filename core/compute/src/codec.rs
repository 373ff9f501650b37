//! The control part of a message as bytes. The only module that names the serialiser, so that it
//! can be replaced in one place; payloads never pass through it.

use alloc::vec::Vec;

use bincode::config::{self, Configuration, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A control part that does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Bounds what a hostile length inside a control part can make the decoder allocate: it makes room
/// for a text before it looks whether the text is there. A field counts as what it takes in memory,
/// at most 8 bytes for one on the wire, so neither bound ever refuses an honest message.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// The bound for control parts of a few kilobytes, which is all that a stranger can send.
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
    // Messages hold numbers, text, options and lists only, which always encode; what could fail
    // is a writer with an end, and a growing vector has none.
    let encoded = bincode::serde::encode_into_writer(fields, Appender(bytes), CONFIG);
    debug_assert!(encoded.is_ok(), "control part does not encode: {encoded:?}");
}

/// Reads fields that must fill `bytes` exactly.
///
/// # Errors
/// [`Malformed`] if the bytes are anything else.
pub fn read<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let fields = read_first(&mut bytes)?;
    if bytes.is_empty() { Ok(fields) } else { Err(Malformed) }
}

/// Reads fields that `bytes` begin with, and leaves what follows them. A list of lists is read item
/// by item this way: what an item says it holds is believed for one at a time only.
///
/// # Errors
/// [`Malformed`] if the bytes begin with anything else.
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
