//! The contents of a meeting point's checkpoint: its records, and the members' states of training.

use alloc::vec::Vec;

use super::Meeting;
use super::checkpoints::States;
use super::initial::Initial;
use crate::node::server::Lifecycle;
use crate::node::{Durable, Effect, ExactPoint, Point, RestoreError};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_policy::job::Job;
use pstrain_wire::worker::EndReason;

impl Meeting {
    /// Restores the meeting point of `job` that was saved. Workers that join it continue from the
    /// state that was saved with it, unless its run has ended.
    ///
    /// # Errors
    /// [`RestoreError`] if there is no meeting point for the job, or the saved state is not of this
    /// job.
    pub fn restore(job: Job, saved: &Saved) -> Result<Self, RestoreError> {
        let mut meeting = Self::new(job, 0).map_err(RestoreError::Server)?;
        let mut archive = Archive::restore(saved, meeting.parameters as usize);
        let mut states = None;
        meeting.archive(&mut states, &mut archive)?;
        if states.is_some() {
            // The workers' states have their parameters.
            meeting.initial = Initial::OfSeed;
        }
        meeting.states = states;
        archive.finish()?;
        if meeting.lifecycle.end().is_none() {
            meeting.lifecycle = Lifecycle::new();
        }
        Ok(meeting)
    }

    /// Saves the state with the members' states of training.
    pub(super) fn save_with(&mut self, mut states: Option<States>) -> Saved {
        let (mut saved, keys) = (Saved::default(), self.parameters as usize);
        let done = self.archive(&mut states, &mut Archive::save(&mut saved, keys));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
    }

    fn archive(
        &mut self,
        states: &mut Option<States>,
        archive: &mut Archive<'_>,
    ) -> Result<(), SavedError> {
        self.job.archive(archive)?;
        archive.small(&mut self.run)?;
        archive.small(&mut self.lifecycle)?;
        archive.small(self.group.generation())?;
        archive.small(&mut self.lockstep)?;
        archive.small(&mut self.ledger)?;
        archive.small(&mut self.applied_samples)?;
        archive.small(&mut self.clock)?;
        archive.small(&mut self.distances)?;
        for slot in self.slots.iter_mut() {
            archive.small(&mut slot.incarnation)?;
            archive.small(&mut slot.updates)?;
            archive.small(&mut slot.account)?;
        }
        let mut point = ExactPoint::from(self.snapshot.0);
        archive.small(&mut point)?;
        self.snapshot.0 = Point::from(point);
        archive.shared("parameters", &mut self.snapshot.1)?;
        self.evaluations.archive(archive, self.parameters as usize)?;
        archive_states(states, archive)
    }
}

/// Saves or restores the members' states of training.
fn archive_states(
    states: &mut Option<States>,
    archive: &mut Archive<'_>,
) -> Result<(), SavedError> {
    let workers = |States(states): &States| states.keys().copied().collect();
    let mut workers: Option<Vec<WorkerId>> = states.as_ref().map(workers);
    archive.small(&mut workers)?;
    let Some(workers) = workers else { return Ok(()) };
    let States(states) = states.get_or_insert_default();
    for worker in workers {
        archive.bytes("state of training", states.entry(worker).or_default())?;
    }
    Ok(())
}

impl Durable for Meeting {
    fn save(&mut self) -> Saved {
        self.save_with(self.states.clone())
    }

    /// None: a restored meeting point is another run.
    fn peers(&self) -> Vec<PeerId> {
        Vec::new()
    }

    fn unanswered(&self) -> Vec<Effect> {
        let done = self.lifecycle.end().filter(|_| self.lifecycle.is_done());
        let done = done.map(|reason| Effect::Done(Ok(reason)));
        let evaluations = self.evaluations.requested.iter().cloned().map(Effect::Evaluate);
        evaluations.chain(done).collect()
    }

    /// A run that was stopped or has lost its workers can be resumed from its last checkpoint.
    fn is_over(&self) -> bool {
        let may_go_on = |reason: EndReason| reason == EndReason::Stopped || reason.is_loss();
        self.lifecycle.is_done() && self.lifecycle.end().is_some_and(|it| !may_go_on(it))
    }
}
