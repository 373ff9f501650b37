//! Checkpoints of a run without a server.
//!
//! The meeting point has no state of training. For a checkpoint it asks members for the state of a
//! version that they have not reached yet: one member where all have the same state, and all
//! members where each has a model of its own. The checkpoint is taken between two updates, when the
//! records have come to that version, too. A run that is resumed sends each worker the state before
//! its first group; it is another run, so that workers that have gone on meanwhile join it as
//! newcomers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Meeting;
use super::members::Presence;
use crate::node::server::Lifecycle;
use crate::node::{Checkpoint, Effect, Outbox};
use pstrain_compute::id::{PeerId, Version, WorkerId};
use pstrain_compute::time::Time;
use pstrain_wire::peers::{Inherit, InheritHeader, MOST_INHERIT_BYTES, Save};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Phase};

/// Most bytes of a state of training for each parameter. The largest optimizer has much less.
const MOST_BYTES_PER_KEY: u64 = 256;
/// Most updates between the request of a state and its version.
const MOST_AHEAD: u64 = 1 << 16;

/// The checkpoints of a run.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The first run of this lineage.
    origin: u64,
    /// The greatest number used so far.
    newest: u64,
    /// Updates between the latest report and the version that is asked for. It grows where members
    /// are past that version when the request arrives, and shrinks with each checkpoint.
    ahead: u64,
    /// The checkpoint that is being made, with its number.
    open: Option<(u64, Stage)>,
    /// Since when the members' last states are awaited: the budget is used up.
    over: Option<Time>,
}

/// The stage of a checkpoint.
#[derive(Debug)]
enum Stage {
    /// It is to be asked for once a group trains.
    Due,
    /// These members have been asked for the state of this version.
    Asked(Version, BTreeMap<WorkerId, Incoming>),
    /// The driver writes it.
    Written,
}

/// The state of a member, as far as it has come.
#[derive(Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// The bytes of the whole state; none before its first part.
    total: Option<u64>,
}

impl Incoming {
    /// Takes the next part of a state of `most` bytes at most. A part after a gap is dropped: what
    /// is missing was lost with a connection.
    fn take(&mut self, part: &Inherit, most: u64) -> Result<(), String> {
        let Inherit { header: InheritHeader { from, total, .. }, bytes } = part;
        let here = self.bytes.len() as u64;
        if here != *from {
            return Ok(());
        }
        let is_same = self.total.is_none_or(|whole| whole == *total);
        if !is_same || *total > most || here + bytes.len() as u64 > *total {
            return Err(alloc::format!(
                "a part of {} bytes of a state of {total}, after {here} bytes; {most} are possible",
                bytes.len()
            ));
        }
        self.total = Some(*total);
        self.bytes.extend(bytes);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.total == Some(self.bytes.len() as u64)
    }
}

/// States of training by worker: of a checkpoint that is saved, or that the run is resumed from.
#[derive(Clone, Debug, Default)]
pub(super) struct States(pub(super) BTreeMap<WorkerId, Arc<Vec<u8>>>);

impl States {
    /// The state with which a worker continues: its own, or else the one of another.
    fn of(&self, worker: WorkerId) -> Option<&Arc<Vec<u8>>> {
        self.0.get(&worker).or_else(|| self.0.values().next())
    }
}

impl Checkpoints {
    const fn new(origin: u64, newest: u64) -> Self {
        Self { origin, newest, ahead: 1, open: None, over: None }
    }

    /// The group has halted: members may go back.
    pub(super) fn halted(&mut self) {
        if let Some((_, stage @ Stage::Asked(..))) = &mut self.open {
            *stage = Stage::Due;
        }
    }

    /// Gives up a checkpoint whose states have not come.
    pub(super) fn give_up(&mut self) {
        self.open.take_if(|(_, stage)| !matches!(stage, Stage::Written));
    }

    /// True if parts of this worker's state of a version are awaited.
    pub(super) fn awaits(&self, worker: WorkerId, version: Version) -> bool {
        matches!(&self.open, Some((_, Stage::Asked(asked, states)))
            if *asked == version && states.contains_key(&worker))
    }
}

impl Meeting {
    /// Enables checkpoints, one at each [`crate::node::Input::Checkpoint`].
    #[must_use]
    pub fn with_checkpoints(mut self) -> Self {
        self.checkpoints = Some(Checkpoints::new(self.run, 0));
        self
    }

    /// Turns this meeting point into another run, which continues from checkpoint `number`, or from
    /// the beginning if that is 0. `origin` is the first run of the lineage.
    pub fn begin_lineage(&mut self, run: u64, origin: u64, number: u64) {
        self.run = run;
        self.checkpoints = Some(Checkpoints::new(origin, number));
    }

    /// The driver asks for a checkpoint under a number of its own.
    pub(super) fn on_checkpoint(&mut self, number: u64, out: &mut Outbox) {
        // A driver may ask at intervals though the run takes none.
        let Some(checkpoints) = &mut self.checkpoints else { return };
        if checkpoints.open.is_some() || number <= checkpoints.newest {
            return;
        }
        checkpoints.newest = number;
        checkpoints.open = Some((number, Stage::Due));
        match self.job.architecture.is_asynchronous() {
            true => self.request(out),
            false => self.ask_for_states(out),
        }
    }

    /// Raises the budget to `epochs` passes over the data. A run that has used up its budget
    /// gathers its workers to go on.
    pub(super) fn extend(&mut self, now: Time, epochs: u32, out: &mut Outbox) {
        self.job.extend(epochs);
        self.lockstep.extend(epochs);
        if self.lifecycle.end() == Some(EndReason::BudgetReached) && self.states.is_some() {
            self.lifecycle = Lifecycle::new();
            self.lifecycle.since = now;
        }
        self.settle(now, out);
    }

    /// Why the run has ended, if it has.
    #[must_use]
    pub const fn ended(&self) -> Option<EndReason> {
        self.lifecycle.end()
    }

    /// True if the run has ended with the members' last states, so that it can be extended.
    #[must_use]
    pub const fn has_states(&self) -> bool {
        self.states.is_some()
    }

    /// True once the members' last states are here, with which a run that has used up its budget
    /// can be extended; if the run takes no checkpoints; and after a lease.
    pub(super) fn has_last_states(&mut self, now: Time, out: &mut Outbox) -> bool {
        let (last, lease) = (self.lockstep.version(), self.job.membership.lease);
        let Some(checkpoints) = &mut self.checkpoints else { return true };
        if now >= *checkpoints.over.get_or_insert(now) + lease {
            return true;
        }
        if let Some((_, Stage::Asked(version, _))) = &checkpoints.open
            && *version != last
        {
            checkpoints.halted(); // asked for before the end was near
            self.ask_for_states(out);
        } else if self.states.is_none() {
            self.save_now(out);
        }
        self.states.is_some()
    }

    /// When the members' last states are waited for no longer.
    pub(super) fn last_states_due(&self) -> Option<Time> {
        let over = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.over);
        let over = over.filter(|_| self.lifecycle.phase() == Phase::Training);
        over.map(|since| since + self.job.membership.lease)
    }

    /// True if the members' last states are awaited.
    pub(super) fn is_saving_last(&self) -> bool {
        self.lockstep.is_over() && self.is_saving()
    }

    /// Takes a checkpoint now, if the run takes any and none is open.
    pub(super) fn save_now(&mut self, out: &mut Outbox) {
        if let Some(newest) = self.checkpoints.as_ref().map(|checkpoints| checkpoints.newest) {
            self.on_checkpoint(newest + 1, out);
        }
    }

    /// True if a checkpoint is open.
    pub(super) fn is_saving(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.open.is_some())
    }

    /// True if a checkpoint waits for its states to be asked for.
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let open = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.open.as_ref());
        matches!(open, Some((_, Stage::Due)))
    }

    /// Asks members for the state of a version to come, if a checkpoint is due.
    pub(super) fn ask_for_states(&mut self, out: &mut Outbox) {
        let is_training = self.lifecycle.phase() == Phase::Training && self.group.is_training();
        let most = if self.job.architecture.is_gossip() { usize::MAX } else { 1 };
        let Some(Checkpoints { open: Some((_, stage @ Stage::Due)), ahead, .. }) =
            self.checkpoints.as_mut().filter(|_| is_training)
        else {
            return;
        };
        let ready = self.slots.with(Presence::Ready).filter(|(worker, _)| self.group.has(*worker));
        let latest = ready.map(|(_, slot)| slot.version).max().unwrap_or_default();
        let version = match self.job.architecture.is_asynchronous() {
            true => self.lockstep.version(), // they rest
            false if self.lockstep.is_over() => self.lockstep.version(),
            false => Version(latest.0.saturating_add(*ahead)),
        };
        // The first member sends the parameters to evaluate: both come in order.
        let states = self.group.ranked().take(most).map(|worker| (worker, Incoming::default()));
        let states: BTreeMap<WorkerId, Incoming> = states.collect();
        let peers = states.keys().filter_map(|worker| self.slots[*worker].peer);
        out.extend(peers.map(|peer| Effect::Send(peer, Message::Save(Save { version }))));
        *stage = Stage::Asked(version, states);
    }

    /// A part of a member's state has come. Parts of a state that is not awaited any more are
    /// dropped.
    ///
    /// # Errors
    /// Why it is no part of a state.
    pub(super) fn on_state(
        &mut self,
        worker: WorkerId,
        part: &Inherit,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let most = self.parameters * MOST_BYTES_PER_KEY + u64::from(MOST_INHERIT_BYTES);
        let open = self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.open.as_mut());
        let Some((_, Stage::Asked(version, states))) = open else { return Ok(()) };
        let is_its = part.header.version == *version;
        let Some(state) = states.get_mut(&worker).filter(|_| is_its) else { return Ok(()) };
        state.take(part, most)?;
        self.take_if_whole(out);
        Ok(())
    }

    /// Takes the checkpoint once the states are here and the records have come to their version.
    /// Asks for a later version if the members' reports are past it without a state.
    pub(super) fn take_if_whole(&mut self, out: &mut Outbox) {
        let Some(checkpoints) = self.checkpoints.as_mut().filter(|_| self.group.is_training())
        else {
            return;
        };
        let Some((number, stage)) = &mut checkpoints.open else { return };
        let Stage::Asked(version, states) = stage else { return };
        if *version < self.lockstep.version() {
            *stage = Stage::Due;
            checkpoints.ahead = (2 * checkpoints.ahead).min(MOST_AHEAD);
            return self.ask_for_states(out);
        }
        if *version > self.lockstep.version() || !states.values().all(Incoming::is_whole) {
            return;
        }
        checkpoints.ahead = (checkpoints.ahead - checkpoints.ahead / 8).max(1);
        let (number, origin, run) = (*number, checkpoints.origin, self.run);
        let states = core::mem::take(states).into_iter();
        let states = states.map(|(worker, state)| (worker, Arc::new(state.bytes))).collect();
        let states = States(states);
        *stage = Stage::Written;
        if self.lockstep.is_over() {
            self.states = Some(states.clone());
        }
        let (oldest, saved) = (None, self.save_with(Some(states)));
        out.push(Effect::Checkpoint(Box::new(Checkpoint { number, run, origin, oldest, saved })));
        out.push(Effect::Write);
        self.go_on(out);
    }

    /// Asks a member again whose connection broke before its state was here.
    pub(super) fn ask_again(&mut self, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        let open = self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.open.as_mut());
        if let Some((_, Stage::Asked(version, states))) = open
            && let Some(state) = states.get_mut(&worker).filter(|state| !state.is_whole())
        {
            *state = Incoming::default();
            out.push(Effect::Send(peer, Message::Save(Save { version: *version })));
        }
    }

    /// A checkpoint is on the disk.
    pub(super) fn on_written(&mut self, now: Time, number: u64, out: &mut Outbox) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.open.take_if(|(open, _)| *open == number);
        }
        self.halt_once_saved(now, out);
        self.settle(now, out);
    }

    /// Sends a worker the state that the run is resumed from, if no update was made since.
    pub(super) fn send_state(&mut self, worker: WorkerId, peer: PeerId, out: &mut Outbox) {
        let version = self.lockstep.version();
        let Some(state) = self.states.as_ref().and_then(|states| states.of(worker)) else { return };
        let parts = Inherit::parts(version, state).map(Message::Inherit);
        out.extend(parts.map(|part| Effect::Send(peer, part)));
        let made = match self.job.architecture.is_asynchronous() {
            true => self.first_version(worker),
            false => version,
        };
        let slot = &mut self.slots[worker];
        slot.version = slot.version.max(made);
        slot.joins = false;
    }

    /// The first group of a run that is resumed is there: the workers have the state. Returns false
    /// for a run that is not resumed.
    pub(super) fn resumes(&mut self) -> bool {
        let is_resumed = self.states.is_some();
        if is_resumed {
            self.clock.resume();
        }
        is_resumed
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn part(from: u64, total: u64, bytes: usize) -> Inherit {
        let header = InheritHeader { version: Version(7), from, total };
        Inherit { header, bytes: vec![1; bytes] }
    }

    #[test]
    fn parts_after_a_gap_are_dropped_and_impossible_ones_refused() {
        let mut state = Incoming::default();
        assert!(!state.is_whole());
        assert_eq!(state.take(&part(0, 10, 4), 10), Ok(()));
        assert_eq!(state.take(&part(8, 10, 2), 10), Ok(()), "a connection broke");
        assert!(!state.is_whole() && state.bytes.len() == 4);
        for impossible in [part(4, 10, 7), part(4, 9, 5), part(4, 11, 7)] {
            assert!(state.take(&impossible, 10).is_err(), "{impossible:?}");
        }
        assert!(Incoming::default().take(&part(0, 11, 4), 10).is_err());
        assert_eq!(state.take(&part(4, 10, 6), 10), Ok(()));
        assert!(state.is_whole());
    }
}
