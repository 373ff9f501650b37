//! Passes over rows, and how they are cut into mini-batches.

use core::ops::Range;

use crate::id::BatchId;

/// Share number `place` of `all` things that are cut into `shares` shares, whose sizes differ by at
/// most one.
///
/// # Panics
/// If `shares` is 0.
#[must_use]
pub fn share(all: u64, shares: u64, place: u64) -> Range<u64> {
    let border = |place| (u128::from(all) * u128::from(place) / u128::from(shares)) as u64;
    border(place)..border(place + 1)
}

/// A pass over the rows of a part in mini-batches: as few as the largest size allows, and of sizes
/// that differ by at most one row. A few rows that remained would make a step of full weight, with
/// much more noise than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    rows: u64,
    batch_size: u32,
}

impl Pass {
    /// A pass over `rows` rows in mini-batches of at most `batch_size` rows, 1 or more.
    #[must_use]
    pub const fn new(rows: u64, batch_size: u32) -> Self {
        Self { rows, batch_size }
    }

    /// The number of its mini-batches; 0 if there are no rows.
    #[must_use]
    pub const fn batches(self) -> u64 {
        self.rows.div_ceil(self.batch_size as u64)
    }

    /// Mini-batch number `batch` of a sequence of such passes: the number of its pass, and the
    /// places of its rows in the order of that pass.
    ///
    /// # Panics
    /// If there are no rows.
    #[must_use]
    pub fn find(self, batch: BatchId) -> (u64, Range<u64>) {
        let batches = self.batches();
        (batch.0 / batches, share(self.rows, batches, batch.0 % batches))
    }

    /// The number of rows of mini-batch number `batch` of a sequence of such passes; 0 if there are
    /// no rows.
    #[must_use]
    pub fn size(self, batch: BatchId) -> u64 {
        if self.rows == 0 {
            return 0;
        }
        let (_, Range { start, end }) = self.find(batch);
        end - start
    }

    /// The number of rows of all mini-batches of a sequence of such passes before number `batch`.
    #[must_use]
    pub fn rows_before(self, batch: BatchId) -> u64 {
        if self.rows == 0 {
            return 0;
        }
        let (pass, rows) = self.find(batch);
        pass.saturating_mul(self.rows).saturating_add(rows.start)
    }

    /// The number of rows of the mini-batch that begins at `place` in the order of the pass, after
    /// mini-batches of any sizes: the mini-batch of this pass that begins there, or else the first
    /// of the remaining rows, which are cut like a pass of their own. Either way they make as few
    /// mini-batches as possible.
    ///
    /// # Panics
    /// If the pass has no such place.
    #[must_use]
    pub fn size_at(self, place: u64) -> u64 {
        let left = self.rows - place;
        let batches = u128::from(self.batches());
        let number = (u128::from(place) * batches).div_ceil(self.rows.into()) as u64;
        let Range { start, end } = share(self.rows, self.batches(), number);
        match start == place {
            true => end - start,
            false => share(left, Self { rows: left, ..self }.batches(), 0).end,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The mini-batches of a pass, as places in its order.
    fn cut(pass: Pass, number: u64) -> Vec<Range<u64>> {
        let batches = number * pass.batches()..(number + 1) * pass.batches();
        let found = batches.map(|batch| pass.find(BatchId(batch)));
        found.inspect(|(of, _)| assert_eq!(*of, number)).map(|(_, rows)| rows).collect()
    }

    /// Checks that the sizes differ by at most one row.
    fn check_sizes(sizes: &[u64]) {
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1), "{sizes:?}");
    }

    #[test]
    fn the_mini_batches_of_every_pass_are_balanced_and_have_each_row_once() {
        for (rows, batch_size) in (0..150).flat_map(|rows| (1..155).map(move |size| (rows, size))) {
            let pass = Pass::new(rows, batch_size);
            assert_eq!(pass.batches(), rows.div_ceil(batch_size.into()));
            let rows_of_pass = rows;
            for number in [0, 7] {
                let found = cut(pass, number);
                let each: Vec<u64> = found.iter().cloned().flatten().collect();
                assert_eq!(each, (0..rows).collect::<Vec<u64>>(), "{pass:?}");
                let sizes: Vec<u64> = found.iter().map(|rows| rows.end - rows.start).collect();
                assert!(sizes.iter().all(|&size| size <= batch_size.into()), "{sizes:?}");
                check_sizes(&sizes);
                for (place, rows) in (0..).zip(found) {
                    let batch = BatchId(number * pass.batches() + place);
                    assert_eq!(pass.size(batch), rows.end - rows.start);
                    assert_eq!(pass.rows_before(batch), number * rows_of_pass + rows.start);
                }
            }
        }
        let empty = Pass::new(0, 8);
        assert_eq!((empty.size(BatchId(3)), empty.rows_before(BatchId(3))), (0, 0));
    }

    #[test]
    fn a_pass_without_remainder_has_whole_mini_batches() {
        let pass = Pass::new(37 * 32, 32);
        assert_eq!(
            cut(pass, 2),
            (0..37).map(|batch| 32 * batch..32 * batch + 32).collect::<Vec<_>>()
        );
        // A mini-batch of all rows.
        assert_eq!(Pass::new(37, u32::MAX).find(BatchId(5)), (5, 0..37));
    }

    #[test]
    fn a_remainder_is_spread_over_the_pass() {
        let sizes: Vec<u64> = (0..5).map(|batch| Pass::new(37, 8).size(BatchId(batch))).collect();
        assert_eq!(sizes, [7, 7, 8, 7, 8]);
        let pass = Pass::new(22_500, 32);
        let of_size = |size| (0..704).filter(|&batch| pass.size(BatchId(batch)) == size).count();
        assert_eq!((pass.batches(), of_size(31), of_size(32)), (704, 28, 676));
    }

    proptest! {
        #[test]
        fn shares_of_any_number_follow_each_other(all: u64, shares in 1..u64::MAX, place: u64) {
            let place = place % shares;
            let own = share(all, shares, place);
            prop_assert!((own.end - own.start).abs_diff(all / shares) <= 1);
            prop_assert_eq!(share(all, shares, 0).start, 0);
            prop_assert_eq!(share(all, shares, shares - 1).end, all);
            if place > 0 {
                prop_assert_eq!(share(all, shares, place - 1).end, own.start);
            }
        }

        /// From any place, at a size that changes there.
        #[test]
        fn what_remains_of_a_pass_is_balanced(
            rows in 1_u64..3000,
            batch_size in 1_u32..300,
            place in 0_u64..3000,
        ) {
            let (pass, mut place) = (Pass::new(rows, batch_size), place % rows);
            let (left, mut sizes) = (rows - place, Vec::new());
            while place < rows {
                sizes.push(pass.size_at(place));
                place += sizes[sizes.len() - 1];
            }
            prop_assert_eq!(place, rows);
            prop_assert_eq!(sizes.len() as u64, left.div_ceil(batch_size.into()));
            check_sizes(&sizes);
        }

        #[test]
        fn sizes_that_never_change_are_those_of_the_pass(
            rows in 1_u64..3000,
            batch_size in 1_u32..300,
        ) {
            let pass = Pass::new(rows, batch_size);
            for Range { start, end } in cut(pass, 0) {
                prop_assert_eq!(pass.size_at(start), end - start);
            }
        }
    }
}
