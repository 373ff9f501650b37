//! Checkpoints as the only durability: all servers take them at the same decision, and go back to
//! them together.
//!
//! A checkpoint is a decision ([`Decision::Checkpoint`]): servers that have followed the same
//! decisions have the same version of the parameters and know the same about every push. A
//! checkpoint is complete once every other server has written its state and the coordinator, which
//! writes last, has written its own; no other is taken before. Until then all servers go back to
//! the checkpoint before as soon as one of them has lost its state. A run that goes back is another
//! run: its workers, which may know more than its servers do, join it as newcomers.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use super::{Server, mode_change};
use crate::node::{Checkpoint, Effect, Event, NodeError, Outbox};
use pstrain_compute::id::{CheckpointId, PeerId, ServerId};
use pstrain_compute::time::Time;
use pstrain_wire::checkpoint::{GoBack, MOST_CHECKPOINTS};
use pstrain_wire::decision::Decision;
use pstrain_wire::group::Enlist;
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Phase};

/// State of checkpoints on the coordinator.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The first run of this lineage.
    origin: u64,
    /// The last complete checkpoint.
    whole: CheckpointId,
    /// The number of the complete checkpoint before, which is needed if `whole` is damaged; 0 if
    /// unknown.
    before: u64,
    /// The greatest number used so far.
    newest: u64,
    /// The checkpoint that is being written.
    open: Option<Open>,
    /// The servers that have been admitted in this run. If one of them loses its state, including
    /// what workers told it, all servers have to go back.
    taken: BTreeSet<ServerId>,
    /// How far the end of the run is saved.
    end: End,
    /// The servers that connected and were told of the end.
    told: BTreeSet<ServerId>,
    /// All servers go back.
    goes_back: bool,
}

/// How far the end of a run is saved. A member that is told of the end leaves and cannot be called
/// back, so it is saved first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not saved.
    Open,
    /// Being written under this number.
    Written(u64),
    /// On disk.
    Kept,
}

/// A checkpoint that is not complete.
#[derive(Debug)]
struct Open {
    number: u64,
    /// The other servers that have written their state.
    written: BTreeSet<ServerId>,
}

/// The standing of a server that connects: where it continues from.
pub(super) enum Standing {
    /// It continues from where it is.
    GoesOn,
    /// It has to go back first.
    Behind(CheckpointId),
    /// All servers have to go back.
    Lost(CheckpointId),
    /// Nothing: the run has ended, and its state is not needed.
    NotNeeded,
}

impl Checkpoints {
    fn new(origin: u64, whole: CheckpointId) -> Self {
        let (before, newest) = (0, whole.number);
        let (open, end, goes_back) = (None, End::Open, false);
        let (taken, told) = (BTreeSet::new(), BTreeSet::new());
        Self { origin, whole, before, newest, open, taken, end, told, goes_back }
    }
}

impl Server {
    /// Enables checkpoints, one at each [`crate::node::Input::Checkpoint`]. No server can join or
    /// leave then: after going back, keys that have moved would not be where the key map says.
    #[must_use]
    pub fn with_checkpoints(mut self) -> Self {
        let beginning = CheckpointId { run: self.run, number: 0 };
        self.checkpoints = Some(Checkpoints::new(self.run, beginning));
        self
    }

    /// Turns this server into another run, which continues from checkpoint `number` of the run in
    /// which it was saved, or from the beginning if that is 0. Workers and servers of that run,
    /// which may know more than this server, are fenced. `origin` is the first run of the lineage.
    pub fn begin_lineage(&mut self, run: u64, origin: u64, number: u64) {
        let from = CheckpointId { run: self.run, number };
        let mut checkpoints = Checkpoints::new(origin, from);
        if self.lifecycle.end().is_some() {
            checkpoints.end = End::Kept;
        }
        self.run = run;
        self.checkpoints = Some(checkpoints);
    }

    /// True if checkpoints are enabled.
    #[must_use]
    pub const fn takes_checkpoints(&self) -> bool {
        self.checkpoints.is_some()
    }

    /// The first run of the lineage, if checkpoints are enabled.
    pub(super) fn origin(&self) -> Option<u64> {
        self.checkpoints.as_ref().map(|checkpoints| checkpoints.origin)
    }

    /// Makes all servers save their state as checkpoint `number`.
    pub(super) fn on_checkpoint(&mut self, number: u64, out: &mut Outbox) {
        // A driver may ask at intervals though the run takes none.
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let is_over = self.lifecycle.end().is_some(); // the end is saved on its own
        if is_over
            || self.lifecycle.is_done()
            || checkpoints.open.is_some()
            || number <= checkpoints.newest
        {
            return;
        }
        let oldest = checkpoints.before;
        checkpoints.newest = number;
        checkpoints.open = Some(Open { number, written: BTreeSet::new() });
        self.group.tell(|| Decision::Checkpoint { number, oldest });
        // Flushed first, so that the saved state owes no decision to a server.
        self.group.flush(out);
        self.keep_state(number, out);
        if self.group.others() == 0 {
            out.push(Effect::Write);
        }
    }

    /// Fixes the state that the run resumes from: the present one, since a stop is no part of it.
    pub(super) fn pause(&mut self, out: &mut Outbox) {
        self.group.tell(|| Decision::Pause);
        out.push(Effect::Pause);
        if let Some(newest) = self.checkpoints.as_ref().map(|checkpoints| checkpoints.newest) {
            self.on_checkpoint(newest + 1, out);
        }
    }

    /// The run goes on after its end.
    pub(super) fn reopen(&mut self) {
        if let Some(checkpoints) = &mut self.checkpoints {
            (checkpoints.end, checkpoints.told) = (End::Open, BTreeSet::new());
        }
    }

    /// True if a run that was stopped waits until the state that it resumes from is on the disk.
    #[must_use]
    pub fn awaits_checkpoint(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.open.is_some())
    }

    /// True if the run was stopped on request: its end is no part of what is kept.
    pub(super) fn is_paused(&self) -> bool {
        self.lifecycle.end() == Some(EndReason::Stopped)
    }

    /// Saves the state of this server under this number, to be written later.
    fn keep_state(&mut self, number: u64, out: &mut Outbox) {
        let Some(origin) = self.origin() else { unreachable!("checkpoints are enabled") };
        let (run, oldest, saved) = (self.run, None, self.save());
        let checkpoint = Checkpoint { number, run, origin, oldest, saved };
        out.push(Effect::Checkpoint(Box::new(checkpoint)));
    }

    /// Records that another server has written its state. This server writes its own once all
    /// others have.
    pub(super) fn on_other_written(&mut self, server: ServerId, number: u64, out: &mut Outbox) {
        let others = self.group.others();
        let open = self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.open.as_mut());
        if let Some(open) = open.filter(|open| open.number == number)
            && open.written.insert(server)
            && open.written.len() == others
        {
            out.push(Effect::Write);
        }
    }

    /// Saves the end of the run. Returns true if members may be told of the end: with checkpoints,
    /// once it is on disk or has had the time to be.
    pub(super) fn keep_end(&mut self, is_late: bool, out: &mut Outbox) -> bool {
        let (is_paused, has_lost) = (self.is_paused(), self.has_lost_a_server());
        let Some(checkpoints) = &mut self.checkpoints else { return true };
        if is_paused {
            return is_late || checkpoints.open.is_none();
        }
        if checkpoints.end != End::Open || has_lost {
            return is_late || !matches!(checkpoints.end, End::Written(_));
        }
        let number = checkpoints.newest + 1;
        (checkpoints.newest, checkpoints.open, checkpoints.end) =
            (number, None, End::Written(number));
        self.keep_state(number, out);
        out.push(Effect::Write);
        is_late
    }

    /// True if the run has ended because a server was lost, which may yet be found.
    fn has_lost_a_server(&self) -> bool {
        matches!(self.lifecycle.end(), Some(EndReason::ServerLost(_)))
    }

    /// True if the end of the run is on disk, so that no other server is needed any more.
    pub(super) fn has_kept_end(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|it| it.end == End::Kept)
    }

    /// True if connected members may be told of the end.
    pub(super) fn tells_end(&self) -> bool {
        let is_kept = self.checkpoints.as_ref().is_none_or(|it| match self.is_paused() {
            true => it.open.is_none(),
            false => it.end == End::Kept,
        });
        is_kept && !self.lifecycle.holds_end() || self.has_lost_a_server()
    }

    /// Records that `server` is being told of the end, if it may be.
    pub(super) fn note_told(&mut self, server: ServerId) {
        let tells = self.tells_end();
        if let Some(checkpoints) = self.checkpoints.as_mut().filter(|_| tells) {
            checkpoints.told.insert(server);
        }
    }

    /// True if a disconnected server has not been told of the end and can still return.
    pub(super) fn owes_a_server(&self) -> bool {
        let told = self.checkpoints.as_ref().map(|checkpoints| &checkpoints.told);
        let is_owed = |server| told.is_none_or(|told| !told.contains(&server));
        !self.has_lost_a_server() && self.group.away().any(is_owed)
    }

    /// True if the run has ended and will not go back.
    pub(super) fn stays_over(&self) -> bool {
        let goes_back = self.checkpoints.as_ref().is_some_and(|it| it.goes_back);
        self.lifecycle.is_done()
            && self.lifecycle.end().is_some()
            && !goes_back
            && !self.has_lost_a_server()
            && !self.is_paused()
    }

    /// Records that this server has written its state, as the last of all.
    pub(super) fn on_written(&mut self, now: Time, number: u64, out: &mut Outbox) {
        let Some(checkpoints) = &mut self.checkpoints else {
            unreachable!("only checkpoints are written")
        };
        if checkpoints.end == End::Written(number) {
            checkpoints.end = End::Kept;
            self.tell_end(out);
            return self.settle(now, out);
        }
        if checkpoints.open.take_if(|open| open.number == number).is_some() {
            checkpoints.before = checkpoints.whole.number;
            checkpoints.whole = CheckpointId { run: self.run, number };
            if self.is_paused() {
                self.tell_end(out);
            }
            if matches!(self.lifecycle.phase(), Phase::Draining | Phase::Ending) {
                self.settle(now, out);
            }
        }
    }

    /// Records that another server has been admitted.
    pub(super) fn count_on(&mut self, server: ServerId) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.taken.insert(server);
        }
    }

    /// Returns what `server`, which connects with `enlist`, has to do.
    ///
    /// # Errors
    /// The reason why it cannot be a server of this run, in words.
    pub(super) fn standing(&self, server: ServerId, enlist: &Enlist) -> Result<Standing, String> {
        let (checkpoints, disk) = match (&self.checkpoints, &enlist.on_disk) {
            (None, None) => return Ok(Standing::GoesOn),
            (Some(checkpoints), Some(disk)) => (checkpoints, disk),
            (Some(_), None) => {
                return Err(
                    "server 1 takes checkpoints, and so must all others: start this one with \
                            --durability checkpoint --state DIR"
                        .into(),
                );
            }
            (None, Some(_)) => {
                return Err(
                    "it takes checkpoints, but server 1 does not: start it as that one was \
                            started"
                        .into(),
                );
            }
        };
        if self.lifecycle.end().is_some() && (self.has_kept_end() || self.evaluations_due() == 0) {
            return Ok(Standing::NotNeeded);
        }
        let Checkpoints { origin, whole, .. } = checkpoints;
        if disk.origin.is_some_and(|theirs| theirs != *origin) {
            return Err("it belongs to another run".into());
        }
        if enlist.followed.is_some_and(|(run, _)| run == self.run) {
            return Ok(Standing::GoesOn);
        }
        let was_taken = checkpoints.taken.contains(&server);
        // A server that has lost its state starts with nothing. A server that has gone back and
        // connects twice was not told that it had been admitted; at the beginning the two cannot be
        // told apart.
        let is_there = match whole.number {
            0 => enlist.followed.is_none() && disk.at.is_none() && !was_taken,
            _ => disk.at == Some(*whole),
        };
        if is_there {
            return Ok(Standing::GoesOn);
        }
        if disk.checkpoints.len() > MOST_CHECKPOINTS || !disk.can_go_back_to(*whole) {
            return Err(alloc::format!(
                "the servers continue from {whole}, which it does not have: give it the folder \
                 that it had, with --resume"
            ));
        }
        Ok(if was_taken { Standing::Lost(*whole) } else { Standing::Behind(*whole) })
    }

    /// Tells a server to go back first.
    pub(super) fn send_back(&mut self, peer: PeerId, checkpoint: CheckpointId, out: &mut Outbox) {
        self.forget_stranger(peer);
        out.push(Effect::Send(peer, Message::GoBack(GoBack { checkpoint })));
        out.push(Effect::Close(peer));
    }

    /// Finishes because `server` has lost its state: all servers continue from a checkpoint.
    pub(super) fn go_back_with(
        &mut self,
        server: ServerId,
        checkpoint: CheckpointId,
        out: &mut Outbox,
    ) {
        self.lifecycle.finish();
        self.checkpoints.iter_mut().for_each(|checkpoints| checkpoints.goes_back = true);
        let why = alloc::format!("it has lost what it had since {checkpoint}");
        out.push(Effect::Report(Event::ServerCutOff { server, why }));
        let why = alloc::format!("the servers go back to {checkpoint}: order it again");
        if let Some(ordered) = self.modes.ordered.take() {
            let askers = ordered.askers.into_iter();
            askers.for_each(|(asker, _)| mode_change::answer(asker, Err(why.clone()), out));
        }
        out.extend(self.peers().into_iter().map(Effect::Close));
        out.push(Effect::Done(Err(NodeError::GoesBack(checkpoint))));
    }
}
