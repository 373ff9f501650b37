//! Multiset of clocks.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::Clock;

/// Counts above 0, sorted by clock. There are few clocks at a time, and the buffer keeps its
/// capacity, so that new rounds do not allocate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts(VecDeque<(Clock, usize)>);

impl Counts {
    fn place(&self, clock: Clock) -> Result<usize, usize> {
        self.0.binary_search_by_key(&clock, |&(it, _)| it)
    }

    /// Adds one at `clock`.
    pub(super) fn add(&mut self, clock: Clock) {
        match self.place(clock) {
            Ok(place) => self.0[place].1 += 1,
            Err(place) => self.0.insert(place, (clock, 1)),
        }
    }

    /// Removes one at `clock`, if there is one, and the entry if its count reaches 0.
    pub(super) fn take_one(&mut self, clock: Clock) {
        let Ok(place) = self.place(clock) else { return };
        self.0[place].1 -= 1;
        if self.0[place].1 == 0 {
            self.0.remove(place);
        }
    }

    /// Removes all at the first clock, and returns their number.
    pub(super) fn take_first(&mut self) -> usize {
        self.0.pop_front().map_or(0, |(_, count)| count)
    }

    pub(super) fn first(&self) -> Option<Clock> {
        self.0.front().map(|&(clock, _)| clock)
    }

    pub(super) fn last(&self) -> Option<Clock> {
        self.0.back().map(|&(clock, _)| clock)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_in_the_order_of_clocks_and_none_is_kept_as_nought() {
        let mut counts = Counts::default();
        [5, 3, 5, 9].into_iter().for_each(|clock| counts.add(Clock(clock)));
        assert_eq!((counts.first(), counts.last()), (Some(Clock(3)), Some(Clock(9))));
        counts.take_one(Clock(9));
        counts.take_one(Clock(7));
        assert_eq!(
            (counts.take_first(), counts.first(), counts.last()),
            (1, Some(Clock(5)), Some(Clock(5)))
        );
        assert_eq!((counts.take_first(), counts.take_first(), counts.last()), (2, 0, None));
    }
}
