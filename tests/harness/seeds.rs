//! Which seeds the random schedules of a suite are drawn from.

use std::env;
use std::ops::Range;
use std::str::FromStr;

/// The first `count` seeds, of a suite whose largest test has `largest`, or what the environment asks
/// for: the one in `PSTRAIN_SEED`, or `PSTRAIN_SEEDS` of them in the largest test, of which the others
/// keep their share.
#[must_use]
pub fn seeds(count: u64, largest: u64) -> Range<u64> {
    match number("PSTRAIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            0..number("PSTRAIN_SEEDS").map_or(count, |seeds: u64| (seeds * count).div_ceil(largest))
        }
    }
}

/// Whether one seed alone is to be run, which need not show all that can come up.
#[must_use]
pub fn is_one_seed() -> bool {
    env::var_os("PSTRAIN_SEED").is_some()
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}
