//! Servers with checkpoints but no log: all of them take checkpoints together, and go back
//! together.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::id::{CheckpointId, PeerId};
use pstrain_compute::saved::Saved;
use pstrain_roles::node::{Checkpoint, DialFault, Effect, Input, Server, Shard};
use pstrain_wire::checkpoint::OnDisk;

use super::links::End;
use super::{Entry, World, checker_of};
use crate::checkers::Checker;

/// The first run of a world; all others derive from it.
const ORIGIN: u64 = 1;

/// The coordinator's disk: the last whole checkpoint, and the one that is taken or being written.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Number of times that the coordinator went back.
    lives: u64,
    taken: Option<Seen>,
    whole: Option<Seen>,
    is_writing: bool,
}

/// A checkpoint, with the checker and the number of events at that time.
#[derive(Debug)]
struct Seen {
    number: u64,
    saved: Saved,
    checker: Checker,
    events: usize,
}

/// The disk of a shard.
#[derive(Debug, Default)]
pub(super) struct ShardDisk {
    lives: u64,
    taken: Option<(CheckpointId, Saved)>,
    is_writing: bool,
    checkpoints: BTreeMap<u64, (CheckpointId, Saved)>,
}

impl ShardDisk {
    /// The generation of the process.
    pub(super) const fn life(&self) -> u64 {
        self.lives
    }

    fn on_disk(&self, at: Option<CheckpointId>) -> OnDisk {
        let checkpoints: Vec<CheckpointId> = self.checkpoints.values().map(|(id, _)| *id).collect();
        OnDisk { origin: (!checkpoints.is_empty()).then_some(ORIGIN), checkpoints, at }
    }

    fn write(&mut self) -> Option<u64> {
        self.is_writing = false;
        let (id, saved) = self.taken.take()?;
        self.checkpoints.insert(id.number, (id, saved));
        Some(id.number)
    }
}

impl World<'_> {
    /// The server's run.
    fn run(&self) -> u64 {
        self.server.run()
    }

    /// True if work for `run` counts, since `run` is the server's.
    pub(super) fn is_of_this_lineage(&self, run: u64) -> bool {
        run == self.run()
    }

    /// True if the server may receive messages on a connection from a worker of `run`.
    pub(super) fn is_heard(&self, peer: PeerId, run: u64) -> bool {
        let is_open = || !self.links[peer.0 as usize].is_closed(End::Server);
        !self.settings.forgets || self.is_of_this_lineage(run) && is_open()
    }

    /// Orders a checkpoint now and then.
    pub(super) fn order_checkpoint(&mut self) {
        if self.disk.taken.is_some() || self.reason.is_some() || !self.is_time_to_save() {
            return;
        }
        let number = self.disk.whole.as_ref().map_or(1, |whole| whole.number + 1);
        self.server_input(Input::Checkpoint(number), None);
    }

    /// The server has taken a checkpoint, of the time of this checker and number of events.
    pub(super) fn take_checkpoint(
        &mut self,
        checkpoint: Checkpoint,
        (checker, events): (Checker, usize),
    ) {
        let Checkpoint { number, saved, origin, run, .. } = checkpoint;
        assert_eq!((origin, run), (ORIGIN, self.run()));
        self.disk.taken = Some(Seen { number, saved, checker, events });
        self.kept.saves += 1;
    }

    /// The server wants its checkpoint written, which takes a while.
    pub(super) fn write_checkpoint(&mut self) {
        assert!(self.disk.taken.is_some(), "it writes what it has not taken");
        self.disk.is_writing = true;
        let span = self.span(self.settings.prepare);
        self.after(span, Entry::Written(self.disk.lives));
    }

    /// The checkpoint is written, unless the server has crashed since.
    pub(super) fn written(&mut self, life: u64) {
        if life == self.disk.lives
            && let Some(number) = self.finish_writing()
        {
            self.server_input(Input::Written(number), None);
        }
    }

    fn finish_writing(&mut self) -> Option<u64> {
        if !std::mem::take(&mut self.disk.is_writing) {
            return None;
        }
        self.disk.whole = self.disk.taken.take();
        self.disk.whole.as_ref().map(|whole| whole.number)
    }

    /// Crashes the server. The checkpoint that it was writing is on the disk or not.
    pub(super) fn server_loses_all(&mut self) {
        if self.percent(50) {
            self.finish_writing();
        }
        self.crashed += 1;
        self.go_back();
    }

    /// The server goes back by itself: the checkpoint that it was writing is on the disk.
    pub(super) fn server_goes_back(&mut self) {
        self.finish_writing();
        self.go_back();
    }

    /// Replaces the server by its state at the last checkpoint, as another run. Everything that was
    /// observed since is undone; what the other processes know from that time must do no harm.
    fn go_back(&mut self) {
        (self.disk.taken, self.disk.is_writing) = (None, false);
        self.disk.lives += 1;
        let job = self.settings.job.clone();
        let run = ORIGIN + self.disk.lives;
        let number = self.disk.whole.as_ref().map_or(0, |whole| whole.number);
        let mut server = match &self.disk.whole {
            None => Server::new(job, 0).expect("a valid job"),
            Some(whole) => Server::restore(job, &whole.saved).expect("what was saved"),
        };
        server.begin_lineage(run, ORIGIN, number);
        self.server = server;
        match &self.disk.whole {
            None => {
                self.checker = checker_of(self.settings, &self.server);
                self.events.clear();
            }
            Some(whole) => {
                self.checker = whole.checker.clone();
                self.events.truncate(whole.events);
            }
        }
        self.checker.began_anew(self.now);
        for entry in self.entries.values_mut() {
            let is_evaluation =
                matches!(entry, Entry::ToServer(Input::Evaluated(_) | Input::Unevaluated { .. }));
            if is_evaluation {
                *entry = Entry::WakeServer;
            }
        }
        for link in 0..self.links.len() {
            if self.links[link].callee.is_none() {
                self.close(link, End::Server);
                self.links[link].cut(End::Server);
            }
        }
        for effect in self.server.unanswered() {
            if let Effect::Evaluate(order) = effect {
                self.evaluate(&order);
            }
        }
        if number == 0 {
            self.server_input(Input::Start, None);
        }
        self.hand_in_initial();
        for peer in self.server.peers() {
            self.checker.closed(peer);
            self.checker.hung_up(peer);
            let why = "the server started a new run".to_owned();
            self.server_input(Input::Disconnected { peer, why }, None);
        }
        self.server_input(Input::Overslept, None);
        self.after(Duration::ZERO, Entry::WakeServer);
    }

    /// Lets a new shard take checkpoints, if all servers do.
    pub(super) fn with_checkpoints(&self, shard: Shard) -> Shard {
        if self.settings.forgets { shard.with_checkpoints(OnDisk::default()) } else { shard }
    }

    /// A shard has taken a checkpoint.
    pub(super) fn take_shard_checkpoint(&mut self, shard: usize, checkpoint: Checkpoint) {
        let Checkpoint { number, run, origin, oldest, saved } = checkpoint;
        assert_eq!(origin, ORIGIN);
        let disk = &mut self.shards[shard].disk;
        disk.taken = Some((CheckpointId { run, number }, saved));
        let oldest = oldest.expect("the coordinator knows");
        disk.checkpoints.retain(|number, _| *number >= oldest);
    }

    pub(super) fn write_shard_checkpoint(&mut self, shard: usize) {
        self.shards[shard].disk.is_writing = true;
        let span = self.span(self.settings.prepare);
        self.after(span, Entry::ShardWritten(shard, self.shards[shard].disk.lives));
    }

    pub(super) fn shard_written(&mut self, shard: usize, life: u64) {
        let disk = &mut self.shards[shard].disk;
        if disk.lives == life
            && let Some(number) = disk.write()
        {
            self.shard_input(shard, Input::Written(number));
        }
    }

    /// Crashes a shard. The checkpoint that it was writing is on the disk or not.
    pub(super) fn shard_loses_all(&mut self, shard: usize) {
        if self.shards[shard].disk.is_writing && self.percent(50) {
            self.shards[shard].disk.write();
        }
        self.crashed += 1;
        self.begin_shard_life(shard, None);
    }

    /// The coordinator sends a shard back to a checkpoint.
    pub(super) fn shard_goes_back(&mut self, shard: usize, to: CheckpointId) {
        if self.shards[shard].disk.is_writing {
            self.shards[shard].disk.write();
        }
        self.begin_shard_life(shard, Some(to).filter(|to| to.number > 0));
    }

    fn begin_shard_life(&mut self, shard: usize, at: Option<CheckpointId>) {
        let disk = &mut self.shards[shard].disk;
        (disk.taken, disk.is_writing) = (None, false);
        disk.lives += 1;
        let on_disk = disk.on_disk(at);
        let saved = at.map(|at| {
            let (id, saved) = &disk.checkpoints[&at.number];
            assert_eq!(*id, at, "it goes back to one of another run");
            saved.clone()
        });
        for link in 0..self.links.len() {
            if [self.links[link].shard, self.links[link].callee].contains(&Some(shard)) {
                let end = self.end_of(link, shard);
                self.close(link, end);
                self.links[link].cut(end);
            }
        }
        let mut node = self.new_shard(shard).with_checkpoints(on_disk);
        let mut inputs = vec![Input::Start];
        if let Some(saved) = saved {
            node = node.restored(&saved).expect("what was saved can be restored");
            let why = || "the server started a new run".to_owned();
            let gone = |peer| Input::Disconnected { peer, why: why() };
            inputs = pstrain_roles::node::Durable::peers(&node).into_iter().map(gone).collect();
            if pstrain_roles::node::Durable::is_dialling(&node) {
                inputs.push(Input::DialFailed { why: why(), fault: DialFault::Temporary });
            }
            inputs.push(Input::Overslept);
        }
        self.shards[shard].node = node;
        inputs.into_iter().for_each(|input| self.shard_input(shard, input));
    }
}
