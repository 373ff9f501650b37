//! The loss: negative log-likelihood of the labels under the softmax of the last layer.
//!
//! Works on strips as the kernels do, in one fixed order; `exp` and `ln` come from `libm`.

use super::kernels::{LANES, Strip, strips};

/// Turns the logits of all samples into the derivatives of the loss, times `scale`, and returns
/// the sum of the losses.
///
/// The loss is the negative logarithm of the softmax's value for the label, the derivative the
/// softmax less one at the label; the greatest logit is subtracted first, so nothing overflows.
pub(super) fn nll_backward(
    logits: &mut [Strip],
    samples: usize,
    classes: usize,
    labels: &[u16],
    scale: f32,
) -> f64 {
    let mut loss = 0.0;
    for (sample, &label) in labels.iter().enumerate().take(samples) {
        let greatest = greatest(logits, samples, classes, sample);
        let label = usize::from(label);
        let of_label = logits[label / LANES * samples + sample][label % LANES];
        let mut total = 0.0;
        for_each_strip(logits, samples, classes, sample, |values| {
            for value in values {
                *value = libm::expf(*value - greatest);
                total += *value;
            }
        });
        loss += f64::from(libm::logf(total) - (of_label - greatest));
        let factor = scale / total;
        for_each_strip(logits, samples, classes, sample, |values| {
            for value in values {
                *value *= factor;
            }
        });
        logits[label / LANES * samples + sample][label % LANES] -= scale;
    }
    loss
}

/// Writes the logarithms of the softmax of all samples to `out`, `classes` values for each.
pub(super) fn log_softmax(logits: &[Strip], samples: usize, classes: usize, out: &mut [f32]) {
    for (sample, out) in out.chunks_exact_mut(classes).enumerate() {
        for (strip, out) in out.chunks_mut(LANES).enumerate() {
            out.copy_from_slice(&logits[strip * samples + sample][..out.len()]);
        }
        let greatest = out.iter().copied().fold(f32::NEG_INFINITY, greater);
        let mut total = 0.0;
        for value in out.iter() {
            total += libm::expf(*value - greatest);
        }
        let log_total = libm::logf(total);
        for value in out {
            *value = (*value - greatest) - log_total;
        }
    }
}

/// The greater value. Not `f32::max`, which may return either of -0 and 0.
fn greater(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

fn greatest(logits: &[Strip], samples: usize, classes: usize, sample: usize) -> f32 {
    (0..classes)
        .map(|class| logits[class / LANES * samples + sample][class % LANES])
        .fold(f32::NEG_INFINITY, greater)
}

fn for_each_strip(
    logits: &mut [Strip],
    samples: usize,
    classes: usize,
    sample: usize,
    mut visit: impl FnMut(&mut [f32]),
) {
    for strip in 0..strips(classes) {
        let lanes = LANES.min(classes - strip * LANES);
        visit(&mut logits[strip * samples + sample][..lanes]);
    }
}
