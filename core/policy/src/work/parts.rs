//! What dealers know of the parts whose mini-batches are anybody's, and of who is waiting for one.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::set_rows;
use crate::job::Job;
use pstrain_compute::id::PartId;

/// The sizes of the parts of the data, and how often each is gone through.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Parts {
    batch_size: u64,
    epochs: u64,
    /// Examples of all parts together.
    all_rows: u64,
    /// Examples of each; 0 until a worker has said.
    rows: Vec<u64>,
}

impl Parts {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            batch_size: job.batch_size.into(),
            epochs: job.budget.epochs.into(),
            all_rows: job.data.train.rows,
            rows: alloc::vec![0; job.parts() as usize],
        }
    }

    /// Parts with `rows`, in mini-batches of 4 examples.
    #[cfg(test)]
    pub(super) fn of(rows: &[u64], epochs: u64) -> Self {
        let all_rows = rows.iter().sum();
        Self { batch_size: 4, epochs, all_rows, rows: alloc::vec![0; rows.len()] }
    }

    pub(super) const fn epochs(&self) -> u64 {
        self.epochs
    }

    pub(super) const fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Mini-batches in a pass over a part.
    pub(super) fn batches(&self, part: PartId) -> u64 {
        self.rows.get(part.0 as usize).map_or(0, |rows| rows.div_ceil(self.batch_size))
    }

    /// Mini-batches of a part in all epochs.
    pub(super) fn in_all(&self, part: PartId) -> u64 {
        self.batches(part) * self.epochs
    }

    /// Takes note of the sizes of all parts, which are told from the part `first` on and called
    /// `parts`.
    ///
    /// # Errors
    /// In words, if they are not all that the job has, or another worker said otherwise.
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

/// Lets those for whom there was nothing to do ask again once there is something.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Gate {
    /// Whether somebody found nothing to do.
    refused: bool,
    times: u64,
}

impl Gate {
    /// Somebody found nothing to do.
    pub(super) const fn refuse(&mut self) {
        self.refused = true;
    }

    /// There is something to do.
    pub(super) const fn open(&mut self) {
        if self.refused {
            self.refused = false;
            self.times += 1;
        }
    }

    /// How often there was something to do for somebody for whom there had been nothing.
    pub(super) const fn times(&self) -> u64 {
        self.times
    }
}
