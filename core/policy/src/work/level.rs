//! Division of a total into whole numbers that take the same time, within bounds.

use alloc::vec::Vec;

/// Model of a worker that takes `start + slope * size` for a share of `size`, within bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) start: f64,
    /// Above 0.
    pub(super) slope: f64,
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Line {
    /// Returns the unrounded share that takes `time`, clamped to the bounds.
    fn share(&self, time: f64) -> f64 {
        let share = (time - self.start) / self.slope;
        share.clamp(self.least as f64, self.most as f64)
    }

    pub(super) fn time(&self, size: u64) -> f64 {
        self.start + self.slope * size as f64
    }
}

/// Number of halvings after which a 64-bit float no longer changes.
const HALVINGS: u32 = 128;

/// Divides `total` into shares that take the same time within their bounds, rounded by the largest
/// remainder. Their sum is `total` if the bounds allow it, and otherwise as close as possible.
pub(super) fn level(total: u64, lines: &[Line]) -> Vec<u64> {
    let earliest = lines.iter().map(|line| line.time(line.least)).fold(f64::INFINITY, f64::min);
    let latest = lines.iter().map(|line| line.time(line.most)).fold(0.0, f64::max);
    // Bisect the time at which the shares, which grow with it, sum to the total.
    let (mut below, mut above) = (earliest.min(latest), latest);
    for _ in 0..HALVINGS {
        let middle = below + (above - below) / 2.0;
        let sum: f64 = lines.iter().map(|line| line.share(middle)).sum();
        if sum < total as f64 {
            below = middle;
        } else {
            above = middle;
        }
    }
    let shares: Vec<f64> = lines.iter().map(|line| line.share(above)).collect();
    let mut sizes: Vec<u64> = shares.iter().map(|&share| share as u64).collect();
    let mut order: Vec<usize> = (0..lines.len()).collect();
    let remainder = |&index: &usize| shares[index] - shares[index] as u64 as f64;
    order.sort_by(|a, b| remainder(b).total_cmp(&remainder(a)));
    let mut sum: u64 = sizes.iter().sum();
    // Stops short of the total if the bounds prevent any further change.
    let mut changed = true;
    while sum != total && changed {
        changed = false;
        for &index in &order {
            let (size, Line { least, most, .. }) = (&mut sizes[index], lines[index]);
            if sum < total && *size < most {
                (*size, sum, changed) = (*size + 1, sum + 1, true);
            } else if sum > total && *size > least {
                (*size, sum, changed) = (*size - 1, sum - 1, true);
            }
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const FREE: Line = Line { start: 0.0, slope: 1.0, least: 1, most: 1_000_000 };

    #[test]
    fn shares_are_in_proportion_to_speed() {
        let slopes = [4.0, 1.0, 1.0, 1.0].map(|slope| Line { slope, ..FREE });
        // 256 / 3.25: 19.69 and 78.77.
        assert_eq!(level(256, &slopes), [19, 79, 79, 79]);
        assert_eq!(level(260, &slopes), [20, 80, 80, 80]);
        assert_eq!(level(7, &[FREE; 7]), vec![1; 7]);
        assert_eq!(level(7, &[FREE; 3]), [3, 2, 2]);
    }

    #[test]
    fn what_does_not_depend_on_the_share_counts() {
        let far = Line { start: 50.0, ..FREE };
        assert_eq!(level(100, &[far, FREE]), [25, 75]);
        // The fixed time is too long for more than the smallest share.
        assert_eq!(level(40, &[Line { least: 8, ..far }, FREE]), [8, 32]);
    }

    #[test]
    fn bounds_are_kept_and_the_rest_is_the_others() {
        let bound = Line { most: 12, ..FREE };
        assert_eq!(level(60, &[bound, FREE, FREE]), [12, 24, 24]);
        assert_eq!(level(60, &[bound, bound, bound]), [12, 12, 12]);
        assert_eq!(level(1, &[Line { least: 4, ..FREE }; 2]), [4, 4]);
        assert!(level(5, &[]).is_empty());
    }
}
