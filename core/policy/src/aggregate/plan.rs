//! Plan of an update: the effect of each gradient, computed before any value is touched.

use alloc::vec::Vec;

use super::Gradient;
use super::combination::Combination;
use super::iterations::Revision;
use super::settings::Settings;
use super::shares::Shares;
use super::table::Change;
use super::weights::{Factors, Weights};
use crate::mode::Mode;
use crate::rules::{Closing, ParticipationSpec};

/// The plan of an update.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Its gradients in order.
    pub(super) gradients: Vec<Planned>,
    /// True if the update is a multiple of the first gradient alone.
    pub(super) is_lone: bool,
}

/// The effect of a gradient.
#[derive(Clone, Copy, Debug)]
pub(super) enum Term {
    /// No effect of its own: it was merged into the values of an earlier gradient.
    Merged,
    /// Adds its values, times this factor, to the combined gradient.
    Add(f32),
    /// Changes the table.
    Change(Change),
    /// Changes the mean of an iteration.
    Revise(Revision),
}

/// A gradient of an update and its planned effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) term: Term,
    /// The table entry that is forgotten after it.
    pub(super) gone: Option<Change>,
}

/// A gradient together with the gradients merged into it.
struct Group<'a> {
    /// Its position among the gradients of the update.
    place: usize,
    first: Gradient<'a>,
    /// The staleness of the last gradient.
    staleness: u64,
    samples: u64,
    gradients: f64,
    /// The sum of the gradients' participation weights.
    participation: f64,
}

/// Weighs gradients: by examples, by the worker's share of the data, and by staleness.
#[derive(Clone, Debug, Default)]
pub(super) struct Weighting {
    pub(super) shares: Shares,
    pub(super) factors: Factors,
    /// Plan of the current update; kept between updates to reuse its memory.
    pub(super) plan: Plan,
}

impl Weighting {
    /// Plans an update of `parameters` keys. Gradients that were merged into an earlier one have no
    /// values.
    pub(super) fn plan<'a>(
        &mut self,
        (settings, parameters): (&Settings, usize),
        combination: &mut Combination,
        gradients: impl Iterator<Item = Gradient<'a>> + Clone,
        closing: Closing,
    ) {
        self.plan.gradients.clear();
        self.plan.is_lone = !combination.has_table();
        if let Combination::Ringleader(table) = combination
            && closing == Closing::Everything
        {
            table.clear();
        }
        let aggregation = settings.aggregation;
        let weights = match combination {
            Combination::ByWorker => {
                Weights::by_worker(aggregation, gradients.clone(), &self.shares)
            }
            _ => Weights::of_round(aggregation, gradients.clone()),
        };
        let mut open: Option<Group<'_>> = None;
        for (place, gradient) in gradients.enumerate() {
            let participation = self.shares.contribute(gradient.worker);
            match &mut open {
                Some(group) if gradient.values.is_empty() => {
                    group.staleness = gradient.staleness;
                    group.samples += u64::from(gradient.samples);
                    group.gradients += 1.0;
                    group.participation += participation;
                }
                open => {
                    let group = Group {
                        place,
                        first: gradient,
                        staleness: gradient.staleness,
                        samples: gradient.samples.into(),
                        gradients: 1.0,
                        participation,
                    };
                    if let Some(group) = open.replace(group) {
                        self.plan.is_lone = false;
                        self.weigh(&settings.mode, &group, &weights, (combination, parameters));
                    }
                }
            }
            // One worker that seems to have left is forgotten after each gradient.
            let gone = self.shares.silent().and_then(|worker| combination.forget(worker));
            self.plan.gradients.push(Planned { term: Term::Merged, gone });
        }
        if let Some(group) = open {
            self.weigh(&settings.mode, &group, &weights, (combination, parameters));
        }
    }

    /// Plans the effect of the gradients of a group.
    fn weigh(
        &mut self,
        mode: &Mode,
        group: &Group<'_>,
        weights: &Weights,
        (combination, parameters): (&mut Combination, usize),
    ) {
        let Gradient { worker, clock, samples, .. } = group.first;
        let Mode { staleness: rule, participation, .. } = *mode;
        let rows = self.shares.rows(worker);
        let mut scale = self.factors.of(&rule, group.first.staleness);
        if participation == ParticipationSpec::Share {
            scale *= group.participation / group.gradients;
        }
        self.plan.gradients[group.place].term = match combination {
            Combination::Round | Combination::ByWorker => {
                Term::Add((weights.of(&group.first, rows) * scale) as f32)
            }
            Combination::Incremental(table) => {
                let scale = self.factors.of(&rule, group.staleness) as f32;
                Term::Change(table.replace(worker, rows, scale, parameters))
            }
            Combination::Ringleader(table) => {
                // The sum is in units of its first gradient, so its weight is relative to the
                // first.
                let scale = scale * (f64::from(samples) / group.samples as f64);
                let weight = (group.samples, scale);
                Term::Change(table.average(worker, rows, weight, parameters))
            }
            Combination::Iterations(iterations) => {
                let weight = (samples, scale as f32);
                Term::Revise(iterations.add((worker, clock), weight, parameters))
            }
        };
    }
}
