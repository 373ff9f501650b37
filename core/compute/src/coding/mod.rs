//! Gradient coding: the exact sum of the gradients of all partitions in spite of stragglers.
//!
//! The data have as many partitions as there are workers, and each worker holds `S + 1` of them.
//! Per round a worker sends one vector: the sum of the gradients of its partitions, each times a
//! coefficient. A [`Code`] determines partitions and coefficients. A [`Decoder`] determines the
//! weights of the received vectors, so that their weighted sum is that over all partitions,
//! whichever `S` workers are missing. The module handles worker and partition numbers only, not
//! gradients or messages.
//!
//! Tandon, Lei, Dimakis, Karampatziakis, *Gradient Coding*, ICML 2017.

mod cyclic;
mod decoder;

use alloc::vec::Vec;

use cyclic::Cyclic;
pub use decoder::Decoder;

use crate::id::{PartId, WorkerId};

/// The partitions that each worker computes, and the coefficients that combine them.
#[derive(Clone, Debug)]
pub struct Code {
    workers: u32,
    /// Number of workers that may be missing.
    tolerance: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Groups of `tolerance + 1` workers; each member computes all partitions of its group.
    Fractional,
    /// Worker `i` computes the `tolerance + 1` partitions from `i` on.
    Cyclic(Cyclic),
}

/// A partition that a worker computes, and the coefficient of its gradient in the worker's vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// The partition.
    pub part: PartId,
    /// The coefficient.
    pub coefficient: f64,
}

/// The largest number of workers of a cyclic code: the decoder once solves a system of that many
/// equations.
pub const MOST_CYCLIC_WORKERS: u32 = 1024;
/// The largest amplification of rounding errors by a cyclic code: a larger one would lose three of
/// the seven digits of an `f32`.
pub const MOST_AMPLIFICATION: f64 = 1000.0;

/// Invalid parameters of a code.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// All workers may be missing.
    #[error(
        "{tolerance} of {workers} workers cannot be missing: choose 0 to {}",
        .workers.saturating_sub(1)
    )]
    Tolerance {
        /// Workers that may be missing.
        tolerance: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// The number of workers is not a multiple of the group size of fractional repetition.
    #[error(
        "fractional:{tolerance} needs groups of {} workers, and {workers} workers cannot be cut \
         into such: choose another number of workers, or cyclic:{tolerance}",
        u64::from(*.tolerance) + 1
    )]
    Groups {
        /// Workers that may be missing.
        tolerance: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// Too many workers for a cyclic code.
    #[error(
        "cyclic redundancy is for {MOST_CYCLIC_WORKERS} workers at most, not {0}: use fractional"
    )]
    Workers(u32),
    /// The cyclic code amplifies rounding errors too much.
    #[error(
        "cyclic:{tolerance} with {workers} workers would make rounding errors up to \
         {amplification:.0} times as large, and {MOST_AMPLIFICATION} is the most that is allowed: \
         use fractional, or fewer that may be missing"
    )]
    Amplification {
        /// Workers that may be missing.
        tolerance: u32,
        /// Workers of the job.
        workers: u32,
        /// The factor of amplification.
        amplification: f64,
    },
}

impl Code {
    /// Fractional repetition: `workers / (tolerance + 1)` groups. All members of a group compute
    /// the same partitions and send the plain sum; one vector per group is enough.
    ///
    /// # Errors
    /// [`CodeError`] if the workers cannot be divided into such groups.
    pub const fn fractional(workers: u32, tolerance: u32) -> Result<Self, CodeError> {
        if tolerance >= workers {
            return Err(CodeError::Tolerance { tolerance, workers });
        }
        if !workers.is_multiple_of(tolerance + 1) {
            return Err(CodeError::Groups { tolerance, workers });
        }
        Ok(Self { workers, tolerance, kind: Kind::Fractional })
    }

    /// Cyclic repetition: worker `i` computes partitions `i` to `i + tolerance`, modulo the number
    /// of workers. Any `workers - tolerance` vectors are enough.
    ///
    /// # Errors
    /// [`CodeError`] if `tolerance` is not below `workers`, or there are more workers than
    /// [`MOST_CYCLIC_WORKERS`]. [`Decoder::new`] checks the loss of digits.
    pub fn cyclic(workers: u32, tolerance: u32) -> Result<Self, CodeError> {
        if tolerance >= workers {
            return Err(CodeError::Tolerance { tolerance, workers });
        }
        if workers > MOST_CYCLIC_WORKERS {
            return Err(CodeError::Workers(workers));
        }
        let kind = Kind::Cyclic(Cyclic::new(workers as usize, tolerance as usize));
        Ok(Self { workers, tolerance, kind })
    }

    /// The number of workers, which is also the number of partitions.
    #[must_use]
    pub const fn workers(&self) -> u32 {
        self.workers
    }

    /// The number of workers that may be missing from a round.
    #[must_use]
    pub const fn tolerance(&self) -> u32 {
        self.tolerance
    }

    /// Returns the pieces that `worker` computes, in the order of their summation.
    #[must_use]
    pub fn pieces(&self, worker: WorkerId) -> Vec<Piece> {
        let width = self.tolerance + 1;
        let piece = |number: u32| match &self.kind {
            Kind::Fractional => {
                let part = PartId(worker.0 - worker.0 % width + number);
                Piece { part, coefficient: 1.0 }
            }
            Kind::Cyclic(cyclic) => {
                let part = (worker.0 + number) % self.workers;
                let coefficient = cyclic.coefficient(worker.0 as usize, number as usize);
                Piece { part: PartId(part), coefficient }
            }
        };
        (0..width).map(piece).collect()
    }

    /// Returns the group of `worker`, whose members are interchangeable; `None` in a cyclic code.
    #[must_use]
    pub const fn group(&self, worker: WorkerId) -> Option<u32> {
        match self.kind {
            Kind::Fractional => Some(worker.0 / (self.tolerance + 1)),
            Kind::Cyclic(_) => None,
        }
    }

    /// True if the vectors of `present` suffice. `present` is in ascending order, without
    /// duplicates.
    #[must_use]
    pub fn is_enough(&self, present: impl Iterator<Item = WorkerId>) -> bool {
        match self.kind {
            Kind::Fractional => {
                let mut groups: Vec<u32> =
                    present.map(|worker| worker.0 / (self.tolerance + 1)).collect();
                groups.dedup();
                groups.len() as u32 == self.workers / (self.tolerance + 1)
            }
            Kind::Cyclic(_) => present.count() as u64 >= u64::from(self.workers - self.tolerance),
        }
    }
}

#[cfg(test)]
mod tests;
