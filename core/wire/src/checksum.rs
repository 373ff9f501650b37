//! CRC-32C. With `std` it uses CPU instructions that are detected at run time, and with
//! `wide-checksums` the widest of them.

/// Computes the CRC-32C (Castagnoli) of `bytes`. It protects frames and files.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Extends the checksum `sum` by `bytes`. The checksum of no bytes is 0.
#[cfg(feature = "wide-checksums")]
pub(super) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
    let mut digest = crc_fast::Digest::new_with_init_state(algorithm, u64::from(!sum));
    digest.update(bytes);
    // A CRC-32 is in the lower half of the result.
    digest.finalize() as u32
}

/// Extends the checksum `sum` by `bytes`. The checksum of no bytes is 0.
#[cfg(all(feature = "std", not(feature = "wide-checksums")))]
pub(super) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

/// Extends the checksum `sum` by `bytes`. The checksum of no bytes is 0.
#[cfg(not(feature = "std"))]
pub(super) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    static CRC: crc::Crc<u32, crc::Table<16>> =
        crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);
    // `digest_with_initial` reverses the bits of its argument, so they are reversed here first. The
    // XOR undoes the final inversion of `sum`.
    let mut digest = CRC.digest_with_initial((sum ^ u32::MAX).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_append};

    #[test]
    fn the_check_value_of_crc_32c_comes_out() {
        // RFC 3720, appendix B.4 names the polynomial; the check value is from the catalogue of
        // CRCs.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let pieces: [&[u8]; 3] = [b"1234", b"", b"56789"];
        let sum = pieces.iter().fold(0, |sum, piece| crc32c_append(sum, piece));
        assert_eq!(sum, 0xe306_9283);
    }
}
