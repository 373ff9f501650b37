//! Bit-packed sequences of small numbers.

use alloc::vec::Vec;

/// Appends numbers of `bits` bits each (1 to 8); each byte is filled from its lowest bit.
pub(super) fn write(bytes: &mut Vec<u8>, bits: u8, numbers: impl Iterator<Item = u8>) {
    let (mut pending, mut held) = (0_u32, 0);
    for number in numbers {
        pending |= u32::from(number) << held;
        held += bits;
        if held >= 8 {
            bytes.push(pending as u8);
            pending >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        bytes.push(pending as u8);
    }
}

/// True if `bytes` has exactly the size of `count` numbers of `bits` bits, with zero padding.
pub(super) fn fill(bytes: &[u8], bits: u8, count: usize) -> bool {
    let Some(used) = count.checked_mul(usize::from(bits)) else { return false };
    let left = used % 8;
    let padding = bytes.last().map_or(0, |&last| if left == 0 { 0 } else { last >> left });
    bytes.len() == used.div_ceil(8) && padding == 0
}

/// Reads `count` numbers of `bits` bits from `bytes`, which they [`fill`].
pub(super) fn read(bytes: &[u8], bits: u8, count: usize) -> impl Iterator<Item = u8> {
    let mask = ((1_u16 << bits) - 1) as u8;
    let at = |place: usize| u16::from(bytes.get(place).copied().unwrap_or(0));
    (0..count).map(move |number| {
        let begin = number * usize::from(bits);
        let word = at(begin / 8) | at(begin / 8 + 1) << 8;
        (word >> (begin % 8)) as u8 & mask
    })
}
