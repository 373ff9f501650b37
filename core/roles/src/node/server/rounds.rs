//! The state of rounds: the policy, the cohort, and the workers that wait for parameters.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pstrain_compute::id::WorkerId;
use pstrain_compute::saved::{Archive, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::consistency::{Cohort, Consistency};
use pstrain_policy::work::Assigner;
use pstrain_wire::decision::Contribution;

use super::waiting::Waiting;

/// Who may compute what, and who waits.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) policy: Box<dyn Consistency>,
    pub(super) cohort: Cohort,
    /// Assigns mini-batches, unless each worker goes through its own partition in turn.
    pub(super) assigner: Option<Box<dyn Assigner>>,
    /// Mini-batches of one worker that may be under way.
    pub(super) window: u32,
    /// Mini-batches under way: granted, and not answered by a push.
    pub(super) busy: u64,
    /// Connected members that wait for parameters.
    pub(super) waiting: Waiting,
    /// Workers that asked for parameters since `give_out` last ran.
    pub(super) newly_waiting: Vec<WorkerId>,
    /// The cohort (joins, members) and the gates of policy and assigner at the last scan of all
    /// waiting workers. While these stay the same, only `newly_waiting` needs to be looked at.
    pub(super) gate: Option<((u64, usize), u64, u64)>,
    /// When the next waiting worker may be given parameters, if the policy spaces them in time.
    pub(super) next_turn: Option<Time>,
    /// The worker whose event is being handled: a worker that is released in this step waited for
    /// it.
    pub(super) released_by: Option<WorkerId>,
    pub(super) buffers: Buffers,
}

/// Buffers of the open round, kept between rounds so that a step does not allocate.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Workers to give parameters to.
    pub(super) next: Vec<WorkerId>,
    /// Contributions that become part of an update.
    pub(super) applied: Vec<Contribution>,
}

impl Rounds {
    pub(super) fn new(
        policy: Box<dyn Consistency>,
        assigner: Option<Box<dyn Assigner>>,
        window: u32,
    ) -> Self {
        Self {
            policy,
            cohort: Cohort::default(),
            assigner,
            window,
            busy: 0,
            waiting: Waiting::default(),
            newly_waiting: Vec::new(),
            gate: None,
            next_turn: None,
            released_by: None,
            buffers: Buffers::default(),
        }
    }

    /// True if every task of the budget has been assigned and has come back.
    pub(super) fn is_used_up(&self) -> bool {
        self.busy == 0 && self.assigner.as_ref().is_some_and(|assigner| assigner.is_used_up())
    }

    /// True if the open round needs a worker that is not present.
    pub(super) fn is_stuck(&self) -> bool {
        self.assigner.as_deref().is_some_and(|assigner| assigner.is_stuck(&self.cohort))
    }

    pub(super) fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        self.policy.archive(archive)?;
        if let Some(assigner) = &mut self.assigner {
            assigner.archive(archive)?;
        }
        archive.small(&mut self.cohort)?;
        archive.small(&mut self.window)?;
        archive.small(&mut self.busy)?;
        archive.small(&mut self.waiting)?;
        archive.small(&mut self.newly_waiting)?;
        archive.small(&mut self.gate)?;
        archive.small(&mut self.next_turn)?;
        archive.small(&mut self.released_by)
    }
}
