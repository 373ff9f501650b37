//! The state of a server as something that can be put on a disk: small fields as bytes, and arrays
//! by name.
//!
//! An [`Archive`] is led over the whole state by one function for each type, which saves and
//! restores alike: so what is saved is what is restored, in that order. Small fields go through
//! serde; where they have arrays in them, those are skipped there and come after them. An array
//! that is in several places is saved once, and shared again afterwards. It knows nothing of files.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec;

/// A state that was saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The small fields.
    pub small: Vec<u8>,
    /// The arrays, each under a name of its own.
    pub arrays: Vec<(String, Array)>,
}

/// Many numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Of single precision: one for each key.
    F32(Arc<Vec<f32>>),
    /// Of double precision.
    F64(Arc<Vec<f64>>),
    /// Whole numbers.
    U32(Arc<Vec<u32>>),
}

/// A saved state that does not fit the job, or is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedError {
    /// The small fields end too early or late, or are no such fields.
    Small,
    /// There is no such array, or not of that type.
    Missing,
    /// An array of another length than there are keys.
    Length {
        /// Its name.
        name: String,
        /// Its values.
        values: usize,
        /// The keys.
        keys: usize,
    },
    /// It is of another job.
    OtherJob,
}

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Small => f.write_str("its state is not one that this release has saved"),
            Self::Missing => f.write_str("an array that its state speaks of is not there"),
            Self::Length { name, values, keys } => {
                write!(f, "{name} has {values} values where the model has {keys} parameters")
            }
            Self::OtherJob => f.write_str("it is of another job"),
        }
    }
}

impl core::error::Error for SavedError {}

impl Saved {
    /// All of it as bytes: the small fields and the lengths, then the numbers, little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::append(&self.small, &mut bytes);
        let lengths = self.arrays.iter().map(|(name, array)| match array {
            Array::F32(values) => (name, Of::F32, values.len() as u64),
            Array::F64(values) => (name, Of::F64, values.len() as u64),
            Array::U32(values) => (name, Of::U32, values.len() as u64),
        });
        codec::append(&lengths.collect::<Vec<_>>(), &mut bytes);
        for (_, array) in &self.arrays {
            match array {
                Array::F32(values) => bytes.extend(values.iter().flat_map(|it| it.to_le_bytes())),
                Array::F64(values) => bytes.extend(values.iter().flat_map(|it| it.to_le_bytes())),
                Array::U32(values) => bytes.extend(values.iter().flat_map(|it| it.to_le_bytes())),
            }
        }
        bytes
    }

    /// What [`Self::to_bytes`] made these bytes of.
    ///
    /// # Errors
    /// [`SavedError`] if it made no such bytes.
    pub fn of_bytes(mut bytes: &[u8]) -> Result<Self, SavedError> {
        let bytes = &mut bytes;
        let small = codec::read_first(bytes).map_err(|_malformed| SavedError::Small)?;
        let lengths: Vec<(String, Of, u64)> =
            codec::read_first(bytes).map_err(|_malformed| SavedError::Small)?;
        let mut arrays = Vec::new();
        for (name, of, values) in lengths {
            let width = if of == Of::F64 { size_of::<f64>() } else { size_of::<f32>() };
            let length = usize::try_from(values).ok().and_then(|values| values.checked_mul(width));
            let (own, rest) = length
                .and_then(|length| bytes.split_at_checked(length))
                .ok_or(SavedError::Missing)?;
            *bytes = rest;
            let array = match of {
                Of::F32 => Array::F32(Arc::new(values_of(own, f32::from_le_bytes))),
                Of::F64 => Array::F64(Arc::new(values_of(own, f64::from_le_bytes))),
                Of::U32 => Array::U32(Arc::new(values_of(own, u32::from_le_bytes))),
            };
            arrays.push((name, array));
        }
        if bytes.is_empty() { Ok(Self { small, arrays }) } else { Err(SavedError::Small) }
    }
}

/// What the numbers of an array are.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Of {
    F32,
    F64,
    U32,
}

fn values_of<T, const N: usize>(bytes: &[u8], of: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|it| of(*it)).collect()
}

/// Is led over a state, to save it or to restore it.
#[derive(Debug)]
pub struct Archive<'a> {
    course: Course<'a>,
    /// Values of an array.
    keys: usize,
}

#[derive(Debug)]
enum Course<'a> {
    Save {
        saved: &'a mut Saved,
        /// Where the arrays are that were saved already, by their place in memory. They are held
        /// in `saved`, so that no other can come to be there.
        known: BTreeMap<usize, u32>,
        /// How many arrays there are of each name.
        names: BTreeMap<&'static str, u32>,
    },
    Restore {
        small: &'a [u8],
        arrays: &'a [(String, Array)],
    },
}

impl<'a> Archive<'a> {
    /// Saves to `saved`, where arrays have a value for each of so many keys.
    pub const fn save(saved: &'a mut Saved, keys: usize) -> Self {
        let course = Course::Save { saved, known: BTreeMap::new(), names: BTreeMap::new() };
        Self { course, keys }
    }

    /// Restores from `saved`, where arrays must have a value for each of so many keys.
    #[must_use]
    pub fn restore(saved: &'a Saved, keys: usize) -> Self {
        let Saved { small, arrays } = saved;
        Self { course: Course::Restore { small, arrays }, keys }
    }

    /// From here on arrays have a value for each of so many keys.
    pub const fn set_keys(&mut self, keys: usize) {
        self.keys = keys;
    }

    /// Whether it restores.
    #[must_use]
    pub const fn restores(&self) -> bool {
        matches!(self.course, Course::Restore { .. })
    }

    /// A field, without the arrays in it.
    ///
    /// # Errors
    /// [`SavedError::Small`] if that is not what was saved.
    pub fn small<T: Serialize + DeserializeOwned>(
        &mut self,
        field: &mut T,
    ) -> Result<(), SavedError> {
        match &mut self.course {
            Course::Save { saved, .. } => codec::append(field, &mut saved.small),
            Course::Restore { small, .. } => {
                *field = codec::read_first(small).map_err(|_malformed| SavedError::Small)?;
            }
        }
        Ok(())
    }

    /// One value for each key, which others may share.
    ///
    /// # Errors
    /// [`SavedError`] if it is not there, or is not so many values.
    pub fn shared(
        &mut self,
        name: &'static str,
        values: &mut Arc<Vec<f32>>,
    ) -> Result<(), SavedError> {
        self.shared_of(name, values, self.keys)
    }

    /// As [`Self::shared`] for so many keys.
    ///
    /// # Errors
    /// [`SavedError`] if it is not there, or is not so many values.
    pub fn shared_of(
        &mut self,
        name: &'static str,
        values: &mut Arc<Vec<f32>>,
        keys: usize,
    ) -> Result<(), SavedError> {
        if let Course::Save { known, .. } = &self.course {
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

    /// One value for each key.
    ///
    /// # Errors
    /// [`SavedError`] if it is not there, or is not so many values.
    pub fn own(&mut self, name: &'static str, values: &mut Vec<f32>) -> Result<(), SavedError> {
        self.own_of(name, values, self.keys)
    }

    /// As [`Self::own`] for so many keys.
    ///
    /// # Errors
    /// [`SavedError`] if it is not there, or is not so many values.
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

    /// As [`Self::own`] in double precision.
    ///
    /// # Errors
    /// [`SavedError`] if it is not there, or is not so many values.
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

    /// So many whole numbers.
    ///
    /// # Errors
    /// [`SavedError`] if they are not there, or not so many.
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

    /// Whether there is an array, where it comes only with the first use: to be asked before it.
    ///
    /// # Errors
    /// [`SavedError::Small`] if that is not what was saved.
    pub fn is_there(&mut self, values: usize) -> Result<bool, SavedError> {
        let mut there = values > 0;
        self.small(&mut there)?;
        Ok(there)
    }

    /// All has been restored.
    ///
    /// # Errors
    /// [`SavedError::Small`] if something is left.
    pub fn finish(self) -> Result<(), SavedError> {
        match self.course {
            Course::Restore { small, .. } if !small.is_empty() => Err(SavedError::Small),
            _ => Ok(()),
        }
    }

    fn add(&mut self, name: &'static str, array: Array, place: Option<usize>) -> u32 {
        let Course::Save { saved, known, names } = &mut self.course else { return 0 };
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
        let Course::Restore { arrays, .. } = &self.course else { return Err(SavedError::Missing) };
        arrays.get(index as usize).ok_or(SavedError::Missing)
    }
}

fn check(name: &str, values: usize, keys: usize) -> Result<(), SavedError> {
    if values == keys {
        return Ok(());
    }
    Err(SavedError::Length { name: name.into(), values, keys })
}

/// `value` as bytes, for whoever keeps something beside a [`Saved`].
#[must_use]
pub fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::append(value, &mut bytes);
    bytes
}

/// What [`to_bytes`] made these bytes of.
///
/// # Errors
/// [`SavedError::Small`] if it made no such bytes.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SavedError> {
    codec::read(bytes).map_err(|_malformed| SavedError::Small)
}

/// An array that may not be there: serde sees only whether it is.
pub mod presence {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes whether there are values, and not the values.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn serialize<S: Serializer>(
        values: &Option<Arc<Vec<f32>>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        values.is_some().serialize(to)
    }

    /// Reads whether there are values; an empty vector stands for them.
    ///
    /// # Errors
    /// Those of the deserialiser.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<Vec<f32>>>, D::Error> {
        Ok(bool::deserialize(from)?.then(Arc::default))
    }
}
