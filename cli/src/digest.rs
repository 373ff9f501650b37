//! Digests in hexadecimal, as records and results print them.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of the values as little-endian `f32`, in hexadecimal.
pub(crate) fn sha256(values: &[f32]) -> String {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(value.to_le_bytes());
    }
    hexadecimal(&hash.finalize())
}

/// Returns the bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
