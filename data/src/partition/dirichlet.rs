//! Draws from a symmetric Dirichlet distribution, for the partition of that name (`by_dirichlet` in
//! `assign.rs`).
//!
//! Implemented here, on `libm`, because server and workers must draw the same partition on machines
//! whose system libraries round differently, and because the usual product of powers underflows for
//! the small concentrations that are of interest.

use pstrain_compute::rng::Random;

/// Draws `count` shares that add up to 1.
pub(super) fn shares(alpha: f64, count: usize, rng: &mut Random) -> Vec<f64> {
    let logarithms: Vec<f64> = (0..count).map(|_| log_gamma_variate(alpha, rng)).collect();
    // Subtracting the largest logarithm before `exp` avoids the underflow.
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut shares: Vec<f64> = logarithms.iter().map(|log| libm::exp(log - most)).collect();
    let total: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= total);
    shares
}

/// Draws the logarithm of a gamma variate with the given shape and scale 1.
fn log_gamma_variate(shape: f64, rng: &mut Random) -> f64 {
    // A variate of shape a is one of shape a + 1 times the a-th root of a uniform variate.
    let boost = libm::log(positive_unit(rng)) / shape;
    // Marsaglia and Tsang 2000, for shapes from 1 up.
    let d = shape + 1.0 - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    loop {
        let x = normal(rng);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        if libm::log(positive_unit(rng)) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return libm::log(d * v) + boost;
        }
    }
}

/// Draws from the standard normal distribution (Box and Muller 1958).
fn normal(rng: &mut Random) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(positive_unit(rng)));
    radius * libm::cos(std::f64::consts::TAU * rng.unit())
}

/// Draws uniformly from `(0, 1]`.
fn positive_unit(rng: &mut Random) -> f64 {
    1.0 - rng.unit()
}

#[cfg(test)]
mod tests {
    use pstrain_compute::rng::Stream;

    use super::*;

    #[test]
    fn shares_have_the_mean_and_variance_of_the_distribution() {
        for (alpha, count) in [(0.05, 4), (0.5, 3), (1.0, 5), (10.0, 2)] {
            let mut rng = Stream::new(11).rng();
            let draws = 20_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..draws {
                let shares = shares(alpha, count, &mut rng);
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                sum += shares[0];
                squares += shares[0] * shares[0];
            }
            let n = count as f64;
            let mean = sum / f64::from(draws);
            let variance = squares / f64::from(draws) - mean * mean;
            let expected = (n - 1.0) / (n * n * (n * alpha + 1.0));
            assert!((mean - 1.0 / n).abs() < 0.01, "alpha {alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "alpha {alpha}: {variance}");
        }
    }

    #[test]
    fn tiny_concentrations_give_one_share_everything() {
        let mut rng = Stream::new(2).rng();
        for _ in 0..100 {
            let shares = shares(0.0001, 6, &mut rng);
            assert!(shares.iter().any(|&share| share > 0.5), "{shares:?}");
        }
    }
}
