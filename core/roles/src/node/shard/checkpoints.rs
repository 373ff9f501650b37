//! Checkpoints of a shard that keeps no other saved state: taken at the coordinator's decision, and
//! gone back to at its order.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Following, Shard};
use crate::node::{Checkpoint, Effect, NodeError, Outbox};
use pstrain_compute::id::CheckpointId;
use pstrain_compute::time::Time;
use pstrain_wire::Message;
use pstrain_wire::checkpoint::{GoBack, MOST_CHECKPOINTS, OnDisk, Written};

impl Shard {
    /// Enables checkpoints; `on_disk` lists an earlier process's, none if the shard is new.
    #[must_use]
    pub fn with_checkpoints(mut self, on_disk: OnDisk) -> Self {
        self.on_disk = Some(on_disk);
        self
    }

    /// The checkpoints on its disk, if it takes checkpoints.
    #[must_use]
    pub const fn on_disk(&self) -> Option<&OnDisk> {
        self.on_disk.as_ref()
    }

    /// True if the run of the coordinator continues from the checkpoint that this shard has
    /// restored; the shard follows that run from now on.
    pub(super) fn goes_on_in(&mut self, run: u64) -> bool {
        let at = self.on_disk.as_mut().and_then(|on_disk| on_disk.at.take());
        let Some(following) = self.following.as_mut().filter(|_| at.is_some()) else {
            return false;
        };
        following.run = run;
        true
    }

    /// Takes the checkpoint `number` of the current state, as decided for all servers; checkpoints
    /// before `oldest` will not be gone back to any more.
    pub(super) fn keep_state(&mut self, number: u64, oldest: u64, out: &mut Outbox) {
        let Some(Following { run, .. }) = self.following else {
            unreachable!("decisions are of a run")
        };
        // A coordinator without checkpoints decides on none; `check_origin` has refused others.
        let Some(on_disk) = &mut self.on_disk else { return };
        let Some(origin) = on_disk.origin else { return };
        // A coordinator that goes back after each checkpoint never says that an older one can go.
        let mut numbers: Vec<u64> = on_disk.checkpoints.iter().map(|it| it.number).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        let oldest = numbers.get(MOST_CHECKPOINTS - 2).map_or(oldest, |last| oldest.max(*last));
        on_disk.checkpoints.retain(|it| it.number >= oldest);
        let (oldest, saved) = (Some(oldest), self.save());
        let checkpoint = Checkpoint { number, run, origin, oldest, saved };
        out.push(Effect::Checkpoint(Box::new(checkpoint)));
        out.push(Effect::Write);
    }

    /// The checkpoint is on the disk.
    pub(super) fn on_written(&mut self, now: Time, number: u64, out: &mut Outbox) {
        let run = self.following.as_ref().map(|following| following.run);
        let Some((on_disk, run)) = self.on_disk.as_mut().zip(run) else {
            unreachable!("only checkpoints of a run are written")
        };
        on_disk.checkpoints.retain(|it| it.number != number);
        on_disk.checkpoints.push(CheckpointId { run, number });
        self.written = Some(Written { number });
        self.tell_written(now, out);
    }

    /// Tells the coordinator the last checkpoint written.
    pub(super) fn tell_written(&mut self, now: Time, out: &mut Outbox) {
        if let Some(written) = self.written {
            self.tell(now, Message::Written(written), out);
        }
    }

    /// The coordinator orders the shard back to a checkpoint.
    pub(super) fn on_go_back(&mut self, go_back: GoBack, out: &mut Outbox) {
        let GoBack { checkpoint } = go_back;
        let on_disk = self.on_disk.as_ref();
        if !on_disk.is_some_and(|on_disk| on_disk.can_go_back_to(checkpoint)) {
            let what = alloc::format!(
                "it wants this server to go back to {checkpoint}, which is not here"
            );
            return self.fail(what, out);
        }
        self.finish(Err(NodeError::GoesBack(checkpoint)), out);
    }

    /// Checks and records the origin of the coordinator's run; the error says in words what is
    /// wrong.
    pub(super) fn check_origin(&mut self, origin: Option<u64>) -> Result<(), String> {
        match (&mut self.on_disk, origin) {
            (None, None) => Ok(()),
            (Some(on_disk), Some(origin)) if on_disk.origin.is_none_or(|own| own == origin) => {
                on_disk.origin = Some(origin);
                Ok(())
            }
            _ => Err(String::from(
                "it takes checkpoints where this server does not, or of another run",
            )),
        }
    }
}
