//! A push that arrives range by range, over one connection.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::{Incarnation, Sequence, Version};
use pstrain_compute::params::{Coverage, KeyRange};
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_wire::Refusal;
use pstrain_wire::worker::{Push, PushHeader, Seen};

/// The ranges of one worker's push that have arrived.
///
/// A push counts only as a whole. A worker that is cut off sends its push whole on the next
/// connection, which drops the ranges here, as does the next push.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Incoming {
    of: Option<Gradient>,
    /// Examples that the gradient was computed from.
    samples: u32,
    ranges: u64,
    came: Coverage,
    #[serde(skip)]
    seen: Seen,
    /// One value for each key of the whole.
    #[serde(skip)]
    values: Vec<f32>,
}

/// The most ranges of a short push, and the least mean length of the further ones: a range costs
/// more than its values.
const MAX_RANGES: u64 = 64;
const MIN_MEAN_RANGE: u64 = 1024;

/// A gradient of a worker, at the keys of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Gradient {
    incarnation: Incarnation,
    sequence: Sequence,
    base: Version,
    whole: KeyRange,
}

impl Gradient {
    const fn of(header: &PushHeader, whole: KeyRange) -> Self {
        let PushHeader { incarnation, sequence, base, .. } = *header;
        Self { incarnation, sequence, base, whole }
    }
}

/// Ranges of a gradient.
#[derive(Debug)]
pub(super) struct Ranges<'a> {
    /// The version that the gradient was computed on.
    pub(super) base: Version,
    /// Examples that it was computed from.
    pub(super) samples: u32,
    /// The keys of the ranges.
    pub(super) came: &'a Coverage,
    /// A value for each key of the gradient; those of other keys do not matter.
    pub(super) values: &'a [f32],
}

impl Incoming {
    /// Adds a push, or a range of one, where all of its keys here are `whole`. Returns the push
    /// once it is whole, with the header of the last range.
    ///
    /// # Errors
    /// [`Refusal`] if the keys do not fit, or came before.
    pub(super) fn add(&mut self, push: Push, whole: KeyRange) -> Result<Option<Push>, Refusal> {
        let PushHeader { sequence, keys, .. } = push.header;
        if keys == whole {
            *self = Self::default();
            return Ok(Some(push));
        }
        let values = push.gradient.len() as u64;
        let Some(places) = keys.within(whole).filter(|_| values == keys.len()) else {
            return Err(Refusal::Keys { given: keys, values, wanted: whole });
        };
        let gradient = Gradient::of(&push.header, whole);
        if self.of != Some(gradient) {
            // The old values are overwritten: clearing them would cost more than a short range.
            let mut values = core::mem::take(&mut self.values);
            values.resize(whole.len() as usize, 0.0);
            let (seen, samples) = (Seen { finite: true }, push.header.samples);
            *self = Self { of: Some(gradient), seen, samples, values, ..Self::default() };
        }
        self.ranges += 1;
        if self.ranges > MAX_RANGES + whole.len() / MIN_MEAN_RANGE {
            let what = alloc::format!("push {sequence} has more than {} ranges", self.ranges - 1);
            return Err(Refusal::Unexpected { what });
        }
        if !self.came.add(keys) {
            let what = alloc::format!("push {sequence} has some of the keys {keys} twice");
            return Err(Refusal::Unexpected { what });
        }
        self.seen.finite &= push.seen.finite;
        self.values[places].copy_from_slice(&push.gradient);
        if self.came.gaps(whole).next().is_some() {
            return Ok(None);
        }
        let header = PushHeader { keys: whole, ..push.header };
        let Self { values, seen, .. } = core::mem::take(self);
        let gradient = Arc::new(values);
        Ok(Some(Push { seen, ..Push::new(header, gradient) }))
    }

    /// The ranges of a push that have arrived, if it is the next and is not whole.
    pub(super) fn ranges_of(
        &self,
        incarnation: Incarnation,
        sequence: Sequence,
    ) -> Option<Ranges<'_>> {
        let of = self.of.filter(|of| (of.incarnation, of.sequence) == (incarnation, sequence))?;
        let Self { came, samples, values, .. } = self;
        Some(Ranges { base: of.base, samples: *samples, came, values })
    }

    /// True if ranges are here that a push, or a range of one, with this header drops.
    pub(super) fn replaced_by(&self, header: &PushHeader, whole: KeyRange) -> bool {
        let is_other = header.keys == whole || self.of != Some(Gradient::of(header, whole));
        self.of.is_some() && is_other
    }

    /// Saves or restores the values, which serde skips.
    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let Some(of) = self.of else { return Ok(()) };
        archive.own_of("incoming", &mut self.values, of.whole.len() as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use pstrain_compute::id::{BatchId, PartId};
    use pstrain_compute::task::Task;
    use pstrain_wire::worker::ParametersHeader;

    fn range(begin: u64, end: u64) -> KeyRange {
        KeyRange::new(begin, end).unwrap()
    }

    /// Keys of push `sequence` on version `base`; each value is the key.
    fn push(sequence: u64, base: u64, keys: KeyRange) -> Push {
        let given = ParametersHeader {
            version: Version(base),
            keys,
            sequence: Sequence(sequence),
            task: Task { part: PartId(0), batch: BatchId(0), examples: 0 },
            ahead: 0,
            decided: None,
        };
        let values = keys.indices().map(|key| key as f32).collect();
        Push::new(PushHeader::answering(&given, Incarnation(1)), Arc::new(values))
    }

    #[test]
    fn ranges_become_a_push_once_all_have_come() {
        let (whole, mut incoming) = (range(2, 8), Incoming::default());
        for sequence in 1..3 {
            assert_eq!(incoming.add(push(sequence, 0, range(5, 7)), whole), Ok(None));
            assert_eq!(incoming.add(push(sequence, 0, range(7, 8)), whole), Ok(None));
            let whole = incoming.add(push(sequence, 0, range(2, 5)), whole).unwrap().unwrap();
            assert_eq!(whole, push(sequence, 0, range(2, 8)));
        }
    }

    #[test]
    fn ranges_of_another_gradient_and_whole_pushes_begin_afresh() {
        let (whole, mut incoming) = (range(0, 4), Incoming::default());
        assert_eq!(incoming.add(push(1, 0, range(2, 4)), whole), Ok(None));
        assert_eq!(incoming.add(push(1, 1, range(2, 4)), whole), Ok(None), "of another version");
        assert_eq!(incoming.add(push(2, 1, range(2, 4)), whole), Ok(None), "of another push");
        assert_eq!(incoming.add(push(2, 1, whole), whole), Ok(Some(push(2, 1, whole))));
        assert_eq!(incoming.add(push(2, 1, range(0, 2)), whole), Ok(None));
        assert_eq!(incoming.add(push(2, 1, range(2, 4)), whole), Ok(Some(push(2, 1, whole))));
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        let (whole, mut incoming) = (range(2, 6), Incoming::default());
        let mut refused = |push| incoming.add(push, whole).unwrap_err().to_string();
        assert!(refused(push(1, 0, range(1, 3))).contains("[1, 3)"));
        assert!(refused(push(1, 0, range(5, 7))).contains("[5, 7)"));
        let mut short = push(1, 0, range(2, 4));
        short.gradient = Arc::new(vec![0.0]);
        assert!(refused(short).contains("[2, 4)"));
        assert_eq!(incoming.add(push(1, 0, range(2, 4)), whole), Ok(None));
        let twice = incoming.add(push(1, 0, range(3, 5)), whole).unwrap_err().to_string();
        assert!(twice.contains("push 1") && twice.contains("twice"), "{twice}");
    }

    #[test]
    fn ranges_are_bounded_and_their_loss_is_seen() {
        let (whole, mut incoming) = (range(0, 1000), Incoming::default());
        assert!(!incoming.replaced_by(&push(1, 0, range(0, 1)).header, whole), "nothing is here");
        for key in 0..MAX_RANGES {
            assert_eq!(incoming.add(push(1, 0, range(2 * key, 2 * key + 1)), whole), Ok(None));
        }
        let one_more = incoming.add(push(1, 0, range(999, 1000)), whole).unwrap_err().to_string();
        assert!(one_more.contains("more than 64 ranges"), "{one_more}");
        assert!(!incoming.replaced_by(&push(1, 0, range(500, 501)).header, whole));
        for other in [push(1, 1, range(500, 501)), push(2, 0, range(0, 1)), push(1, 0, whole)] {
            assert!(incoming.replaced_by(&other.header, whole), "{:?}", other.header);
        }
    }

    #[test]
    fn ranges_survive_a_restore() {
        use pstrain_compute::saved::Saved;
        let (whole, mut incoming) = (range(0, 4), Incoming::default());
        assert_eq!(incoming.add(push(1, 0, range(2, 4)), whole), Ok(None));
        let mut saved = Saved::default();
        let mut save = Archive::save(&mut saved, 4);
        save.small(&mut incoming).unwrap();
        incoming.archive(&mut save).unwrap();
        let (mut restored, mut restore) = (Incoming::default(), Archive::restore(&saved, 4));
        restore.small(&mut restored).unwrap();
        restored.archive(&mut restore).unwrap();
        let last = push(1, 0, range(0, 2));
        assert_eq!(restored.add(last, whole), Ok(Some(push(1, 0, whole))));
    }
}
