//! Table with one gradient per worker, and their sum weighted by rows.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;
use pstrain_compute::saved::{Archive, SavedError};

/// The table. A change costs one pass over the parameters, independent of the number of workers.
/// The table holds a gradient for each worker, and the sum in double precision. Changes are planned
/// first, and then carried out for one block of keys after another, in the same order for each
/// block.
///
/// Invariant: the sum equals the sum of `rows * values` over the entries, up to rounding in `f64`.
/// With one entry there is no rounding: a product of a value and up to 2^29 rows is exact.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Table {
    entries: BTreeMap<WorkerId, Entry>,
    #[serde(skip)]
    sum: Vec<f64>,
    /// Rows of all entries.
    rows: u64,
    /// True if the sum is to be reset to 0.
    is_cleared: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Entry {
    rows: u64,
    samples: u64,
    #[serde(skip)]
    values: Vec<f32>,
}

/// The change of a worker's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    worker: WorkerId,
    /// Rows that it counted for before (0 if it had no entry) and counts for now.
    rows: [f64; 2],
    /// The factors of its old values and of the new ones.
    kept: f32,
    new: f32,
}

impl Table {
    /// Saves or restores the arrays, after serde has processed the other fields.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        if archive.is_there(self.sum.len())? {
            archive.own_f64("sum", &mut self.sum)?;
        }
        for entry in self.entries.values_mut() {
            if archive.is_there(entry.values.len())? {
                archive.own("entry", &mut entry.values)?;
            }
        }
        Ok(())
    }

    /// Plans to replace the entry of `worker` with `scale` times a gradient of so many values.
    pub(super) fn replace(
        &mut self,
        worker: WorkerId,
        rows: u64,
        scale: f32,
        values: usize,
    ) -> Change {
        self.put(worker, rows, |_| (0.0, scale), (1, values))
    }

    /// Plans to average `scale` times a gradient of so many values, the mean of `samples` examples,
    /// into the entry of `worker`.
    pub(super) fn average(
        &mut self,
        worker: WorkerId,
        rows: u64,
        (samples, scale): (u64, f64),
        values: usize,
    ) -> Change {
        let weights = |before: u64| {
            let share = samples as f64 / (before + samples) as f64;
            ((1.0 - share) as f32, (share * scale) as f32)
        };
        self.put(worker, rows, weights, (samples, values))
    }

    fn put(
        &mut self,
        worker: WorkerId,
        rows: u64,
        weights: impl Fn(u64) -> (f32, f32),
        (samples, values): (u64, usize),
    ) -> Change {
        self.sum.resize(values, 0.0);
        let entry = self.entries.entry(worker).or_default();
        if entry.values.is_empty() {
            entry.values = vec![0.0; values];
        }
        let (kept, new) = weights(entry.samples);
        let change = Change { worker, rows: [entry.rows as f64, rows as f64], kept, new };
        self.rows = self.rows - entry.rows + rows;
        entry.rows = rows;
        entry.samples += samples;
        change
    }

    /// Plans to forget the entry of `worker`.
    pub(super) fn forget(&mut self, worker: WorkerId) -> Option<Change> {
        let entry = self.entries.get_mut(&worker)?;
        let rows = core::mem::take(&mut entry.rows);
        entry.samples = 0;
        self.rows -= rows;
        Some(Change { worker, rows: [rows as f64, 0.0], kept: 1.0, new: 0.0 })
    }

    /// Plans to empty the table.
    pub(super) fn clear(&mut self) {
        // The entries stay allocated, so that their buffers are reused.
        for entry in self.entries.values_mut() {
            entry.rows = 0;
            entry.samples = 0;
        }
        self.rows = 0;
        self.is_cleared = true;
    }

    /// Starts carrying out the plan for so many keys from `first` on.
    pub(super) fn begin(&mut self, first: usize, values: usize) {
        if self.is_cleared {
            self.sum[first..first + values].fill(0.0);
        }
    }

    /// Carries out a change for the keys from `first` on.
    pub(super) fn change(&mut self, first: usize, change: &Change, values: &[f32]) {
        let &Change { worker, rows: [before, now], kept, new } = change;
        let Some(entry) = self.entries.get_mut(&worker) else {
            unreachable!("the plan has made an entry of {worker}")
        };
        let own = self.sum[first..].iter_mut().zip(&mut entry.values[first..]).zip(values);
        if before == 0.0 {
            for ((sum, own), value) in own {
                *own = new * value;
                *sum += now * f64::from(*own);
            }
        } else if kept == 0.0 {
            for ((sum, own), value) in own {
                // In this order, so that the sum of a lone entry is exactly 0 in between.
                *sum -= before * f64::from(*own);
                *own = new * value;
                *sum += now * f64::from(*own);
            }
        } else {
            for ((sum, own), value) in own {
                *sum -= before * f64::from(*own);
                *own = kept * *own + new * value;
                *sum += now * f64::from(*own);
            }
        }
    }

    /// Carries out that an entry is forgotten, for so many keys from `first` on.
    pub(super) fn subtract(&mut self, first: usize, change: &Change, values: usize) {
        let Some(entry) = self.entries.get(&change.worker) else {
            unreachable!("the plan has found an entry of {}", change.worker)
        };
        let own = &entry.values[first..first + values];
        for (sum, value) in self.sum[first..].iter_mut().zip(own) {
            *sum -= change.rows[0] * f64::from(*value);
        }
    }

    /// Writes the mean of the entries, weighted by rows, for the keys from `first` on.
    pub(super) fn mean(&self, first: usize, mean: &mut [f32]) {
        // The result of a lone entry is exact: the product is off by less than half an `f32` step.
        let share = 1.0 / self.rows.max(1) as f64;
        for (mean, sum) in mean.iter_mut().zip(&self.sum[first..]) {
            *mean = (sum * share) as f32;
        }
    }

    /// Completes an update of all keys. Removes entries without rows unless `keeps_empty`.
    pub(super) fn finish(&mut self, keeps_empty: bool) {
        self.is_cleared = false;
        if !keeps_empty {
            self.entries.retain(|_, entry| entry.rows > 0);
        }
    }

    /// Bytes kept from update to update: `4 N d + 8 d` with N workers and d parameters.
    pub(super) fn memory_bytes(&self) -> usize {
        let values = self.entries.values().map(|entry| entry.values.len()).sum::<usize>();
        values * size_of::<f32>() + self.sum.len() * size_of::<f64>()
    }
}
