//! A convolution.

use alloc::vec;
use alloc::vec::Vec;

use bytemuck::cast_slice;

use super::linear::draw;
use super::rows::{Rows, Source};
use super::{Context, Input, Layer, Picture, Propagation, Total, Window};
use crate::examples::Records;
use crate::model::kernels::{self, Class, Tap, Weights};
use crate::rng::Random;
use crate::simd::Simd;

/// The sum over the pixels under a kernel, each times a matrix of weights: PyTorch's `Conv2d`.
///
/// The weights are `[height, width, inputs, outputs]` row-major: a matrix for each tap of the
/// kernel. A bias follows them, unless the layer has none. A sum runs over the taps row by row, and
/// over the channels of a pixel.
#[derive(Debug)]
pub(in crate::model) struct Convolution {
    input: Picture,
    output: Picture,
    window: Window,
    has_bias: bool,
    /// The pixels of the output.
    forward: Vec<Class>,
    /// The pixels of the input, for its derivative.
    backward: Vec<Class>,
}

impl Convolution {
    /// A convolution to this many channels; `None` if the window does not fit the picture.
    pub(in crate::model) fn new(
        input: Picture,
        window: Window,
        channels: u32,
        has_bias: bool,
    ) -> Option<Self> {
        let output = Picture { channels, ..window.places(input)? };
        let forward = Class::divide(output.pixels(), |place, taps| {
            window.taps(input, output, place, |matrix, pixel| taps.push(Tap { matrix, pixel }));
        });
        let mut reached: Vec<Vec<Tap>> = vec![Vec::new(); input.pixels() as usize];
        for pixel in 0..output.pixels() {
            window.taps(input, output, pixel, |matrix, to| {
                reached[to as usize].push(Tap { matrix, pixel });
            });
        }
        let backward = Class::divide(input.pixels(), |pixel, taps| {
            taps.append(&mut reached[pixel as usize]);
        });
        Some(Self { input, output, window, has_bias, forward, backward })
    }

    /// The number of weights.
    const fn len(&self) -> usize {
        (self.window.len() * self.input.channels as u64 * self.output.channels as u64) as usize
    }

    const fn weights<'a>(&self, values: &'a [f32], transposed: bool) -> Weights<'a> {
        let (inputs, outputs) = (self.input.channels as usize, self.output.channels as usize);
        Weights { values, inputs, outputs, transposed }
    }

    const fn rows<'a>(
        &self,
        classes: &'a [Class],
        source: Source<'a>,
        samples: usize,
        to: Picture,
    ) -> Rows<'a> {
        Rows { source, classes, samples, targets: to.pixels() as usize }
    }
}

/// The values of pictures.
#[inline(always)]
fn pictures<V: bytemuck::Pod>(values: &[V], picture: Picture) -> Source<'_> {
    let lanes = size_of::<V>() / size_of::<f32>();
    let pixel = picture.strips(lanes) * lanes;
    Source { values: cast_slice(values), each: picture.pixels() as usize * pixel, pixel }
}

/// The values of the examples' pictures.
#[inline(always)]
fn examples(block: &Records, picture: Picture) -> Source<'_> {
    Source { values: block.values(), each: block.stride(), pixel: picture.channels as usize }
}

impl Layer for Convolution {
    #[inline(always)]
    fn output(&self) -> Picture {
        self.output
    }

    fn tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        let (height, width) = self.window.size;
        let sizes = [height, width, self.input.channels, self.output.channels];
        let weight = ("weight", sizes.map(|size| size as usize).to_vec());
        let bias = ("bias", vec![self.output.channels as usize]);
        [weight].into_iter().chain(self.has_bias.then_some(bias)).collect()
    }

    /// As in PyTorch: [`Linear`](super::Linear) with the values under the kernel as inputs.
    fn initial(&self, rng: &mut Random, params: &mut [f32]) {
        draw(self.window.len() * u64::from(self.input.channels), rng, params);
    }

    fn products(&self) -> u64 {
        let taps = |class: &Class| (class.taps.len() * class.len()) as u64;
        let taps: u64 = self.forward.iter().map(taps).sum();
        taps * u64::from(self.input.channels) * u64::from(self.output.channels)
    }

    #[inline(always)]
    fn forward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, &[S::V]>,
        output: &mut [S::V],
    ) {
        let Context { simd, params, samples, crew, .. } = context;
        let strips = self.output.strips(S::LANES);
        let bias = if self.has_bias { &params[self.len()..] } else { &[] };
        kernels::repeat::<S>((output, strips), bias);
        let source = match input {
            Input::Examples(block) => examples(block, self.input),
            input => pictures(input.one(), self.input),
        };
        let rows = self.rows(&self.forward, source, samples, self.output);
        rows.multiply(simd, crew, self.weights(params, false), (output, strips));
    }

    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        context: Context<'_, S>,
        input: Input<'_, Propagation<'_, S::V>>,
        delta: &[S::V],
        gradient: Total<'_>,
    ) {
        let Context { simd, params, samples, mut crew, .. } = context;
        let Total { values, is_first, .. } = gradient;
        let (weight, bias) = values.split_at_mut(self.len());
        let strips = self.output.strips(S::LANES);
        if self.has_bias {
            kernels::sum(simd, (bias, is_first), delta, strips);
        }
        let source = match &input {
            Input::Examples(block) => examples(block, self.input),
            Input::One(previous) => pictures(previous.output, self.input),
            Input::Two(_) => unreachable!("a convolution has one input"),
        };
        let sizes = (self.input.channels as usize, self.output.channels as usize);
        let rows = self.rows(&self.forward, source, samples, self.output);
        rows.outer(simd, crew.lend(), (weight, is_first), sizes, (delta, strips));
        let Input::One(previous) = input else { return };
        let rows = self.rows(&self.backward, pictures(delta, self.output), samples, self.input);
        let out = (previous.delta, self.input.strips(S::LANES));
        rows.multiply(simd, crew, self.weights(params, true), out);
    }
}
