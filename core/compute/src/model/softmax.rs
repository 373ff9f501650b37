//! The softmax of the last layer, and the negative log-likelihood of the labels under it.
//!
//! The functions work on strips, as the kernels do, in one fixed order.

use bytemuck::{cast_slice, cast_slice_mut};

use super::kernels::exp;
use crate::examples::Records;
use crate::simd::Simd;

/// Number of samples whose softmax totals are multiplied before taking one logarithm. A total over
/// `u16` labels is between 1 and 2^16, so that the product of 32 fits an `f64`.
const AT_ONCE: usize = 32;

/// Replaces the logits of all `samples`, rows of `strips`, by the derivatives of the loss, times
/// `scale`, and returns the sum of the losses.
///
/// The loss is the negative logarithm of the softmax at the label; the derivative is the softmax,
/// less one at the label. A label that is smoothed counts less by the share `smoothing`, which all
/// classes have in equal parts. The greatest logit is subtracted first, so that nothing overflows.
#[inline(always)]
pub(super) fn nll_backward<S: Simd>(
    simd: S,
    (logits, strips): (&mut [S::V], usize),
    classes: usize,
    samples: &Records,
    (scale, smoothing): (f32, f32),
) -> f64 {
    let mut loss = 0.0;
    let each = smoothing / classes as f32;
    for (block, logits) in logits.chunks_mut(strips * AT_ONCE).enumerate() {
        let mut product = 1.0;
        for (sample, row) in logits.chunks_exact_mut(strips).enumerate() {
            let label = usize::from(samples.class(block * AT_ONCE + sample));
            let values = &cast_slice::<S::V, f32>(row)[..classes];
            let greatest = greatest(values);
            loss -= f64::from(values[label] - greatest);
            if smoothing > 0.0 {
                let others = values.iter().map(|value| f64::from(values[label] - value));
                loss += f64::from(each) * others.sum::<f64>();
            }
            let offset = simd.splat(greatest);
            for strip in row.iter_mut() {
                *strip = exp(simd, simd.sub(*strip, offset));
            }
            let total = total(&cast_slice::<S::V, f32>(row)[..classes]);
            product *= f64::from(total);
            let factor = simd.splat(scale / total);
            for strip in row.iter_mut() {
                *strip = simd.mul(*strip, factor);
            }
            let row = &mut cast_slice_mut::<S::V, f32>(row)[..classes];
            row[label] -= scale * (1.0 - smoothing);
            if smoothing > 0.0 {
                row.iter_mut().for_each(|value| *value -= scale * each);
            }
        }
        loss += libm::log(product);
    }
    loss
}

/// Writes the log-softmax of all samples to `out`, `classes` values each. Overwrites the logits.
#[inline(always)]
pub(super) fn log_softmax<S: Simd>(
    simd: S,
    (logits, strips): (&mut [S::V], usize),
    classes: usize,
    out: &mut [f32],
) {
    for (row, out) in logits.chunks_exact_mut(strips).zip(out.chunks_exact_mut(classes)) {
        out.copy_from_slice(&cast_slice::<S::V, f32>(row)[..classes]);
        let greatest = greatest(out);
        let offset = simd.splat(greatest);
        for strip in row.iter_mut() {
            *strip = exp(simd, simd.sub(*strip, offset));
        }
        let log_total = libm::logf(total(&cast_slice::<S::V, f32>(row)[..classes]));
        for value in out {
            *value = (*value - greatest) - log_total;
        }
    }
}

/// Replaces the scores of the classes by the logarithms of their softmax. The result is the same on
/// every machine.
pub(super) fn log_softmax_of(scores: &mut [f32]) {
    let greatest = greatest(scores);
    let exponentials = scores.iter().map(|score| libm::expf(score - greatest));
    let offset = greatest + libm::logf(exponentials.sum());
    scores.iter_mut().for_each(|score| *score -= offset);
}

#[inline(always)]
fn total(values: &[f32]) -> f32 {
    let mut total = 0.0;
    for value in values {
        total += value;
    }
    total
}

/// Returns the greatest value. Not `f32::max`, which may return either of -0 and 0.
#[inline(always)]
fn greatest(values: &[f32]) -> f32 {
    values.iter().copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}
