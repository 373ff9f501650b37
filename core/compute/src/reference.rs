//! Fixed work by which the speed of machines is compared.

use core::hint::black_box;

use nalgebra::DMatrix;

use crate::rng::Stream;

/// A product of two square matrices of random 32-bit floats.
#[derive(Clone, Debug)]
pub struct SquareProduct {
    a: DMatrix<f32>,
    b: DMatrix<f32>,
    product: DMatrix<f32>,
}

impl SquareProduct {
    /// Two matrices of `size` rows and columns, uniform in [-1, 1), and room for their product.
    #[must_use]
    pub fn new(size: usize, seed: Stream) -> Self {
        let mut rng = seed.fork("calibration", 0).rng();
        let mut matrix = || DMatrix::from_fn(size, size, |_, _| (2.0 * rng.unit() - 1.0) as f32);
        Self { a: matrix(), b: matrix(), product: DMatrix::zeros(size, size) }
    }

    /// Multiplies them, on this thread.
    // Compiled here: the crate of the command line is hardly optimised in the default build.
    #[inline(never)]
    pub fn multiply(&mut self) {
        black_box(&self.a).mul_to(black_box(&self.b), black_box(&mut self.product));
    }
}
