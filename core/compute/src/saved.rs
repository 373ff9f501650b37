//! Serialisable state of a server: small fields as bytes, arrays by name.
//!
//! For each type one function visits the whole state with an [`Archive`], both to save and to
//! restore it: this guarantees that both use the same fields in the same order. Small fields go
//! through serde; arrays inside them are skipped there and follow separately. An array that is
//! shared is saved once, and shared again after restoring. The module does not depend on files.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec;

/// A saved state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The small fields.
    pub small: Vec<u8>,
    /// The arrays, each under a unique name.
    pub arrays: Vec<(String, Array)>,
}

/// An array of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Single precision: one value per key.
    F32(Arc<Vec<f32>>),
    /// Double precision.
    F64(Arc<Vec<f64>>),
    /// Integers.
    U32(Arc<Vec<u32>>),
    /// Bytes.
    U8(Arc<Vec<u8>>),
}

/// A saved state that does not fit the job, or is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedError {
    /// The small fields end too early or too late, or do not decode.
    #[error("its state is not one that this release has saved")]
    Small,
    /// An array is missing, or has another type.
    #[error("an array that its state speaks of is not there")]
    Missing,
    /// The length of an array differs from the number of keys.
    #[error("{name} has {values} values where the model has {keys} parameters")]
    Length {
        /// The name of the array.
        name: String,
        /// The number of values.
        values: usize,
        /// The number of keys.
        keys: usize,
    },
    /// The state belongs to another job.
    #[error("it is of another job")]
    OtherJob,
}

impl Saved {
    /// Serialises the state: the small fields and the array lengths, then the numbers,
    /// little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::append(&self.small, &mut bytes);
        let lengths = self.arrays.iter().map(|(name, array)| match array {
            Array::F32(values) => (name, Of::F32, values.len() as u64),
            Array::F64(values) => (name, Of::F64, values.len() as u64),
            Array::U32(values) => (name, Of::U32, values.len() as u64),
            Array::U8(bytes) => (name, Of::U8, bytes.len() as u64),
        });
        codec::append(&lengths.collect::<Vec<_>>(), &mut bytes);
        for (_, array) in &self.arrays {
            match array {
                Array::F32(values) => bytes.extend(values.iter().flat_map(|it| it.to_le_bytes())),
                Array::F64(values) => bytes.extend(values.iter().flat_map(|it| it.to_le_bytes())),
                Array::U32(values) => bytes.extend(values.iter().flat_map(|it| it.to_le_bytes())),
                Array::U8(own) => bytes.extend_from_slice(own),
            }
        }
        bytes
    }

    /// Deserialises a state from the bytes of [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`SavedError`] if `bytes` is not the output of [`Self::to_bytes`].
    pub fn of_bytes(mut bytes: &[u8]) -> Result<Self, SavedError> {
        let bytes = &mut bytes;
        let small = codec::read_first(bytes).map_err(|_malformed| SavedError::Small)?;
        let lengths: Vec<(String, Of, u64)> =
            codec::read_first(bytes).map_err(|_malformed| SavedError::Small)?;
        let mut arrays = Vec::new();
        for (name, of, values) in lengths {
            let width = match of {
                Of::F64 => size_of::<f64>(),
                Of::F32 | Of::U32 => size_of::<f32>(),
                Of::U8 => 1,
            };
            let length = usize::try_from(values).ok().and_then(|values| values.checked_mul(width));
            let (own, rest) = length
                .and_then(|length| bytes.split_at_checked(length))
                .ok_or(SavedError::Missing)?;
            *bytes = rest;
            let array = match of {
                Of::F32 => Array::F32(Arc::new(values_of(own, f32::from_le_bytes))),
                Of::F64 => Array::F64(Arc::new(values_of(own, f64::from_le_bytes))),
                Of::U32 => Array::U32(Arc::new(values_of(own, u32::from_le_bytes))),
                Of::U8 => Array::U8(Arc::new(own.to_vec())),
            };
            arrays.push((name, array));
        }
        if bytes.is_empty() { Ok(Self { small, arrays }) } else { Err(SavedError::Small) }
    }
}

/// The element type of an array.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Of {
    F32,
    F64,
    U32,
    U8,
}

fn values_of<T, const N: usize>(bytes: &[u8], of: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|it| of(*it)).collect()
}

/// A visitor that saves or restores a state.
#[derive(Debug)]
pub struct Archive<'a> {
    course: Direction<'a>,
    /// The required length of arrays.
    keys: usize,
}

#[derive(Debug)]
enum Direction<'a> {
    Save {
        saved: &'a mut Saved,
        /// Indices of shared arrays that are already saved, by memory address. `saved` keeps each
        /// alive, so that its address cannot be reused.
        known: BTreeMap<usize, u32>,
        /// The number of arrays of each name so far.
        names: BTreeMap<&'static str, u32>,
    },
    Restore {
        small: &'a [u8],
        arrays: &'a [(String, Array)],
    },
}

impl<'a> Archive<'a> {
    /// Creates an archive that saves to `saved`; arrays have one value for each of `keys` keys.
    pub const fn save(saved: &'a mut Saved, keys: usize) -> Self {
        let course = Direction::Save { saved, known: BTreeMap::new(), names: BTreeMap::new() };
        Self { course, keys }
    }

    /// Creates an archive that restores from `saved`; arrays must have one value for each of `keys`
    /// keys.
    #[must_use]
    pub fn restore(saved: &'a Saved, keys: usize) -> Self {
        let Saved { small, arrays } = saved;
        Self { course: Direction::Restore { small, arrays }, keys }
    }

    /// Changes the number of keys for the arrays that follow.
    pub const fn set_keys(&mut self, keys: usize) {
        self.keys = keys;
    }

    /// True if the archive restores.
    #[must_use]
    pub const fn restores(&self) -> bool {
        matches!(self.course, Direction::Restore { .. })
    }

    /// Saves or restores a field, without the arrays in it.
    ///
    /// # Errors
    /// [`SavedError::Small`] if the archive has no such field at this position.
    pub fn small<T: Serialize + DeserializeOwned>(
        &mut self,
        field: &mut T,
    ) -> Result<(), SavedError> {
        match &mut self.course {
            Direction::Save { saved, .. } => codec::append(field, &mut saved.small),
            Direction::Restore { small, .. } => {
                *field = codec::read_first(small).map_err(|_malformed| SavedError::Small)?;
            }
        }
        Ok(())
    }

    /// Saves or restores an array that may be shared, one value for each key.
    ///
    /// # Errors
    /// [`SavedError`] if the array is missing or has another length.
    pub fn shared(
        &mut self,
        name: &'static str,
        values: &mut Arc<Vec<f32>>,
    ) -> Result<(), SavedError> {
        self.shared_of(name, values, self.keys)
    }

    /// As [`Self::shared`], for the given number of keys.
    ///
    /// # Errors
    /// [`SavedError`] if the array is missing or has another length.
    pub fn shared_of(
        &mut self,
        name: &'static str,
        values: &mut Arc<Vec<f32>>,
        keys: usize,
    ) -> Result<(), SavedError> {
        // The same allocation under two owners is stored once: both refer to its index.
        if let Direction::Save { known, .. } = &self.course {
            let place = Arc::as_ptr(values) as usize;
            let index = known.get(&place).copied();
            let mut index = match index {
                Some(index) => index,
                None => self.add(name, Array::F32(Arc::clone(values)), Some(place)),
            };
            return self.small(&mut index);
        }
        match self.next()? {
            (_, Array::F32(found)) => *values = Arc::clone(found),
            _ => return Err(SavedError::Missing),
        }
        check(name, values.len(), keys)
    }

    /// Saves or restores an array, one value for each key.
    ///
    /// # Errors
    /// [`SavedError`] if the array is missing or has another length.
    pub fn own(&mut self, name: &'static str, values: &mut Vec<f32>) -> Result<(), SavedError> {
        self.own_of(name, values, self.keys)
    }

    /// As [`Self::own`], for the given number of keys.
    ///
    /// # Errors
    /// [`SavedError`] if the array is missing or has another length.
    pub fn own_of(
        &mut self,
        name: &'static str,
        values: &mut Vec<f32>,
        keys: usize,
    ) -> Result<(), SavedError> {
        if !self.restores() {
            let mut index = self.add(name, Array::F32(Arc::new(values.clone())), None);
            return self.small(&mut index);
        }
        match self.next()? {
            (_, Array::F32(found)) => values.clone_from(found),
            _ => return Err(SavedError::Missing),
        }
        check(name, values.len(), keys)
    }

    /// As [`Self::own`], in double precision.
    ///
    /// # Errors
    /// [`SavedError`] if the array is missing or has another length.
    pub fn own_f64(&mut self, name: &'static str, values: &mut Vec<f64>) -> Result<(), SavedError> {
        if !self.restores() {
            let mut index = self.add(name, Array::F64(Arc::new(values.clone())), None);
            return self.small(&mut index);
        }
        match self.next()? {
            (_, Array::F64(found)) => values.clone_from(found),
            _ => return Err(SavedError::Missing),
        }
        check(name, values.len(), self.keys)
    }

    /// Saves or restores an array of `count` integers.
    ///
    /// # Errors
    /// [`SavedError`] if the array is missing or has another length.
    pub fn own_u32(
        &mut self,
        name: &'static str,
        values: &mut Vec<u32>,
        count: usize,
    ) -> Result<(), SavedError> {
        if !self.restores() {
            let mut index = self.add(name, Array::U32(Arc::new(values.clone())), None);
            return self.small(&mut index);
        }
        match self.next()? {
            (_, Array::U32(found)) => values.clone_from(found),
            _ => return Err(SavedError::Missing),
        }
        check(name, values.len(), count)
    }

    /// Saves or restores any number of bytes.
    ///
    /// # Errors
    /// [`SavedError`] if they are missing.
    pub fn bytes(
        &mut self,
        name: &'static str,
        bytes: &mut Arc<Vec<u8>>,
    ) -> Result<(), SavedError> {
        if !self.restores() {
            let mut index = self.add(name, Array::U8(Arc::clone(bytes)), None);
            return self.small(&mut index);
        }
        match self.next()? {
            (_, Array::U8(found)) => *bytes = Arc::clone(found),
            _ => return Err(SavedError::Missing),
        }
        Ok(())
    }

    /// Saves or restores if an optional array has `values`. Called before that array is visited.
    ///
    /// # Errors
    /// [`SavedError::Small`] if the archive has no such field at this position.
    pub fn is_there(&mut self, values: usize) -> Result<bool, SavedError> {
        let mut there = values > 0;
        self.small(&mut there)?;
        Ok(there)
    }

    /// Ends the visit.
    ///
    /// # Errors
    /// [`SavedError::Small`] if some of the saved state was not restored.
    pub fn finish(self) -> Result<(), SavedError> {
        match self.course {
            Direction::Restore { small, .. } if !small.is_empty() => Err(SavedError::Small),
            _ => Ok(()),
        }
    }

    fn add(&mut self, name: &'static str, array: Array, place: Option<usize>) -> u32 {
        let Direction::Save { saved, known, names } = &mut self.course else { return 0 };
        let count = names.entry(name).or_default();
        *count += 1;
        let full = if *count == 1 { String::from(name) } else { alloc::format!("{name}.{count}") };
        let index = saved.arrays.len() as u32;
        saved.arrays.push((full, array));
        if let Some(place) = place {
            known.insert(place, index);
        }
        index
    }

    fn next(&mut self) -> Result<&'a (String, Array), SavedError> {
        let mut index = 0_u32;
        self.small(&mut index)?;
        let Direction::Restore { arrays, .. } = &self.course else {
            return Err(SavedError::Missing);
        };
        arrays.get(index as usize).ok_or(SavedError::Missing)
    }
}

fn check(name: &str, values: usize, keys: usize) -> Result<(), SavedError> {
    if values == keys {
        return Ok(());
    }
    Err(SavedError::Length { name: name.into(), values, keys })
}

/// Serialises `value`, for callers that store other data next to a [`Saved`].
#[must_use]
pub fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::append(value, &mut bytes);
    bytes
}

/// Deserialises the bytes of [`to_bytes`].
///
/// # Errors
/// [`SavedError::Small`] if `bytes` is not the output of [`to_bytes`] for this type.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SavedError> {
    codec::read(bytes).map_err(|_malformed| SavedError::Small)
}

/// Serde adapter for an optional array: serialises its presence only.
pub mod presence {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Serialises true if there are values, not the values.
    ///
    /// # Errors
    /// Errors of the serialiser.
    pub fn serialize<S: Serializer>(
        values: &Option<Arc<Vec<f32>>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        values.is_some().serialize(to)
    }

    /// Deserialises the presence of values; an empty vector stands for the values.
    ///
    /// # Errors
    /// Errors of the deserialiser.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<Vec<f32>>>, D::Error> {
        Ok(bool::deserialize(from)?.then(Arc::default))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn arrays_of_all_types_come_back_from_bytes_and_archives() {
        let mut saved = Saved::default();
        let mut archive = Archive::save(&mut saved, 2);
        archive.own("f32", &mut vec![1.5, -0.0]).unwrap();
        archive.own_f64("f64", &mut vec![1e-300, 3.0]).unwrap();
        archive.own_u32("u32", &mut vec![7, u32::MAX, 0], 3).unwrap();
        archive.bytes("bytes", &mut Arc::new(vec![1, 2, 255, 0, 4])).unwrap();
        let again = Saved::of_bytes(&saved.to_bytes()).unwrap();
        assert_eq!(again, saved);
        let mut archive = Archive::restore(&again, 2);
        let (mut f32s, mut f64s, mut u32s) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = Arc::default();
        archive.own("f32", &mut f32s).unwrap();
        archive.own_f64("f64", &mut f64s).unwrap();
        archive.own_u32("u32", &mut u32s, 3).unwrap();
        archive.bytes("bytes", &mut bytes).unwrap();
        archive.finish().unwrap();
        assert_eq!((f32s, f64s), (vec![1.5, -0.0], vec![1e-300, 3.0]));
        assert_eq!((u32s, bytes), (vec![7, u32::MAX, 0], Arc::new(vec![1, 2, 255, 0, 4])));
    }
}
