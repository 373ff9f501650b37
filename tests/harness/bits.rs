//! Parameters, to be compared bit for bit: `==` holds between 0 and -0, but not between two NaN.

/// The bits of each value.
#[must_use]
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
