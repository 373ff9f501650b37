//! CRC-32C, with the processor's instructions where the `std` feature may look for them, and the
//! widest of these with `wide-checksums`.

/// The CRC-32C (Castagnoli) of `bytes`: of frames, and of whatever is kept on disks.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of what has `sum` and is followed by `bytes`; that of nothing is 0.
#[cfg(feature = "wide-checksums")]
pub(super) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
    let mut digest = crc_fast::Digest::new_with_init_state(algorithm, u64::from(!sum));
    digest.update(bytes);
    // The upper half is for longer checksums.
    digest.finalize() as u32
}

/// The checksum of what has `sum` and is followed by `bytes`; that of nothing is 0.
#[cfg(all(feature = "std", not(feature = "wide-checksums")))]
pub(super) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

/// The checksum of what has `sum` and is followed by `bytes`; that of nothing is 0.
#[cfg(not(feature = "std"))]
pub(super) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    static CRC: crc::Crc<u32, crc::Table<16>> =
        crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);
    // What is begun with is turned round, and what has come out was turned round and over.
    let mut digest = CRC.digest_with_initial((sum ^ u32::MAX).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_append};

    #[test]
    fn the_check_value_of_crc_32c_comes_out() {
        // RFC 3720, appendix B.4 names the polynomial; the check value is the catalogue's.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let pieces: [&[u8]; 3] = [b"1234", b"", b"56789"];
        let sum = pieces.iter().fold(0, |sum, piece| crc32c_append(sum, piece));
        assert_eq!(sum, 0xe306_9283);
    }
}
