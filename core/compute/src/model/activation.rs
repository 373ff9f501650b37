//! The activation functions.

use serde::{Deserialize, Serialize};

use super::kernels;
use crate::named::Word;
use crate::simd::Simd;

/// The activation function of a hidden layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// `max(0, x)`.
    Relu,
    /// The hyperbolic tangent.
    Tanh,
}

named!(Activation: "activation", ',' {
    Relu = Word::new("relu", &[], "max(0, x)"),
    Tanh = Word::new("tanh", &[], "the hyperbolic tangent"),
});

impl Activation {
    /// Replaces all values by their activations.
    #[inline(always)]
    pub(super) fn forward<S: Simd>(self, simd: S, values: &mut [S::V]) {
        match self {
            Self::Relu => kernels::relu(simd, values),
            Self::Tanh => kernels::tanh(simd, values),
        }
    }

    /// Back-propagates `delta` through [`forward`](Self::forward), whose result was `output`.
    #[inline(always)]
    pub(super) fn backward<S: Simd>(self, simd: S, delta: &mut [S::V], output: &[S::V]) {
        match self {
            Self::Relu => kernels::relu_backward(simd, delta, output),
            Self::Tanh => kernels::tanh_backward(simd, delta, output),
        }
    }
}
