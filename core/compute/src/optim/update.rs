//! One update of a server's parameters: from a gradient to the next version.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::error::{check_not_negative, check_positive};
use super::groups::{self, KeyGroup};
use super::{
    Functions, GroupSpec, OptimError, Optimizer, OptimizerSpec, Proximal, Schedule, ServerFunction,
    Step, Stepped,
};
use crate::id::Version;
use crate::named;
use crate::params::{KeyRange, Layout};
use crate::saved::{Archive, Saved, SavedError};
use crate::sum::ExactSum;

/// Keys per block: small enough that all steps on a block hit the first-level cache.
pub const BLOCK: usize = 1024;

/// The update of a job: from gradients to new parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateSpec {
    /// The optimiser.
    pub optimizer: OptimizerSpec,
    /// The base learning rate, above 0.
    pub learning_rate: f32,
    /// The change of the learning rate over the run.
    pub schedule: Schedule,
    /// Fraction of each parameter that is added to its gradient, or taken off with `adamw`, 0 or
    /// more (L2 regularisation; PyTorch's `weight_decay`).
    pub weight_decay: f32,
    /// The largest L2 norm of a combined gradient, above 0; a longer gradient is scaled down to it.
    pub clip_norm: Option<f32>,
    /// The largest L2 norm of one worker's gradient, above 0; a longer gradient is scaled down to
    /// it before it is combined. The bound applies per gradient, not to the number of gradients.
    pub clip_contribution: Option<f32>,
    /// The proximal step that follows each optimiser step.
    pub proximal: Proximal,
    /// The server functions that follow the proximal step.
    pub functions: Functions,
}

impl UpdateSpec {
    /// Plain gradient descent at a constant rate, without clipping, decay or functions.
    #[must_use]
    pub const fn sgd(learning_rate: f32) -> Self {
        Self {
            optimizer: OptimizerSpec::Sgd,
            learning_rate,
            schedule: Schedule::Constant,
            weight_decay: 0.0,
            clip_norm: None,
            clip_contribution: None,
            proximal: Proximal::None,
            functions: Functions::NONE,
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// [`OptimError`] at the first setting outside its range.
    pub fn validate(&self) -> Result<(), OptimError> {
        named::check(self.optimizer, OptimError::Optimizer)?;
        check_positive("learning rate", self.learning_rate)?;
        self.schedule.validate(self.learning_rate)?;
        if matches!(self.optimizer, OptimizerSpec::Ftrl { .. })
            && self.schedule != Schedule::Constant
        {
            return Err(OptimError::ConstantRate);
        }
        self.proximal.validate()?;
        self.functions.validate()?;
        check_not_negative("weight decay", self.weight_decay)?;
        self.clip_norm.map_or(Ok(()), |norm| check_positive("clip norm", norm))?;
        self.clip_contribution.map_or(Ok(()), |norm| check_positive("clip contribution", norm))
    }

    /// Builds the functions that follow each optimiser step for `parameters` values, in their
    /// order.
    fn after(&self, parameters: usize) -> Vec<Box<dyn ServerFunction>> {
        let proximal = (self.proximal != Proximal::None).then_some(self.proximal);
        let proximal = proximal.map(|it| Box::new(it) as Box<dyn ServerFunction>);
        proximal.into_iter().chain(self.functions.build(parameters)).collect()
    }

    /// Returns the `lambda` of an L1 proximal step; 0 if there is none.
    #[must_use]
    pub const fn l1(&self) -> f32 {
        match self.proximal {
            Proximal::L1 { lambda } => lambda,
            _ => 0.0,
        }
    }

    /// Returns the sum of squares of a worker's gradient or of a part of it; `None` if the clip
    /// factor does not depend on it.
    #[must_use]
    pub fn squares(&self, gradient: &[f32]) -> Option<ExactSum> {
        self.clip_contribution.map(|_most| ExactSum::of_squares(gradient))
    }

    /// Returns the factor that clips a worker's gradient with this sum of squares to
    /// `clip_contribution`; `None` if the gradient is within the bound.
    #[must_use]
    pub fn clip_factor(&self, squares: &ExactSum) -> Option<f32> {
        let most = f64::from(self.clip_contribution?);
        let norm = squares.root();
        (norm > most).then(|| (most / norm) as f32)
    }
}

/// Updates the parameters of one key range and keeps the state that this needs.
#[derive(Debug)]
pub struct Updater {
    spec: UpdateSpec,
    parameters: usize,
    optimizer: Box<dyn Optimizer>,
    /// The functions that follow each optimiser step, in order.
    functions: Vec<Box<dyn ServerFunction>>,
    /// The keys with settings of their own, in key order.
    groups: Vec<KeyGroup>,
}

impl Updater {
    /// Builds an updater of `parameters` values, before its first update.
    ///
    /// # Errors
    /// [`OptimError`] if `spec` is not valid.
    pub fn new(spec: &UpdateSpec, parameters: usize) -> Result<Self, OptimError> {
        spec.validate()?;
        let (optimizer, functions) = (spec.optimizer.build(parameters), spec.after(parameters));
        Ok(Self { spec: *spec, parameters, optimizer, functions, groups: Vec::new() })
    }

    /// Resets all state, as in a new updater.
    pub fn restart(&mut self) {
        self.optimizer = self.spec.optimizer.build(self.parameters);
        self.functions = self.spec.after(self.parameters);
    }

    /// Rescales the optimiser's state by `factor`, because gradients are `factor` times as large
    /// from now on: they are combined in another way (Li et al., "Sync-Switch", ICDCS 2021). FTRL
    /// keeps its state, which follows the gradients as they were.
    pub fn rescale(&mut self, factor: f32) {
        if factor != 1.0 {
            self.optimizer.rescale(factor);
        }
    }

    /// Advances `params` from version `version` to the next with `gradient`: clips the gradient,
    /// adds weight decay, takes the optimiser's step at the scheduled rate, then applies the
    /// proximal step and the server functions.
    ///
    /// # Panics
    /// If `params` or `gradient` has another length than the updater was built for.
    pub fn apply(&mut self, params: &mut [f32], gradient: &[f32], version: Version) {
        assert_eq!(params.len(), self.parameters, "length of the parameters");
        assert_eq!(gradient.len(), self.parameters, "length of the gradient");
        let scale = if self.clips() { self.scale(&ExactSum::of_squares(gradient)) } else { 1.0 };
        let learning_rate = self.begin(version);
        let blocks = params.chunks_mut(BLOCK).zip(gradient.chunks(BLOCK));
        for (first, (params, gradient)) in (0..).step_by(BLOCK).zip(blocks) {
            self.step(params, Step { first, gradient, curvature: &[], scale, learning_rate });
        }
    }

    /// Begins the step from version `version` to the next. Returns its learning rate.
    pub fn begin(&mut self, version: Version) -> f32 {
        self.optimizer.begin();
        self.spec.schedule.rate(self.spec.learning_rate, version)
    }

    /// Updates the tensors of `groups` with their own settings; `own` are the updater's keys in a
    /// model of this layout.
    #[must_use]
    pub fn with_groups(self, groups: &[GroupSpec], layout: &Layout, own: KeyRange) -> Self {
        let groups = groups::of_keys(groups, self.spec.weight_decay, layout, own);
        Self { groups, ..self }
    }

    /// Performs one part of the current step, of at most [`BLOCK`] keys.
    pub fn step(&mut self, params: &mut [f32], given: Step<'_>) {
        let (mut from, end) = (given.first, given.first + params.len());
        let mut next = self.groups.partition_point(|group| group.keys.end <= from);
        while from < end {
            let mut step = given;
            let (mut to, mut decay) = (end, self.spec.weight_decay);
            match self.groups.get(next) {
                Some(group) if group.keys.start <= from => {
                    to = to.min(group.keys.end);
                    step.learning_rate *= group.rate;
                    decay = group.weight_decay;
                    next += 1;
                }
                Some(group) => to = to.min(group.keys.start),
                None => {}
            }
            let places = from - given.first..to - given.first;
            self.uniform_step(&mut params[places], step.between(from, to), decay);
            from = to;
        }
    }

    /// Performs a part of the current step whose keys have the same rate and weight decay.
    fn uniform_step(&mut self, params: &mut [f32], given: Step<'_>, decay: f32) {
        let (mut bent, mut step) = (None, given);
        if self.uses_curvature() {
            // Initialised only in this branch: clearing the array costs as much as many a step.
            let bent = &mut bent.insert([0.0; BLOCK])[..step.curvature.len()];
            // Weight decay adds to the second derivative of the loss.
            for (bent, bound) in bent.iter_mut().zip(step.curvature) {
                *bent = bound + decay;
            }
            step.curvature = bent;
        }
        // Without functions there is no need to copy the block.
        if self.functions.is_empty() {
            return self.optimizer_step(params, step, decay);
        }
        let keys = params.len();
        let [mut before, mut gradient, mut rates] = [[0.0; BLOCK]; 3];
        let (before, gradient) = (&mut before[..keys], &mut gradient[..keys]);
        before.copy_from_slice(params);
        for (clipped, value) in gradient.iter_mut().zip(step.gradient) {
            *clipped = step.scale * value;
        }
        let rates = &mut rates[..keys];
        rates.fill(step.learning_rate);
        if self.uses_curvature() {
            (0..).zip(&mut *rates).for_each(|(place, rate)| *rate = step.rate(place));
        }
        self.optimizer_step(params, step, decay);
        let stepped = Stepped { first: step.first, before, gradient, rates };
        for function in &mut self.functions {
            function.apply(params, &stepped);
        }
    }

    /// True if steps are scaled by the curvature of the loss.
    pub const fn uses_curvature(&self) -> bool {
        matches!(self.spec.optimizer, OptimizerSpec::Diagonal)
    }

    /// Weight decay and the optimiser's step, without the functions.
    fn optimizer_step(&mut self, params: &mut [f32], step: Step<'_>, decay: f32) {
        if decay == 0.0 {
            return self.optimizer.step(params, &step);
        }
        if self.optimizer.decays_apart() {
            let kept = 1.0 - step.learning_rate * decay;
            params.iter_mut().for_each(|param| *param *= kept);
            return self.optimizer.step(params, &step);
        }
        let mut decayed = [0.0; BLOCK];
        let decayed = &mut decayed[..params.len()];
        for ((decayed, gradient), param) in decayed.iter_mut().zip(step.gradient).zip(&*params) {
            *decayed = step.scale * gradient + decay * param;
        }
        self.optimizer.step(params, &Step { gradient: decayed, scale: 1.0, ..step });
    }

    /// Saves or restores the state of the optimiser and of the functions.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not match the state.
    pub fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.optimizer.archive(archive)?;
        self.functions.iter_mut().try_for_each(|function| function.archive(archive))
    }

    /// Returns an updater in the same state.
    ///
    /// # Panics
    /// If saved state cannot be restored into an updater of the same job, which is a mistake here.
    #[must_use]
    pub fn copy(&mut self) -> Self {
        let (optimizer, functions) =
            (self.spec.optimizer.build(self.parameters), self.spec.after(self.parameters));
        let mut copy = Self { optimizer, functions, groups: self.groups.clone(), ..*self };
        let mut saved = Saved::default();
        let done = self
            .archive(&mut Archive::save(&mut saved, self.parameters))
            .and_then(|()| copy.archive(&mut Archive::restore(&saved, self.parameters)));
        assert_eq!(done, Ok(()), "an updater restores its own state");
        copy
    }

    /// True if a step needs the norm of the whole gradient before its first part.
    pub const fn clips(&self) -> bool {
        self.spec.clip_norm.is_some()
    }

    /// Returns the factor that clips a gradient with this sum of squares to `clip_norm`, as
    /// PyTorch's `clip_grad_norm_` does; 1 without clipping.
    pub fn scale(&self, squares: &ExactSum) -> f32 {
        let factor = |most| (f64::from(most) / (squares.root() + 1e-6)) as f32;
        self.spec.clip_norm.map_or(1.0, |most| factor(most).min(1.0))
    }
}

/// The L2 norm of `gradient`.
#[must_use]
pub fn norm(gradient: &[f32]) -> f64 {
    // Squares of f32 neither overflow nor underflow in f64. Eight partial sums, in a fixed order.
    let mut sums = [0.0_f64; 8];
    let (whole, rest) = gradient.as_chunks::<8>();
    for values in whole {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    for (sum, &value) in sums.iter_mut().zip(rest) {
        *sum += f64::from(value) * f64::from(value);
    }
    libm::sqrt(sums.iter().sum())
}
