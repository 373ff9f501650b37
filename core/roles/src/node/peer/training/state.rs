//! The state of training, for members that are behind, for checkpoints, and from them.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Stage, Training};
use crate::node::peer::{Joined, Peer, joined};
use crate::node::{NodeError, Outbox};
use pstrain_compute::id::Version;
use pstrain_compute::saved::{Archive, Saved, SavedError};
use pstrain_compute::time::Time;
use pstrain_policy::collective::Rank;
use pstrain_wire::peers::{Inherit, InheritHeader, Missed, RankOf, Save};
use pstrain_wire::{MemberMessage, Message};

impl Training {
    /// Messages that bring a member that is behind to this version.
    pub(in crate::node::peer) fn missed(&self, member: &RankOf) -> Vec<MemberMessage> {
        if self.needs_state(member) {
            return self.handover.iter().cloned().map(MemberMessage::Inherit).collect();
        }
        let values = Arc::new(self.aggregator.combined().to_vec());
        let version = Version(self.version().0.saturating_sub(1));
        let done = self.done();
        Vec::from([MemberMessage::Missed(Missed { version, done, values })])
    }

    /// True if a member that is behind needs the whole state: it joins, or this worker does not
    /// have the last gradient, because it has joined since.
    fn needs_state(&self, member: &RankOf) -> bool {
        member.joins || self.aggregator.combined().is_empty()
    }

    /// Keeps the state for members that are behind. In gossip this worker may make updates before
    /// they are here, if none of them is its neighbor.
    pub(in crate::node::peer) fn hand_over<'a>(
        &mut self,
        behind: impl IntoIterator<Item = &'a RankOf>,
    ) {
        if behind.into_iter().any(|member| self.needs_state(member)) {
            self.handover = self.state(self.version());
        }
    }

    /// The state of training, in parts, as the one of `version`.
    pub(in crate::node::peer) fn state(&mut self, version: Version) -> Vec<Inherit> {
        let mut saved = Saved::default();
        let keys = self.parameters.len();
        let done = self.archive(&mut Archive::save(&mut saved, keys));
        debug_assert!(done.is_ok(), "saving does not fail: {done:?}");
        Inherit::parts(version, &saved.to_bytes()).collect()
    }

    /// The state, if the meeting point wants the one of this version.
    fn wanted_state(&mut self) -> Vec<Inherit> {
        let version = self.version();
        match self.saves_at.take_if(|wanted| *wanted <= version) {
            Some(wanted) if wanted == version => self.state(version),
            _ => Vec::new(),
        }
    }

    /// Continues from the state of another member.
    fn inherit(&mut self, epochs: u32, bytes: &[u8]) -> Result<(), SavedError> {
        let saved = Saved::of_bytes(bytes)?;
        let mut archive = Archive::restore(&saved, self.parameters.len());
        self.archive(&mut archive)?;
        // The budget may have been raised since.
        self.lockstep.extend(epochs);
        archive.finish()
    }

    /// Takes a part of the state, if this worker is behind. Returns true once the worker has the
    /// whole state.
    fn take(&mut self, epochs: u32, part: &Inherit) -> Result<bool, String> {
        let Stage::Behind(state) = &mut self.stage else { return Ok(false) };
        let Inherit { header: InheritHeader { from, total, .. }, bytes } = part;
        if *from > state.len() as u64 {
            return Err(String::from("a part of its state is missing"));
        }
        if *from < state.len() as u64 {
            return Ok(false); // repeated
        }
        state.extend(bytes);
        if (state.len() as u64) < *total {
            return Ok(false);
        }
        let state = core::mem::take(state);
        self.inherit(epochs, &state).map_err(|error| error.to_string())?;
        Ok(true)
    }

    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        // The meeting point knows the updates of a worker at its own pace.
        if self.pairs.is_none() {
            archive.small(&mut self.lockstep)?;
        }
        archive.shared("parameters", &mut self.parameters)?;
        self.aggregator.archive(archive)
    }
}

impl Peer {
    /// The last update, which this member has missed.
    pub(in crate::node::peer) fn on_missed(
        &mut self,
        now: Time,
        from: Rank,
        missed: &Missed,
        out: &mut Outbox,
    ) {
        let Joined { job, training, .. } = joined(&mut self.member);
        let is_next = missed.version == training.version();
        let is_whole = missed.values.len() == training.parameters.len();
        let Stage::Behind(_) = training.stage else {
            return; // another connection has brought it
        };
        if !is_next || !is_whole {
            return self.give_up_on(now, from, "it sent another update than the missed one", out);
        }
        let done = missed.done.as_ref();
        let absent = done.map(|done| training.lockstep.absent(done)).unwrap_or_default();
        training.apply(missed.values.to_vec());
        training.lockstep.advance_without(&absent, &job.stopping);
        self.catches_up(now, out);
    }

    /// A part of the state of training, for this member, which joins.
    pub(in crate::node::peer) fn on_inherit(
        &mut self,
        now: Time,
        from: Rank,
        part: &Inherit,
        out: &mut Outbox,
    ) {
        let Joined { job, training, .. } = joined(&mut self.member);
        match training.take(job.budget.epochs, part) {
            Ok(true) => self.catches_up(now, out),
            Ok(false) => {}
            Err(why) => self.give_up_on(now, from, &why, out),
        }
    }

    /// A part of the state of training of a run that is resumed, from the meeting point. It sends
    /// the state before the first group, again from the beginning after a connection has broken.
    pub(in crate::node::peer) fn on_kept_state(&mut self, part: &Inherit, out: &mut Outbox) {
        if self.links.generation() > 0 {
            return; // repeated
        }
        if self.training().is_none() {
            return;
        }
        let Joined { job, training, .. } = joined(&mut self.member);
        if part.header.from == 0 {
            training.stage = Stage::Behind(Vec::new());
        }
        match training.take(job.budget.epochs, part) {
            Ok(true) => training.stage = Stage::Idle,
            Ok(false) => {}
            Err(why) => {
                let what = alloc::format!("the state that it kept: {why}");
                self.finish(Err(NodeError::Protocol(what)), out);
            }
        }
    }

    /// The meeting point wants the state of a version for a checkpoint.
    pub(in crate::node::peer) fn on_save(
        &mut self,
        now: Time,
        Save { version }: Save,
        out: &mut Outbox,
    ) {
        let Some(training) = self.training() else { return };
        if training.pairs.is_some() {
            // The meeting point has made sure that no update is under way.
            let state = training.state(version);
            return state.into_iter().for_each(|it| self.tell(now, Message::Inherit(it), out));
        }
        training.saves_at = Some(version);
        self.save_if_wanted(now, out);
    }

    pub(super) fn save_if_wanted(&mut self, now: Time, out: &mut Outbox) {
        let Joined { training, .. } = joined(&mut self.member);
        for part in training.wanted_state() {
            self.tell(now, Message::Inherit(part), out);
        }
    }
}
