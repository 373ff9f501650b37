//! What a worker is in the middle of: the pushes it may make, the gradient it computes, those that
//! have no answer yet.
//!
//! Knows sequence numbers and memory; messages and connections it does not.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use pstrain_compute::id::{Sequence, Version};
use pstrain_compute::task::Task;
use pstrain_wire::worker::{ParametersHeader, Push};

/// The work of one incarnation.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The last push that was ever allowed.
    highest: Sequence,
    /// The last push that is known to be decided.
    decided: Sequence,
    /// Pushes that are allowed and not begun.
    permits: VecDeque<(Sequence, Task)>,
    /// The newest parameters, while there is something to begin with them.
    newest: Option<(Version, Arc<Vec<f32>>)>,
    computing: Option<Grant>,
    /// Gradients on their way, kept until they are answered; the oldest first.
    sent: VecDeque<Push>,
    /// Memory for gradients.
    spare: Vec<Vec<f32>>,
}

/// What a gradient is computed for, and on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) sequence: Sequence,
    pub(super) version: Version,
    pub(super) task: Task,
}

impl Work {
    /// Whether there is nothing to do and nothing to wait for but parameters.
    pub(super) fn is_idle(&self) -> bool {
        self.computing.is_none() && self.permits.is_empty() && self.sent.is_empty()
    }

    /// The last push that was allowed.
    pub(super) const fn allowed(&self) -> Sequence {
        self.highest
    }

    /// The last push that is known to be decided.
    pub(super) const fn last_decided(&self) -> Sequence {
        self.decided
    }

    /// What is being computed.
    pub(super) const fn computing(&self) -> Option<Grant> {
        self.computing
    }

    /// Gradients without an answer, the oldest first.
    pub(super) fn sent(&self) -> impl Iterator<Item = &Push> {
        self.sent.iter()
    }

    /// Forgets everything but the memory: it belonged to another incarnation.
    pub(super) fn reset(&mut self) {
        *self = Self { spare: core::mem::take(&mut self.spare), ..Self::default() };
    }

    /// Begins nothing more.
    pub(super) fn wind_up(&mut self) {
        self.permits.clear();
        self.newest = None;
    }

    /// Takes note of parameters and of what they allow, `following` being the order of tasks. If
    /// they supersede those that a gradient is being computed on, or what it is computed from, that
    /// gradient is given up, to be begun anew; whether they do.
    pub(super) fn permit(
        &mut self,
        header: &ParametersHeader,
        values: Arc<Vec<f32>>,
        following: impl Fn(Task) -> Task,
    ) -> bool {
        let mut supersedes = false;
        let mut task = header.task;
        for ahead in 0..=u64::from(header.ahead) {
            let sequence = Sequence(header.sequence.0.saturating_add(ahead));
            if sequence > self.highest {
                self.highest = sequence;
                self.permits.push_back((sequence, task));
            } else if let Some(grant) = self.computing.filter(|grant| grant.sequence == sequence) {
                if grant.version < header.version && (ahead == 0 || grant.task != task) {
                    supersedes = true;
                    self.computing = None;
                    self.permits.push_front((sequence, task));
                }
            } else if let Some(permit) = self.permits.iter_mut().find(|(it, _)| *it == sequence) {
                permit.1 = task;
            }
            task = following(task);
        }
        if self.newest.as_ref().is_none_or(|(version, _)| *version < header.version) {
            self.newest = Some((header.version, values));
        }
        if self.permits.is_empty() {
            self.newest = None;
        }
        supersedes
    }

    /// Begins the next gradient, if one may be begun; gives the parameters it is computed on.
    pub(super) fn begin(&mut self) -> Option<(Grant, Arc<Vec<f32>>)> {
        if self.computing.is_some() {
            return None;
        }
        let (version, values) = self.newest.clone()?;
        let (sequence, task) = self.permits.pop_front()?;
        if self.permits.is_empty() {
            // Whoever holds parameters for nothing makes the server copy them.
            self.newest = None;
        }
        let grant = Grant { sequence, version, task };
        self.computing = Some(grant);
        Some((grant, values))
    }

    /// The gradient that was being computed is on its way.
    pub(super) fn send(&mut self, push: Push) {
        self.computing = None;
        self.sent.push_back(push);
    }

    /// Takes note that every push up to `sequence` has been decided; whether any of them had not
    /// been known to be. A decision about a push that was not sent calls it off: the server has
    /// given out a newer version, and another push in its place.
    pub(super) fn decided(&mut self, sequence: Sequence) -> bool {
        self.decided = self.decided.max(sequence);
        self.computing.take_if(|grant| grant.sequence <= sequence);
        self.permits.retain(|&(permit, _)| permit > sequence);
        let before = self.sent.len();
        while self.sent.front().is_some_and(|push| push.header.sequence <= sequence) {
            // Its memory is free if nobody else holds it.
            let push = self.sent.pop_front();
            self.spare.extend(push.and_then(|push| Arc::try_unwrap(push.gradient).ok()));
        }
        self.sent.len() < before
    }

    /// Memory for a gradient.
    pub(super) fn scratch(&mut self) -> Vec<f32> {
        self.spare.pop().unwrap_or_default()
    }
}
