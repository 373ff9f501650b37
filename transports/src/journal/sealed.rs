//! Checksum of a whole safetensors file, kept in the file's metadata.
//!
//! It is computed with zeros in its own place. So one file, which any safetensors reader opens,
//! shows by itself whether it is complete.

use std::io;
use std::ops::Range;

use pstrain_wire::crc32c;

/// Text before the eight hexadecimal digits of the checksum.
const MARK: &[u8] = b"crc32c ";

/// Placeholder in the metadata of a file to be sealed; the first occurrence counts.
pub const UNSEALED: &str = "crc32c 00000000";

/// Writes the checksum of a safetensors file into its placeholder.
///
/// # Errors
/// If the metadata does not contain [`UNSEALED`].
pub fn seal(bytes: &mut [u8]) -> io::Result<()> {
    let checksum = crc32c(bytes);
    let place = checksum_in(bytes).ok_or_else(|| io::Error::other("no place for a checksum"))?;
    bytes[place].copy_from_slice(format!("{checksum:08x}").as_bytes());
    Ok(())
}

/// True if the file's checksum matches, `None` if it has none. Leaves the bytes unchanged.
#[must_use]
pub fn is_sealed(bytes: &mut [u8]) -> Option<bool> {
    let place = checksum_in(bytes)?;
    let told: [u8; 8] = *bytes.get(place.clone())?.first_chunk()?;
    bytes[place.clone()].fill(b'0');
    let is_whole = format!("{:08x}", crc32c(bytes)).as_bytes() == told;
    bytes[place].copy_from_slice(&told);
    Some(is_whole)
}

/// Returns the position of the checksum: eight digits after the first `MARK` in the metadata.
fn checksum_in(bytes: &[u8]) -> Option<Range<usize>> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    let header = bytes.get(8..)?.get(..usize::try_from(length).ok()?)?;
    let begin = header.windows(MARK.len()).position(|word| word == MARK)?;
    let begin = 8 + begin + MARK.len();
    (begin + 8 <= bytes.len()).then_some(begin..begin + 8)
}
