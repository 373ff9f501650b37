//! Reference workload to compare the speed of machines.

use core::hint::black_box;

use nalgebra::DMatrix;

use crate::rng::Stream;

/// The product of two square matrices of random 32-bit floats.
#[derive(Clone, Debug)]
pub struct SquareProduct {
    a: DMatrix<f32>,
    b: DMatrix<f32>,
    product: DMatrix<f32>,
}

impl SquareProduct {
    /// Creates two matrices of `size` rows and columns, uniform in [-1, 1), and a buffer for the
    /// product.
    #[must_use]
    pub fn new(size: usize, seed: Stream) -> Self {
        let mut rng = seed.fork("calibration", 0).rng();
        let mut matrix = || DMatrix::from_fn(size, size, |_, _| (2.0 * rng.unit() - 1.0) as f32);
        Self { a: matrix(), b: matrix(), product: DMatrix::zeros(size, size) }
    }

    /// Multiplies the matrices on the current thread.
    // Must be compiled in this crate: the default build hardly optimises the crate of the command
    // line.
    #[inline(never)]
    pub fn multiply(&mut self) {
        black_box(&self.a).mul_to(black_box(&self.b), black_box(&mut self.product));
    }
}
