//! Server function that sets small values to 0.

use alloc::boxed::Box;

use super::{Registered, ServerFunction, Stepped};
use crate::named::{Limits, Number, Word};
use crate::optim::sqrt;

/// `hard-threshold:LAMBDA`: the proximal step of a penalty of `lambda` per non-zero parameter. It
/// sets a value below `sqrt(2 rate lambda)` in magnitude to 0 and keeps any other (Blumensath and
/// Davies, Iterative thresholding for sparse approximations, 2008).
#[derive(Debug)]
struct HardThreshold {
    lambda: f32,
}

pub(super) const REGISTERED: Registered = Registered {
    word: Word::new(
        "hard-threshold",
        &[Number::real("LAMBDA", Limits::POSITIVE)],
        "a penalty of LAMBDA for each parameter that is not 0",
    ),
    build: |numbers, _keys| {
        Box::new(HardThreshold { lambda: numbers.first().copied().unwrap_or_default() })
    },
};

impl ServerFunction for HardThreshold {
    fn apply(&mut self, values: &mut [f32], stepped: &Stepped<'_>) {
        for (value, rate) in values.iter_mut().zip(stepped.rates) {
            if value.abs() < sqrt(2.0 * rate * self.lambda) {
                *value = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_threshold_becomes_0_and_what_is_not_stays() {
        let mut function = (REGISTERED.build)(&[0.5], 4);
        let mut values = [0.09, -0.11, 0.2, -0.5];
        let rates = [0.01, 0.01, 0.09, 0.09];
        let stepped = Stepped { first: 0, before: &[0.0; 4], gradient: &[0.0; 4], rates: &rates };
        function.apply(&mut values, &stepped);
        assert_eq!(values, [0.0, -0.11, 0.0, -0.5]);
    }
}
