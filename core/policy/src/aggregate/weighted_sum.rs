//! Execution of a plan for one block of keys: the only code that touches every value.

use core::ops::Range;

use super::Gradient;
use super::combination::Combination;
use super::correction::Correction;
use super::iterations::Iterations;
use super::plan::{Plan, Term};
use pstrain_compute::optim::BLOCK;

/// Splits `keys` keys into blocks.
pub(super) fn blocks(keys: usize) -> impl Iterator<Item = Range<usize>> {
    (0..keys).step_by(BLOCK).map(move |first| first..keys.min(first + BLOCK))
}

/// Combines the gradients of an update for the keys from `first` on. `now` are their current
/// parameters. Returns the values and their factor, so that a lone gradient need not be copied.
/// `sum` and `corrected` are buffers of the same length as `now`.
pub(super) fn combine<'b, 'a: 'b>(
    (correction, combination): (&mut Correction, &mut Combination),
    plan: &Plan,
    gradients: impl Iterator<Item = Gradient<'a>>,
    (first, now): (usize, &[f32]),
    (sum, corrected): (&'b mut [f32], &'b mut [f32]),
) -> (&'b [f32], f32) {
    let mut planned = gradients.zip(&plan.gradients);
    let is_sum = combination.is_sum();
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
    // No gradient changes state other than the sum, so several can be added in one pass.
    if is_sum && !correction.corrects() && !correction.remembers_gradients() {
        let keys = first..first + now.len();
        add_up(
            sum,
            planned.filter_map(|(gradient, planned)| match planned.term {
                Term::Add(factor) => Some((factor, &gradient.values[keys.clone()])),
                Term::Merged | Term::Change(_) | Term::Revise(_) => None,
            }),
        );
        return (sum, 1.0);
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

/// Returns the values of a gradient for the keys from `first` on, corrected if the rule corrects.
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

/// Applies the term of one gradient to the keys from `first` on.
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

/// A factor and the values to multiply with it.
type Scaled<'v> = (f32, &'v [f32]);

/// Sets `sum` to the sum of the `terms`, added in their order; leaves it unchanged if there are
/// none. One pass adds up to four terms, so that the memory loads of one term overlap the others.
pub(super) fn add_up<'v>(sum: &mut [f32], mut terms: impl Iterator<Item = Scaled<'v>>) {
    let mut begins = true;
    loop {
        let next: [Option<Scaled<'v>>; 4] = core::array::from_fn(|_| terms.next());
        match next {
            [Some(one), Some(two), Some(three), Some(four)] => {
                add_next(sum, begins, [one, two, three, four]);
            }
            [Some(one), Some(two), Some(three), None] => add_next(sum, begins, [one, two, three]),
            [Some(one), Some(two), ..] => add_next(sum, begins, [one, two]),
            [Some(one), ..] => add_next(sum, begins, [one]),
            [None, ..] => {}
        }
        if next.last().is_none_or(Option::is_none) {
            return;
        }
        begins = false;
    }
}

/// Adds terms to `sum`, or overwrites it with their sum if `begins`.
fn add_next<const N: usize>(sum: &mut [f32], begins: bool, terms: [Scaled<'_>; N]) {
    let keys = sum.len();
    let terms = terms.map(|(factor, values)| (factor, &values[..keys]));
    let Some(((factor, values), rest)) = terms.split_first() else {
        unreachable!("a sum has a term")
    };
    for (key, sum) in sum.iter_mut().enumerate() {
        let mut value = factor * values[key];
        if !begins {
            value += *sum;
        }
        for (factor, values) in rest {
            value += factor * values[key];
        }
        *sum = value;
    }
}

/// Adds `factor * values` to `sum`.
pub(super) fn add(sum: &mut [f32], factor: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// Sets `scaled` to `factor * values`.
pub(super) fn scale(scaled: &mut [f32], factor: f32, values: &[f32]) {
    for (scaled, value) in scaled.iter_mut().zip(values) {
        *scaled = factor * value;
    }
}
