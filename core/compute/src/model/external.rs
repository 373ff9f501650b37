//! A model whose arithmetic is in a compute process: here it is the layout of its parameters.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{MOST_PARAMETERS, ModelError};
use crate::params::{Layout, Role};

/// The answer of a compute process to a mini-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answers {
    /// The gradient of the mean loss of the rows.
    #[default]
    Gradient,
    /// The difference that training of its own on the rows made: the parameters after it, minus
    /// those before. Its negative counts as the gradient, so that gradient descent at rate 1 is
    /// federated averaging (McMahan et al., AISTATS 2017), and other optimisers are those of Reddi
    /// et al. (Adaptive Federated Optimization, ICLR 2021).
    Difference,
}

/// A tensor of an external model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalTensor {
    /// The name.
    pub name: String,
    /// The dimensions, the slowest first; none for a single number.
    pub shape: Vec<u32>,
    /// Parameters, or state besides them; all state follows all parameters.
    #[serde(default)]
    pub role: Role,
}

/// The layout of an external model. Its gradients and evaluations come from a
/// [`GradientSource`](crate::source::GradientSource) of its own.
pub(super) fn layout(tensors: &[ExternalTensor]) -> Result<Layout, ModelError> {
    let refused = |tensor: &ExternalTensor, problem: &str| ModelError::Tensor {
        name: tensor.name.clone(),
        problem: problem.into(),
    };
    if tensors.iter().all(|tensor| tensor.role != Role::Parameter) {
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
        if tensor.role == Role::Parameter && layout.trained() < layout.len() {
            return Err(refused(tensor, "it is a parameter after state: name parameters first"));
        }
        let shape = tensor.shape.iter().map(|&size| size as usize).collect();
        if layout.push_as(tensor.role, tensor.name.clone(), shape).is_none() {
            return Err(refused(tensor, "it has no values; leave it out"));
        }
    }
    Ok(layout)
}
