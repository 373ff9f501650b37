//! Part of a store, cut out by keys, and stores made of such parts.
//!
//! Stores that are told the same differ in nothing but values by key: so of a store for some of its
//! keys all that is small is the same, and of each array there is a part. What two parts say that
//! is small must be equal; a store of both has it too, and their arrays one after the other.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

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

/// All that a store knows of some keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    keys: KeyRange,
    saved: Saved,
}

/// Parts that make no store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PartError {
    /// Bytes that are no part.
    Bytes,
    /// Parts of other keys than those wanted, or that do not follow one another.
    Keys,
    /// Parts that are not of the same time.
    Times,
    /// What is in them.
    Saved(SavedError),
    /// The job's optimiser.
    Optim(OptimError),
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("they are no part of a server's state"),
            Self::Keys => f.write_str("they are of other keys"),
            Self::Times => f.write_str("they are of another time than what is here"),
            Self::Saved(error) => error.fmt(f),
            Self::Optim(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PartError {}

impl From<SavedError> for PartError {
    fn from(error: SavedError) -> Self {
        Self::Saved(error)
    }
}

impl Store {
    /// All there is to know of `keys`; none if they are not all here.
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
                // Lists of keys do not move.
                Array::U32(_) => return None,
            };
        }
        Some(Part { keys, saved })
    }

    /// The store of `keys` whose parts these are, in any order.
    ///
    /// # Errors
    /// [`PartError`] if they are not all of it, or not of one time.
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

/// Puts what is known of some keys behind what is known of those before them.
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
    /// Its keys.
    #[must_use]
    pub const fn keys(&self) -> KeyRange {
        self.keys
    }

    /// It as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::append(&self.keys, &mut bytes);
        bytes.extend(self.saved.to_bytes());
        bytes
    }

    /// What [`Self::to_bytes`] made these bytes of.
    ///
    /// # Errors
    /// [`PartError::Bytes`] if it made no such bytes.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, PartError> {
        let keys = codec::read_first(&mut bytes).map_err(|_malformed| PartError::Bytes)?;
        let saved = Saved::of_bytes(bytes).map_err(|_error| PartError::Bytes)?;
        Ok(Self { keys, saved })
    }
}

/// Keys that come to a server, in pieces.
#[derive(Debug, Serialize, Deserialize)]
pub struct Coming {
    keys: KeyRange,
    /// The pieces that have come, from the first on. Each is saved for itself.
    #[serde(skip)]
    pieces: Vec<Vec<u8>>,
    /// How many there are; 0 until it is known.
    of: u32,
}

impl Coming {
    /// Before the first piece.
    #[must_use]
    pub const fn new(keys: KeyRange) -> Self {
        Self { keys, pieces: Vec::new(), of: 0 }
    }

    /// Takes a piece, if it is of these keys; one that has come is not taken twice.
    ///
    /// # Errors
    /// [`PartError::Bytes`] if it is not the next.
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

    /// Whether all pieces have come.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.of > 0 && self.pieces.len() == self.of as usize
    }

    /// What has come, with what was decided since.
    ///
    /// # Errors
    /// [`PartError`] if it is not whole, or no part of a store of this job.
    pub fn finish(self, job: &Job, model: &Model, since: &[Decision]) -> Result<Part, PartError> {
        let part = Part::from_bytes(&self.pieces.concat())?;
        if part.keys != self.keys || !self.is_whole() {
            return Err(PartError::Keys);
        }
        let mut store = Store::of_parts(job, model, self.keys, alloc::vec![part])?;
        since.iter().for_each(|decision| {
            // Whoever has the keys has said what is to be known of them.
            let _measured = store.follow(decision);
        });
        store.part(self.keys).ok_or(PartError::Keys)
    }

    /// Saves or restores the pieces, once serde has been over the rest.
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
