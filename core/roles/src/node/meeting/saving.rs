//! What a checkpoint of a meeting point holds: its records, and the members' states of training.

use alloc::vec::Vec;

use super::Meeting;
use super::checkpoints::States;
use crate::node::server::Lifecycle;
use crate::node::{Durable, Effect, ExactPoint, Point, RestoreError};
use pstrain_compute::id::{PeerId, WorkerId};
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_policy::job::Job;

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
        meeting.archive(&mut archive)?;
        archive.finish()?;
        if meeting.lifecycle.end().is_none() {
            meeting.lifecycle = Lifecycle::new();
        }
        Ok(meeting)
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let mut digest = self.job_digest;
        archive.small(&mut digest)?;
        if digest != self.job_digest {
            return Err(SavedError::OtherJob);
        }
        archive.small(&mut self.run)?;
        archive.small(&mut self.lifecycle)?;
        archive.small(self.group.generation())?;
        archive.small(&mut self.lockstep)?;
        archive.small(&mut self.ledger)?;
        archive.small(&mut self.training_since)?;
        archive.small(&mut self.last_update)?;
        archive.small(&mut self.distances)?;
        archive.small(&mut self.is_told)?;
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
        self.archive_states(archive)
    }

    /// Saves or restores the members' states, as arrays: they may be large.
    fn archive_states(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let states = self.states.take().map(|States(states)| states);
        let lengths = |(worker, state): (&WorkerId, &Vec<u8>)| (*worker, state.len() as u64);
        let mut lengths: Option<Vec<(WorkerId, u64)>> =
            states.as_ref().map(|states| states.iter().map(lengths).collect());
        archive.small(&mut lengths)?;
        let Some(lengths) = lengths else { return Ok(()) };
        let mut states = states.unwrap_or_default();
        for (worker, length) in lengths {
            let state = states.entry(worker).or_default();
            let (mut words, length) = (words_of(state), length as usize);
            archive.own_u32("state of training", &mut words, length.div_ceil(size_of::<u32>()))?;
            *state = words.into_iter().flat_map(u32::to_le_bytes).take(length).collect();
        }
        self.states = Some(States(states));
        Ok(())
    }
}

/// The bytes as words, with zeros at the end.
fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; size_of::<u32>()];
    last[..rest.len()].copy_from_slice(rest);
    let last = (!rest.is_empty()).then(|| u32::from_le_bytes(last));
    words.iter().map(|word| u32::from_le_bytes(*word)).chain(last).collect()
}

impl Durable for Meeting {
    fn save(&mut self) -> Saved {
        let (mut saved, keys) = (Saved::default(), self.parameters as usize);
        let done = self.archive(&mut Archive::save(&mut saved, keys));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        saved
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

    /// A run that has lost its workers can be resumed from its last checkpoint.
    fn is_over(&self) -> bool {
        self.lifecycle.is_done() && self.lifecycle.end().is_some_and(|reason| !reason.is_loss())
    }
}
