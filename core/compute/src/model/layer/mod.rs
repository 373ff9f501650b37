//! The seam for the layers of a network.
//!
//! To add a layer, implement [`Layer`] in a file of this directory and add it to the table of
//! [`AnyLayer`]. The network does the rest: it numbers the layers, places their parameters, applies
//! activations and owns all buffers.

mod linear;

use alloc::vec::Vec;

use super::kernels::Memory;
use crate::examples::Records;
use crate::rng::Random;
use crate::simd::Simd;

pub(super) use self::linear::Linear;

/// A differentiable function of a sample's values and of parameters.
///
/// A layer sees its own parameters only, and holds no values between two calls. A block of samples
/// is stored in strips, as the [kernels](super::kernels) describe. What the values of a sample
/// mean, such as rows, columns and channels of a picture, is known to the layer alone.
///
/// The methods with arithmetic are inlined into the pass through the whole network, which is
/// compiled once for each kind of registers. This is why they are generic, and why an enum
/// ([`AnyLayer`]) dispatches them and not a `dyn Layer`.
pub(super) trait Layer {
    /// Values per sample of the input.
    fn inputs(&self) -> usize;

    /// Values per sample of the output.
    fn outputs(&self) -> usize;

    /// Returns the names and shapes of the parameter tensors, in key order.
    fn tensors(&self) -> Vec<(&'static str, Vec<usize>)>;

    /// Draws the initial parameters from `rng`, in key order.
    fn initial(&self, rng: &mut Random, params: &mut [f32]);

    /// Writes the output of a block of samples to `output`, whose content is unspecified.
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    );

    /// Puts the block's part of the gradient into `gradient`, and back-propagates `delta`, the
    /// derivative of the loss with respect to the output. `input` is the block of the last
    /// [`forward`](Self::forward), from which the layer may compute intermediate values again.
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        gradient: Total<'_>,
    );
}

/// The source of a layer's input.
pub(super) enum Input<'a, T> {
    /// The examples of the block: dense values, then one-hot columns. They have no derivative.
    Examples(&'a Records),
    /// The previous layer.
    Previous(T),
}

/// The previous layer in the backward pass.
pub(super) struct Propagation<'a, V> {
    /// Its output, after the activation.
    pub(super) output: &'a [V],
    /// Zeros, to which the layer adds the derivative of the loss with respect to `output`.
    pub(super) delta: &'a mut [V],
}

/// The gradient of a layer's parameters: a sum over the blocks of a mini-batch.
pub(super) struct Total<'a> {
    /// One value per parameter.
    pub(super) values: &'a mut [f32],
    /// True for the first block, whose part replaces the values; later parts are added.
    pub(super) is_first: bool,
}

/// The surroundings of a pass through one layer.
pub(super) struct Context<'a, S> {
    /// The registers.
    pub(super) simd: S,
    /// The layer's parameters.
    pub(super) params: &'a [f32],
    /// A packed section of the weights for the matrix product.
    pub(super) panel: &'a mut Memory,
}

macro_rules! layers {
    ($($layer:ident),+ $(,)?) => {
        /// A layer of any kind.
        #[derive(Debug)]
        pub(super) enum AnyLayer {
            $(
                #[doc = concat!("See [`", stringify!($layer), "`].")]
                $layer($layer),
            )+
        }

        $(
            impl From<$layer> for AnyLayer {
                fn from(layer: $layer) -> Self {
                    Self::$layer(layer)
                }
            }
        )+

        impl Layer for AnyLayer {
            fn inputs(&self) -> usize {
                match self {
                    $(Self::$layer(layer) => layer.inputs(),)+
                }
            }

            fn outputs(&self) -> usize {
                match self {
                    $(Self::$layer(layer) => layer.outputs(),)+
                }
            }

            fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
                match self {
                    $(Self::$layer(layer) => layer.tensors(),)+
                }
            }

            fn initial(&self, rng: &mut Random, params: &mut [f32]) {
                match self {
                    $(Self::$layer(layer) => layer.initial(rng, params),)+
                }
            }

            #[inline(always)]
            fn forward<S: Simd>(
                &self,
                context: Context<'_, S>,
                input: Input<'_, &[S::V]>,
                output: &mut [S::V],
            ) {
                match self {
                    $(Self::$layer(layer) => layer.forward(context, input, output),)+
                }
            }

            #[inline(always)]
            fn backward<S: Simd>(
                &self,
                context: Context<'_, S>,
                input: Input<'_, Propagation<'_, S::V>>,
                delta: &[S::V],
                gradient: Total<'_>,
            ) {
                match self {
                    $(Self::$layer(layer) => layer.backward(context, input, delta, gradient),)+
                }
            }
        }
    };
}

layers! {
    Linear,
}
