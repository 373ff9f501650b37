//! The seam for the layers of a network.
//!
//! To add a layer, implement [`Layer`] in a file of this directory and add it to the table of
//! [`AnyLayer`]. The network does the rest: it numbers the layers, places their parameters, applies
//! activations and owns all buffers.

mod batch_norm;
mod convolution;
mod dropout;
mod flatten;
mod join;
mod linear;
mod pool;
mod rows;
mod window;

use alloc::vec::Vec;

use super::draws::Draws;
use super::kernels::Memory;
use super::team::Crew;
use crate::examples::{Picture, Records};
use crate::rng::Random;
use crate::simd::Simd;

pub(super) use self::batch_norm::BatchNorm;
pub(super) use self::convolution::Convolution;
pub(super) use self::dropout::Dropout;
pub(super) use self::flatten::Flatten;
pub(super) use self::join::{Add, Concatenate};
pub(super) use self::linear::Linear;
pub(super) use self::pool::{Pool, Pooling};
pub(super) use self::window::Window;

/// A differentiable function of a sample's values and of parameters.
///
/// A layer sees its own parameters only, and holds no values between two calls. The values of a
/// sample are a [`Picture`], whose pixels are rows of channels; a row of values is a picture of one
/// pixel. A block of samples is stored pixel by pixel, each in strips, as the
/// [kernels](super::kernels) describe.
///
/// The methods with arithmetic are inlined into the pass through the whole network, which is
/// compiled once for each kind of registers. This is why they are generic, and why an enum
/// ([`AnyLayer`]) dispatches them and not a `dyn Layer`.
pub(super) trait Layer {
    /// The size of a sample's output.
    fn output(&self) -> Picture;

    /// Returns the names and shapes of the parameter tensors, in key order.
    fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        Vec::new()
    }

    /// Returns the tensors of state besides the parameters, in key order.
    fn state(&self) -> Vec<State> {
        Vec::new()
    }

    /// Draws the initial parameters from `rng`, in key order.
    fn initial(&self, rng: &mut Random, params: &mut [f32]) {
        let _none = (rng, params);
    }

    /// Writes the initial state.
    fn initial_state(&self, state: &mut [f32]) {
        let _none = state;
    }

    /// Products of the forward pass of a sample.
    fn products(&self) -> u64 {
        0
    }

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

/// A tensor of state: its change in an update is the mean of the workers' changes.
pub(super) struct State {
    pub(super) name: &'static str,
    pub(super) shape: Vec<usize>,
    /// True if it counts mini-batches: then its change is the one of the first part of the data.
    pub(super) is_count: bool,
}

/// The source of a layer's input.
pub(super) enum Input<'a, T> {
    /// The examples of the block: dense values, then one-hot columns. They have no derivative.
    Examples(&'a Records),
    /// Another layer.
    One(T),
    /// Two other layers.
    Two([T; 2]),
}

impl<T> Input<'_, T> {
    /// The input of a layer that has one and reads no examples.
    #[inline(always)]
    fn one(self) -> T {
        let Self::One(values) = self else { unreachable!("the input of the layer is a layer") };
        values
    }

    /// The inputs of a layer that has two.
    #[inline(always)]
    fn two(self) -> [T; 2] {
        let Self::Two(values) = self else { unreachable!("the layer has two inputs") };
        values
    }
}

/// Another layer in the backward pass.
pub(super) struct Propagation<'a, V> {
    /// Its output, after the activation.
    pub(super) output: &'a [V],
    /// The derivatives of the loss with respect to `output` so far, to which the layer adds its
    /// own.
    pub(super) delta: &'a mut [V],
}

/// The gradient of a layer's parameters: a sum over the blocks of a mini-batch.
pub(super) struct Total<'a> {
    /// One value per parameter.
    pub(super) values: &'a mut [f32],
    /// The change of the state. A network with state has one block.
    pub(super) state: &'a mut [f32],
    /// True for the first block, whose part replaces the values; later parts are added.
    pub(super) is_first: bool,
}

/// The surroundings of a pass through one layer.
pub(super) struct Context<'a, S> {
    /// The registers.
    pub(super) simd: S,
    /// The layer's parameters.
    pub(super) params: &'a [f32],
    /// The layer's state.
    pub(super) state: &'a [f32],
    /// The number of samples in the block.
    pub(super) samples: usize,
    /// The draws if a gradient is computed; `None` if examples are evaluated.
    pub(super) draws: Option<Draws<'a>>,
    /// Values that the layer keeps from the forward to the backward pass.
    pub(super) kept: &'a mut Memory,
    /// The threads.
    pub(super) crew: Crew<'a>,
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

        impl AnyLayer {
            /// The kind of the layer.
            pub(super) const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$layer(_) => stringify!($layer),)+
                }
            }
        }

        impl Layer for AnyLayer {
            fn output(&self) -> Picture {
                match self {
                    $(Self::$layer(layer) => layer.output(),)+
                }
            }

            fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
                match self {
                    $(Self::$layer(layer) => layer.tensors(),)+
                }
            }

            fn state(&self) -> Vec<State> {
                match self {
                    $(Self::$layer(layer) => layer.state(),)+
                }
            }

            fn initial(&self, rng: &mut Random, params: &mut [f32]) {
                match self {
                    $(Self::$layer(layer) => layer.initial(rng, params),)+
                }
            }

            fn initial_state(&self, state: &mut [f32]) {
                match self {
                    $(Self::$layer(layer) => layer.initial_state(state),)+
                }
            }

            fn products(&self) -> u64 {
                match self {
                    $(Self::$layer(layer) => layer.products(),)+
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
    Convolution,
    BatchNorm,
    Pool,
    Dropout,
    Flatten,
    Add,
    Concatenate,
}
