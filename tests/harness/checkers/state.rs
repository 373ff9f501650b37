//! Second computation of the state besides the parameters: plain means, without the aggregator.

use pstrain_compute::id::{PartId, WorkerId};
use pstrain_compute::params::{Combine, KeyRange, Layout, StateRun};

/// The gradients of one part and worker in an update: their number, and their sum.
pub(super) type Group = ((PartId, WorkerId), usize, Vec<f32>);

/// Overwrites the state in `parameters` with the state in `before` and its change in an update.
pub(super) fn change(layout: &Layout, groups: &[Group], before: &[f32], parameters: &mut [f32]) {
    let Ok(all) = KeyRange::new(0, before.len() as u64) else { return };
    for StateRun { keys, combine, .. } in layout.state_at(all) {
        let first = groups.first().map(|(place, ..)| *place);
        let counts = groups.iter().take_while(|(place, ..)| match combine {
            Combine::Mean => true,
            Combine::First => Some(*place) == first,
        });
        let number: usize = counts.clone().map(|(_, number, _)| number).sum();
        let share = (1.0 / number as f64) as f32;
        for key in keys {
            let parts = counts.clone().map(|(.., values)| share * values[key]);
            let change = parts.reduce(|sum, part| sum + part).unwrap_or_default();
            parameters[key] = before[key] + change;
        }
    }
}
