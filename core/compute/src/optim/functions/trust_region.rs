//! Server function that limits each step by the length of the previous one.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Registered, ServerFunction, Stepped};
use crate::named::{Limits, Number, Word};
use crate::saved::{Archive, SavedError};

/// `trust-region[:START,MOST]`: clips the step `d` of a key to `clip(d, -delta, delta)`, then sets
/// `delta` to `min(MOST, 2 |d| + 0.1)`. `delta` starts at START (default 1); MOST defaults to 5 (Li
/// et al., OSDI 2014, algorithm 3).
#[derive(Debug)]
struct TrustRegion {
    most: f32,
    deltas: Vec<f32>,
}

pub(super) const REGISTERED: Registered = Registered {
    word: Word::new(
        "trust-region",
        &[
            Number::real("START", Limits::POSITIVE).usual("1"),
            Number::real("MOST", Limits::POSITIVE).usual("5"),
        ],
        "limits each step by the length of the one before",
    ),
    build: |numbers, keys| {
        let number = |place: usize| numbers.get(place).copied().unwrap_or(1.0);
        Box::new(TrustRegion { most: number(1), deltas: vec![number(0); keys] })
    },
};

impl ServerFunction for TrustRegion {
    fn apply(&mut self, values: &mut [f32], stepped: &Stepped<'_>) {
        let deltas = &mut self.deltas[stepped.places()];
        for ((value, before), delta) in values.iter_mut().zip(stepped.before).zip(deltas) {
            let step = *value - before;
            if step.abs() > *delta {
                *value = before + delta.copysign(step);
            }
            // `step` is the length before clipping: a clipped step widens the region.
            *delta = self.most.min(2.0 * step.abs() + 0.1);
        }
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        archive.own("delta", &mut self.deltas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_clipped_and_the_next_may_be_twice_as_long() {
        let mut function = (REGISTERED.build)(&[1.0, 5.0], 3);
        let mut at = |before: [f32; 2], mut values: [f32; 2]| {
            let (gradient, rates) = (&[0.0; 2], &[0.1; 2]);
            let stepped = Stepped { first: 1, before: &before, gradient, rates };
            function.apply(&mut values, &stepped);
            values
        };
        assert_eq!(at([0.0, 2.0], [0.5, -2.0]), [0.5, 1.0]);
        // 2 * 0.5 + 0.1 and min(5, 2 * 4 + 0.1).
        assert_eq!(at([0.5, 1.0], [2.5, 9.0]), [0.5 + 1.1, 6.0]);
    }
}
