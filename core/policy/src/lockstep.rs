//! Training in step: each update has one gradient of every worker of a group, or of one alone.
//!
//! Which mini-batches an update has, and what each gradient counts, follows from the sizes of the
//! workers' parts. Every worker that reduces gradients with the others knows both without asking,
//! and so does their meeting point.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::job::{Budget, BudgetKind, Job, Stopping};
use crate::rules::Aggregation;
use pstrain_compute::id::{BatchId, Version, WorkerId};
use pstrain_compute::pass::Pass;
use pstrain_compute::task::Task;

/// The position of a run whose workers train in step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lockstep {
    batch_size: u32,
    aggregation: Aggregation,
    budget: BudgetKind,
    epochs: u64,
    /// Examples of the training split; 0 if it is the members' rows.
    rows: u64,
    /// The group, in the order of the ranks.
    members: Vec<Progress>,
    /// The members of the updates from a later version on.
    later: VecDeque<(Version, Vec<Member>)>,
    version: Version,
    samples: u64,
    /// Examples of the next update.
    next: u64,
    /// Mini-batches of workers outside the group that became part of an update.
    others: BTreeMap<WorkerId, u64>,
}

/// A worker of the group, and how far it has come. Each worker knows all of them: what follows from
/// the numbers is worked out once an update, and not for each question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    member: Member,
    /// Its mini-batches that became part of an update.
    done: u64,
    /// Examples of its next mini-batch; none if it has used up its own budget.
    samples: Option<u64>,
}

/// A worker of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The worker.
    pub worker: WorkerId,
    /// The examples of its part.
    pub rows: u64,
}

/// How many mini-batches of each worker became part of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done(Vec<(WorkerId, u64)>);

/// A worker's part of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The mini-batch.
    pub task: Task,
    /// Its number of examples.
    pub samples: u32,
    /// The factor of its mean gradient.
    pub factor: f32,
}

impl Lockstep {
    /// A run of `job` before its first update, without members.
    #[must_use]
    pub fn new(job: &Job) -> Self {
        let rows = if job.data.is_local() { 0 } else { job.data.train.rows };
        Self::begin(job.batch_size, job.aggregation, job.budget, rows)
    }

    fn begin(batch_size: u32, aggregation: Aggregation, budget: Budget, rows: u64) -> Self {
        Self {
            batch_size,
            aggregation,
            budget: budget.kind,
            epochs: budget.epochs.into(),
            rows,
            members: Vec::new(),
            later: VecDeque::new(),
            version: Version(0),
            samples: 0,
            next: 0,
            others: BTreeMap::new(),
        }
    }

    /// Sets the workers whose gradients make the updates from `version` on, in the order of their
    /// ranks.
    pub fn set_members(&mut self, version: Version, members: Vec<Member>) {
        self.later.retain(|(later, _)| *later < version);
        if version <= self.version {
            self.regroup(members);
        } else {
            self.later.push_back((version, members));
        }
    }

    fn regroup(&mut self, members: Vec<Member>) {
        let before = core::mem::take(&mut self.members).into_iter();
        self.others.extend(before.map(|it| (it.member.worker, it.done)));
        let of = |member: Member| {
            let done = self.others.remove(&member.worker).unwrap_or_default();
            Progress { member, done, samples: None }
        };
        self.members = members.into_iter().map(of).collect();
        self.count();
    }

    /// Works out what follows from the mini-batches of the members.
    fn count(&mut self) {
        self.next = 0;
        for place in 0..self.members.len() {
            let Progress { member, done, .. } = self.members[place];
            let samples = self.samples_of(member.rows, done);
            self.members[place].samples = samples;
            self.next += samples.unwrap_or_default();
        }
    }

    /// Examples of the mini-batch number `batch` of a worker with so many rows; none if that is
    /// beyond its own budget.
    fn samples_of(&self, rows: u64, batch: u64) -> Option<u64> {
        let pass = Pass::new(rows, self.batch_size);
        let has_more = match self.budget {
            BudgetKind::Global => true,
            BudgetKind::Partition => batch < pass.batches() * self.epochs,
        };
        has_more.then(|| pass.size(BatchId(batch)))
    }

    /// Raises the budget to this many passes over the data.
    pub fn extend(&mut self, epochs: u32) {
        self.epochs = self.epochs.max(epochs.into());
        self.count();
    }

    /// The member with a rank, counted from 0.
    #[must_use]
    pub fn member(&self, rank: usize) -> Option<WorkerId> {
        self.members.get(rank).map(|it| it.member.worker)
    }

    /// The place of a worker in the group: as a rule its own number.
    fn place(&self, worker: WorkerId) -> Option<usize> {
        let is_its = |it: &Progress| it.member.worker == worker;
        let own = worker.0 as usize;
        let is_there = self.members.get(own).is_some_and(is_its);
        if is_there { Some(own) } else { self.members.iter().position(is_its) }
    }

    /// Updates so far.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Examples in these updates.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// The number of the next mini-batch of a worker.
    #[must_use]
    pub fn batch(&self, worker: WorkerId) -> BatchId {
        let of_member = self.place(worker).map(|place| self.members[place].done);
        BatchId(of_member.or_else(|| self.others.get(&worker).copied()).unwrap_or_default())
    }

    /// Examples of an epoch, at least 1.
    #[must_use]
    pub fn epoch_rows(&self) -> u64 {
        match self.rows {
            0 => self.members.iter().map(|it| it.member.rows).sum::<u64>().max(1),
            rows => rows,
        }
    }

    /// Examples in the budget.
    #[must_use]
    pub fn samples_wanted(&self) -> u64 {
        self.epoch_rows().saturating_mul(self.epochs)
    }

    /// A worker's part of the next update; none if it has used up its own budget.
    #[must_use]
    pub fn share(&self, worker: WorkerId) -> Option<Share> {
        self.share_of(&self.members[self.place(worker)?])
    }

    /// A worker's mini-batch in the update after the next; none if there is no such update, or the
    /// worker has used up its own budget.
    #[must_use]
    pub fn task_after_next(&self, worker: WorkerId) -> Option<Task> {
        let mut ahead = self.clone();
        ahead.make(|_| true);
        if ahead.is_over() {
            return None;
        }
        ahead.share(worker).map(|share| share.task)
    }

    /// The part of a member in the next update.
    fn share_of(&self, it: &Progress) -> Option<Share> {
        let samples = it.samples?;
        let factor = match self.aggregation {
            Aggregation::Sum => 1.0,
            _ => (samples as f64 / self.next as f64) as f32,
        };
        let task = Task::own(it.member.worker, BatchId(it.done));
        Some(Share { task, samples: u32::try_from(samples).unwrap_or(u32::MAX), factor })
    }

    /// The parts of the next update, in the order of the ranks.
    pub fn shares(&self) -> impl Iterator<Item = (WorkerId, Share)> + Clone + '_ {
        self.members.iter().filter_map(|it| Some((it.member.worker, self.share_of(it)?)))
    }

    /// Makes the next update. Returns true if an evaluation is due after it.
    pub fn advance(&mut self, stopping: &Stopping) -> bool {
        self.advance_with(|_| true, stopping)
    }

    /// Makes the next update without the gradients of some workers, whose mini-batches are of later
    /// ones. Returns true if an evaluation is due after it.
    pub fn advance_without(&mut self, absent: &[WorkerId], stopping: &Stopping) -> bool {
        self.advance_with(|worker| !absent.contains(&worker), stopping)
    }

    /// The mini-batches of each worker that became part of an update, where updates may be without
    /// the gradients of some workers.
    #[must_use]
    pub fn done(&self) -> Done {
        let mut done = self.others.clone();
        done.extend(self.members.iter().map(|it| (it.member.worker, it.done)));
        Done(done.into_iter().filter(|(_, batches)| *batches > 0).collect())
    }

    /// The workers that have a part in the next update and whose mini-batch is not in `done`, which
    /// is of this update or of a later one.
    #[must_use]
    pub fn absent(&self, done: &Done) -> Vec<WorkerId> {
        let of: BTreeMap<WorkerId, u64> = done.0.iter().copied().collect();
        let has = |it: &&Progress| of.get(&it.member.worker).is_some_and(|of| *of > it.done);
        let due = self.members.iter().filter(|it| it.samples.is_some());
        due.filter(|it| !has(it)).map(|it| it.member.worker).collect()
    }

    /// The factor by which a mean over the gradients of all workers has to grow if it is one
    /// without the gradients of some.
    #[must_use]
    pub fn correction(&self, absent: &[WorkerId]) -> f32 {
        if absent.is_empty() || self.aggregation == Aggregation::Sum {
            return 1.0;
        }
        let present = self.members.iter().filter(|it| !absent.contains(&it.member.worker));
        let present: u64 = present.filter_map(|it| it.samples).sum();
        if present == 0 { 1.0 } else { (self.next as f64 / present as f64) as f32 }
    }

    /// Makes an update with the next mini-batch of one worker alone. Returns true if an evaluation
    /// is due after it.
    pub fn advance_alone(&mut self, worker: WorkerId, stopping: &Stopping) -> bool {
        self.advance_with(|it| it == worker, stopping)
    }

    /// Goes on after so many updates of `worker`, which makes updates alone.
    pub fn resume_alone(&mut self, worker: WorkerId, updates: Version) {
        self.others = BTreeMap::from([(worker, updates.0)]);
        let place = self.place(worker);
        let rows = place.map_or(0, |place| self.members[place].member.rows);
        self.members.iter_mut().for_each(|it| it.done = 0);
        if let Some(place) = place {
            self.members[place].done = updates.0;
            self.others.clear();
        }
        self.version = updates;
        self.samples = Pass::new(rows, self.batch_size).rows_before(BatchId(updates.0));
        self.count();
    }

    fn advance_with(&mut self, has_part: impl Fn(WorkerId) -> bool, stopping: &Stopping) -> bool {
        let interval = stopping.interval(self.epoch_rows());
        let before = self.samples / interval;
        self.make(has_part);
        self.samples / interval > before || self.is_over()
    }

    /// Makes the next update, with the mini-batches of the members that have a part in it.
    fn make(&mut self, has_part: impl Fn(WorkerId) -> bool) {
        let mut like = None;
        for place in 0..self.members.len() {
            let Progress { member: Member { worker, rows }, done, samples } = self.members[place];
            let Some(samples) = samples.filter(|_| has_part(worker)) else { continue };
            let done = done + 1;
            // As a rule many members in turn have as many rows and have come as far.
            let next = match like {
                Some((of, next)) if of == (rows, done) => next,
                _ => self.samples_of(rows, done),
            };
            like = Some(((rows, done), next));
            let it = &mut self.members[place];
            (it.done, it.samples) = (done, next);
            self.samples += samples;
            self.next = (self.next + next.unwrap_or_default()).saturating_sub(samples);
        }
        self.version = self.version.next();
        while self.later.front().is_some_and(|(from, _)| *from <= self.version)
            && let Some((_, members)) = self.later.pop_front()
        {
            self.regroup(members);
        }
    }

    /// True if the budget is used up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.budget {
            BudgetKind::Global => self.samples >= self.samples_wanted(),
            BudgetKind::Partition => {
                !self.members.is_empty() && self.members.iter().all(|it| it.samples.is_none())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lockstep(kind: BudgetKind) -> Lockstep {
        Lockstep::begin(4, Aggregation::Mean, Budget { kind, epochs: 3 }, 0)
    }

    /// The same, with nothing but the number of mini-batches of each worker.
    #[derive(Default)]
    struct Plain {
        members: Vec<Member>,
        done: BTreeMap<WorkerId, u64>,
        samples: u64,
    }

    impl Plain {
        fn batch(&self, worker: WorkerId) -> u64 {
            self.done.get(&worker).copied().unwrap_or_default()
        }

        /// Worker, mini-batch and examples of each gradient of the next update.
        fn shares(&self, budget: BudgetKind) -> Vec<(WorkerId, u64, u64)> {
            let share = |it: &Member| {
                let (batch, pass) = (self.batch(it.worker), Pass::new(it.rows, 4));
                let has_more = budget == BudgetKind::Global || batch < pass.batches() * 3;
                has_more.then(|| (it.worker, batch, pass.size(BatchId(batch))))
            };
            self.members.iter().filter_map(share).collect()
        }

        fn advance(&mut self, budget: BudgetKind, has_part: impl Fn(WorkerId) -> bool) {
            for (worker, batch, samples) in self.shares(budget) {
                if has_part(worker) {
                    self.done.insert(worker, batch + 1);
                    self.samples += samples;
                }
            }
        }
    }

    /// Workers that are absent from an update, or of the next group, as bits.
    fn chosen(bits: u8) -> impl Iterator<Item = WorkerId> {
        (0..8).filter(move |bit| bits >> bit & 1 == 1).map(WorkerId)
    }

    proptest! {
        #[test]
        fn each_update_has_the_next_mini_batch_of_every_member(
            rows in prop::array::uniform8(1_u64..12),
            steps in prop::collection::vec((0_u8..6, any::<u8>()), 1..60),
            is_global: bool,
        ) {
            let budget = if is_global { BudgetKind::Global } else { BudgetKind::Partition };
            let (mut lockstep, mut plain) = (lockstep(budget), Plain::default());
            for (version, (what, bits)) in (0..).map(Version).zip(steps) {
                let stopping = Stopping::default();
                if what == 0 || version == Version(0) {
                    let member = |worker: WorkerId| Member { worker, rows: rows[worker.0 as usize] };
                    plain.members = chosen(bits).map(member).collect();
                    lockstep.set_members(version, plain.members.clone());
                }
                let absent: Vec<WorkerId> = if what == 1 { chosen(bits).collect() } else { Vec::new() };
                let alone = chosen(bits).next().filter(|_| what == 2);
                let has_part = |worker| {
                    !absent.contains(&worker) && alone.is_none_or(|alone| alone == worker)
                };
                let wanted = plain.shares(budget);
                let all: u64 = wanted.iter().map(|(.., samples)| samples).sum();
                let found: Vec<_> = lockstep.shares().collect();
                prop_assert_eq!(found.len(), wanted.len());
                for ((worker, share), (its, batch, samples)) in found.iter().zip(&wanted) {
                    let task = Task::own(*its, BatchId(*batch));
                    let factor = (*samples as f64 / all as f64) as f32;
                    let share_of = Share { task, samples: *samples as u32, factor };
                    prop_assert_eq!((worker, *share), (its, share_of));
                    prop_assert_eq!(lockstep.share(*worker), Some(share_of));
                }
                let present = wanted.iter().filter(|(worker, ..)| !absent.contains(worker));
                let present: u64 = present.map(|(.., samples)| samples).sum();
                if present > 0 {
                    let correction = (all as f64 / present as f64) as f32;
                    prop_assert_eq!(lockstep.correction(&absent), correction);
                }
                let mut ahead = lockstep.clone();
                ahead.advance(&stopping);
                for worker in (0..8).map(WorkerId) {
                    let after = ahead.share(worker).filter(|_| !ahead.is_over());
                    prop_assert_eq!(lockstep.task_after_next(worker), after.map(|it| it.task));
                }
                let before = lockstep.clone();
                plain.advance(budget, has_part);
                match alone {
                    Some(worker) => lockstep.advance_alone(worker, &stopping),
                    None => lockstep.advance_without(&absent, &stopping),
                };
                let without = wanted.iter().map(|(worker, ..)| *worker);
                let without = without.filter(|worker| !has_part(*worker)).collect::<Vec<_>>();
                prop_assert_eq!(before.absent(&lockstep.done()), without);
                prop_assert_eq!(lockstep.version(), version.next());
                prop_assert_eq!(lockstep.samples(), plain.samples);
                for worker in (0..8).map(WorkerId) {
                    prop_assert_eq!(lockstep.batch(worker).0, plain.batch(worker));
                }
                if !is_global && !plain.members.is_empty() {
                    prop_assert_eq!(lockstep.is_over(), plain.shares(budget).is_empty());
                }
            }
        }
    }
}
