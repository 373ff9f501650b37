//! Checkpoints where nothing else is kept: taken by all servers at the same decision, and gone back
//! to by all of them.
//!
//! A checkpoint is a decision ([`Decision::Checkpoint`]): whoever has followed the same decisions
//! has the same version of the parameters, and knows the same of every push. It is whole once all
//! servers have written theirs, and this one, which writes last, has, too; no other is taken
//! before. Until then the one before is where all go back to as soon as one of them has lost what
//! it had. A run that goes back is another run: its workers, who may know more than its servers do,
//! join anew.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use super::{Server, fence};
use crate::node::{Checkpoint, Effect, Event, Outbox, WorkerError};
use pstrain_compute::id::{CheckpointId, PeerId, ServerId};
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::checkpoint::{GoBack, MOST_CHECKPOINTS};
use pstrain_wire::decision::Decision;
use pstrain_wire::group::Enlist;
use pstrain_wire::worker::EndReason;

/// What a server knows of checkpoints that takes them.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The first of the runs that came of one another.
    origin: u64,
    /// The last that is whole.
    whole: CheckpointId,
    /// The number of the whole one before, which may be needed if that is damaged; 0 if it is not
    /// known.
    before: u64,
    /// The greatest number that was taken.
    newest: u64,
    /// The one that is being written.
    open: Option<Open>,
    /// The servers that were taken in in this run: what they have lost since, such as what workers
    /// told them, is lost for all.
    taken: BTreeSet<ServerId>,
    /// How the end of the run is kept.
    end: End,
    /// The servers that came and were told of the end.
    told: BTreeSet<ServerId>,
    /// Whether all go back.
    goes_back: bool,
}

/// How the end of a run is kept: whoever is told of it goes, and could not be had back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not yet.
    Open,
    /// It is being written under this number.
    Written(u64),
    /// It is on the disk.
    Kept,
}

/// A checkpoint that is not whole.
#[derive(Debug)]
struct Open {
    number: u64,
    /// The others that have written theirs.
    written: BTreeSet<ServerId>,
}

/// What becomes of a server that comes.
pub(super) enum Standing {
    /// It goes on from where it is.
    GoesOn,
    /// It has to go back first.
    Behind(CheckpointId),
    /// All have to.
    Lost(CheckpointId),
    /// The run is over, and all that it has is here.
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
    /// Takes checkpoints from now on, at each [`crate::node::Input::Checkpoint`]. No server can
    /// join or leave then: keys that have moved would be where they are not once all have gone
    /// back.
    #[must_use]
    pub fn with_checkpoints(mut self) -> Self {
        let beginning = CheckpointId { run: self.run, number: 0 };
        self.checkpoints = Some(Checkpoints::new(self.run, beginning));
        self
    }

    /// Makes it another run, which goes on from checkpoint `number` of the one that it was saved
    /// in, or anew from 0: workers and servers of that one, which may know more than this one does,
    /// are fenced. `origin` is the first run of all these.
    pub fn begin_lineage(&mut self, run: u64, origin: u64, number: u64) {
        let from = CheckpointId { run: self.run, number };
        let mut checkpoints = Checkpoints::new(origin, from);
        if self.end.is_some() {
            checkpoints.end = End::Kept;
        }
        self.run = run;
        self.checkpoints = Some(checkpoints);
    }

    /// Whether it takes checkpoints.
    #[must_use]
    pub const fn takes_checkpoints(&self) -> bool {
        self.checkpoints.is_some()
    }

    /// The origin of the run, where checkpoints are taken.
    pub(super) fn origin(&self) -> Option<u64> {
        self.checkpoints.as_ref().map(|checkpoints| checkpoints.origin)
    }

    /// Has all servers keep their state.
    pub(super) fn on_checkpoint(&mut self, number: u64, out: &mut Outbox) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        let is_over = self.end.is_some(); // that is kept by itself
        if is_over || self.done || checkpoints.open.is_some() || number <= checkpoints.newest {
            return;
        }
        let oldest = checkpoints.before;
        checkpoints.newest = number;
        checkpoints.open = Some(Open { number, written: BTreeSet::new() });
        self.group.tell(|| Decision::Checkpoint { number, oldest });
        self.group.flush(out);
        self.keep_state(number, out);
        if self.group.others() == 0 {
            out.push(Effect::Write);
        }
    }

    /// Has the state of this server kept under this number, to be written.
    fn keep_state(&mut self, number: u64, out: &mut Outbox) {
        let Some(origin) = self.origin() else { return };
        let (run, oldest, saved) = (self.run, None, self.save());
        let checkpoint = Checkpoint { number, run, origin, oldest, saved };
        out.push(Effect::Checkpoint(Box::new(checkpoint)));
    }

    /// Another server has written its state. This one writes its own once all others have.
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

    /// Whether the end of the run may be told: with checkpoints, once it is on the disk, or has had
    /// the time to be.
    pub(super) fn keep_end(&mut self, is_late: bool, out: &mut Outbox) -> bool {
        let has_lost = self.has_lost_a_server();
        let Some(checkpoints) = &mut self.checkpoints else { return true };
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

    /// Whether the run has ended because a server was lost, which may yet be found.
    fn has_lost_a_server(&self) -> bool {
        matches!(self.end, Some(EndReason::ServerLost(_)))
    }

    /// Whether the end of the run is on the disk, so that no other server is needed any more.
    pub(super) fn has_kept_end(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(|it| it.end == End::Kept)
    }

    /// Whether those who are there may hear of the end.
    pub(super) fn tells_end(&self) -> bool {
        self.checkpoints.is_none() || self.has_kept_end() || self.has_lost_a_server()
    }

    /// `server` hears of the end, if that may be told.
    pub(super) fn note_told(&mut self, server: ServerId) {
        let tells = self.tells_end();
        if let Some(checkpoints) = self.checkpoints.as_mut().filter(|_| tells) {
            checkpoints.told.insert(server);
        }
    }

    /// Whether a server is away that has not heard of the end, and can still come.
    pub(super) fn owes_a_server(&self) -> bool {
        let told = self.checkpoints.as_ref().map(|checkpoints| &checkpoints.told);
        let is_owed = |server| told.is_none_or(|told| !told.contains(&server));
        !self.has_lost_a_server() && self.group.away().any(is_owed)
    }

    /// Whether the run has come to its end, and nobody goes back any more.
    pub(super) fn stays_over(&self) -> bool {
        let goes_back = self.checkpoints.as_ref().is_some_and(|it| it.goes_back);
        self.done && self.end.is_some() && !goes_back && !self.has_lost_a_server()
    }

    /// This server has written its own, which was the last.
    pub(super) fn on_written(&mut self, now: Time, number: u64, out: &mut Outbox) {
        let Some(checkpoints) = &mut self.checkpoints else { return };
        if checkpoints.end == End::Written(number) {
            checkpoints.end = End::Kept;
            self.tell_end(out);
            return self.settle(now, out);
        }
        if checkpoints.open.take_if(|open| open.number == number).is_some() {
            checkpoints.before = checkpoints.whole.number;
            checkpoints.whole = CheckpointId { run: self.run, number };
        }
    }

    /// Another server is taken in.
    pub(super) fn count_on(&mut self, server: ServerId) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.taken.insert(server);
        }
    }

    /// What becomes of `server`, which comes with `enlist`.
    ///
    /// # Errors
    /// Why it cannot be one of the run's, in words.
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
        if self.end.is_some() && (self.has_kept_end() || self.evaluations_due() == 0) {
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
        // Whoever has lost something has nothing at first. One that has gone back and comes twice
        // was not told that it is in; at the beginning the two cannot be told apart.
        let is_there = match whole.number {
            0 => enlist.followed.is_none() && disk.at.is_none() && !was_taken,
            _ => disk.at == Some(*whole),
        };
        if is_there {
            return Ok(Standing::GoesOn);
        }
        if disk.checkpoints.len() > MOST_CHECKPOINTS || !disk.can_go_back_to(*whole) {
            return Err(alloc::format!(
                "the servers go on from {whole}, which it does not have: give it the folder that \
                 it had, with --resume"
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

    /// `server` has lost what it had: finishes, to go on from a checkpoint with all others.
    pub(super) fn go_back_with(
        &mut self,
        server: ServerId,
        checkpoint: CheckpointId,
        out: &mut Outbox,
    ) {
        self.done = true;
        self.checkpoints.iter_mut().for_each(|checkpoints| checkpoints.goes_back = true);
        let why = alloc::format!("it has lost what it had since {checkpoint}");
        out.push(Effect::Report(Event::ServerCutOff { server, why }));
        let why = alloc::format!("the servers go back to {checkpoint}: order it again");
        if let Some(ordered) = self.ordered.take() {
            let askers = ordered.askers.into_iter();
            askers.for_each(|(asker, _)| fence::answer(asker, Err(why.clone()), out));
        }
        self.stop_pushes(&why, out);
        out.extend(self.peers().into_iter().map(Effect::Close));
        out.push(Effect::Done(Err(WorkerError::GoesBack(checkpoint))));
    }
}
