//! The area under the ROC curve.

/// Returns the share of the pairs of a row of each class in which the row of class 1 has the higher
/// score, where a tie counts half: the area under the ROC curve (Hanley and McNeil, "The Meaning
/// and Use of the Area under a ROC Curve", 1982). `rows` have a score, and true if they are of
/// class 1; they are sorted. `None` if a class has no rows, or a score is NaN.
///
/// It is computed exactly, from ranks: pairs are counted in whole numbers.
pub(super) fn auc(rows: &mut [(f64, bool)]) -> Option<f64> {
    if rows.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    rows.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
    // Twice the pairs, so that a half is a whole number.
    let (mut pairs, mut below) = (0_u128, 0_u128);
    // `==` takes -0 and 0 for equal; they are adjacent.
    for tied in rows.chunk_by(|(one, _), (other, _)| one == other) {
        let positive = tied.iter().filter(|(_, is_positive)| *is_positive).count() as u128;
        let negative = tied.len() as u128 - positive;
        pairs += positive * (2 * below + negative);
        below += negative;
    }
    let positive = rows.len() as u128 - below;
    let all = 2 * positive * below;
    (all > 0).then(|| pairs as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn extremes_and_ties_are_known() {
        assert_eq!(auc(&mut [(0.1, false), (0.9, true), (0.5, false)]), Some(1.0));
        assert_eq!(auc(&mut [(0.1, true), (0.9, false)]), Some(0.0));
        assert_eq!(auc(&mut [(0.0, true), (-0.0, false)]), Some(0.5));
        assert_eq!(auc(&mut [(0.5, true); 3]), None);
        assert_eq!(auc(&mut [(f64::NAN, true), (0.5, false)]), None);
        let mut infinite = [(f64::INFINITY, true), (f64::NEG_INFINITY, false)];
        assert_eq!(auc(&mut infinite), Some(1.0));
    }

    proptest! {
        #[test]
        fn it_is_the_share_of_pairs_in_order(
            rows in proptest::collection::vec((-3_i8..4, any::<bool>()), 0..60),
        ) {
            let mut rows: Vec<_> =
                rows.into_iter().map(|(score, class)| (f64::from(score) / 2.0, class)).collect();
            let of = |class| rows.iter().filter(move |row| row.1 == class).map(|row| row.0);
            let (mut sum, mut count) = (0.0, 0);
            for positive in of(true) {
                for negative in of(false) {
                    count += 1;
                    sum += match positive.total_cmp(&negative) {
                        core::cmp::Ordering::Greater => 1.0,
                        core::cmp::Ordering::Equal => 0.5,
                        core::cmp::Ordering::Less => 0.0,
                    };
                }
            }
            let wanted = (count > 0).then(|| sum / f64::from(count));
            prop_assert_eq!(auc(&mut rows), wanted);
        }
    }
}
