//! Functions of one value: activations, and the exponential function.

use crate::simd::Simd;

/// Replaces all values by `max(0, value)`; NaN stays NaN.
#[inline(always)]
pub(in crate::model) fn relu<S: Simd>(simd: S, values: &mut [S::V]) {
    let zero = simd.splat(0.0);
    for value in values {
        *value = simd.if_less(*value, zero, zero, *value);
    }
}

/// Back-propagates `delta` through [`relu`], whose result was `output`.
#[inline(always)]
pub(in crate::model) fn relu_backward<S: Simd>(simd: S, delta: &mut [S::V], output: &[S::V]) {
    let zero = simd.splat(0.0);
    for (delta, output) in delta.iter_mut().zip(output) {
        *delta = simd.if_less(zero, *output, *delta, zero);
    }
}

/// Replaces all values by their hyperbolic tangent.
///
/// Near zero, where `1 - 2 / (exp(2 |x|) + 1)` would lose digits, uses the polynomial of Cephes'
/// `tanhf` (Moshier, 1989).
#[inline(always)]
pub(in crate::model) fn tanh<S: Simd>(simd: S, values: &mut [S::V]) {
    let number = |value| simd.splat(value);
    let (zero, one, two) = (number(0.0), number(1.0), number(2.0));
    for value in values {
        let x = *value;
        let size = simd.if_less(x, zero, simd.sub(zero, x), x);
        let square = simd.mul(x, x);
        let mut near = number(-5.704_988_7e-3);
        for coefficient in [2.063_908_8e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
            near = simd.mul_add(near, square, number(coefficient));
        }
        let near = simd.mul_add(simd.mul(near, square), x, x);
        let ten = number(10.0);
        let bounded = simd.if_less(ten, size, ten, size);
        let power = exp(simd, simd.add(bounded, bounded));
        let far = simd.sub(one, simd.div(two, simd.add(power, one)));
        let far = simd.if_less(x, zero, simd.sub(zero, far), far);
        *value = simd.if_less(size, number(0.625), near, far);
    }
}

/// Back-propagates `delta` through [`tanh`], whose result was `output`.
#[inline(always)]
pub(in crate::model) fn tanh_backward<S: Simd>(simd: S, delta: &mut [S::V], output: &[S::V]) {
    let one = simd.splat(1.0);
    for (delta, output) in delta.iter_mut().zip(output) {
        *delta = simd.mul(*delta, simd.sub(one, simd.mul(*output, *output)));
    }
}

/// The exponential function for values up to 88. A value below -87 is treated as -87. NaN stays
/// NaN.
///
/// Computes `2^n * exp(r)` with `r` within ln 2 / 2 of zero and the polynomial of Cephes' `expf`
/// (Moshier, 1989). The error is at most two units in the last place.
#[inline(always)]
pub(in crate::model) fn exp<S: Simd>(simd: S, value: S::V) -> S::V {
    let number = |value| simd.splat(value);
    let lowest = number(-87.0);
    let x = simd.if_less(value, lowest, lowest, value);
    // 1.5 * 2^23: adding it rounds to an integer, which is then in the lowest bits of the mantissa.
    let round = number(12_582_912.0);
    let rounded = simd.mul_add(x, number(core::f32::consts::LOG2_E), round);
    let n = simd.sub(rounded, round);
    // ln 2 in two parts; the first has few enough bits that its product with `n` is exact.
    let r = simd.mul_add(n, number(-355.0 / 512.0), x);
    let r = simd.mul_add(n, number(2.121_944_4e-4), r);
    let mut polynomial = number(1.987_569_2e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        polynomial = simd.mul_add(polynomial, r, number(coefficient));
    }
    let polynomial = simd.mul_add(simd.mul(polynomial, r), r, simd.add(r, number(1.0)));
    simd.mul(polynomial, simd.power_of_two(rounded))
}
