//! State that a process cannot have sent on purpose, in words for the user.

use pstrain_compute::params::{Layout, Role};

/// The whole number from which on 32-bit floating-point numbers do not count.
const MOST_WHOLE: f32 = 16_777_216.0;

/// The cure of either problem, where the workers need not share the state.
const KEEP: &str = "keep this state in the process (\"combine\": \"local\")";

/// Returns each state tensor of `values`, by number, that is not finite or whose count has come to
/// its end, with the problem in words.
pub(super) fn problems(layout: &Layout, values: &[f32]) -> impl Iterator<Item = (usize, String)> {
    layout.tensors().iter().enumerate().filter_map(|(number, tensor)| {
        let Role::State { whole, .. } = tensor.role else { return None };
        let problem = problem(whole, values.get(tensor.keys.indices())?)?;
        Some((number, format!("state {:?} {problem}", tensor.name)))
    })
}

fn problem(whole: bool, values: &[f32]) -> Option<String> {
    if let Some(place) = values.iter().position(|value| !value.is_finite()) {
        let value = values[place];
        return Some(format!(
            "is not finite (value {place} is {value}), and such a gradient does not count: look \
             for bad input values, or {KEEP}"
        ));
    }
    let most = values.iter().copied().find(|value| whole && value.abs() >= MOST_WHOLE)?;
    Some(format!(
        "is {most}: messages count whole numbers to {MOST_WHOLE}, and no further: {KEEP}, or count \
         in larger units"
    ))
}
