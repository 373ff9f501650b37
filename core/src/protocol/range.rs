//! Questions about the parameters of a key range, and their answers.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::filter::{Encoded, Form};
use crate::id::Version;
use crate::params::KeyRange;

/// Client to server: what are the parameters of these keys?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRange {
    /// The newest protocol version that the client speaks.
    pub protocol_max: u8,
    /// Which keys; none for all.
    pub keys: Option<KeyRange>,
    /// Whether the values are wanted, or only what there is to say of them.
    pub values: bool,
}

/// Server to client: the parameters of a key range, all of one version.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeOf {
    /// Everything but the values.
    pub header: RangeHeader,
    /// The values, in the form of the header: the payload. Empty if they were not wanted.
    pub bytes: Vec<u8>,
}

/// The fields of a [`RangeOf`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeHeader {
    /// The version, on all servers.
    pub version: Version,
    /// The keys.
    pub keys: KeyRange,
    /// Keys of the model.
    pub total: u64,
    /// What there is to say of the values.
    pub statistics: Statistics,
    /// The form of the values; none if they were not wanted.
    pub form: Option<Form>,
}

/// What there is to say of the parameters of a range. Sums go in the order of the keys, in `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Keys.
    pub count: u64,
    /// Values that are not 0.
    pub non_zeros: u64,
    /// The sum of the magnitudes.
    pub l1: f64,
    /// The root of the sum of the squares.
    pub l2: f64,
    /// The least value; NaN if one is NaN.
    pub min: f32,
    /// The greatest value; NaN if one is NaN.
    pub max: f32,
}

impl Statistics {
    /// Those of `values`.
    #[must_use]
    pub fn of(values: &[f32]) -> Self {
        let (mut l1, mut squares) = (0.0, 0.0);
        let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
        let (mut non_zeros, mut is_number) = (0, true);
        for &value in values {
            let wide = f64::from(value);
            l1 += libm::fabs(wide);
            squares += wide * wide;
            non_zeros += u64::from(value != 0.0);
            is_number &= !value.is_nan();
            (min, max) = (min.min(value), max.max(value));
        }
        if !is_number {
            (min, max) = (f32::NAN, f32::NAN);
        }
        Self { count: values.len() as u64, non_zeros, l1, l2: libm::sqrt(squares), min, max }
    }
}

impl RangeOf {
    /// The answer about `values`, which `keys` of a model with `total` have in `version`.
    #[must_use]
    pub fn new(
        version: Version,
        (keys, total): (KeyRange, u64),
        values: &[f32],
        wanted: bool,
    ) -> Self {
        let encoded = wanted.then(|| Encoded::of_non_zeros(values));
        let (form, bytes) = encoded.map_or((None, Vec::new()), |it| (Some(it.form), it.bytes));
        let statistics = Statistics::of(values);
        Self { header: RangeHeader { version, keys, total, statistics, form }, bytes }
    }

    /// The keys whose value is not 0, in order, with their values; none if these were not wanted, or
    /// the bytes are not of the form they are said to be.
    #[must_use]
    pub fn non_zeros(&self) -> Option<Vec<(u64, f32)>> {
        let keys = usize::try_from(self.header.keys.len()).ok()?;
        let encoded = Encoded { form: self.header.form.clone()?, bytes: self.bytes.clone() };
        let values = encoded.decode(keys).ok()?;
        let pairs = (self.header.keys.begin()..).zip(values);
        Some(pairs.filter(|(_, value)| *value != 0.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn statistics_are_those_of_the_values() {
        let found = Statistics::of(&[3.0, 0.0, -4.0, -0.0]);
        let wanted = Statistics { count: 4, non_zeros: 2, l1: 7.0, l2: 5.0, min: -4.0, max: 3.0 };
        assert_eq!(found, wanted);
        let found = Statistics::of(&[1.0, f32::NAN]);
        assert!(found.min.is_nan() && found.max.is_nan() && found.l1.is_nan());
    }

    #[test]
    fn values_come_back_with_their_keys() {
        let keys = KeyRange::new(10, 15).unwrap();
        let answer = RangeOf::new(Version(3), (keys, 40), &[0.0, 1.5, 0.0, -2.0, 0.0], true);
        assert_eq!(answer.non_zeros(), Some(vec![(11, 1.5), (13, -2.0)]));
        let answer = RangeOf::new(Version(3), (keys, 40), &[0.0, 1.5, 0.0, -2.0, 0.0], false);
        assert_eq!((answer.non_zeros(), answer.bytes.len()), (None, 0));
    }
}
