//! Gradients changed element by element by how far the parameters have moved since the version
//! they were computed on.

use alloc::vec;
use alloc::vec::Vec;

use super::{Gradient, StalenessSpec};
use crate::id::Version;
use crate::optim::{Schedule, UpdateSpec, sqrt};

/// What keeps the square root of the running mean of squares away from 0 (Zheng et al. 2017).
const EPSILON: f32 = 1e-7;
/// The share of the mean square of a step that is kept at each update (Barkai et al. 2020).
const STEP_MEMORY: f64 = 0.999;
/// What keeps the usual step away from 0 (Barkai et al. 2020).
const LEAST_STEP: f32 = 1e-8;

/// A rule that looks at the parameters, with what it remembers.
#[derive(Debug)]
pub(super) enum Correction {
    /// None.
    None,
    /// DC-ASGD-c.
    Delay { lambda: f32 },
    /// DC-ASGD-a, with the running mean of the squares of the gradients.
    DelayAdaptive { lambda: f32, memory: f32, squares: Vec<f32> },
    /// Gap-aware.
    GapAware(Steps),
}

impl Correction {
    pub(super) fn new(rule: &StalenessSpec, update: &UpdateSpec, parameters: usize) -> Self {
        match *rule {
            StalenessSpec::Delay { lambda } => Self::Delay { lambda: lambda as f32 },
            StalenessSpec::DelayAdaptive { lambda, memory } => Self::DelayAdaptive {
                lambda: lambda as f32,
                memory: memory as f32,
                squares: vec![0.0; parameters],
            },
            StalenessSpec::GapAware => Self::GapAware(Steps::new(update, parameters)),
            StalenessSpec::Plain
            | StalenessSpec::Inverse
            | StalenessSpec::InversePlusOne
            | StalenessSpec::Polynomial { .. }
            | StalenessSpec::Hinge { .. }
            | StalenessSpec::DynSgd => Self::None,
        }
    }

    /// Whether it looks at the parameters that a gradient was computed on.
    pub(super) const fn needs_base(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// The values of `gradient` to go on with: its own, or corrected ones, which are put in
    /// `corrected`. `now` are the current parameters.
    pub(super) fn correct<'a>(
        &'a mut self,
        gradient: &Gradient<'a>,
        now: &[f32],
        corrected: &'a mut Vec<f32>,
    ) -> &'a [f32] {
        if let Self::DelayAdaptive { memory, squares, .. } = self {
            for (square, g) in squares.iter_mut().zip(gradient.values) {
                *square = *memory * *square + (1.0 - *memory) * g * g;
            }
        }
        let Some(then) = gradient.base else { return gradient.values };
        let values = gradient.values.iter().zip(now.iter().zip(then).map(|(now, then)| now - then));
        corrected.clear();
        match self {
            Self::None => return gradient.values,
            Self::Delay { lambda } => {
                corrected.extend(values.map(|(g, moved)| compensated(*g, *lambda, moved)));
            }
            Self::DelayAdaptive { lambda, squares, .. } => {
                corrected.extend(values.zip(squares).map(|((g, moved), square)| {
                    compensated(*g, *lambda / sqrt(*square + EPSILON), moved)
                }));
            }
            Self::GapAware(steps) => {
                let Some((scale, rate)) = steps.usual() else { return gradient.values };
                corrected.extend(values.zip(&steps.squares).map(|((g, moved), square)| {
                    let usual = rate * (sqrt(scale * square) + LEAST_STEP);
                    g / (1.0 + moved.abs() / usual)
                }));
            }
        }
        corrected
    }

    /// Takes note of the parameters before an update.
    pub(super) fn before(&mut self, parameters: &[f32]) {
        if let Self::GapAware(steps) = self {
            steps.before.clear();
            steps.before.extend_from_slice(parameters);
        }
    }

    /// Takes note of the parameters after the update of `version`.
    pub(super) fn after(&mut self, parameters: &[f32], version: Version) {
        if let Self::GapAware(steps) = self {
            steps.after(parameters, version);
        }
    }

    /// Bytes that are kept from update to update.
    pub(super) fn memory_bytes(&self) -> usize {
        let values = match self {
            Self::None | Self::Delay { .. } => 0,
            Self::DelayAdaptive { squares, .. } => squares.len(),
            Self::GapAware(steps) => 2 * steps.squares.len(),
        };
        values * size_of::<f32>()
    }
}

/// `g + lambda g g moved`, with a term that is never longer than `g` itself: with large steps or
/// old gradients it would explode. The gradient as it is, to the bit, if nothing has moved.
fn compensated(g: f32, lambda: f32, moved: f32) -> f32 {
    g * (1.0 + (lambda * moved * g).clamp(-1.0, 1.0))
}

/// The steps of a run: the mean square of each parameter's, in units of the learning rate.
///
/// A step is measured by what it did to the parameters. With plain gradient descent it is the
/// gradient, with momentum the momentum, as the paper has it, and with the other optimisers
/// what they divide and scale it to.
#[derive(Debug)]
pub(super) struct Steps {
    schedule: Schedule,
    base_rate: f32,
    /// The highest learning rate so far.
    highest_rate: f32,
    squares: Vec<f32>,
    /// `memory^updates`, for the correction of means that began at 0.
    power: f64,
    before: Vec<f32>,
}

impl Steps {
    fn new(update: &UpdateSpec, parameters: usize) -> Self {
        Self {
            schedule: update.schedule,
            base_rate: update.learning_rate,
            highest_rate: 0.0,
            squares: vec![0.0; parameters],
            power: 1.0,
            before: Vec::new(),
        }
    }

    /// What the squares must be multiplied with to be means, and the highest learning rate; none
    /// before the first step.
    fn usual(&self) -> Option<(f32, f32)> {
        let known = self.power < 1.0 && self.highest_rate > 0.0;
        known.then(|| ((1.0 / (1.0 - self.power)) as f32, self.highest_rate))
    }

    fn after(&mut self, parameters: &[f32], version: Version) {
        let rate = self.schedule.rate(self.base_rate, version);
        if rate <= 0.0 {
            return; // a schedule that has come down to 0: nothing moves
        }
        self.highest_rate = self.highest_rate.max(rate);
        self.power *= STEP_MEMORY;
        let (kept, new) = (STEP_MEMORY as f32, (1.0 - STEP_MEMORY) as f32);
        let moved = self.before.iter().zip(parameters);
        for (square, (before, after)) in self.squares.iter_mut().zip(moved) {
            let step = (before - after) / rate;
            *square = kept * *square + new * step * step;
        }
    }
}
