//! A model whose arithmetic is in a compute process: here it is the layout of its parameters.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{MOST_PARAMETERS, ModelError};
use crate::params::Layout;

/// A tensor of an external model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalTensor {
    /// The name.
    pub name: String,
    /// The dimensions, the slowest first; none for a single number.
    pub shape: Vec<u32>,
}

/// The layout of an external model. Its gradients and evaluations come from a
/// [`GradientSource`](crate::source::GradientSource) of its own.
pub(super) fn layout(tensors: &[ExternalTensor]) -> Result<Layout, ModelError> {
    let refused = |tensor: &ExternalTensor, problem: &str| ModelError::Tensor {
        name: tensor.name.clone(),
        problem: problem.into(),
    };
    if tensors.is_empty() {
        return Err(ModelError::NoTensors);
    }
    let (mut layout, mut parameters) = (Layout::new(), 0_u64);
    for (index, tensor) in tensors.iter().enumerate() {
        if tensors[..index].iter().any(|other| other.name == tensor.name) {
            return Err(refused(tensor, "another tensor has the same name"));
        }
        let sizes = tensor.shape.iter().map(|&size| u64::from(size));
        let values = sizes.fold(1_u64, u64::saturating_mul);
        parameters = parameters.saturating_add(values);
        if parameters > MOST_PARAMETERS {
            return Err(ModelError::TooManyParameters { layer: index, parameters });
        }
        let shape = tensor.shape.iter().map(|&size| size as usize).collect();
        if layout.push(tensor.name.clone(), shape).is_none() {
            return Err(refused(tensor, "it has no values; leave it out"));
        }
    }
    Ok(layout)
}
