//! Values of a model's tensors in safetensors files.

use std::path::Path;

use anyhow::bail;
use pstrain_compute::model::ModelSpec;
use pstrain_compute::params::{Role, Tensor};
use pstrain_transports::journal::is_sealed;
use safetensors::tensor::{Dtype, TensorView};

/// A tensor as files have it.
pub(crate) struct Stored<'a> {
    tensor: &'a Tensor,
    /// The numbers of matrices, of inputs and of outputs, of weights. In files the outputs come
    /// first and the inputs second, as in PyTorch.
    weights: Option<[usize; 3]>,
}

impl<'a> Stored<'a> {
    /// An external model has its own tensors, which files have as they are.
    pub(crate) fn of(tensor: &'a Tensor, model: &ModelSpec) -> Self {
        let is_external = matches!(model, ModelSpec::External { .. });
        let weights = match tensor.shape[..] {
            _ if is_external => None,
            [inputs, outputs] => Some([1, inputs, outputs]),
            [height, width, inputs, outputs] => Some([height * width, inputs, outputs]),
            _ => None,
        };
        Self { tensor, weights }
    }

    /// The type of the values.
    pub(crate) const fn dtype(&self) -> Dtype {
        match self.tensor.role {
            Role::State { whole: true, .. } => Dtype::I64,
            Role::Parameter | Role::State { whole: false, .. } => Dtype::F32,
        }
    }

    /// The dimensions.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self.tensor.shape[..] {
            [inputs, outputs] if self.weights.is_some() => vec![outputs, inputs],
            [height, width, inputs, outputs] if self.weights.is_some() => {
                vec![outputs, inputs, height, width]
            }
            _ => self.tensor.shape.clone(),
        }
    }

    /// The place in a file of the value at `index` of the keys.
    const fn place(&self, index: usize) -> usize {
        let Some([matrices, inputs, outputs]) = self.weights else { return index };
        let (matrix, input) = (index / outputs / inputs, index / outputs % inputs);
        (index % outputs * inputs + input) * matrices + matrix
    }

    /// The bytes of the values.
    pub(crate) fn bytes(&self, values: &[f32]) -> Vec<u8> {
        let mut turned = vec![0.0; values.len()];
        values.iter().enumerate().for_each(|(index, value)| turned[self.place(index)] = *value);
        match self.dtype() {
            Dtype::I64 => turned.iter().flat_map(|value| (*value as i64).to_le_bytes()).collect(),
            _ => turned.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    /// Reads the values. The error says how the tensor in the file differs.
    pub(crate) fn read(&self, found: &TensorView<'_>, out: &mut [f32]) -> Result<(), String> {
        let (dtype, shape) = (self.dtype(), self.shape());
        if found.dtype() != dtype || found.shape() != shape {
            return Err(format!(
                "tensor {} is {:?} {:?}, but the model needs {dtype:?} {shape:?}",
                self.tensor.name,
                found.dtype(),
                found.shape()
            ));
        }
        let (floats, wholes) = match dtype {
            Dtype::I64 => ([].as_slice(), found.data().as_chunks().0),
            _ => (found.data().as_chunks().0, [].as_slice()),
        };
        let floats = floats.iter().map(|&bytes| f32::from_le_bytes(bytes));
        let values = floats.chain(wholes.iter().map(|&bytes| i64::from_le_bytes(bytes) as f32));
        let values: Vec<f32> = values.collect();
        out.iter_mut().enumerate().for_each(|(index, out)| *out = values[self.place(index)]);
        Ok(())
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
