//! Parameters of a key range, for a client that reads them, and the initial parameters of a worker.
//!
//! A worker sends its initial parameters part by part, each part when the server requests it, so
//! that no frame is longer than a part.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::payload::{Content, Parts, Payload};
use crate::received::Received;
use pstrain_compute::codec::{self, Malformed};
use pstrain_compute::filter::{Encoded, Form};
use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;

/// Client to server: requests the parameters of a key range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRange {
    /// The newest protocol version that the client speaks.
    pub protocol_max: u8,
    /// The keys; none for all.
    pub keys: Option<KeyRange>,
    /// True if the client wants the values, false for the statistics alone.
    pub values: bool,
}

/// Server to client: the parameters of a key range, all of one version.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeOf {
    /// Everything but the values.
    pub header: RangeHeader,
    /// The values, encoded as the header says: the payload. Empty if the client did not want them.
    pub bytes: Vec<u8>,
}

/// The fields of a [`RangeOf`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeHeader {
    /// The version; it is the same on all servers.
    pub version: Version,
    /// The keys.
    pub keys: KeyRange,
    /// Number of keys of the model.
    pub total: u64,
    /// Statistics of the values.
    pub statistics: Statistics,
    /// The encoding of the values; none if the client did not want them.
    pub form: Option<Form>,
}

/// Statistics of the parameters of a key range. Sums are computed in key order, in `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Number of keys.
    pub count: u64,
    /// Number of values other than 0. Here -0 counts as 0.
    pub non_zeros: u64,
    /// The sum of the magnitudes.
    pub l1: f64,
    /// The square root of the sum of the squares.
    pub l2: f64,
    /// The smallest value; NaN if any value is NaN.
    pub min: f32,
    /// The largest value; NaN if any value is NaN.
    pub max: f32,
}

impl Statistics {
    /// Computes the statistics of `values`.
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
        // `f32::min` and `f32::max` ignore NaN, so NaN is tracked separately.
        if !is_number {
            (min, max) = (f32::NAN, f32::NAN);
        }
        Self { count: values.len() as u64, non_zeros, l1, l2: libm::sqrt(squares), min, max }
    }
}

impl RangeOf {
    /// Makes the answer for `keys` of a model with `total` keys: their `values` in `version`, which
    /// it includes only if they are `wanted`.
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

    /// Returns the keys with a non-zero value, in order, with their values. Here -0 is not 0. None
    /// if the client did not want the values, or the bytes do not decode.
    #[must_use]
    pub fn non_zeros(&self) -> Option<Vec<(u64, f32)>> {
        let keys = usize::try_from(self.header.keys.len()).ok()?;
        let encoded = Encoded { form: self.header.form.clone()?, bytes: self.bytes.clone() };
        let values = encoded.decode(keys).ok()?;
        Some(non_zeros(self.header.keys, values).collect())
    }
}

/// Pairs each of `keys` with its value and drops pairs whose value is 0.
fn non_zeros(keys: KeyRange, values: Vec<f32>) -> impl Iterator<Item = (u64, f32)> {
    (keys.begin()..).zip(values).filter(|(_, value)| value.to_bits() != 0)
}

/// Maximum number of keys of a [`RangePart`]: their values are 1 MiB.
pub const MOST_PART_KEYS: u64 = 256 * 1024;
const MOST_PART_BYTES: u32 = MOST_PART_KEYS as u32 * size_of::<f32>() as u32;

/// Server to worker: requests a part of the initial parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartDue {
    /// The keys of the part, at most [`MOST_PART_KEYS`].
    pub part: KeyRange,
    /// All keys of the model.
    pub keys: KeyRange,
}

impl PartDue {
    /// Returns the part of `keys` that starts at the key `from`; none if `from` is past the last
    /// key.
    #[must_use]
    pub fn at(keys: KeyRange, from: u64) -> Option<Self> {
        let end = keys.end().min(from.saturating_add(MOST_PART_KEYS));
        KeyRange::new(from, end).ok().map(|part| Self { part, keys })
    }
}

/// Worker to server: the requested values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangePart {
    /// The keys of the values.
    pub keys: KeyRange,
    /// The encoded values: the bytes are the payload.
    pub encoded: Encoded,
}

impl RangePart {
    /// Makes a part with `values` for `keys`, in the shorter encoding.
    #[must_use]
    pub fn new(keys: KeyRange, values: &[f32]) -> Self {
        Self { keys, encoded: Encoded::of_values(values) }
    }

    /// Decodes the values, one for each key; none if the bytes do not decode, or there are more
    /// than [`MOST_PART_KEYS`] keys.
    #[must_use]
    pub fn values(&self) -> Option<Vec<f32>> {
        let keys = self.keys.len();
        if keys > MOST_PART_KEYS { None } else { self.encoded.decode(keys as usize).ok() }
    }
}

impl RangePart {
    /// The part for `keys` whose values, encoded as `form`, were received.
    pub(super) fn of_received(keys: KeyRange, form: Form, payload: Received) -> Self {
        Self { keys, encoded: Encoded { form, bytes: payload.into_bytes() } }
    }

    /// All parts of `values`, which are those of the keys from 0 on, in order.
    pub fn all(values: &[f32]) -> impl Iterator<Item = Self> + '_ {
        let mut next = 0;
        core::iter::from_fn(move || {
            let keys = KeyRange::new(0, values.len() as u64).ok()?;
            let PartDue { part, .. } = PartDue::at(keys, next)?;
            next = part.end();
            Some(Self::new(part, &values[part.indices()]))
        })
    }
}

impl Parts for RangePart {
    const CONTENT: Option<Content> = Some(Content::Part(MOST_PART_BYTES));

    fn append_control(&self, bytes: &mut Vec<u8>) {
        codec::append(&(self.keys, &self.encoded.form), bytes);
    }

    fn payload(&self) -> Payload<'_> {
        Payload::Borrowed(&self.encoded.bytes)
    }

    fn of_parts(control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
        let (keys, form) = codec::read(control)?;
        Ok(Self::of_received(keys, form, payload))
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
        let answer = RangeOf::new(Version(3), (keys, 40), &[0.0, 1.5, 0.0, -2.0, -0.0], true);
        assert_eq!(answer.non_zeros(), Some(vec![(11, 1.5), (13, -2.0), (14, -0.0)]));
        assert!(answer.non_zeros().unwrap()[2].1.is_sign_negative());
        let answer = RangeOf::new(Version(3), (keys, 40), &[0.0, 1.5, 0.0, -2.0, 0.0], false);
        assert_eq!((answer.non_zeros(), answer.bytes.len()), (None, 0));
    }

    #[test]
    fn parts_come_back_to_the_bit_in_the_shorter_form() {
        let keys = KeyRange::new(3, 3 + MOST_PART_KEYS).unwrap();
        let dense: Vec<f32> = (0..MOST_PART_KEYS).map(|key| 0.5 + key as f32).collect();
        let mut holes = dense.clone();
        holes[7] = 0.0;
        let mut sparse = vec![0.0; MOST_PART_KEYS as usize];
        (sparse[1000], sparse[1001]) = (f32::MIN_POSITIVE / 2.0, -0.0);
        for values in [dense, holes, sparse] {
            let part = RangePart::new(keys, &values);
            assert!(part.encoded.bytes.len() <= 4 * MOST_PART_KEYS as usize);
            let bits = |values: &[f32]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&part.values().unwrap()), bits(&values));
        }
        let more = KeyRange::new(0, MOST_PART_KEYS + 1).unwrap();
        assert_eq!(RangePart::new(more, &[0.0; 3]).values(), None);
    }

    #[test]
    fn a_range_is_asked_for_part_by_part() {
        let keys = KeyRange::new(5, 6 + MOST_PART_KEYS).unwrap();
        let first = PartDue::at(keys, 5).unwrap();
        assert_eq!(first.part, KeyRange::new(5, 5 + MOST_PART_KEYS).unwrap());
        let last = PartDue::at(keys, first.part.end()).unwrap();
        assert_eq!((last.part.len(), last.part.end(), last.keys), (1, keys.end(), keys));
        assert_eq!(PartDue::at(keys, keys.end()), None);
    }
}
