//! Mini-batches: which examples a task has.

use alloc::vec::Vec;
use core::ops::Range;

use pstrain_compute::id::PartId;
use pstrain_compute::pass::Pass;
use pstrain_compute::rng::Stream;
use pstrain_compute::source::Rows;
use pstrain_compute::task::Task;

/// The mini-batches of a worker's parts.
///
/// The mini-batches of a part are numbered. A number names the same examples at any time, any
/// number of times, and on any worker. Each [`Pass`] goes through all examples once in its own
/// random order; or in storage order, if one mini-batch is all of them and their order has no
/// effect. A mini-batch with a size of its own has the examples of that order from its number on.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    parts: Vec<Part>,
    batch_size: u32,
    /// True if the order within a mini-batch has no effect.
    is_unordered: bool,
}

/// A part of the data.
#[derive(Clone, Debug)]
struct Part {
    id: PartId,
    /// Its examples.
    count: usize,
    shuffle: Stream,
    /// The pass that `order` belongs to; `None` if `order` is the storage order.
    pass: Option<u64>,
    order: Vec<u32>,
}

impl Batches {
    /// The mini-batches of parts with so many examples each, at least one. `seed` is the root
    /// stream of the run.
    pub(crate) fn new(parts: &[(PartId, usize)], seed: Stream, batch_size: u32) -> Self {
        let part = |&(id, count): &(PartId, usize)| {
            let shuffle = seed.fork("shuffle", id.0.into());
            Part { id, count, shuffle, pass: None, order: Vec::new() }
        };
        Self { parts: parts.iter().map(part).collect(), batch_size, is_unordered: true }
    }

    /// The same mini-batches, where the order within one has an effect.
    pub(crate) fn ordered(self) -> Self {
        Self { is_unordered: false, ..self }
    }

    /// Returns the index of a part. A worker with all parts has each at its own index.
    pub(crate) fn find(&self, id: PartId) -> Option<usize> {
        let place = id.0 as usize;
        let is_there = self.parts.get(place).is_some_and(|part| part.id == id);
        if is_there { Some(place) } else { self.parts.iter().position(|part| part.id == id) }
    }

    /// Returns the number of examples that a task has in the part at `index`.
    pub(crate) fn len(&self, index: usize, task: Task) -> usize {
        self.parts[index].range(task, self.batch_size).1.len()
    }

    /// Returns the examples that a task has in the part at `index`, for a gradient of all keys.
    pub(crate) fn rows(&mut self, index: usize, task: Task) -> Rows<'_> {
        self.parts[index].rows(index, task, self.batch_size, self.is_unordered)
    }
}

impl Part {
    fn rows(&mut self, index: usize, task: Task, batch_size: u32, is_unordered: bool) -> Rows<'_> {
        let (pass, rows) = self.range(task, batch_size);
        let draws = self.shuffle.fork("draws", pass);
        // A sum over all examples needs no random order, and is fastest in storage order.
        let pass = (rows.len() < self.count || !is_unordered).then_some(pass);
        if self.pass != pass || self.order.is_empty() {
            self.order.clear();
            self.order.extend(0..self.count as u32);
            if let Some(pass) = pass {
                self.shuffle.fork("pass", pass).rng().shuffle(&mut self.order);
            }
            self.pass = pass;
        }
        Rows { part: index, numbers: &self.order[rows], keys: None, draws }
    }

    /// Returns the pass of a mini-batch, and its range in the order of that pass.
    fn range(&self, task: Task, batch_size: u32) -> (u64, Range<usize>) {
        let (batch, count) = (task.batch, self.count as u64);
        let (pass, rows) = match task.examples {
            0 => Pass::new(count, batch_size).find(batch),
            examples => {
                let begin = batch.0 % count;
                (batch.0 / count, begin..count.min(begin + u64::from(examples)))
            }
        };
        (pass, rows.start as usize..rows.end as usize)
    }
}
