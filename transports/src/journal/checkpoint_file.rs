//! A checkpoint as one safetensors file: the arrays of a server's state by name, and everything
//! else as byte tensors.
//!
//! Its [metadata](super::sealed) contains a checksum of the whole file.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pstrain_compute::saved::{Array, Saved};
use pstrain_compute::time::Time;
use pstrain_roles::node::RestoreError;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use super::disk::ordinary;
use super::sealed::{UNSEALED, is_sealed, seal};

/// Metadata key of pstrain's entry.
const KEY: &str = "pstrain";
/// Tensors of the data that are not arrays.
const STATE: &str = "pstrain.state";
const BESIDE: &str = "pstrain.beside";
const FORMAT: u32 = 11;

/// A server's state at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Number of the checkpoint within its run, from 1.
    pub number: u64,
    /// Identifies run and number; shared with the log that continues from this checkpoint.
    pub mark: u64,
    /// When the state was taken.
    pub now: Time,
    /// The state.
    pub saved: Saved,
    /// Run and origin, if several servers take their checkpoints together.
    pub lineage: Option<Lineage>,
    /// Data that the observer of the run keeps with the state.
    pub beside: Vec<u8>,
}

/// The run of a checkpoint, and the run from which it descends through restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// This run.
    pub run: u64,
    /// The first run.
    pub origin: u64,
}

#[derive(Serialize, Deserialize)]
struct About {
    format: u32,
    number: u64,
    mark: u64,
    now: Time,
    lineage: Option<Lineage>,
    /// Names of the arrays, in order.
    arrays: Vec<String>,
    checksum: String,
}

impl Checkpoint {
    /// Encodes the checkpoint as the bytes of a file.
    ///
    /// # Errors
    /// If safetensors cannot serialize it.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let Self { number, mark, now, saved, lineage, beside } = self;
        let about = About {
            format: FORMAT,
            number: *number,
            mark: *mark,
            now: *now,
            lineage: *lineage,
            arrays: saved.arrays.iter().map(|(name, _)| name.clone()).collect(),
            checksum: UNSEALED.into(),
        };
        let contents: Vec<(&str, Dtype, usize, Cow<'_, [u8]>)> = saved
            .arrays
            .iter()
            .map(|(name, array)| match array {
                Array::F32(values) => (name.as_str(), Dtype::F32, values.len(), bytes_of(values)),
                Array::F64(values) => (name.as_str(), Dtype::F64, values.len(), bytes_of(values)),
                Array::U32(values) => (name.as_str(), Dtype::U32, values.len(), bytes_of(values)),
                Array::U8(bytes) => {
                    (name.as_str(), Dtype::U8, bytes.len(), Cow::Borrowed(bytes.as_slice()))
                }
            })
            .chain(
                [(STATE, &saved.small), (BESIDE, beside)]
                    .map(|(name, bytes)| (name, Dtype::U8, bytes.len(), Cow::from(bytes))),
            )
            .collect();
        let views = contents
            .iter()
            .map(|(name, dtype, length, bytes)| {
                Ok((*name, TensorView::new(*dtype, vec![*length], bytes)?))
            })
            .collect::<Result<Vec<_>, SafeTensorError>>()
            .map_err(io::Error::other)?;
        #[expect(
            clippy::disallowed_types,
            reason = "the library asks for this map; it has one entry"
        )]
        let metadata =
            std::collections::HashMap::from([(KEY.to_owned(), serde_json::to_string(&about)?)]);
        let mut bytes = safetensors::serialize(views, Some(metadata)).map_err(io::Error::other)?;
        seal(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns a lower bound of the file's size in bytes.
    pub(super) fn least_bytes(&self) -> u64 {
        let array = |(_, array): &(String, Array)| match array {
            Array::F32(values) => size_of_val(values.as_slice()),
            Array::F64(values) => size_of_val(values.as_slice()),
            Array::U32(values) => size_of_val(values.as_slice()),
            Array::U8(bytes) => bytes.len(),
        };
        let arrays: usize = self.saved.arrays.iter().map(array).sum();
        (arrays + self.saved.small.len() + self.beside.len()) as u64
    }

    /// Reads a checkpoint file that must have this `mark`.
    ///
    /// # Errors
    /// [`CheckpointError`] if the file cannot be read, is damaged, or has another mark.
    pub fn read(path: &Path, mark: u64) -> Result<Self, CheckpointError> {
        let failed = |problem| CheckpointError { path: path.to_owned(), problem };
        let bytes = ordinary(path).and_then(|()| std::fs::read(path));
        let bytes = bytes.map_err(|why| failed(Problem::Io(why)))?;
        let checkpoint = Self::of_bytes(bytes).map_err(failed)?;
        if checkpoint.mark != mark {
            return Err(failed(Problem::Another));
        }
        Ok(checkpoint)
    }

    fn of_bytes(mut bytes: Vec<u8>) -> Result<Self, Problem> {
        if is_sealed(&mut bytes) != Some(true) {
            return Err(Problem::Damaged);
        }
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|_error| Problem::Other)?;
        let about = metadata.metadata().as_ref().and_then(|about| about.get(KEY));
        let about: About = about
            .and_then(|about| serde_json::from_str(about).ok())
            .filter(|about: &About| about.format == FORMAT)
            .ok_or(Problem::Other)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|_error| Problem::Other)?;
        let tensor = |name: &str| tensors.tensor(name).map_err(|_error| Problem::Other);
        let array = |name: String| {
            let tensor = tensor(&name)?;
            let array = match tensor.dtype() {
                Dtype::F32 => Array::F32(Arc::new(values_of(tensor.data(), f32::from_le_bytes))),
                Dtype::F64 => Array::F64(Arc::new(values_of(tensor.data(), f64::from_le_bytes))),
                Dtype::U32 => Array::U32(Arc::new(values_of(tensor.data(), u32::from_le_bytes))),
                Dtype::U8 => Array::U8(Arc::new(tensor.data().to_vec())),
                _ => return Err(Problem::Other),
            };
            Ok((name, array))
        };
        let About { number, mark, now, lineage, arrays, .. } = about;
        let arrays = arrays.into_iter().map(array).collect::<Result<_, Problem>>()?;
        let small = tensor(STATE)?.data().to_vec();
        let beside = tensor(BESIDE)?.data().to_vec();
        Ok(Self { number, mark, now, saved: Saved { small, arrays }, lineage, beside })
    }
}

/// Returns numbers as little-endian bytes.
fn bytes_of<T: Number>(values: &[T]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        Cow::Owned(values.iter().flat_map(|value| value.to_bytes()).collect())
    }
}

fn values_of<T, const N: usize>(bytes: &[u8], of: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| of(*bytes)).collect()
}

trait Number: bytemuck::NoUninit {
    fn to_bytes(self) -> Vec<u8>;
}

impl Number for f32 {
    fn to_bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Number for f64 {
    fn to_bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Number for u32 {
    fn to_bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

/// Error of a checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path} {problem}")]
pub struct CheckpointError {
    path: PathBuf,
    problem: Problem,
}

/// A problem of the file. The text contains the inner error, so `source` returns none.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot be read: {0}")]
    Io(io::Error),
    #[error("is damaged: it is not what was written; the disk or a copy of the file is faulty")]
    Damaged,
    #[error("is no checkpoint of this release of pstrain")]
    Other,
    #[error("is not the checkpoint that belongs there, but that of another run or another number")]
    Another,
    #[error("cannot be resumed: {0}")]
    Restore(RestoreError),
}

impl CheckpointError {
    /// Returns the error of a server that cannot restore an intact checkpoint.
    #[must_use]
    pub fn of_server(path: &Path, why: RestoreError) -> Self {
        Self { path: path.to_owned(), problem: Problem::Restore(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Checkpoint {
        let f32s = Array::F32(Arc::new(vec![1.5, -0.0, f32::MIN_POSITIVE, 7e30]));
        let f64s = Array::F64(Arc::new(vec![1e-300, 3.0]));
        let u32s = Array::U32(Arc::new(vec![0, u32::MAX]));
        let arrays = vec![
            ("velocity".into(), f32s.clone()),
            ("sum".into(), f64s),
            ("a".into(), f32s),
            ("keys".into(), u32s),
        ];
        let saved = Saved { small: vec![1, 2, 3], arrays };
        Checkpoint {
            number: 7,
            mark: 8,
            now: Time::from_nanos(99),
            saved,
            lineage: Some(Lineage { run: 3, origin: 2 }),
            beside: b"records".to_vec(),
        }
    }

    #[test]
    fn a_checkpoint_comes_back_as_it_was_and_is_a_safetensors_file() {
        let bytes = sample().to_bytes().unwrap();
        assert_eq!(Checkpoint::of_bytes(bytes.clone()).unwrap(), sample());
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(tensors.tensor("velocity").unwrap().shape(), [4]);
        assert_eq!(tensors.len(), 6);
        let least = sample().least_bytes();
        assert!((60..bytes.len() as u64).contains(&least), "{least} of {} bytes", bytes.len());
    }

    #[test]
    fn whatever_bit_is_flipped_and_wherever_it_is_cut_it_is_not_taken_for_whole() {
        let bytes = sample().to_bytes().unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(Checkpoint::of_bytes(damaged).is_err(), "byte {at}, bit {bit}");
            }
            assert!(Checkpoint::of_bytes(bytes[..at].to_vec()).is_err(), "cut at {at}");
        }
    }
}
