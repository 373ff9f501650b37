//! What was planned, carried out for a block of keys: the only code that touches every value.

use core::ops::Range;

use super::correction::Correction;
use super::iterations::Iterations;
use super::plan::{Plan, Term};
use super::{Combination, Gradient};
use crate::optim::BLOCK;

/// The blocks of so many keys.
pub(super) fn blocks(keys: usize) -> impl Iterator<Item = Range<usize>> {
    (0..keys).step_by(BLOCK).map(move |first| first..keys.min(first + BLOCK))
}

/// Combines the gradients of an update for the keys from `first` on, of which `now` are the current
/// parameters. Returns the values and what they are to be multiplied with: where one gradient is
/// all, it is not copied. `sum` and `corrected` have room for as many values.
pub(super) fn combine<'b, 'a: 'b>(
    (correction, combination): (&mut Correction, &mut Combination),
    plan: &Plan,
    gradients: impl Iterator<Item = Gradient<'a>>,
    (first, now): (usize, &[f32]),
    (sum, corrected): (&'b mut [f32], &'b mut [f32]),
) -> (&'b [f32], f32) {
    let mut planned = gradients.zip(&plan.gradients);
    if plan.is_lone
        && let Some((gradient, planned)) = planned.next()
    {
        let values = values(correction, &gradient, (first, now), corrected);
        match (&planned.term, combination) {
            (Term::Add(factor), _) => return (values, *factor),
            (Term::Revise(revision), Combination::Iterations(iterations)) => {
                if let Some(scale) = Iterations::alone(revision) {
                    iterations.begin(first, revision, values);
                    return (values, scale);
                }
                iterations.revise::<false>(first, revision, values, sum);
            }
            (Term::Merged | Term::Change(_) | Term::Revise(_), _) => {}
        }
        return (sum, 1.0);
    }
    if let Combination::Incremental(table) | Combination::Ringleader(table) = combination {
        table.begin(first, now.len());
    }
    let mut adds = false;
    for (gradient, planned) in planned {
        if !matches!(planned.term, Term::Merged) {
            let values = values(correction, &gradient, (first, now), corrected);
            carry_out(&planned.term, combination, (first, values), (sum, adds));
            adds = true;
        }
        if let (Some(gone), Combination::Incremental(table)) = (&planned.gone, &mut *combination) {
            table.subtract(first, gone, now.len());
        }
    }
    if let Combination::Incremental(table) | Combination::Ringleader(table) = combination {
        table.mean(first, sum);
    }
    (sum, 1.0)
}

/// The values of a gradient, corrected if they are to be.
pub(super) fn values<'v, 'a: 'v>(
    correction: &mut Correction,
    gradient: &Gradient<'a>,
    (first, now): (usize, &[f32]),
    corrected: &'v mut [f32],
) -> &'v [f32] {
    let keys = first..first + now.len();
    let values = &gradient.values[keys.clone()];
    match gradient.base {
        Some(base) if correction.corrects() => {
            correction.correct(first, values, [now, &base[keys]], corrected);
            corrected
        }
        _ => {
            correction.pass(first, values);
            values
        }
    }
}

/// Does what a gradient does, for the keys from `first` on.
fn carry_out(
    term: &Term,
    combination: &mut Combination,
    (first, values): (usize, &[f32]),
    (sum, adds): (&mut [f32], bool),
) {
    match (term, combination) {
        (Term::Add(factor), _) if adds => add(sum, *factor, values),
        (Term::Add(factor), _) => scale(sum, *factor, values),
        (
            Term::Change(change),
            Combination::Incremental(table) | Combination::Ringleader(table),
        ) => {
            table.change(first, change, values);
        }
        (Term::Revise(revision), Combination::Iterations(iterations)) => {
            if adds {
                iterations.revise::<true>(first, revision, values, sum);
            } else {
                iterations.revise::<false>(first, revision, values, sum);
            }
        }
        (Term::Merged | Term::Change(_) | Term::Revise(_), _) => {}
    }
}

/// Adds `factor * values` to `sum`.
pub(super) fn add(sum: &mut [f32], factor: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// Makes `scaled` `factor * values`.
pub(super) fn scale(scaled: &mut [f32], factor: f32, values: &[f32]) {
    for (scaled, value) in scaled.iter_mut().zip(values) {
        *scaled = factor * value;
    }
}
