//! Synthetic sparse rows, with features of widely different frequency and few relevant ones.

use pstrain_compute::rng::Stream;

use super::SparseRow;

/// Default number of rows.
pub const DEFAULT_ROWS: u64 = 20_000;
/// Default number of columns.
pub const DEFAULT_COLUMNS: u32 = 10_000;

/// Features drawn for a row: the minimum, and the maximum in addition to it.
const DRAWS: (u64, u64) = (8, 48);
/// One in so many features is relevant to the label.
const RARITY: u64 = 8;
/// One in so many labels is wrong.
const NOISE: u64 = 12;

/// Generates sparse rows.
///
/// The number of a feature is log-uniform: all octaves, such as 1 to 2 and 1,024 to 2,048, are
/// equally likely, so that frequencies follow a power law, and most features are rare. One feature
/// in eight has a weight, of either sign. The label is the sign of the sum of the weights, but
/// wrong in one row in twelve. Row `i` depends only on the seed and on `i`, and is computed with
/// whole numbers only.
#[derive(Clone, Copy, Debug)]
pub struct SparseGenerator {
    columns: u32,
    rows: Stream,
    truth: Stream,
}

impl SparseGenerator {
    /// Makes a generator of rows with `columns` columns.
    #[must_use]
    pub fn new(columns: u32, seed: u64) -> Self {
        let stream = Stream::new(seed).fork("sparse", 0);
        let (rows, truth) = (stream.fork("row", 0), stream.fork("truth", 0));
        Self { columns: columns.max(1), rows, truth }
    }

    /// Generates row number `row`.
    #[must_use]
    pub fn row(&self, row: u64) -> SparseRow {
        let mut rng = self.rows.fork("row", row).rng();
        let count = DRAWS.0 + rng.below(DRAWS.1 + 1);
        let octaves = u64::from(u32::BITS - self.columns.leading_zeros());
        let mut features: Vec<u32> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let begin = 1_u64 << rng.below(octaves);
            let feature = begin + rng.below(begin) - 1;
            // The last octave may be incomplete.
            if feature < u64::from(self.columns) {
                features.push(feature as u32);
            }
        }
        features.sort_unstable();
        features.dedup();
        let sum: i64 = features.iter().map(|&feature| self.weight(feature)).sum();
        let is_wrong = rng.below(NOISE) == 0;
        let label = if (sum > 0) == is_wrong { -1.0 } else { 1.0 };
        let values = vec![1.0; features.len()];
        SparseRow { label, features, values }
    }

    /// Returns the weight of a feature, in quarters.
    fn weight(&self, feature: u32) -> i64 {
        let mut rng = self.truth.fork("feature", feature.into()).rng();
        if rng.below(RARITY) > 0 {
            return 0;
        }
        let size = 2 + rng.below(7) as i64;
        if rng.below(2) == 0 { size } else { -size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_features_of_very_unlike_frequency() {
        let generator = SparseGenerator::new(10_000, 3);
        let mut counts = vec![0_u32; 10_000];
        let mut positive = 0;
        for row in (0..4000).map(|row| generator.row(row)) {
            assert!(row.features.is_sorted_by(|one, next| one < next));
            assert_eq!(row.features.len(), row.values.len());
            row.features.iter().for_each(|&feature| counts[feature as usize] += 1);
            positive += u32::from(row.label == 1.0);
        }
        assert!(counts[0] > 2000 && counts[5000..].iter().all(|&count| count < 40));
        assert!((400..3600).contains(&positive), "{positive}");
    }

    #[test]
    fn a_row_is_the_same_whenever_it_is_drawn() {
        let generator = SparseGenerator::new(1_000_000, 1);
        let later = generator.row(7);
        assert_eq!(generator.row(7), later);
        assert_ne!(SparseGenerator::new(1_000_000, 2).row(7), later);
    }
}
