//! The split of all rows into training and evaluation rows.

use pstrain_compute::rng::Stream;

/// Row numbers of both parts. Each is in ascending order, so that a file can be split while it is
/// read. Workers shuffle their mini-batches later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Training rows.
    pub train: Vec<u32>,
    /// Evaluation rows.
    pub evaluation: Vec<u32>,
}

/// Draws `evaluation_share` of `rows` rows, rounded down, for evaluation; the rest is for training.
///
/// Every choice of that many rows is equally likely.
#[must_use]
pub fn split(rows: u32, evaluation_share: f64, stream: Stream) -> Split {
    let evaluating = (f64::from(rows) * evaluation_share).floor() as usize;
    let mut order: Vec<u32> = (0..rows).collect();
    stream.rng().shuffle(&mut order);
    let mut train = order.split_off(evaluating.min(rows as usize));
    train.sort_unstable();
    order.sort_unstable();
    Split { train, evaluation: order }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_reference_task_is_split_94480_to_31493() {
        let split = split(125_973, 0.25, Stream::new(1));
        assert_eq!((split.train.len(), split.evaluation.len()), (94_480, 31_493));
    }

    proptest! {
        #[test]
        fn every_row_is_in_exactly_one_part(rows in 0_u32..500, share in 0.0..1.0, seed: u64) {
            let split = split(rows, share, Stream::new(seed));
            prop_assert!(split.train.is_sorted() && split.evaluation.is_sorted());
            let mut all = split.train;
            all.extend(split.evaluation);
            all.sort_unstable();
            prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
        }
    }
}
