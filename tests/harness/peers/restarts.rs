//! Checkpoints of the lab's meeting point, and its restarts.

use pstrain_compute::id::Version;
use pstrain_compute::saved::Saved;
use pstrain_roles::node::{Checkpoint, Durable, Effect, Input, Meeting};

use pstrain_wire::Phase;

use super::{Happening, Lab, MEETING, Role, State};

/// The disk of the meeting point.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The number of the last checkpoint that was asked for, in this process or one before.
    newest: u64,
    /// The checkpoint that was taken last.
    taken: Option<Checkpoint>,
    /// The last one that was written, and its number.
    kept: Option<(u64, Saved)>,
    /// Processes of the meeting point before this one.
    restarts: u64,
    /// Restarts from a checkpoint.
    pub(super) resumed: u64,
    /// The meeting point has died, and is not up again.
    pub(super) is_down: bool,
}

impl Lab<'_> {
    /// Plans restarts of the meeting point, and checkpoints until the end of the run.
    pub(super) fn plan_restarts(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            let step = self.compute + self.delay * 2 * self.toy.job.membership.workers;
            let at = self.delay * 10 + self.span(step * 40);
            self.after(at, Happening::Restarts);
        }
        self.after(self.delay, Happening::CheckpointDue);
    }

    /// A checkpoint is due.
    pub(super) fn checkpoint_due(&mut self) {
        if self.processes[MEETING].ended.is_some() {
            return;
        }
        self.disk.newest += 1;
        self.input(MEETING, Input::Checkpoint(self.disk.newest));
        let pause = (self.compute + self.delay) * 5;
        let at = self.span(pause);
        self.after(at, Happening::CheckpointDue);
    }

    /// The meeting point has taken a checkpoint.
    pub(super) fn takes(&mut self, checkpoint: Checkpoint) {
        self.disk.taken = Some(checkpoint);
    }

    /// Its checkpoint is to be written.
    pub(super) fn writes(&mut self) {
        let at = self.span(self.delay * 8);
        self.after(at, Happening::Written(self.disk.restarts));
    }

    /// The checkpoint is written, unless the process has died meanwhile.
    pub(super) fn written(&mut self, process: u64) {
        if process != self.disk.restarts {
            return;
        }
        let checkpoint = self.disk.taken.take().expect("a checkpoint was taken");
        self.disk.kept = Some((checkpoint.number, checkpoint.saved));
        self.input(MEETING, Input::Written(checkpoint.number));
    }

    /// The meeting point dies, unless it has told workers of the end: they do not come back.
    pub(super) fn dies(&mut self) {
        let status = self.processes[MEETING].outlook(self.now).expect("it has a status");
        if status.phase == Phase::Ending {
            return;
        }
        self.end(MEETING);
        self.disk.restarts += 1;
        self.disk.is_down = true;
        let down = self.span(self.toy.job.membership.lease / 2);
        self.after(down, Happening::Restored(self.disk.restarts));
    }

    /// It is started again from its last checkpoint.
    pub(super) fn restored(&mut self, process: u64) {
        if process != self.disk.restarts {
            return; // it has died again
        }
        let job = self.toy.job.clone();
        self.disk.is_down = false;
        self.disk.resumed += u64::from(self.disk.kept.is_some());
        let number = self.disk.kept.as_ref().map_or(0, |(number, _)| *number);
        let mut meeting = match &self.disk.kept {
            Some((_, saved)) => Meeting::restore(job, saved).expect("its own checkpoint"),
            None => Meeting::new(job, 0).expect("a valid job"),
        };
        meeting.begin_lineage(1_000_000 + process, 1, number);
        let trained = meeting.trained();
        let (version, parameters) = (trained.point.version, trained.parameters);
        // Without a checkpoint it asks for the initial parameters again.
        let initial = self.initial.clone().filter(|_| version == Version(0));
        let parameters = parameters.expect("it has parameters").to_vec();
        self.checker.restarts((version, initial.unwrap_or(parameters)));
        let unanswered = meeting.unanswered();
        let it = &mut self.processes[MEETING];
        (it.role, it.state, it.wake) = (Role::Meeting(Box::new(meeting)), State::Runs, None);
        for effect in unanswered {
            match effect {
                // It was checked before.
                Effect::Evaluate(order) => self.does_not_evaluate(order.point.version),
                effect => self.obey(MEETING, effect),
            }
        }
        self.input(MEETING, Input::Overslept);
    }
}
