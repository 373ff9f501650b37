//! Part sizes and the gate for waiting workers, for assigners whose mini-batches may go to any
//! worker.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::set_rows;
use crate::job::Job;
use pstrain_compute::id::PartId;
use pstrain_compute::pass::Pass;

/// Sizes of the parts of the data, and the number of passes over them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Parts {
    batch_size: u32,
    epochs: u64,
    /// Examples of all parts together.
    all_rows: u64,
    /// Examples of each part; 0 until a worker has reported it.
    rows: Vec<u64>,
}

impl Parts {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            batch_size: job.batch_size,
            epochs: job.budget.epochs.into(),
            all_rows: job.data.train.rows,
            rows: alloc::vec![0; job.parts() as usize],
        }
    }

    /// Creates parts with `rows` examples each, in mini-batches of 4 examples.
    #[cfg(test)]
    pub(super) fn of(rows: &[u64], epochs: u64) -> Self {
        let all_rows = rows.iter().sum();
        Self { batch_size: 4, epochs, all_rows, rows: alloc::vec![0; rows.len()] }
    }

    pub(super) const fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Raises the number of passes; returns by how many.
    pub(super) const fn extend(&mut self, epochs: u64) -> u64 {
        let more = epochs.saturating_sub(self.epochs);
        self.epochs += more;
        more
    }

    pub(super) const fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Number of mini-batches in a pass over a part.
    pub(super) fn batches(&self, part: PartId) -> u64 {
        let rows = self.rows.get(part.0 as usize).copied();
        Pass::new(rows.unwrap_or_default(), self.batch_size).batches()
    }

    /// Number of mini-batches of a part in all epochs.
    pub(super) fn in_all(&self, part: PartId) -> u64 {
        self.batches(part) * self.epochs
    }

    /// Sets the sizes of all parts. `rows` starts with part `first` and wraps around; `parts` is
    /// what the error message calls them.
    ///
    /// # Errors
    /// A message, if the sizes do not add up to the job's, or contradict another worker's report.
    pub(super) fn set(&mut self, first: u32, rows: &[u64], parts: &str) -> Result<(), String> {
        let all = rows.iter().fold(0_u64, |all, &rows| all.saturating_add(rows));
        if all != self.all_rows {
            let wanted = self.all_rows;
            return Err(alloc::format!("{all} rows in all {parts}, where the job has {wanted}"));
        }
        let count = self.len();
        for (number, &rows) in (0..count).zip(rows) {
            set_rows(&mut self.rows, PartId((first + number) % count), rows)?;
        }
        Ok(())
    }
}

/// Gate that lets workers without work ask again once there is work.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Gate {
    /// True if a worker found no work since the gate last opened.
    refused: bool,
    times: u64,
}

impl Gate {
    /// Records that a worker found no work.
    pub(super) const fn refuse(&mut self) {
        self.refused = true;
    }

    /// Records that there is work.
    pub(super) const fn open(&mut self) {
        if self.refused {
            self.refused = false;
            self.times += 1;
        }
    }

    /// Returns how often work became available after a worker had found none.
    pub(super) const fn times(&self) -> u64 {
        self.times
    }
}
