//! Disjoint key ranges, such as the parts of a vector that have arrived.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::KeyRange;

/// Disjoint key ranges, in key order; adjacent ranges are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage(Vec<KeyRange>);

impl Coverage {
    /// Adds `keys`; returns false, and adds nothing, if one of them is there already.
    pub fn add(&mut self, keys: KeyRange) -> bool {
        let place = self.0.partition_point(|range| range.end() <= keys.begin());
        if self.0.get(place).is_some_and(|next| next.overlap(keys).is_some()) {
            return false;
        }
        let mut whole = keys;
        let before = place.checked_sub(1).filter(|&it| self.0[it].end() == keys.begin());
        let after = self.0.get(place).filter(|next| next.begin() == keys.end());
        let end = place + usize::from(after.is_some());
        whole = after.map_or(whole, |after| whole.hull(*after));
        let begin = before.unwrap_or(place);
        whole = before.map_or(whole, |before| self.0[before].hull(whole));
        self.0.splice(begin..end, [whole]);
        true
    }

    /// The ranges of `all` that are not there, in key order.
    pub fn gaps(&self, all: KeyRange) -> impl Iterator<Item = KeyRange> {
        let begins = core::iter::once(all.begin()).chain(self.0.iter().map(|range| range.end()));
        let ends = self.0.iter().map(|range| range.begin()).chain([all.end()]);
        begins.zip(ends).filter_map(move |(begin, end)| {
            KeyRange::new(begin.max(all.begin()), end.min(all.end())).ok()
        })
    }

    /// The keys of `range` that are there, in key order.
    pub fn within(&self, range: KeyRange) -> impl Iterator<Item = KeyRange> {
        let first = self.0.partition_point(|own| own.end() <= range.begin());
        let from = self.0.get(first..).unwrap_or_default();
        from.iter().map_while(move |own| own.overlap(range))
    }

    /// True if no range is there.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(begin: u64, end: u64) -> KeyRange {
        KeyRange::new(begin, end).unwrap()
    }

    proptest! {
        /// Compared with a flag for each key.
        #[test]
        fn gaps_are_the_keys_that_were_not_added(
            ranges in prop::collection::vec((0..40_u64, 1..12_u64), 0..12),
            (begin, len) in (0..40_u64, 1..30_u64),
        ) {
            let (mut coverage, mut flags) = (Coverage::default(), [false; 100]);
            for (from, keys) in ranges {
                let keys = range(from, from + keys);
                let is_free = flags[keys.indices()].iter().all(|it| !it);
                prop_assert_eq!(coverage.add(keys), is_free);
                flags[keys.indices()].fill(true);
                if !is_free {
                    return Ok(()); // a refused range ends a gradient
                }
            }
            let all = range(begin, begin + len);
            let mut found = [true; 100];
            for gap in coverage.gaps(all) {
                prop_assert!(all.contains(gap));
                found[gap.indices()].fill(false);
            }
            let expected = all.indices().all(|key| found[key] == flags[key]);
            prop_assert!(expected);
            let keys = |ranges: &mut dyn Iterator<Item = KeyRange>| ranges.map(KeyRange::len).sum();
            let (free, taken): (u64, u64) =
                (keys(&mut coverage.gaps(all)), keys(&mut coverage.within(all)));
            prop_assert_eq!(free + taken, all.len());
            let joined = coverage.0.windows(2).all(|pair| pair[0].end() < pair[1].begin());
            prop_assert!(joined, "{:?}", coverage);
        }
    }
}
