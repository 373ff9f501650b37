//! Training in step: each update has one gradient of every worker of a group, or of one alone.
//!
//! Which mini-batches an update has, and what each gradient counts, follows from the sizes of the
//! workers' parts. Every worker that reduces gradients with the others knows both without asking,
//! and so does their meeting point.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::job::{BudgetKind, Job, Stopping};
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
    members: Vec<Member>,
    /// The members of the updates from a later version on.
    later: VecDeque<(Version, Vec<Member>)>,
    version: Version,
    samples: u64,
    /// Mini-batches of each worker that became part of an update.
    done: BTreeMap<WorkerId, u64>,
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

impl Done {
    fn of(&self, worker: WorkerId) -> u64 {
        let it = self.0.iter().find(|(it, _)| *it == worker);
        it.map_or(0, |(_, batches)| *batches)
    }
}

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
        Self {
            batch_size: job.batch_size,
            aggregation: job.aggregation,
            budget: job.budget.kind,
            epochs: job.budget.epochs.into(),
            rows: if job.data.is_local() { 0 } else { job.data.train.rows },
            members: Vec::new(),
            later: VecDeque::new(),
            version: Version(0),
            samples: 0,
            done: BTreeMap::new(),
        }
    }

    /// Sets the workers whose gradients make the updates from `version` on, in the order of their
    /// ranks.
    pub fn set_members(&mut self, version: Version, members: Vec<Member>) {
        self.later.retain(|(later, _)| *later < version);
        if version <= self.version {
            self.members = members;
        } else {
            self.later.push_back((version, members));
        }
    }

    /// The workers of the group, in the order of their ranks.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
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
        BatchId(self.done.get(&worker).copied().unwrap_or_default())
    }

    /// Examples of an epoch, at least 1.
    #[must_use]
    pub fn epoch_rows(&self) -> u64 {
        match self.rows {
            0 => self.members.iter().map(|member| member.rows).sum::<u64>().max(1),
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
        let member = self.members.iter().find(|member| member.worker == worker)?;
        self.share_of(member, self.next_samples())
    }

    /// A worker's mini-batch in the update after the next; none if there is no such update, or the
    /// worker has used up its own budget.
    #[must_use]
    pub fn task_after_next(&self, worker: WorkerId) -> Option<Task> {
        let mut ahead = self.clone();
        ahead.make(self.shares().collect());
        if ahead.is_over() {
            return None;
        }
        ahead.share(worker).map(|share| share.task)
    }

    /// The part of a member in an update of so many examples.
    fn share_of(&self, member: &Member, all: u64) -> Option<Share> {
        let samples = self.samples_of(member)?;
        let factor = match self.aggregation {
            Aggregation::Sum => 1.0,
            _ => (samples as f64 / all as f64) as f32,
        };
        let task = Task::own(member.worker, self.batch(member.worker));
        Some(Share { task, samples: u32::try_from(samples).unwrap_or(u32::MAX), factor })
    }

    /// Examples of the next update.
    fn next_samples(&self) -> u64 {
        self.members.iter().filter_map(|member| self.samples_of(member)).sum()
    }

    /// Examples of a worker's next mini-batch; none if it has used up its own budget.
    fn samples_of(&self, member: &Member) -> Option<u64> {
        let (batch, pass) = (self.batch(member.worker), Pass::new(member.rows, self.batch_size));
        let has_more = match self.budget {
            BudgetKind::Global => true,
            BudgetKind::Partition => batch.0 < pass.batches() * self.epochs,
        };
        has_more.then(|| pass.size(batch))
    }

    /// The parts of the next update, in the order of the ranks.
    pub fn shares(&self) -> impl Iterator<Item = (WorkerId, Share)> + '_ {
        let all = self.next_samples();
        self.members.iter().filter_map(move |it| Some((it.worker, self.share_of(it, all)?)))
    }

    /// Makes the next update. Returns true if an evaluation is due after it.
    pub fn advance(&mut self, stopping: &Stopping) -> bool {
        self.advance_without(&[], stopping)
    }

    /// Makes the next update without the gradients of some workers, whose mini-batches are of later
    /// ones. Returns true if an evaluation is due after it.
    pub fn advance_without(&mut self, absent: &[WorkerId], stopping: &Stopping) -> bool {
        let shares = self.shares().filter(|(worker, _)| !absent.contains(worker)).collect();
        self.advance_with(shares, stopping)
    }

    /// The mini-batches of each worker that became part of an update, where updates may be without
    /// the gradients of some workers.
    #[must_use]
    pub fn done(&self) -> Done {
        Done(self.done.iter().map(|(worker, batches)| (*worker, *batches)).collect())
    }

    /// The workers that have a part in the next update and whose mini-batch is not in `done`, which
    /// is of this update or of a later one.
    #[must_use]
    pub fn absent(&self, done: &Done) -> Vec<WorkerId> {
        let has = |worker: &WorkerId| done.of(*worker) > self.batch(*worker).0;
        self.shares().map(|(worker, _)| worker).filter(|worker| !has(worker)).collect()
    }

    /// The factor by which a mean over the gradients of all workers has to grow if it is one
    /// without the gradients of some.
    #[must_use]
    pub fn correction(&self, absent: &[WorkerId]) -> f32 {
        let present = self.shares().filter(|(worker, _)| !absent.contains(worker));
        let present: u64 = present.map(|(_, share)| u64::from(share.samples)).sum();
        if absent.is_empty() || present == 0 || self.aggregation == Aggregation::Sum {
            return 1.0;
        }
        (self.next_samples() as f64 / present as f64) as f32
    }

    /// Makes an update with the next mini-batch of one worker alone. Returns true if an evaluation
    /// is due after it.
    pub fn advance_alone(&mut self, worker: WorkerId, stopping: &Stopping) -> bool {
        let share = self.share(worker).map(|share| (worker, share));
        self.advance_with(share.into_iter().collect(), stopping)
    }

    /// Goes on after so many updates of `worker`, which makes updates alone.
    pub fn resume_alone(&mut self, worker: WorkerId, updates: Version) {
        let member = self.members.iter().find(|member| member.worker == worker);
        let pass = Pass::new(member.map_or(0, |member| member.rows), self.batch_size);
        self.version = updates;
        self.samples = pass.rows_before(BatchId(updates.0));
        self.done = BTreeMap::from([(worker, updates.0)]);
    }

    fn advance_with(&mut self, shares: Vec<(WorkerId, Share)>, stopping: &Stopping) -> bool {
        let interval = stopping.interval(self.epoch_rows());
        let before = self.samples / interval;
        self.make(shares);
        self.samples / interval > before || self.is_over()
    }

    fn make(&mut self, shares: Vec<(WorkerId, Share)>) {
        for (worker, share) in shares {
            *self.done.entry(worker).or_default() += 1;
            self.samples += u64::from(share.samples);
        }
        self.version = self.version.next();
        while self.later.front().is_some_and(|(from, _)| *from <= self.version)
            && let Some((_, members)) = self.later.pop_front()
        {
            self.members = members;
        }
    }

    /// True if the budget is used up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.budget {
            BudgetKind::Global => self.samples >= self.samples_wanted(),
            BudgetKind::Partition => !self.members.is_empty() && self.shares().next().is_none(),
        }
    }
}
