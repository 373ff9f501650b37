//! Frequency of each worker's contributions relative to its share of the data.

use alloc::collections::BTreeMap;
use core::ops::Bound;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;

/// The largest weight: a worker that contributes very rarely must not decide an update.
const GREATEST_WEIGHT: f64 = 20.0;
/// Weight of a new gap in the running mean of gaps.
const NEW: f64 = 0.1;
/// A worker counts as gone after being silent for this many of its usual gaps.
const PATIENCE: f64 = 20.0;

/// The workers' shares of the data and of the gradients.
///
/// The share of the gradients is 1 over the mean gap: the number of gradients accepted from one
/// gradient of a worker to its next, including the next. Workers of equal rows that take turns have
/// gaps that all equal their number, and weights of exactly 1.
///
/// Only workers that have contributed count, so that a replay, which knows the rows of all workers
/// from the start, computes the same shares. Each gradient costs a few look-ups, independent of the
/// number of workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Shares {
    workers: BTreeMap<WorkerId, Share>,
    /// Gradients accepted so far.
    accepted: u64,
    /// Rows of all present workers.
    rows: u64,
    /// Number of present workers.
    present: u64,
    /// The worker that [`Self::silent`] checked last.
    looked_at: Option<WorkerId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Share {
    rows: u64,
    /// True if it has contributed and has not been silent for long.
    present: bool,
    /// The number of its last gradient in the sequence of accepted ones.
    last: Option<u64>,
    gap: Option<f64>,
}

impl Shares {
    pub(super) fn set_rows(&mut self, worker: WorkerId, rows: u64) {
        let share = self.share(worker);
        let before = core::mem::replace(&mut share.rows, rows);
        if share.present {
            self.rows = self.rows - before + rows;
        }
    }

    /// Returns the rows of `worker`; 1 if they were never set, so that all workers are then equal.
    pub(super) fn rows(&self, worker: WorkerId) -> u64 {
        self.workers.get(&worker).map_or(1, |share| share.rows)
    }

    fn share(&mut self, worker: WorkerId) -> &mut Share {
        self.workers.entry(worker).or_insert(Share {
            rows: 1,
            present: false,
            last: None,
            gap: None,
        })
    }

    /// Counts a gradient of `worker`. Returns its share of the data over its share of the
    /// gradients: 1 for its first gradient, and at most [`GREATEST_WEIGHT`].
    pub(super) fn contribute(&mut self, worker: WorkerId) -> f64 {
        self.accepted += 1;
        let accepted = self.accepted;
        let share = self.share(worker);
        if let Some(last) = share.last.replace(accepted) {
            let gap = (accepted - last) as f64;
            share.gap = Some(share.gap.map_or(gap, |mean| mean + NEW * (gap - mean)));
        }
        let (rows, gap) = (share.rows, share.gap);
        if !core::mem::replace(&mut share.present, true) {
            self.rows += rows;
            self.present += 1;
        }
        let weight = |gap| rows as f64 * gap / self.rows.max(1) as f64;
        gap.map_or(1.0, |gap| weight(gap).min(GREATEST_WEIGHT))
    }

    /// Checks one worker per call, in turn. Returns it if it has been silent for so long that it
    /// seems to have left; its rows then stop counting until it contributes again.
    pub(super) fn silent(&mut self) -> Option<WorkerId> {
        let after = self.looked_at.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.workers.range_mut((after, Bound::Unbounded)).next();
        let Some((&worker, share)) = next else {
            self.looked_at = None;
            return None;
        };
        self.looked_at = Some(worker);
        let (true, Some(last)) = (share.present, share.last) else { return None };
        // A worker that has contributed only once has no measured gap.
        let turn = self.present as f64;
        let gap = share.gap.map_or(PATIENCE * turn, |gap| gap.max(turn));
        if (self.accepted - last) as f64 <= PATIENCE * gap {
            return None;
        }
        share.present = false;
        self.rows -= share.rows;
        self.present -= 1;
        Some(worker)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_workers_that_take_turns_count_for_exactly_one() {
        for workers in [1, 2, 3, 7, 100] {
            let mut shares = Shares::default();
            (0..workers).for_each(|worker| shares.set_rows(WorkerId(worker), 12_345));
            for worker in (0..workers).cycle().take(50 * workers as usize) {
                assert_eq!(shares.contribute(WorkerId(worker)), 1.0);
                assert_eq!(shares.silent(), None);
            }
        }
    }

    #[test]
    fn a_rare_worker_counts_for_twenty_at_most() {
        let mut shares = Shares::default();
        let mut last = 0.0;
        for _ in 0..5 {
            for _ in 0..999 {
                shares.contribute(WorkerId(0));
            }
            last = shares.contribute(WorkerId(1));
        }
        assert_eq!(last, GREATEST_WEIGHT);
    }

    #[test]
    fn rows_of_workers_that_have_not_come_do_not_count() {
        let mut some = Shares::default();
        let mut all = Shares::default();
        (0..9).for_each(|worker| all.set_rows(WorkerId(worker), 7));
        (0..2).for_each(|worker| some.set_rows(WorkerId(worker), 7));
        for worker in [0, 1, 1, 0, 1].repeat(20) {
            let worker = WorkerId(worker);
            assert_eq!(some.contribute(worker), all.contribute(worker));
            some.silent();
            all.silent();
        }
    }

    #[test]
    fn whoever_is_silent_for_long_counts_no_more_until_it_comes_again() {
        let mut shares = Shares::default();
        for worker in [0, 1, 2].repeat(10) {
            shares.contribute(WorkerId(worker));
        }
        let mut gone = Vec::new();
        for worker in [1, 2].repeat(100) {
            shares.contribute(WorkerId(worker));
            gone.extend(shares.silent());
        }
        assert_eq!(gone, [WorkerId(0)]);
        assert!((shares.contribute(WorkerId(1)) - 1.0).abs() < 1e-3, "one of two");
        shares.contribute(WorkerId(0));
        let weight = shares.contribute(WorkerId(2));
        assert!((weight - 2.0 / 3.0).abs() < 0.1, "one of three again: {weight}");
    }

    proptest! {
        #[test]
        fn weights_tend_to_the_share_of_data_over_the_share_of_gradients(
            pattern in prop::collection::vec(0..5_u32, 1..40),
            rows in prop::array::uniform5(100..300_u64),
        ) {
            let mut shares = Shares::default();
            (0..).zip(rows).for_each(|(worker, rows)| shares.set_rows(WorkerId(worker), rows));
            let mut sums = [0.0; 5];
            let (periods, last) = (400, 100);
            for period in 0..periods {
                for worker in &pattern {
                    let weight = shares.contribute(WorkerId(*worker));
                    shares.silent();
                    if period >= periods - last {
                        sums[*worker as usize] += weight;
                    }
                }
            }
            let often = |worker: u32| pattern.iter().filter(|other| **other == worker).count();
            let there = || (0..5).filter(|worker| often(*worker) > 0);
            let all: u64 = there().map(|worker| rows[worker as usize]).sum();
            let mut capped = false;
            for worker in there() {
                let of_data = rows[worker as usize] as f64 / all as f64;
                let of_gradients = often(worker) as f64 / pattern.len() as f64;
                let wanted = of_data / of_gradients;
                let mean = sums[worker as usize] / (often(worker) * last) as f64;
                capped |= wanted > 0.5 * GREATEST_WEIGHT;
                if wanted <= 0.5 * GREATEST_WEIGHT {
                    prop_assert!((mean - wanted).abs() < 1e-6 * wanted, "{mean}, not {wanted}");
                }
            }
            let mean = sums.iter().sum::<f64>() / (pattern.len() * last) as f64;
            prop_assert!(capped || (mean - 1.0).abs() < 1e-6, "{mean}");
        }
    }
}
