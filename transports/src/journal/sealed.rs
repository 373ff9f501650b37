//! A checksum over a whole safetensors file, in its metadata, reckoned with zeros in its own place:
//! so one file, which any reader of safetensors opens, is either whole or known not to be.

use std::io;
use std::ops::Range;

use pstrain_wire::crc32c;

/// The text before the checksum's eight hexadecimal digits.
const MARK: &[u8] = b"crc32c ";

/// The text that has to be in the metadata of a file to be sealed, before any other like it.
pub const UNSEALED: &str = "crc32c 00000000";

/// Puts the checksum of a safetensors file in its place.
///
/// # Errors
/// If [`UNSEALED`] is not in its metadata.
pub fn seal(bytes: &mut [u8]) -> io::Result<()> {
    let checksum = crc32c(bytes);
    let place = checksum_in(bytes).ok_or_else(|| io::Error::other("no place for a checksum"))?;
    bytes[place].copy_from_slice(format!("{checksum:08x}").as_bytes());
    Ok(())
}

/// Whether a safetensors file is what [`seal`] left; none if it has no checksum.
#[must_use]
pub fn is_sealed(bytes: &mut [u8]) -> Option<bool> {
    let place = checksum_in(bytes)?;
    let told: [u8; 8] = *bytes.get(place.clone())?.first_chunk()?;
    bytes[place.clone()].fill(b'0');
    let is_whole = format!("{:08x}", crc32c(bytes)).as_bytes() == told;
    bytes[place].copy_from_slice(&told);
    Some(is_whole)
}

/// Where the checksum is: the first eight digits after the words before it, in the metadata.
fn checksum_in(bytes: &[u8]) -> Option<Range<usize>> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    let header = bytes.get(8..)?.get(..usize::try_from(length).ok()?)?;
    let begin = header.windows(MARK.len()).position(|word| word == MARK)?;
    let begin = 8 + begin + MARK.len();
    (begin + 8 <= bytes.len()).then_some(begin..begin + 8)
}
