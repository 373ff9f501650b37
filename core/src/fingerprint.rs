//! What identifies a data set, so that a worker with other data is told how they differ.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::examples::Examples;

/// The identity of a training split: its size, its classes and a digest of every example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of examples.
    pub rows: u64,
    /// Examples of each class.
    pub class_counts: Vec<u64>,
    /// SHA-256 over the encoded examples ([`Examples::digest`]).
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// The fingerprint of `examples`.
    #[must_use]
    pub fn of(examples: &Examples) -> Self {
        Self {
            rows: examples.len() as u64,
            class_counts: examples.class_counts(),
            digest: examples.digest(),
        }
    }

    /// How data with this fingerprint differ from the data the `job` was made for, in words;
    /// nothing if they are the same.
    #[must_use]
    pub fn difference(&self, job: &Self) -> Option<String> {
        if self == job {
            return None;
        }
        Some(if self.rows != job.rows {
            format!("{} training rows where the job has {}", self.rows, job.rows)
        } else if self.class_counts != job.class_counts {
            format!(
                "rows per class {:?} where the job has {:?}",
                self.class_counts, job.class_counts
            )
        } else {
            String::from("the same number of rows in every class, but other contents")
        })
    }
}
