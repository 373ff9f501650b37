//! Parts of a store cut out by keys, and stores assembled from such parts; used to rebalance key
//! ranges.
//!
//! Stores that follow the same decisions differ only in values by key. A store for a subset of the
//! keys therefore has the same small state, and a slice of each array. Two adjacent parts must
//! agree in the small state; their union has that state and the concatenated arrays.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Store;
use pstrain_compute::codec;
use pstrain_compute::model::Model;
use pstrain_compute::optim::OptimError;
use pstrain_compute::params::KeyRange;
use pstrain_compute::saved::{Archive, Array, Saved, SavedError};
use pstrain_policy::job::Job;
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{Portion, PortionHeader};

/// The complete state of some keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    keys: KeyRange,
    saved: Saved,
}

/// Parts do not make up a store.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The bytes do not encode a part.
    #[error("they are no part of a server's state")]
    Bytes,
    /// The parts are of other keys than requested, or are not contiguous.
    #[error("they are of other keys")]
    Keys,
    /// The parts are not of the same time.
    #[error("they are of another time than what is here")]
    Times,
    /// The saved state in the parts is not valid.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The job's optimiser is not valid.
    #[error(transparent)]
    Optim(OptimError),
}

impl Store {
    /// Returns the complete state of `keys`; none if the store does not hold all of them.
    #[must_use]
    pub fn part(&mut self, keys: KeyRange) -> Option<Part> {
        let own = self.keys;
        if !own.contains(keys) {
            return None;
        }
        let mut saved = Saved::default();
        let done = self.archive(&mut Archive::save(&mut saved, own.len() as usize));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        let first = (keys.begin() - own.begin()) as usize;
        let places = first..first + keys.len() as usize;
        for (_, array) in &mut saved.arrays {
            *array = match array {
                Array::F32(values) => Array::F32(Arc::new(values.get(places.clone())?.to_vec())),
                Array::F64(values) => Array::F64(Arc::new(values.get(places.clone())?.to_vec())),
                // Lists of keys are not rebalanced.
                Array::U32(_) | Array::U8(_) => return None,
            };
        }
        Some(Part { keys, saved })
    }

    /// Assembles the store of `keys` from its parts, in any order.
    ///
    /// # Errors
    /// [`PartError`] if the parts do not cover `keys`, or are not of one time.
    pub fn of_parts(
        job: &Job,
        model: &Model,
        keys: KeyRange,
        mut parts: Vec<Part>,
    ) -> Result<Self, PartError> {
        parts.sort_by_key(|part| part.keys);
        let mut parts = parts.into_iter();
        let Part { keys: mut covered, mut saved } = parts.next().ok_or(PartError::Keys)?;
        for part in parts {
            if covered.end() != part.keys.begin() {
                return Err(PartError::Keys);
            }
            covered = KeyRange::new(covered.begin(), part.keys.end())
                .map_err(|_empty| PartError::Keys)?;
            append(&mut saved, part.saved)?;
        }
        if covered != keys {
            return Err(PartError::Keys);
        }
        let mut store = Self::new(job, model, keys).map_err(PartError::Optim)?;
        let mut archive = Archive::restore(&saved, keys.len() as usize);
        store.archive(&mut archive)?;
        archive.finish()?;
        Ok(store)
    }
}

/// Appends the state of the next keys to the state of the keys before them.
fn append(saved: &mut Saved, next: Saved) -> Result<(), PartError> {
    if saved.small != next.small || saved.arrays.len() != next.arrays.len() {
        return Err(PartError::Times);
    }
    for ((name, array), (theirs, next)) in saved.arrays.iter_mut().zip(next.arrays) {
        match (array, next) {
            (Array::F32(values), Array::F32(next)) if *name == theirs => {
                let values: &mut Vec<f32> = Arc::make_mut(values);
                values.extend_from_slice(&next);
            }
            (Array::F64(values), Array::F64(next)) if *name == theirs => {
                let values: &mut Vec<f64> = Arc::make_mut(values);
                values.extend_from_slice(&next);
            }
            _ => return Err(PartError::Times),
        }
    }
    Ok(())
}

impl Part {
    /// The keys of the part.
    #[must_use]
    pub const fn keys(&self) -> KeyRange {
        self.keys
    }

    /// The part as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::append(&self.keys, &mut bytes);
        bytes.extend(self.saved.to_bytes());
        bytes
    }

    /// Decodes a part that [`Self::to_bytes`] encoded.
    ///
    /// # Errors
    /// [`PartError::Bytes`] if the bytes do not encode a part.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, PartError> {
        let keys = codec::read_first(&mut bytes).map_err(|_malformed| PartError::Bytes)?;
        let saved = Saved::of_bytes(bytes).map_err(|_error| PartError::Bytes)?;
        Ok(Self { keys, saved })
    }
}

/// A key range that a server receives in pieces.
#[derive(Debug, Serialize, Deserialize)]
pub struct IncomingKeys {
    keys: KeyRange,
    /// The pieces received so far, in order. Each is saved separately: see `archive`.
    #[serde(skip)]
    pieces: Vec<Vec<u8>>,
    /// The number of pieces; 0 until the first arrives.
    of: u32,
}

impl IncomingKeys {
    /// A range of which no piece has been received.
    #[must_use]
    pub const fn new(keys: KeyRange) -> Self {
        Self { keys, pieces: Vec::new(), of: 0 }
    }

    /// Appends a piece if it belongs to these keys; ignores one that was already received.
    ///
    /// # Errors
    /// [`PartError::Bytes`] if it is not the next piece.
    pub fn take(&mut self, portion: &Portion) -> Result<(), PartError> {
        let PortionHeader { keys, piece, pieces, .. } = portion.header;
        let next = self.pieces.len() as u32;
        if keys != self.keys || piece < next {
            return Ok(());
        }
        if piece != next || piece >= pieces || (next > 0 && pieces != self.of) {
            return Err(PartError::Bytes);
        }
        self.of = pieces;
        self.pieces.push(portion.bytes.clone());
        Ok(())
    }

    /// True if all pieces have been received.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.of > 0 && self.pieces.len() == self.of as usize
    }

    /// Decodes the received pieces and applies the decisions made `since`.
    ///
    /// # Errors
    /// [`PartError`] if pieces are missing, or are not a part of a store of this job.
    pub fn finish(self, job: &Job, model: &Model, since: &[Decision]) -> Result<Part, PartError> {
        let part = Part::from_bytes(&self.pieces.concat())?;
        if part.keys != self.keys || !self.is_whole() {
            return Err(PartError::Keys);
        }
        let mut store = Store::of_parts(job, model, self.keys, alloc::vec![part])?;
        since.iter().for_each(|decision| {
            // The server that held the keys has already reported these sums.
            let _measured = store.follow(decision);
        });
        store.part(self.keys).ok_or(PartError::Keys)
    }

    /// Saves or restores the pieces, after serde has handled the other fields.
    pub(crate) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut count = self.pieces.len() as u32;
        archive.small(&mut count)?;
        if count > self.of {
            return Err(SavedError::Small);
        }
        if archive.restores() {
            self.pieces.clear();
            for _ in 0..count {
                let mut piece = Vec::new();
                archive.small(&mut piece)?;
                self.pieces.push(piece);
            }
            return Ok(());
        }
        self.pieces.iter_mut().try_for_each(|piece| archive.small(piece))
    }
}
