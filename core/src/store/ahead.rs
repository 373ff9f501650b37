//! Adding up what is still coming: see [`crate::aggregate`].

use super::Store;
use crate::aggregate::Gradient;
use crate::id::{Clock, Incarnation, PartId, Sequence, WorkerId};
use crate::protocol::PartialPush;
use crate::protocol::message::Push;

/// Payloads of at least so many bytes are looked at before they are whole: of shorter ones so little is
/// under way at once that nothing is gained.
pub(crate) const LEAST_AHEAD_BYTES: usize = 1024 * 1024;

/// The fewest gradients that are added up ahead. The sum is written, and read when the round is closed, which
/// takes as long as to read two gradients: of less than twice as many, the wait for the close gets not
/// much shorter, and the sum is a large part of the memory.
const FEWEST_AHEAD: usize = 4;

/// What gradients of an update are in the order of.
pub(super) type Place = (PartId, WorkerId, Incarnation, Sequence);

/// One that is due, and where among the contributions it is if it is there.
pub(super) type Due = (Place, Option<usize>);

impl<'a> PartialPush<'a> {
    /// One that is whole, but not decided; none if it came at once.
    pub(crate) fn whole(push: &'a Push) -> Option<Self> {
        Some(Self { header: push.header, body: push.seen.body?, values: &push.gradient })
    }

    fn place(&self, worker: WorkerId) -> Place {
        (self.header.task.part, worker, self.header.incarnation, self.header.sequence)
    }

    fn gradient(&self, worker: WorkerId) -> Gradient<'a> {
        Gradient {
            worker,
            part: self.header.task.part,
            clock: Clock::default(), // decided later; nothing that is added up ahead goes by it
            samples: self.header.samples,
            size: self.header.task.examples,
            staleness: 0,
            base: None,
            keys: None,
            body: Some(self.body),
            values: self.values,
        }
    }
}

impl Store {
    /// Whether anything is gained by looking at gradients before they are whole.
    pub(crate) const fn adds_ahead(&self) -> bool {
        self.is_long && self.making.is_none()
    }

    /// The keys of the next update that are added up.
    pub(crate) const fn keys_ahead(&self) -> usize {
        self.aggregator.keys_ahead()
    }

    /// Adds up, as far as it has come, what the next update will be made of if that is what is here and
    /// what is `coming` of these workers. If of one of them nothing has come, or they are few, nothing is
    /// done. Whether more has come than was added up.
    pub(crate) fn add_ahead<'a>(
        &mut self,
        workers: impl Iterator<Item = WorkerId>,
        coming: impl Fn(WorkerId) -> Option<PartialPush<'a>>,
    ) -> bool {
        let Self { contributions, aggregator, keys, due, .. } = self;
        let coming = |worker| coming(worker).filter(|push| push.header.keys == *keys);
        due.clear();
        for worker in workers {
            let Some(push) = coming(worker) else { return false };
            due.push((push.place(worker), None));
        }
        let here = contributions.at(0..contributions.len());
        due.extend((0..).zip(here).map(|(at, gathered)| (gathered.place(), Some(at))));
        if due.len() < FEWEST_AHEAD {
            return false;
        }
        due.sort_unstable();
        aggregator.add_ahead(due.iter().filter_map(|&((_, worker, ..), at)| match at {
            Some(at) => here.get(at).map(|it| it.gradient(it.contribution.base)),
            None => coming(worker).map(|push| push.gradient(worker)),
        }))
    }
}
