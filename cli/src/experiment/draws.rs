//! Draws: the means that other repetitions of the same cells may have had.
//!
//! A draw moves the mean of the `n` repetitions `x` of a cell by
//! `sum((z_i - mean z) x_i) / sqrt(n q)`, where the `z` are standard normal and `q` is chi-square
//! with `n - 1` degrees of freedom. Such draws of a mean, of a difference of means and of any other
//! weighted sum of means have Student's distribution with `n - 1` degrees of freedom about what was
//! observed, as wide as its confidence interval says (Student 1908). A value that is no such sum,
//! for example the place of a maximum, follows from the draws of its parts.
//!
//! A `z` belongs to the number of a repetition and is the same for all cells: repetitions of one
//! number have one seed, so cells are compared pair by pair, and what both cells share cancels.

use pstrain_compute::rng::{Random, Stream};
use statrs::distribution::{ContinuousCDF as _, Normal};

/// Most and fewest draws. With many repetitions the number falls, to limit the memory.
const MOST: usize = 4_000;
const FEWEST: usize = 400;
/// Most numbers of each kind to keep, unless that leaves fewer than `FEWEST` draws.
const MOST_NUMBERS: usize = 400_000;

/// Fixed, so that the same results give the same draws.
const SEED: u64 = 1;

/// The random numbers of all draws.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws {
    /// By repetition: a standard normal number for each draw.
    normal: Vec<Vec<f64>>,
    /// By degrees of freedom, from 0: a chi-square number for each draw.
    squares: Vec<Vec<f64>>,
}

impl Draws {
    /// Draws for the repetitions below `reps`. A single repetition has no spread and no draws.
    pub(crate) fn new(reps: u32) -> Self {
        if reps < 2 {
            return Self::default();
        }
        let count = (MOST_NUMBERS / reps as usize).clamp(FEWEST, MOST);
        let stream = Stream::new(SEED);
        let row = |purpose: &str, index: u32| -> Vec<f64> {
            let mut random = stream.fork(purpose, u64::from(index)).rng();
            (0..count).map(|_| normal(&mut random)).collect()
        };
        let mut squares = vec![vec![0.0; count]];
        for degree in 1..reps {
            let more = row("spread", degree);
            let before = squares.last().into_iter().flatten();
            squares.push(before.zip(more).map(|(sum, number)| sum + number * number).collect());
        }
        Self { normal: (0..reps).map(|rep| row("mean", rep)).collect(), squares }
    }

    /// The mean of the values (repetition and value) in each draw; empty for fewer than two values.
    pub(crate) fn means(&self, values: &[(u32, f64)]) -> Vec<f64> {
        let n = values.len();
        let Some(squares) = self.squares.get(n.wrapping_sub(1)).filter(|_| n > 1) else {
            return Vec::new();
        };
        let mean = values.iter().map(|(_, value)| value).sum::<f64>() / n as f64;
        let mut moved = vec![0.0; squares.len()];
        for (rep, value) in values {
            // Subtracting the mean of the `z` is not needed: the deviations add up to 0.
            let normal = self.normal.get(*rep as usize);
            for (sum, z) in moved.iter_mut().zip(normal.into_iter().flatten()) {
                *sum += z * (value - mean);
            }
        }
        let each = moved.iter().zip(squares);
        each.map(|(moved, square)| mean + moved / (n as f64 * square).sqrt()).collect()
    }
}

fn normal(random: &mut Random) -> f64 {
    Normal::standard().inverse_cdf(random.unit().max(f64::EPSILON))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{estimate, quantile};

    fn by_repetition(values: &[f64]) -> Vec<(u32, f64)> {
        (0..).zip(values.iter().copied()).collect()
    }

    /// The central 95 % of the draws.
    fn interval(draws: &[f64]) -> (f64, f64) {
        (quantile(draws, 0.025).unwrap(), quantile(draws, 0.975).unwrap())
    }

    #[test]
    fn the_middle_of_the_draws_is_students_interval() {
        for values in [vec![1.0, 2.0, 4.0], (0..20).map(|v| f64::from(v * v)).collect()] {
            let draws = Draws::new(values.len() as u32).means(&by_repetition(&values));
            let (low, high) = interval(&draws);
            let found = estimate(&values);
            // Tolerance of 4,000 draws: with three values the tails are long.
            let width = found.high - found.low;
            assert!((low - found.low).abs() < 0.08 * width, "{low} is not {}", found.low);
            assert!((high - found.high).abs() < 0.08 * width, "{high} is not {}", found.high);
        }
    }

    #[test]
    fn differences_are_those_of_pairs() {
        // The repetitions differ far more than the two cells do.
        let a = [10.0, 20.0, 30.0, 40.0];
        let b = [11.0, 21.1, 30.9, 41.0];
        let draws = Draws::new(4);
        let [a, b] = [a, b].map(|values| draws.means(&by_repetition(&values)));
        let apart: Vec<f64> = b.iter().zip(&a).map(|(b, a)| b - a).collect();
        let found = estimate(&[1.0, 1.1, 0.9, 1.0]);
        let (low, high) = interval(&apart);
        assert!((low - found.low).abs() < 0.02 && (high - found.high).abs() < 0.02, "{low} {high}");
    }

    #[test]
    fn one_value_has_no_draws() {
        assert!(Draws::new(1).means(&[(0, 3.0)]).is_empty());
        assert!(Draws::new(3).means(&[(0, 3.0)]).is_empty());
        // Two repetitions of three have some.
        assert_eq!(Draws::new(3).means(&[(0, 3.0), (2, 4.0)]).len(), MOST);
    }
}
