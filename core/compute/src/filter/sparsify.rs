//! Sparsifiers: filters that select the keys of a gradient that are sent.

use alloc::vec::Vec;
use core::fmt;

use crate::rng::Random;

/// Selects the keys of a gradient that are sent.
pub(super) trait Sparsifier: fmt::Debug + Send {
    /// Removes from `keys`, which ascend, the keys that are not sent. May scale the values of the
    /// remaining keys.
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, at: At<'_>, random: &mut Random);
}

/// The context in which a gradient was computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    /// The parameters; empty if unknown.
    pub(super) parameters: &'a [f32],
    /// The l1 penalty on the parameters.
    pub(super) lambda: f32,
    /// The number of the mini-batch.
    pub(super) batch: u64,
}

/// Keeps values that might move a parameter away from 0, and non-zero values of other parameters.
#[derive(Debug)]
pub(super) struct Kkt {
    pub(super) share: f32,
    pub(super) every: u32,
}

impl Sparsifier for Kkt {
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, at: At<'_>, _random: &mut Random) {
        let most = self.share * at.lambda;
        let is_whole = at.batch % u64::from(self.every) == u64::from(self.every) - 1;
        keys.retain(|&key| {
            let value = values[key as usize];
            let is_zero = at.parameters.get(key as usize) == Some(&0.0);
            value != 0.0 && (is_whole || !is_zero || value.abs() > most)
        });
    }
}

/// Keeps values other than 0.
#[derive(Debug)]
pub(super) struct ZeroSkip;

impl Sparsifier for ZeroSkip {
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, _at: At<'_>, _random: &mut Random) {
        keys.retain(|&key| values[key as usize] != 0.0);
    }
}

/// Keeps values of a magnitude above `delta`.
#[derive(Debug)]
pub(super) struct Significant {
    pub(super) delta: f32,
}

impl Sparsifier for Significant {
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, _at: At<'_>, _random: &mut Random) {
        keys.retain(|&key| values[key as usize].abs() > self.delta);
    }
}

/// Keeps each key with probability `share`.
#[derive(Debug)]
pub(super) struct RandomSkip {
    pub(super) share: f64,
    /// True if the remaining values are divided by the share, so that their mean is unbiased.
    pub(super) scales: bool,
}

impl Sparsifier for RandomSkip {
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, _at: At<'_>, random: &mut Random) {
        keys.retain(|_| random.unit() < self.share);
        if self.scales {
            scale(values, keys, 1.0 / self.share);
        }
    }
}

/// Keeps a random `share` of the keys, all equally likely.
#[derive(Debug)]
pub(super) struct RandomK {
    pub(super) share: f64,
    /// True if the remaining values are divided by their actual share, so that their mean is
    /// unbiased.
    pub(super) scales: bool,
}

impl Sparsifier for RandomK {
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, _at: At<'_>, random: &mut Random) {
        let all = keys.len();
        let count = count(self.share, all);
        // Partial Fisher-Yates shuffle: only the first `count` places are drawn.
        for place in 0..count {
            let other = place + random.below((all - place) as u64) as usize;
            keys.swap(place, other);
        }
        keys.truncate(count);
        keys.sort_unstable();
        if self.scales && count > 0 {
            scale(values, keys, all as f64 / count as f64);
        }
    }
}

/// Keeps the `share` of all keys with the largest magnitudes; ties go to the lower key.
#[derive(Debug)]
pub(super) struct TopK {
    pub(super) share: f64,
}

impl Sparsifier for TopK {
    fn choose(&self, values: &mut [f32], keys: &mut Vec<u32>, _at: At<'_>, _random: &mut Random) {
        // Zeros are never sent, even if fewer than `count` values remain.
        keys.retain(|&key| values[key as usize] != 0.0);
        // The share is of all keys, not of the keys that an earlier sparsifier has left.
        let count = count(self.share, values.len());
        if count < keys.len() {
            let magnitude = |key: &u32| values[*key as usize].abs();
            keys.select_nth_unstable_by(count, |one, other| {
                magnitude(other).total_cmp(&magnitude(one)).then(one.cmp(other))
            });
            keys.truncate(count);
            keys.sort_unstable();
        }
    }
}

/// Returns `share` of `all`, rounded up.
fn count(share: f64, all: usize) -> usize {
    (libm::ceil(share * all as f64) as usize).min(all)
}

fn scale(values: &mut [f32], keys: &[u32], factor: f64) {
    for &key in keys {
        let value = &mut values[key as usize];
        *value = (f64::from(*value) * factor) as f32;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::rng::Stream;

    fn left(batch: u64, share: f32) -> Vec<u32> {
        let parameters = [0.0, 0.0, 0.0, 0.5, -0.5, 0.0];
        let mut values = [0.05, -0.2, 0.1, 0.01, 0.0, f32::MIN_POSITIVE];
        let at = At { parameters: &parameters, lambda: 0.1, batch };
        let mut keys: Vec<u32> = (0..6).collect();
        Kkt { share, every: 4 }.choose(&mut values, &mut keys, at, &mut Stream::new(1).rng());
        keys
    }

    #[test]
    fn what_cannot_move_a_parameter_from_0_does_not_travel() {
        assert_eq!(left(0, 1.0), [1, 3]);
        assert_eq!(left(6, 0.5), [1, 2, 3]);
    }

    #[test]
    fn now_and_then_all_travels_but_zeros() {
        for batch in [3, 7, 43] {
            assert_eq!(left(batch, 1.0), [0, 1, 2, 3, 5]);
        }
    }

    #[test]
    fn where_parameters_are_not_known_none_counts_as_0() {
        let at = At { parameters: &[], lambda: 0.1, batch: 0 };
        let mut keys = vec![0, 1];
        let mut random = Stream::new(1).rng();
        Kkt { share: 1.0, every: 9 }.choose(&mut [0.01, 0.02], &mut keys, at, &mut random);
        assert_eq!(keys, [0, 1]);
    }
}
