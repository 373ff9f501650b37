//! Gradient coding: the exact sum of the gradients of all partitions although some workers are
//! late.
//!
//! The data have as many partitions as there are workers, and each worker holds `S + 1` of them.
//! In each round it sends one vector: the gradients of its partitions, each times a coefficient.
//! A [`Code`] says which partitions and which coefficients; a [`Decoder`] says how much each of
//! the vectors that came counts, so that the sum is that of all partitions, whichever `S` workers
//! are missing. Knows numbers of workers and partitions; gradients and messages it does not.
//!
//! Tandon, Lei, Dimakis, Karampatziakis, *Gradient Coding*, ICML 2017.

mod cyclic;
mod decoder;

use alloc::vec::Vec;
use core::fmt;

use cyclic::Cyclic;
pub use decoder::Decoder;

use crate::id::{PartId, WorkerId};

/// Which partitions each worker computes, and how it combines them.
#[derive(Clone, Debug)]
pub struct Code {
    workers: u32,
    /// Workers that may be missing.
    tolerance: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Groups of `tolerance + 1` workers, each of which computes the partitions of its group.
    Fractional,
    /// Worker `i` computes the partitions from `i` on.
    Cyclic(Cyclic),
}

/// A partition that a worker computes, and what its gradient counts in what the worker sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// The partition.
    pub part: PartId,
    /// The coefficient.
    pub coefficient: f64,
}

/// The most workers of a cyclic code: the decoder solves a system of that many equations once.
pub const MOST_CYCLIC_WORKERS: u32 = 1024;
/// How much a cyclic code may amplify the rounding of gradients: more than this and three of the
/// seven digits of a 32-bit number would be lost.
pub const MOST_AMPLIFICATION: f64 = 1000.0;

/// A code that cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CodeError {
    /// Everybody may be missing.
    Tolerance {
        /// Workers that may be missing.
        tolerance: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// The groups of fractional repetition do not come out even.
    Groups {
        /// Workers that may be missing.
        tolerance: u32,
        /// Workers of the job.
        workers: u32,
    },
    /// Too many workers for a cyclic code.
    Workers(u32),
    /// A cyclic code that amplifies rounding too much.
    Amplification {
        /// Workers that may be missing.
        tolerance: u32,
        /// Workers of the job.
        workers: u32,
        /// How many times.
        amplification: f64,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tolerance { tolerance, workers } => write!(
                f,
                "{tolerance} of {workers} workers cannot be missing: choose 0 to {}",
                workers.saturating_sub(1)
            ),
            Self::Groups { tolerance, workers } => write!(
                f,
                "fractional:{tolerance} needs groups of {} workers, and {workers} workers cannot \
                 be cut into such: choose another number of workers, or cyclic:{tolerance}",
                u64::from(tolerance) + 1
            ),
            Self::Workers(workers) => write!(
                f,
                "cyclic redundancy is for {MOST_CYCLIC_WORKERS} workers at most, not {workers}: \
                 use fractional"
            ),
            Self::Amplification { tolerance, workers, amplification } => write!(
                f,
                "cyclic:{tolerance} with {workers} workers would make rounding errors up to \
                 {amplification:.0} times as large, and {MOST_AMPLIFICATION} is the most that is \
                 allowed: use fractional, or fewer that may be missing"
            ),
        }
    }
}

impl core::error::Error for CodeError {}

impl Code {
    /// Fractional repetition: `workers / (tolerance + 1)` groups, whose members all compute the
    /// same partitions and send the plain sum. One of each group is enough.
    ///
    /// # Errors
    /// [`CodeError`] if the workers cannot be cut into such groups.
    pub const fn fractional(workers: u32, tolerance: u32) -> Result<Self, CodeError> {
        if tolerance >= workers {
            return Err(CodeError::Tolerance { tolerance, workers });
        }
        if !workers.is_multiple_of(tolerance + 1) {
            return Err(CodeError::Groups { tolerance, workers });
        }
        Ok(Self { workers, tolerance, kind: Kind::Fractional })
    }

    /// Cyclic repetition: worker `i` computes partitions `i` to `i + tolerance`, counted round.
    /// Any `workers - tolerance` workers are enough.
    ///
    /// # Errors
    /// [`CodeError`] if more are to be missing than there are, or the code would lose too many
    /// digits.
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

    /// Workers, which are also the partitions.
    #[must_use]
    pub const fn workers(&self) -> u32 {
        self.workers
    }

    /// Workers that may be missing from a round.
    #[must_use]
    pub const fn tolerance(&self) -> u32 {
        self.tolerance
    }

    /// What `worker` computes and combines, in the order in which it adds up.
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

    /// The group of `worker` in which one is as good as another; none in a cyclic code.
    #[must_use]
    pub const fn group(&self, worker: WorkerId) -> Option<u32> {
        match self.kind {
            Kind::Fractional => Some(worker.0 / (self.tolerance + 1)),
            Kind::Cyclic(_) => None,
        }
    }

    /// Whether the vectors of `present`, each of them once, in order, are enough.
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
