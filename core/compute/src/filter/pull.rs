//! Pull filter: sends only the parameters that differ from the copy of the worker.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::encoded::{Coded, Encoded};
use crate::named::{Limits, Number, Word};

/// The parameters that are sent to a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum PullFilter {
    /// All parameters.
    #[default]
    None,
    /// Parameters that differ from the worker's copy by more than `delta` (significantly modified:
    /// Li et al., OSDI 2014). With `delta` 0 all parameters that differ at all, so that nothing is
    /// lost.
    Changed {
        /// The largest difference that is not sent, 0 or more.
        delta: f32,
    },
}

impl PullFilter {
    /// True if all parameters are sent.
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// True if a worker's copy may differ from the parameters.
    #[must_use]
    pub const fn is_lossy(self) -> bool {
        matches!(self, Self::Changed { delta } if delta > 0.0)
    }

    /// Moves `had`, the worker's copy, towards `values` and returns the changes to send. Returns
    /// `None` if `had` must be sent whole instead, because it had another length (it then becomes
    /// `values`) or the changes would not be shorter. [`Self::None`] ignores `had`.
    ///
    /// The new copy does not depend on the form in which it is sent, and each key is decided by
    /// itself. So the copy is the same however many servers share the keys.
    #[must_use]
    pub fn changes(self, values: &[f32], had: &mut Vec<f32>) -> Option<Encoded> {
        let Self::Changed { delta } = self else { return None };
        if had.len() != values.len() {
            had.clear();
            had.extend_from_slice(values);
            return None;
        }
        let differs = |(value, had): (&f32, &f32)| match delta > 0.0 {
            // Non-finite differences always count as changes.
            true => (value - had).abs() > delta || !(value - had).is_finite(),
            false => value.to_bits() != had.to_bits(),
        };
        let pairs = (0..).zip(values.iter().zip(&*had));
        let keys: Vec<u32> = pairs.filter(|(_, pair)| differs(*pair)).map(|(key, _)| key).collect();
        let changed = keys.iter().map(|&key| values[key as usize]).collect();
        let coded = Coded::single(Some(keys), changed, values.len());
        let encoded = coded.encode(0..values.len());
        let _fits = encoded.patch(had);
        (encoded.bytes.len() < size_of_val(values)).then_some(encoded)
    }
}

named!(PullFilter: "pull filter", ',' {
    None = Word::new("none", &[], "all parameters"),
    Changed { delta } =
        Word::new("changed", &[Number::real("DELTA", Limits::NOT_NEGATIVE).usual("0")],
            "parameters that differ by more than DELTA from the worker's copy"),
});

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::collection::vec as many;
    use proptest::prelude::*;

    use super::*;

    /// The next values: some stay, some change a little, some a lot.
    fn next(values: &[f32], moves: &[u8]) -> Vec<f32> {
        let step = |(value, by): (&f32, &u8)| match by % 8 {
            0..5 => *value,
            5 => value + 0.001,
            6 => -value,
            _ => f32::from(*by),
        };
        values.iter().zip(moves).map(step).collect()
    }

    proptest! {
        #[test]
        fn whoever_has_had_the_last_ones_has_these(
            delta in prop_oneof![Just(0.0_f32), 0.0_f32..2.0],
            first in many(-3.0_f32..3.0, 40),
            moves in many(many(any::<u8>(), 40), 1..12),
        ) {
            let filter = PullFilter::Changed { delta };
            let (mut values, mut had, mut worker) = (first, Vec::new(), Vec::new());
            for moves in moves {
                match filter.changes(&values, &mut had) {
                    Some(changes) => {
                        prop_assert!(changes.bytes.len() < 4 * values.len());
                        prop_assert!(changes.patch(&mut worker).is_ok());
                    }
                    None => worker.clone_from(&had),
                }
                prop_assert_eq!(&had, &worker);
                for (value, has) in values.iter().zip(&worker) {
                    prop_assert!((value - has).abs() <= delta);
                }
                values = next(&values, &moves);
            }
        }
    }

    proptest! {
        #[test]
        fn parts_of_the_keys_have_the_same_copies_as_all_keys(
            delta in prop_oneof![Just(0.0_f32), 0.0_f32..2.0],
            first in many(-3.0_f32..3.0, 40),
            moves in many(many(any::<u8>(), 40), 1..12),
            part in 1..40_usize,
        ) {
            let filter = PullFilter::Changed { delta };
            let mut values = first;
            let (mut all, mut parts) = (Vec::new(), vec![Vec::new(); 40_usize.div_ceil(part)]);
            for moves in moves {
                let _all = filter.changes(&values, &mut all);
                for (values, had) in values.chunks(part).zip(&mut parts) {
                    let _part = filter.changes(values, had);
                }
                prop_assert_eq!(&parts.concat(), &all);
                values = next(&values, &moves);
            }
        }
    }

    #[test]
    fn nothing_travels_if_nothing_has_changed() {
        let filter = PullFilter::Changed { delta: 0.0 };
        let (values, mut had) = (vec![0.0, -0.0, 1.5], Vec::new());
        assert!(filter.changes(&values, &mut had).is_none(), "it has nothing yet");
        assert_eq!(filter.changes(&values, &mut had).unwrap().bytes.len(), 0);
        // A changed sign of a zero counts as a change.
        assert_eq!(filter.changes(&[0.0, 0.0, 1.5], &mut had).unwrap().bytes.len(), 4);
        // Two keys that are not consecutive take a byte for the key form.
        assert_eq!(filter.changes(&[1.0, 0.0, 2.5], &mut had).unwrap().bytes.len(), 9);
        // A difference of NaN is sent at any `delta`.
        let wide = PullFilter::Changed { delta: 10.0 };
        wide.changes(&[0.0, 0.0, f32::NAN], &mut had).unwrap();
        assert!(had[2].is_nan());
    }

    #[test]
    fn words_are_read() {
        assert_eq!("none".parse(), Ok(PullFilter::None));
        assert_eq!("changed".parse(), Ok(PullFilter::Changed { delta: 0.0 }));
        assert_eq!("changed:0.5".parse(), Ok(PullFilter::Changed { delta: 0.5 }));
        for wrong in ["", "changed:", "changed:-1", "changed:inf", "all"] {
            assert!(wrong.parse::<PullFilter>().is_err(), "{wrong}");
        }
    }
}
