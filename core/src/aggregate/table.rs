//! A gradient of each worker, and the sum of them all by the rows they stand for.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::id::WorkerId;

/// The table. Each change costs one pass over the parameters, whatever the number of workers; it
/// holds a gradient for each, and the sum in double precision.
///
/// Invariant: the sum is that of `rows * values` over the entries, but for rounding in `f64`. With
/// one entry there is none: a product of a value and up to 2^29 rows is exact.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<WorkerId, Entry>,
    sum: Vec<f64>,
    /// Rows of all entries.
    rows: u64,
}

#[derive(Debug, Default)]
struct Entry {
    rows: u64,
    samples: u64,
    values: Vec<f32>,
}

impl Table {
    /// Puts `scale * values` in the place of what `worker` had.
    pub(super) fn replace(&mut self, worker: WorkerId, rows: u64, scale: f32, values: &[f32]) {
        self.put(worker, rows, values, |_| (0.0, scale), 1);
    }

    /// Averages `scale * values`, the mean of so many examples, into what `worker` has.
    pub(super) fn average(
        &mut self,
        worker: WorkerId,
        rows: u64,
        (samples, scale): (u32, f32),
        values: &[f32],
    ) {
        let samples = u64::from(samples);
        let weights = |before: u64| {
            let share = samples as f64 / (before + samples) as f64;
            ((1.0 - share) as f32, (share * f64::from(scale)) as f32)
        };
        self.put(worker, rows, values, weights, samples);
    }

    /// Makes the entry of `worker` the sum of what it had and `values`, weighted by what `weights`
    /// says for the examples it had.
    fn put(
        &mut self,
        worker: WorkerId,
        rows: u64,
        values: &[f32],
        weights: impl Fn(u64) -> (f32, f32),
        samples: u64,
    ) {
        self.sum.resize(values.len(), 0.0);
        let entry = self.entries.entry(worker).or_default();
        if entry.values.is_empty() {
            entry.values = vec![0.0; values.len()];
        }
        let (kept, new) = weights(entry.samples);
        let (rows_before, rows_now) = (entry.rows as f64, rows as f64);
        self.rows = self.rows - entry.rows + rows;
        entry.rows = rows;
        entry.samples += samples;
        for ((sum, own), value) in self.sum.iter_mut().zip(&mut entry.values).zip(values) {
            // In this order, so that a lone entry's sum comes to 0 exactly before it is replaced.
            *sum -= rows_before * f64::from(*own);
            *own = if kept == 0.0 { new * value } else { kept * *own + new * value };
            *sum += rows_now * f64::from(*own);
        }
    }

    /// Forgets what `worker` had.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        let Some(entry) = self.entries.remove(&worker) else { return };
        self.rows -= entry.rows;
        for (sum, value) in self.sum.iter_mut().zip(&entry.values) {
            *sum -= entry.rows as f64 * f64::from(*value);
        }
    }

    /// Empties the table.
    pub(super) fn clear(&mut self) {
        // The entries are kept for their memory.
        for entry in self.entries.values_mut() {
            entry.rows = 0;
            entry.samples = 0;
            entry.values.fill(0.0);
        }
        self.sum.fill(0.0);
        self.rows = 0;
    }

    /// Writes the mean of the entries, by their rows, to `mean`.
    pub(super) fn mean(&self, mean: &mut Vec<f32>) {
        let rows = self.rows.max(1) as f64;
        mean.clear();
        mean.extend(self.sum.iter().map(|sum| (sum / rows) as f32));
    }

    /// Bytes that are kept from update to update: `4 N d + 8 d` with N workers and d parameters.
    pub(super) fn memory_bytes(&self) -> usize {
        let values = self.entries.values().map(|entry| entry.values.len()).sum::<usize>();
        values * size_of::<f32>() + self.sum.len() * size_of::<f64>()
    }
}
