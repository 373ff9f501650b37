//! Checks for NaN and infinity.

use super::KeyRange;

/// The exponent bits, all ones for NaN and infinities.
const EXPONENT: u32 = 0x7f80_0000;

/// True if all values are finite. `order` converts the bits of a value to native byte order.
pub fn are_finite(values: &[f32], order: impl Fn(u32) -> u32) -> bool {
    // A single pass without branches.
    let bad = |value: &f32| u32::from(order(value.to_bits()) & EXPONENT == EXPONENT);
    values.iter().fold(0, |all, value| all | bad(value)) == 0
}

/// Returns the first of `keys` whose value is NaN or infinite.
pub fn first_not_finite(keys: KeyRange, values: &[f32]) -> Option<u64> {
    if are_finite(values, |bits| bits) {
        return None;
    }
    let place = values.iter().position(|value| !value.is_finite());
    place.map(|place| keys.begin() + place as u64)
}
