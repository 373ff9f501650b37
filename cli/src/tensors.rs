//! Values of a model's tensors in safetensors files.

use std::path::Path;

use anyhow::bail;
use pstrain_compute::params::{Role, Tensor};
use pstrain_transports::journal::is_sealed;
use safetensors::tensor::{Dtype, TensorView};

/// The type of a tensor's values in a file.
pub(crate) const fn dtype_of(tensor: &Tensor) -> Dtype {
    match tensor.role {
        Role::State { whole: true, .. } => Dtype::I64,
        Role::Parameter | Role::State { whole: false, .. } => Dtype::F32,
    }
}

/// The values of a tensor in a file; none if it has another type than [`dtype_of`] returns.
pub(crate) fn values_of(stored: &TensorView<'_>) -> impl Iterator<Item = f32> {
    let (floats, wholes) = match stored.dtype() {
        Dtype::F32 => (stored.data().as_chunks().0, [].as_slice()),
        Dtype::I64 => ([].as_slice(), stored.data().as_chunks().0),
        _ => ([].as_slice(), [].as_slice()),
    };
    let floats = floats.iter().map(|&bytes| f32::from_le_bytes(bytes));
    floats.chain(wholes.iter().map(|&bytes| i64::from_le_bytes(bytes) as f32))
}

/// The bytes of a tensor in a file.
pub(crate) fn bytes_of(tensor: &Tensor, values: &[f32]) -> Vec<u8> {
    match dtype_of(tensor) {
        Dtype::I64 => values.iter().flat_map(|value| (*value as i64).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Checks the bytes of a file against its checksum; false if it has none.
pub(crate) fn check_whole(path: &Path, bytes: &mut [u8]) -> anyhow::Result<bool> {
    let is_whole = is_sealed(bytes);
    if is_whole == Some(false) {
        bail!(
            "{} is damaged: it is not what was written; the disk or a copy of the file is faulty",
            path.display()
        );
    }
    Ok(is_whole.is_some())
}
