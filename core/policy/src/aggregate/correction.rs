//! Element-wise corrections of gradients by the movement of the parameters since the version they
//! were computed on.

use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::rules::StalenessSpec;
use pstrain_compute::optim::sqrt;
use pstrain_compute::saved::{Archive, SavedError};

/// Keeps the square root of the running mean of squares away from 0 (Zheng et al. 2017).
const EPSILON: f32 = 1e-7;
/// Share of a step's mean square that is kept at each update (Barkai et al. 2020).
const STEP_MEMORY: f64 = 0.999;
/// Keeps the usual step away from 0 (Barkai et al. 2020).
const LEAST_STEP: f32 = 1e-8;

/// A staleness rule that depends on the parameters, with its state.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Correction {
    /// No correction.
    None,
    /// DC-ASGD-c.
    Delay { lambda: f32 },
    /// DC-ASGD-a, with the running mean of the squares of the gradients.
    DelayAdaptive {
        lambda: f32,
        memory: f32,
        #[serde(skip)]
        squares: Vec<f32>,
    },
    /// The way from the current parameters to the worker's model.
    Mixing,
    /// Gap-aware.
    GapAware(Steps),
}

impl Correction {
    /// Saves or restores the arrays, after serde has processed the other fields.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        match self {
            Self::None | Self::Delay { .. } | Self::Mixing => Ok(()),
            Self::DelayAdaptive { squares, .. } | Self::GapAware(Steps { squares, .. }) => {
                archive.own("correction", squares)
            }
        }
    }

    pub(super) fn new(rule: &StalenessSpec, parameters: usize) -> Self {
        match *rule {
            StalenessSpec::Delay { lambda } => Self::Delay { lambda: lambda as f32 },
            StalenessSpec::DelayAdaptive { lambda, memory } => Self::DelayAdaptive {
                lambda: lambda as f32,
                memory: memory as f32,
                squares: vec![0.0; parameters],
            },
            StalenessSpec::Mixing { .. } | StalenessSpec::MixingHinge { .. } => Self::Mixing,
            StalenessSpec::GapAware => Self::GapAware(Steps::new(parameters)),
            StalenessSpec::Plain
            | StalenessSpec::Inverse
            | StalenessSpec::InversePlusOne
            | StalenessSpec::Polynomial { .. }
            | StalenessSpec::Hinge { .. }
            | StalenessSpec::DynSgd => Self::None,
        }
    }

    /// Returns true if the rule uses the parameters that a gradient was computed on.
    pub(super) const fn needs_base(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if the rule changes gradients that come with the parameters they were computed
    /// on.
    pub(super) const fn corrects(&self) -> bool {
        match self {
            Self::None => false,
            Self::Delay { .. } | Self::DelayAdaptive { .. } | Self::Mixing => true,
            // Before the first step there is no usual step.
            Self::GapAware(steps) => steps.usual.is_some(),
        }
    }

    /// Writes the corrected `values` of a gradient's keys from `first` on to `corrected`. `now` are
    /// the current parameters of these keys, and `then` the parameters that the gradient was
    /// computed on.
    pub(super) fn correct(
        &mut self,
        first: usize,
        values: &[f32],
        [now, then]: [&[f32]; 2],
        corrected: &mut [f32],
    ) {
        let moved = now.iter().zip(then).map(|(now, then)| now - then);
        let values = corrected.iter_mut().zip(values).zip(moved);
        match self {
            Self::None => values.for_each(|((corrected, g), _)| *corrected = *g),
            Self::Delay { lambda } => {
                let lambda = *lambda;
                values.for_each(|((out, g), moved)| *out = compensated(*g, lambda, moved));
            }
            Self::DelayAdaptive { lambda, memory, squares } => {
                let (lambda, kept, new) = (*lambda, *memory, 1.0 - *memory);
                for (((out, g), moved), square) in values.zip(&mut squares[first..]) {
                    *square = kept * *square + new * g * g;
                    *out = compensated(*g, lambda / sqrt(*square + EPSILON), moved);
                }
            }
            Self::Mixing => values.for_each(|((out, g), moved)| *out = g + moved),
            Self::GapAware(steps) => {
                let Some(Usual { scale, least }) = steps.usual else {
                    unreachable!("gradients are corrected once there is a usual step")
                };
                for (((out, g), moved), square) in values.zip(&steps.squares[first..]) {
                    let usual = sqrt(scale * square) + least;
                    // 1 / P, which is exactly 1 if nothing has moved.
                    *out = g * (usual / (usual + moved.abs()));
                }
            }
        }
    }

    /// Records a gradient that is not corrected.
    pub(super) fn pass(&mut self, first: usize, values: &[f32]) {
        if let Self::DelayAdaptive { memory, squares, .. } = self {
            let (kept, new) = (*memory, 1.0 - *memory);
            for (square, g) in squares[first..].iter_mut().zip(values) {
                *square = kept * *square + new * g * g;
            }
        }
    }

    /// Returns true if state derived from gradient values is kept from update to update.
    pub(super) const fn remembers_gradients(&self) -> bool {
        matches!(self, Self::DelayAdaptive { .. })
    }

    /// Returns true if the rule must observe the parameter change of each update.
    pub(super) const fn watches(&self) -> bool {
        matches!(self, Self::GapAware(_))
    }

    /// Records the parameter change of an update at learning rate `rate`, for the keys from `first`
    /// on.
    pub(super) fn changed(&mut self, first: usize, [before, after]: [&[f32]; 2], rate: f32) {
        if let Self::GapAware(steps) = self
            && rate > 0.0
        {
            steps.changed(first, [before, after], rate);
        }
    }

    /// Completes an update at this learning rate.
    pub(super) fn updated(&mut self, rate: f32) {
        // A schedule may have reached 0: nothing moves.
        if let Self::GapAware(steps) = self
            && rate > 0.0
        {
            steps.updated(rate);
        }
    }

    /// Bytes kept from update to update.
    pub(super) fn memory_bytes(&self) -> usize {
        let values = match self {
            Self::None | Self::Delay { .. } | Self::Mixing => 0,
            Self::DelayAdaptive { squares, .. } => squares.len(),
            Self::GapAware(steps) => steps.squares.len(),
        };
        values * size_of::<f32>()
    }
}

/// Returns `g + lambda g g moved`, with the second term limited to the magnitude of `g`: with large
/// steps or old gradients it would explode. Returns `g` unchanged, to the bit, if nothing has
/// moved.
fn compensated(g: f32, lambda: f32, moved: f32) -> f32 {
    g * (1.0 + (lambda * moved * g).clamp(-1.0, 1.0))
}

/// Mean squares of each parameter's steps, in units of the learning rate.
///
/// A step is measured by the change of the parameters. With plain gradient descent it is the
/// gradient, with momentum the momentum, as in the paper, and with other optimizers their scaled
/// step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Steps {
    /// The highest learning rate so far.
    highest_rate: f32,
    #[serde(skip)]
    squares: Vec<f32>,
    /// `memory^updates`, for the bias correction of means that started at 0.
    power: f64,
    /// `None` before the first step.
    usual: Option<Usual>,
}

/// The usual movement of a parameter in one update is `sqrt(scale * square) + least`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Usual {
    scale: f32,
    least: f32,
}

impl Steps {
    fn new(parameters: usize) -> Self {
        Self { highest_rate: 0.0, squares: vec![0.0; parameters], power: 1.0, usual: None }
    }

    fn changed(&mut self, first: usize, [before, after]: [&[f32]; 2], rate: f32) {
        let (kept, new) = (STEP_MEMORY as f32, (1.0 - STEP_MEMORY) as f32);
        let in_rates = 1.0 / rate;
        let moved = before.iter().zip(after);
        for (square, (before, after)) in self.squares[first..].iter_mut().zip(moved) {
            let step = (before - after) * in_rates;
            *square = kept * *square + new * step * step;
        }
    }

    fn updated(&mut self, rate: f32) {
        self.highest_rate = self.highest_rate.max(rate);
        self.power *= STEP_MEMORY;
        let highest = f64::from(self.highest_rate);
        self.usual = Some(Usual {
            scale: (highest * highest / (1.0 - self.power)) as f32,
            least: (self.highest_rate * LEAST_STEP).max(f32::MIN_POSITIVE),
        });
    }
}
