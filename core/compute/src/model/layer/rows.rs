//! The products of layers with weights: rows of values times matrices, and the gradients of these.

use core::slice;

use super::Crew;
use crate::model::kernels::{self, Class, Weights};
use crate::model::team::Scratch;
use crate::simd::Simd;

/// Rows of a few samples whose places are listed together for the gradient of the weights.
const ROWS: usize = 1024;

/// The values that a product reads: of each sample `each`, in pixels of `pixel`.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) values: &'a [f32],
    pub(super) each: usize,
    pub(super) pixel: usize,
}

/// The rows of values of a layer with weights, of some samples.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) source: Source<'a>,
    pub(super) classes: &'a [Class],
    /// The number of samples.
    pub(super) samples: usize,
    /// Rows of the target per sample.
    pub(super) targets: usize,
}

impl Rows<'_> {
    /// The products with matrices of this many values.
    fn products(&self, values: usize) -> u64 {
        let taps: usize = self.classes.iter().map(|class| class.taps.len() * class.len()).sum();
        (taps * self.samples) as u64 * values as u64
    }

    /// Adds the products of the rows and `weights` to `out`, of `strips` for each row of the
    /// target.
    #[inline(always)]
    pub(super) fn multiply<S: Simd>(
        &self,
        simd: S,
        mut crew: Crew<'_>,
        weights: Weights<'_>,
        (out, strips): (&mut [S::V], usize),
    ) {
        let part = crew.part(self.samples, self.products(weights.inputs * weights.outputs));
        if part == self.samples {
            return self.multiply_part(simd, crew.own(), weights, (out, strips));
        }
        let length = part * self.targets * strips;
        let parts = out.chunks_mut(length).zip(self.source.values.chunks(part * self.source.each));
        crew.run(parts, |(out, values), scratch| {
            let samples = out.len() / (self.targets * strips);
            let part = Rows { source: Source { values, ..self.source }, samples, ..*self };
            part.multiply_part(simd, scratch, weights, (out, strips));
        });
    }

    #[inline(always)]
    fn multiply_part<S: Simd>(
        &self,
        simd: S,
        Scratch { panel, places }: &mut Scratch,
        weights: Weights<'_>,
        (out, strips): (&mut [S::V], usize),
    ) {
        let Source { values, each, pixel } = self.source;
        for class in self.classes {
            places.fill(slice::from_ref(class), 0..self.samples, (each, pixel), self.targets);
            let (out, weights) = ((&mut *out, strips), (weights, &class.taps[..]));
            kernels::multiply(simd, out, (values, pixel), places, weights, panel);
        }
    }

    /// Puts the gradient of the weights, `inputs` rows of `outputs` for each tap, into `gradient`,
    /// where `delta` has `strips` for each row of the target.
    #[inline(always)]
    pub(super) fn outer<S: Simd>(
        &self,
        simd: S,
        mut crew: Crew<'_>,
        gradient: (&mut [f32], bool),
        sizes: (usize, usize),
        delta: (&[S::V], usize),
    ) {
        let ((gradient, is_first), (inputs, outputs)) = (gradient, sizes);
        let rows = gradient.len() / outputs;
        let part = crew.part(rows, self.products(inputs * outputs));
        if part >= rows || !kernels::is_divisible(inputs, self.classes) {
            let gradient = (gradient, is_first, 0);
            return self.outer_part(simd, crew.own(), gradient, sizes, delta);
        }
        let parts = gradient.chunks_mut(part * outputs).enumerate();
        crew.run(parts, |(index, gradient), scratch| {
            let gradient = (gradient, is_first, index * part);
            self.outer_part(simd, scratch, gradient, sizes, delta);
        });
    }

    #[inline(always)]
    fn outer_part<S: Simd>(
        &self,
        simd: S,
        Scratch { panel, places }: &mut Scratch,
        (gradient, is_first, row): (&mut [f32], bool, usize),
        sizes: (usize, usize),
        delta: (&[S::V], usize),
    ) {
        let Source { values, each, pixel } = self.source;
        let step = (ROWS / self.targets).max(1);
        for begin in (0..self.samples).step_by(step) {
            let samples = begin..self.samples.min(begin + step);
            places.fill(self.classes, samples, (each, pixel), self.targets);
            let classes = (&mut *places, self.classes);
            let gradient = (&mut *gradient, is_first && begin == 0, row);
            kernels::outer(simd, gradient, sizes, (values, pixel), delta, classes, panel);
        }
    }
}
