//! Sparse rows from a seed, with features of very unlike frequency and a truth in few of them.

use pstrain_compute::rng::Stream;

use super::SparseRow;

/// Rows, if nothing is said.
pub const DEFAULT_ROWS: u64 = 20_000;
/// Columns, if nothing is said.
pub const DEFAULT_COLUMNS: u32 = 10_000;

/// Features drawn for a row: at least, and how many more at most.
const DRAWS: (u64, u64) = (8, 48);
/// Of so many features, one is part of the truth.
const RARITY: u64 = 8;
/// Of so many labels, one is wrong.
const NOISE: u64 = 12;

/// Draws rows.
///
/// The number of a feature is log-uniform: as many draws fall on features 1 to 2 as on 1,000 to
/// 2,000, so that frequencies follow a power law, and most features are rare. One feature in eight
/// has a weight in the truth, of either sign; the label is the sign of their sum, but for one row
/// in twelve. Row `i` depends on the seed and on `i` alone, by whole numbers only.
#[derive(Clone, Copy, Debug)]
pub struct SparseGenerator {
    columns: u32,
    rows: Stream,
    truth: Stream,
}

impl SparseGenerator {
    /// A generator of rows over so many columns.
    #[must_use]
    pub fn new(columns: u32, seed: u64) -> Self {
        let stream = Stream::new(seed).fork("sparse", 0);
        let (rows, truth) = (stream.fork("row", 0), stream.fork("truth", 0));
        Self { columns: columns.max(1), rows, truth }
    }

    /// Row number `row`.
    #[must_use]
    pub fn row(&self, row: u64) -> SparseRow {
        let mut rng = self.rows.fork("row", row).rng();
        let count = DRAWS.0 + rng.below(DRAWS.1 + 1);
        let octaves = u64::from(u32::BITS - self.columns.leading_zeros());
        let mut features: Vec<u32> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let begin = 1_u64 << rng.below(octaves);
            let feature = begin + rng.below(begin) - 1;
            // The last octave may be cut.
            if feature < u64::from(self.columns) {
                features.push(feature as u32);
            }
        }
        features.sort_unstable();
        features.dedup();
        let sum: i64 = features.iter().map(|&feature| self.weight(feature)).sum();
        let is_wrong = rng.below(NOISE) == 0;
        let class = u16::from((sum > 0) != is_wrong);
        let values = vec![1.0; features.len()];
        SparseRow { class, features, values }
    }

    /// What a feature counts for, in quarters.
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
            positive += u32::from(row.class);
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
