//! The event queue of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pstrain_compute::time::Time;

/// Things in the order of their due times, and at equal times in the order of insertion. Nothing
/// else decides the order, so one seed gives one trace.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    /// Times, numbers and indices into `things`: the heap moves small elements.
    due: BinaryHeap<Reverse<(Time, u64, u32)>>,
    things: Vec<Option<T>>,
    vacant: Vec<u32>,
    count: u64,
}

impl<T> Agenda<T> {
    pub(super) const fn new() -> Self {
        Self { due: BinaryHeap::new(), things: Vec::new(), vacant: Vec::new(), count: 0 }
    }

    /// Inserts `thing`, due at `at`.
    pub(super) fn put(&mut self, at: Time, thing: T) {
        let place = match self.vacant.pop() {
            Some(place) => {
                self.things[place as usize] = Some(thing);
                place
            }
            None => {
                self.things.push(Some(thing));
                (self.things.len() - 1) as u32
            }
        };
        self.due.push(Reverse((at, self.count, place)));
        self.count += 1;
    }

    /// Removes the thing that is due next.
    pub(super) fn next(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, place)) = self.due.pop()?;
        self.vacant.push(place);
        let thing = self.things[place as usize].take()?;
        Some((at, thing))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_stable_sort(times in prop::collection::vec(0_u64..50, 0..200)) {
            let mut agenda = Agenda::new();
            let mut sorted: Vec<(Time, usize)> = Vec::new();
            for (number, &time) in times.iter().enumerate() {
                agenda.put(Time::from_nanos(time), number);
                sorted.push((Time::from_nanos(time), number));
            }
            sorted.sort_by_key(|&(time, _)| time);
            let taken: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
            prop_assert_eq!(taken, sorted);
            prop_assert!(agenda.things.iter().all(Option::is_none));
        }
    }
}
