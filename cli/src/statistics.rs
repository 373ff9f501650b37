//! Statistics of repeated runs: confidence intervals, quantiles, and distances between samples and
//! between rankings. Independent of all other types of the crate.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// The mean of repeated measurements and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Number of finite values; others are ignored.
    pub(crate) n: usize,
    /// Their mean; NaN if `n` is 0.
    pub(crate) mean: f64,
    /// Their sample standard deviation (divisor n - 1); 0 for one value.
    pub(crate) sd: f64,
    /// The lower end of the interval. For one value both ends are the mean.
    pub(crate) low: f64,
    /// The upper end of the interval.
    pub(crate) high: f64,
}

/// Estimates a mean with Student's interval: `mean ± t(0.975, n - 1) sd / sqrt(n)`. Values that are
/// not finite are ignored; `n` counts the rest.
pub(crate) fn estimate(values: &[f64]) -> Estimate {
    let values = finite(values);
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    if n < 2 {
        return Estimate { n, mean, sd: 0.0, low: mean, high: mean };
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let sd = (squares / (n - 1) as f64).sqrt();
    // `new` fails only for invalid parameters: with n >= 2 the freedom is positive.
    let t = StudentsT::new(0.0, 1.0, (n - 1) as f64).map_or(f64::NAN, |t| t.inverse_cdf(0.975));
    let half = t * sd / (n as f64).sqrt();
    Estimate { n, mean, sd, low: mean - half, high: mean + half }
}

/// Returns the value below which that share of the sample lies, interpolated between neighbours
/// (R's type 7). Values that are not finite are ignored; None if no value is left.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let values = sorted(values);
    let last = values.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// Returns the first Wasserstein distance of two histograms, given as counts by value, in the unit
/// of the values: how far, on average, values must be moved to turn one distribution into the
/// other. None if either histogram is empty.
pub(crate) fn wasserstein(a: &BTreeMap<u64, u64>, b: &BTreeMap<u64, u64>) -> Option<f64> {
    let weigh = |counts: &BTreeMap<u64, u64>| {
        counts.iter().map(|(value, count)| (*value as f64, *count as f64)).collect()
    };
    between::<Vec<_>>(weigh(a), weigh(b))
}

/// Returns the area between two cumulative distributions of weighted values.
fn between<W: IntoIterator<Item = (f64, f64)>>(a: W, b: W) -> Option<f64> {
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for (values, sign) in [(a, 1.0), (b, -1.0)] {
        let values: Vec<_> = values.into_iter().collect();
        let total: f64 = values.iter().map(|(_, weight)| weight).sum();
        if total <= 0.0 {
            return None;
        }
        steps.extend(values.iter().map(|(value, weight)| (*value, sign * weight / total)));
    }
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut ahead, mut area) = (0.0_f64, 0.0);
    for pair in steps.windows(2) {
        ahead += pair[0].1;
        area += ahead.abs() * (pair[1].0 - pair[0].0);
    }
    Some(area)
}

/// Returns the total variation distance of two histograms, given as counts by value: the largest
/// difference, over all sets of values, between the shares that the two give to the set, from 0 to
/// 1. None if either histogram is empty.
pub(crate) fn total_variation(a: &BTreeMap<u64, u64>, b: &BTreeMap<u64, u64>) -> Option<f64> {
    let total = |counts: &BTreeMap<u64, u64>| counts.values().map(|count| *count as f64).sum();
    let (of_a, of_b): (f64, f64) = (total(a), total(b));
    if of_a <= 0.0 || of_b <= 0.0 {
        return None;
    }
    let share = |counts: &BTreeMap<u64, u64>, value, total| {
        counts.get(value).map_or(0.0, |count| *count as f64 / total)
    };
    let mut values: Vec<_> = a.keys().chain(b.keys()).collect();
    values.sort_unstable();
    values.dedup();
    let apart = values.iter().map(|value| (share(a, value, of_a) - share(b, value, of_b)).abs());
    Some(apart.sum::<f64>() / 2.0)
}

/// Returns Kendall's tau-b of two measurements of the same items: 1 if both put them in the same
/// order, -1 if in opposite orders. Pairs with a value that is not finite are ignored. None if
/// fewer than two pairs are left, or if one measurement has all its values equal.
pub(crate) fn rank_agreement(a: &[f64], b: &[f64]) -> Option<f64> {
    let pairs = a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite());
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
    if a.len() < 2 {
        return None;
    }
    let (tau, _) = kendalls::tau_b_with_comparator(&a, &b, f64::total_cmp).ok()?;
    tau.is_finite().then_some(tau)
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = finite(values);
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{a} is not {b}");
    }

    fn counts<const N: usize>(counts: [(u64, u64); N]) -> BTreeMap<u64, u64> {
        BTreeMap::from(counts)
    }

    #[test]
    fn intervals_use_the_tabled_t_values() {
        // Half widths in units of sd / sqrt(n), from the table of the t distribution.
        for (n, t) in [(2, 12.706_205), (3, 4.302_653), (5, 2.776_445), (20, 2.093_024)] {
            let values: Vec<f64> = (0..n).map(f64::from).collect();
            let found = estimate(&values);
            let half = t * found.sd / f64::from(n).sqrt();
            near(found.high - found.mean, half);
            near(found.mean - found.low, half);
        }
        let found = estimate(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((found.n, found.mean), (8, 5.0));
        near(found.sd, (32.0_f64 / 7.0).sqrt());
    }

    #[test]
    fn one_value_is_its_own_interval_and_none_is_no_number() {
        let one = estimate(&[3.5]);
        assert_eq!(one, Estimate { n: 1, mean: 3.5, sd: 0.0, low: 3.5, high: 3.5 });
        let none = estimate(&[]);
        assert!(none.n == 0 && none.mean.is_nan() && none.low.is_nan());
    }

    #[test]
    fn what_is_not_finite_does_not_count() {
        let clean = estimate(&[1.0, 2.0, 3.0]);
        assert_eq!(estimate(&[1.0, f64::NAN, 2.0, f64::INFINITY, 3.0]), clean);
        assert_eq!(quantile(&[f64::NAN, 1.0], 0.5), Some(1.0));
        assert_eq!(rank_agreement(&[1.0, f64::NAN, 2.0], &[1.0, 5.0, 2.0]), Some(1.0));
    }

    #[test]
    fn equal_values_have_an_interval_of_no_width() {
        let found = estimate(&[7.0; 10]);
        assert_eq!((found.sd, found.low, found.high), (0.0, 7.0, 7.0));
    }

    #[test]
    fn quantiles_interpolate() {
        let values = [40.0, 10.0, 30.0, 20.0];
        assert_eq!(quantile(&values, 0.0), Some(10.0));
        assert_eq!(quantile(&values, 0.5), Some(25.0));
        assert_eq!(quantile(&values, 1.0), Some(40.0));
        assert_eq!(quantile(&values, 7.0), Some(40.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn wasserstein_is_how_far_values_are_moved() {
        let (a, b) = (counts([(0, 1), (1, 1), (3, 1)]), counts([(5, 1), (6, 1), (8, 1)]));
        near(wasserstein(&a, &b).unwrap(), 5.0);
        // Half of the values moves by one.
        near(wasserstein(&counts([(0, 1)]), &counts([(0, 1), (1, 1)])).unwrap(), 0.5);
        assert_eq!(wasserstein(&counts([]), &counts([(1, 1)])), None);
    }

    #[test]
    fn histograms_are_compared_by_their_shares() {
        let a = counts([(0, 1), (1, 1)]);
        near(wasserstein(&a, &counts([(0, 50), (1, 50)])).unwrap(), 0.0);
        near(wasserstein(&a, &counts([(2, 3), (3, 3)])).unwrap(), 2.0);
        near(total_variation(&a, &counts([(0, 50), (1, 50)])).unwrap(), 0.0);
        near(total_variation(&a, &counts([(1, 3)])).unwrap(), 0.5);
        near(total_variation(&a, &counts([(7, 1)])).unwrap(), 1.0);
        assert_eq!(total_variation(&a, &counts([(7, 0)])), None);
        assert_eq!(wasserstein(&counts([]), &a), None);
    }

    #[test]
    fn rankings_agree_or_not() {
        assert_eq!(rank_agreement(&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]), Some(1.0));
        assert_eq!(rank_agreement(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        // One of six pairs is the other way round: (5 - 1) / 6.
        near(rank_agreement(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 4.0, 3.0]).unwrap(), 4.0 / 6.0);
        // A tie in one: 2 / sqrt(3 * 2).
        near(rank_agreement(&[1.0, 2.0, 3.0], &[1.0, 1.0, 2.0]).unwrap(), 2.0 / 6.0_f64.sqrt());
        assert_eq!(rank_agreement(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(rank_agreement(&[1.0], &[1.0]), None);
    }
}
