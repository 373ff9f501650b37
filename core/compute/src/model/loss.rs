//! The losses: how far a prediction is from the label.

use alloc::string::ToString as _;

use bytemuck::cast_slice_mut;
use serde::{Deserialize, Serialize};

use super::ModelError;
use crate::examples::{Label, Records, Target};
use crate::named;
use crate::named::{Limits, Number, Word};
use crate::simd::Simd;

/// The loss of one example; a model minimises its mean.
///
/// The losses of a number are those of PyTorch's `MSELoss`, `L1Loss` and `HuberLoss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// The negative log-likelihood of the class under the softmax of the outputs, one for each
    /// class, in nats.
    #[default]
    Nll,
    /// The same in training with the label's class at `1 - share`, and each class at an equal part
    /// of `share`: label smoothing (Szegedy et al., CVPR 2016, section 7; PyTorch's
    /// `label_smoothing`). Evaluations are those of [`Self::Nll`].
    Smoothed {
        /// The share of all classes, from 0 to below 1.
        share: f32,
    },
    /// The negative log-likelihood of one of two classes, in nats. The only output is the log-odds
    /// of class 1.
    Logistic,
    /// `e^2`, where the error `e` is the output less the value.
    Squared,
    /// `|e|`. The slope at 0 is 0.
    Absolute,
    /// `e^2 / 2` up to an error of `delta`, and linear beyond, with the slope `delta`: large errors
    /// count for less than under `Squared`.
    Huber {
        /// The error from which on the loss is linear.
        delta: f32,
    },
}

named!(Loss: "loss", ',' {
    Nll = Word::new("nll", &[], "of classes: negative log-likelihood under a softmax"),
    Smoothed { share } = Word::new("smoothed", &[Number::real("SHARE", Limits::PART).usual("0.1")],
        "of classes: nll with labels of which all classes have SHARE in equal parts"),
    Logistic = Word::new("logistic", &[], "of two classes: the same with one output"),
    Squared = Word::new("squared", &[], "of a number: the squared error"),
    Absolute = Word::new("absolute", &[], "of a number: the absolute error"),
    Huber { delta } = Word::new("huber", &[Number::real("DELTA", Limits::POSITIVE).usual("1")],
        "of a number: half the squared error, and linear from an error of DELTA on"),
});

impl Loss {
    /// The default for this target.
    #[must_use]
    pub const fn of(target: Target) -> Self {
        match target {
            Target::Classes(_) => Self::Nll,
            Target::Value => Self::Squared,
        }
    }

    /// Checks that the loss fits the target and that its numbers are in range.
    ///
    /// # Errors
    /// [`ModelError::Loss`] says which losses fit.
    pub fn check(self, target: Target) -> Result<(), ModelError> {
        let allowed = match (self, target) {
            (Self::Nll, Target::Classes(_)) | (Self::Logistic, Target::Classes(2)) => return Ok(()),
            (Self::Smoothed { .. }, Target::Classes(_))
            | (Self::Squared | Self::Absolute | Self::Huber { .. }, Target::Value) => {
                let Some(number) = named::out_of_range(&self) else { return Ok(()) };
                return Err(ModelError::LossNumber { loss: self.to_string(), number });
            }
            (Self::Logistic, Target::Classes(_)) => "use nll",
            (_, Target::Classes(_)) => {
                "use nll, or say that the label is a number, as with csv:PATH,target=COLUMN"
            }
            (_, Target::Value) => "use squared, absolute or huber",
        };
        Err(ModelError::Loss { loss: self.to_string(), target, allowed })
    }

    /// The number of a model's outputs for this target.
    pub(super) const fn outputs(self, target: Target) -> usize {
        match self {
            Self::Nll | Self::Smoothed { .. } => target.predictions() as usize,
            _ => 1,
        }
    }

    /// The share by which labels are smoothed, if a model has an output for each class.
    pub(super) const fn smoothing(self) -> Option<f32> {
        match self {
            Self::Nll => Some(0.0),
            Self::Smoothed { share } => Some(share),
            _ => None,
        }
    }

    /// Returns the loss of a model with one output, and its derivative with respect to the output.
    /// Under [`Self::Nll`] the two classes are those of [`Self::Logistic`].
    #[must_use]
    pub fn at(self, output: f64, label: Label) -> (f64, f64) {
        let value = match label {
            Label::Class(class) => return logistic(if class == 0 { -1.0 } else { 1.0 }, output),
            Label::Value(value) => f64::from(value),
        };
        let error = output - value;
        let size = libm::fabs(error);
        // 0 for an error of 0, and NaN for NaN.
        let sign = if size > 0.0 { libm::copysign(1.0, error) } else { error };
        match self {
            Self::Absolute => (size, sign),
            Self::Huber { delta } => {
                let delta = f64::from(delta);
                if size <= delta {
                    (error * error / 2.0, error)
                } else {
                    (delta * (size - delta / 2.0), delta * sign)
                }
            }
            Self::Nll | Self::Smoothed { .. } | Self::Logistic | Self::Squared => {
                (error * error, 2.0 * error)
            }
        }
    }

    /// The greatest second derivative with respect to the output; `None` if it has no bound.
    pub(super) const fn curvature(self) -> Option<f64> {
        match self {
            Self::Nll | Self::Smoothed { .. } | Self::Logistic => Some(0.25),
            Self::Squared => Some(2.0),
            Self::Huber { .. } => Some(1.0),
            Self::Absolute => None,
        }
    }
}

/// Returns the negative log-likelihood of the class with this `sign`, and its derivative with
/// respect to `output`, the log-odds of the class with sign 1.
fn logistic(sign: f64, output: f64) -> (f64, f64) {
    let margin = sign * output;
    // One exponential for both: -y / (1 + exp(margin)) is -y exp(-margin) / (1 + exp(-margin)).
    let small = libm::exp(-libm::fabs(margin));
    let share = (if margin > 0.0 { small } else { 1.0 }) / (1.0 + small);
    (softplus(-margin, small), -sign * share)
}

/// The log-probabilities of two classes under the log-odds of the second.
pub(super) fn log_probabilities(log_odds: f64) -> [f32; 2] {
    let small = libm::exp(-libm::fabs(log_odds));
    [-softplus(log_odds, small) as f32, -softplus(-log_odds, small) as f32]
}

/// `ln(1 + exp(x))` without overflow; `small` is `exp(-|x|)`.
fn softplus(x: f64, small: f64) -> f64 {
    let rest = libm::log1p(small);
    // Not `max`, which would lose a NaN.
    if x > 0.0 { x + rest } else { rest + if x.is_nan() { x } else { 0.0 } }
}

/// Replaces the only output of all `samples`, rows of `strips`, by the derivatives of the loss,
/// times `scale`, and returns the sum of the losses.
#[inline(always)]
pub(super) fn backward<S: Simd>(
    loss: Loss,
    (outputs, strips): (&mut [S::V], usize),
    samples: &Records,
    scale: f32,
) -> f64 {
    let mut sum = 0.0;
    for (sample, row) in outputs.chunks_exact_mut(strips).enumerate() {
        let output = &mut cast_slice_mut::<S::V, f32>(row)[0];
        let (of_sample, slope) = loss.at((*output).into(), samples.label(sample));
        sum += of_sample;
        *output = (slope * f64::from(scale)) as f32;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: [Loss; 5] =
        [Loss::Nll, Loss::Logistic, Loss::Squared, Loss::Absolute, Loss::Huber { delta: 0.75 }];

    fn labels(loss: Loss) -> [Label; 2] {
        match loss {
            Loss::Nll | Loss::Logistic => [Label::Class(0), Label::Class(1)],
            _ => [Label::Value(-1.5), Label::Value(0.25)],
        }
    }

    #[test]
    fn each_slope_is_that_of_the_loss() {
        for loss in LOSSES {
            for label in labels(loss) {
                for output in [-40.0, -2.25, -0.6, 0.0, 0.3, 1.0, 35.0_f64] {
                    let at = |output| loss.at(output, label).0;
                    let found = (at(output + 1e-4) - at(output - 1e-4)) / 2e-4;
                    let slope = loss.at(output, label).1;
                    assert!((found - slope).abs() < 1e-4, "{loss} {output}: {found} {slope}");
                }
            }
        }
    }

    #[test]
    fn no_second_difference_exceeds_the_bound() {
        for loss in LOSSES {
            let Some(bound) = loss.curvature() else { continue };
            for label in labels(loss) {
                for output in (-30..30).map(|step| f64::from(step) / 10.0) {
                    let slope = |output| loss.at(output, label).1;
                    let found = (slope(output + 1e-3) - slope(output - 1e-3)) / 2e-3;
                    assert!(found <= bound + 1e-3, "{loss} {output}: {found}");
                }
            }
        }
    }

    #[test]
    fn losses_are_those_computed_by_hand() {
        let value = Label::Value(2.0);
        assert_eq!(Loss::Squared.at(5.0, value), (9.0, 6.0));
        assert_eq!(Loss::Absolute.at(-1.0, value), (3.0, -1.0));
        assert_eq!(Loss::Absolute.at(2.0, value), (0.0, 0.0));
        let huber = Loss::Huber { delta: 1.0 };
        assert_eq!(huber.at(2.5, value), (0.125, 0.5));
        assert_eq!(huber.at(0.0, value), (1.5, -1.0));
        let (loss, slope) = Loss::Logistic.at(3.0_f64.ln(), Label::Class(1));
        assert!((loss - (4.0 / 3.0_f64).ln()).abs() < 1e-12 && (slope + 0.25).abs() < 1e-12);
        for loss in LOSSES {
            for label in labels(loss) {
                let (of_nan, slope) = loss.at(f64::NAN, label);
                assert!(of_nan.is_nan() && slope.is_nan(), "{loss}");
            }
        }
    }

    #[test]
    fn a_loss_that_does_not_fit_is_refused_with_the_one_that_does() {
        for (loss, target, words) in [
            (Loss::Squared, Target::Classes(5), "loss = squared does not fit data with 5 classes"),
            (Loss::Logistic, Target::Classes(3), "3 classes: use nll"),
            (Loss::Nll, Target::Value, "a number to predict: use squared, absolute or huber"),
            (Loss::Huber { delta: 0.0 }, Target::Value, "loss = huber:0: DELTA must be finite and"),
        ] {
            let refused = loss.check(target).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        for (text, loss) in [("huber", Loss::Huber { delta: 1.0 }), ("squared", Loss::Squared)] {
            assert_eq!(text.parse(), Ok(loss));
            loss.check(Target::Value).unwrap();
        }
        assert!("huber:-1".parse::<Loss>().is_err() && "mse".parse::<Loss>().is_err());
    }
}
