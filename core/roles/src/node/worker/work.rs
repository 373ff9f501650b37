//! A worker's pushes: those allowed, the one in progress, and those sent without an answer.
//!
//! The module knows sequence numbers and buffers; it does not know messages and connections.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use pstrain_compute::id::{Sequence, Version};
use pstrain_compute::task::Task;
use pstrain_compute::time::Time;
use pstrain_wire::worker::{ParametersHeader, Push};

/// The pushes of one incarnation.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The last push that was ever allowed.
    highest: Sequence,
    /// The last push known to be decided.
    decided: Sequence,
    /// Pushes that are allowed and not begun.
    permits: VecDeque<(Sequence, Task)>,
    /// The newest parameters, while a push may begin with them.
    newest: Option<(Version, Arc<Vec<f32>>)>,
    computing: Option<Begun>,
    /// The last gradient in progress that was called off, and how long it was computed, until the
    /// server is told.
    called_off: Option<(Grant, Duration)>,
    /// Gradients sent and not yet answered, oldest first.
    sent: VecDeque<Push>,
    /// Buffer pool for gradients.
    spare: Vec<Vec<f32>>,
}

/// The push, parameters and mini-batch of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) sequence: Sequence,
    pub(super) version: Version,
    pub(super) task: Task,
}

/// A gradient in progress.
#[derive(Clone, Copy, Debug)]
struct Begun {
    grant: Grant,
    at: Time,
}

impl Work {
    /// True if the worker has nothing to do but to pull.
    pub(super) fn is_idle(&self) -> bool {
        self.computing.is_none() && self.permits.is_empty() && self.sent.is_empty()
    }

    /// The last push that was allowed.
    pub(super) const fn allowed(&self) -> Sequence {
        self.highest
    }

    /// The last push known to be decided.
    pub(super) const fn last_decided(&self) -> Sequence {
        self.decided
    }

    /// The gradient in progress.
    pub(super) fn computing(&self) -> Option<Grant> {
        self.computing.map(|begun| begun.grant)
    }

    /// Calls the gradient in progress off.
    pub(super) fn call_off(&mut self, now: Time) {
        if let Some(Begun { grant, at }) = self.computing.take() {
            self.called_off = Some((grant, now.since(at)));
        }
    }

    /// Returns the gradient that was called off since the last call, and how long it was computed.
    pub(super) fn take_called_off(&mut self) -> Option<(Grant, Duration)> {
        self.called_off.take()
    }

    /// Gradients sent and not yet answered, oldest first.
    pub(super) fn sent(&self) -> impl Iterator<Item = &Push> {
        self.sent.iter()
    }

    /// Resets everything but the buffer pool, which a new incarnation can use.
    pub(super) fn reset(&mut self) {
        *self = Self { spare: core::mem::take(&mut self.spare), ..Self::default() };
    }

    /// Stops beginning new gradients.
    pub(super) fn wind_up(&mut self) {
        self.permits.clear();
        self.newest = None;
    }

    /// Records parameters and the pushes that they allow; `following` maps a mini-batch to the
    /// next. If they supersede the parameters or the mini-batch of the gradient in progress, that
    /// gradient is called off, to be computed again.
    pub(super) fn permit(
        &mut self,
        now: Time,
        header: &ParametersHeader,
        values: Arc<Vec<f32>>,
        following: impl Fn(Task) -> Task,
    ) {
        let mut task = header.task;
        for ahead in 0..=u64::from(header.ahead) {
            let sequence = Sequence(header.sequence.0.saturating_add(ahead));
            if sequence > self.highest {
                self.highest = sequence;
                self.permits.push_back((sequence, task));
            } else if let Some(grant) = self.computing().filter(|grant| grant.sequence == sequence)
            {
                if grant.version < header.version && (ahead == 0 || grant.task != task) {
                    self.call_off(now);
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
    }

    /// Begins the next gradient if allowed; returns the parameters to compute it on.
    pub(super) fn begin(&mut self, now: Time) -> Option<(Grant, Arc<Vec<f32>>)> {
        if self.computing.is_some() {
            return None;
        }
        let (version, values) = self.newest.clone()?;
        let (sequence, task) = self.permits.pop_front()?;
        if self.permits.is_empty() {
            // Drop our reference: a shared snapshot forces the in-process server to copy.
            self.newest = None;
        }
        let grant = Grant { sequence, version, task };
        self.computing = Some(Begun { grant, at: now });
        Some((grant, values))
    }

    /// Records that the gradient in progress was sent.
    pub(super) fn send(&mut self, push: Push) {
        self.computing = None;
        self.sent.push_back(push);
    }

    /// Records that every push up to `sequence` is decided; returns true if that is news for a push
    /// that was sent. A decision about a push that was not sent calls it off: the server has sent a
    /// newer version, and allowed another push instead.
    pub(super) fn decided(&mut self, now: Time, sequence: Sequence) -> bool {
        self.decided = self.decided.max(sequence);
        if self.computing().is_some_and(|grant| grant.sequence <= sequence) {
            self.call_off(now);
        }
        self.permits.retain(|&(permit, _)| permit > sequence);
        let before = self.sent.len();
        while self.sent.front().is_some_and(|push| push.header.sequence <= sequence) {
            // The buffer is free unless it is shared.
            let push = self.sent.pop_front();
            self.spare.extend(push.and_then(|push| Arc::try_unwrap(push.gradient).ok()));
        }
        self.sent.len() < before
    }

    /// A buffer for a gradient.
    pub(super) fn scratch(&mut self) -> Vec<f32> {
        self.spare.pop().unwrap_or_default()
    }
}
