//! Servers of a world that do not coordinate: driven like the workers, and crashed like the
//! coordinator.

use pstrain_compute::id::{PeerId, ServerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::saved::Saved;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    DialFault, Effect, Input, LEAVE_SERVER, Node, NodeError, Outbox, Shard, ShardConfig, Target,
    decode_input, encode_input,
};
use pstrain_wire::Refusal;
use pstrain_wire::client::Control;
use pstrain_wire::group::Place;
use pstrain_wire::worker::EndReason;

use super::checkpoints::ShardDisk;
use super::links::{End, Item, Link};
use super::{Entry, World};

/// Most servers in a world over its whole run, without the coordinator.
const MOST_SHARDS: usize = 8;

/// A server that does not coordinate.
#[derive(Debug)]
pub(super) struct ShardProcess {
    pub(super) node: Shard,
    wake: Option<Time>,
    /// Its last saved state and its inputs since, if a crash loses the memory only.
    saved: Option<Saved>,
    log: Vec<Vec<u8>>,
    /// Its disk, if only checkpoints are kept.
    pub(super) disk: ShardDisk,
    /// True if it was told to finish.
    told: bool,
    ended: Option<Result<EndReason, NodeError>>,
}

impl World<'_> {
    pub(super) fn new_shard(&self, shard: usize) -> Shard {
        let servers = self.settings.job.servers;
        let place = match shard as u32 + 1 {
            server if server < servers => Place::First { server: ServerId(server), servers },
            _ => Place::Wanted,
        };
        Shard::new(ShardConfig {
            place,
            address: format!("shard {shard}"),
            lease: self.settings.job.membership.lease,
            stream: Stream::new(self.settings.network).fork("shard", shard as u64),
        })
    }

    pub(super) fn begin_shards(&mut self) {
        for _ in 1..self.settings.job.servers {
            self.begin_shard();
        }
    }

    /// Starts one more server, unless there have been many.
    pub(super) fn one_more_shard(&mut self) {
        self.checker.moves();
        if self.shards.len() < MOST_SHARDS {
            self.begin_shard();
        }
    }

    fn begin_shard(&mut self) {
        let shard = self.shards.len();
        let node = self.with_checkpoints(self.new_shard(shard));
        self.shards.push(ShardProcess {
            node,
            wake: None,
            saved: None,
            log: Vec::new(),
            disk: ShardDisk::default(),
            told: false,
            ended: None,
        });
        self.shard_input(shard, Input::Start);
    }

    /// Tells a server to finish, or the coordinator to let one leave.
    pub(super) fn one_shard_less(&mut self) {
        self.checker.moves();
        if self.percent(50) {
            let shard =
                self.any(self.shards.len(), |world, shard| world.shards[shard].ended.is_none());
            // A server that is told twice does not wait until its keys are elsewhere.
            if let Some(shard) = shard.filter(|shard| !self.shards[*shard].told) {
                self.shards[shard].told = true;
                self.shard_input(shard, Input::Drain);
            }
            return;
        }
        let server = 1 + self.rng.below(self.shards.len() as u64 + 2);
        let (key, value) = (LEAVE_SERVER.to_owned(), server.to_string());
        self.order(Control { protocol_max: 1, key, value });
    }

    /// The shard at an address; `None` for the coordinator.
    pub(super) fn shard_of(target: &Target) -> Option<usize> {
        match target {
            Target::Server => None,
            Target::Address(address) | Target::Worker(address) => {
                Some(address.trim_start_matches("shard ").parse().expect("an address of a shard"))
            }
        }
    }

    /// The shard at this end of a link, if there is one.
    pub(super) fn shard_at(&self, link: usize, end: End) -> Option<usize> {
        match end {
            End::Server => self.links[link].callee,
            End::Worker => self.links[link].shard,
        }
    }

    /// The end of a link at which a shard is.
    pub(super) fn end_of(&self, link: usize, shard: usize) -> End {
        if self.links[link].shard == Some(shard) { End::Worker } else { End::Server }
    }

    pub(super) fn shard_dial_failed(&mut self, shard: usize, why: &str) {
        self.shard_input(shard, Input::DialFailed { why: why.into(), fault: DialFault::Temporary });
    }

    pub(super) fn shard_dialled(&mut self, shard: usize, life: u64) {
        if life != self.shards[shard].disk.life() {
            return;
        }
        let chance = self.settings.faults.dial_fails;
        if self.reason.is_some() || (!self.calm && self.percent(chance)) {
            return self.shard_dial_failed(shard, "connection refused");
        }
        let link = self.links.len();
        self.links.push(Link { shard: Some(shard), ..Link::new(None) });
        self.send(link, End::Server, Item::Open);
        self.send(link, End::Worker, Item::Open);
    }

    /// Hands an input to a shard and carries out its effects.
    pub(super) fn shard_input(&mut self, shard: usize, input: Input) {
        if self.shards[shard].ended.is_some() {
            return;
        }
        if self.settings.crashes > 0 && !self.settings.forgets {
            let mut record = Vec::new();
            let tail = encode_input(self.now, &input, &mut record).expect("a server's input");
            tail.append_to(&mut record);
            self.shards[shard].log.push(record);
        }
        let mut out = Outbox::new();
        self.shards[shard].node.handle(self.now, input, &mut out);
        let crashes = self.crashes();
        if crashes && self.percent(50) {
            out.retain(|effect| !matches!(effect, Effect::Send(..)));
        }
        for effect in out {
            match effect {
                Effect::Dial(_) => {
                    let takes = self.span(self.settings.delay);
                    let life = self.shards[shard].disk.life();
                    self.after(takes, Entry::ShardDialled(shard, life));
                }
                Effect::Send(peer, message) => {
                    let link = peer.0 as usize;
                    let to = self.end_of(link, shard).other();
                    self.send(link, to, Item::Message(message));
                }
                Effect::Close(peer) => {
                    let link = peer.0 as usize;
                    self.close(link, self.end_of(link, shard));
                }
                Effect::Checkpoint(checkpoint) => self.take_shard_checkpoint(shard, *checkpoint),
                Effect::Write => self.write_shard_checkpoint(shard),
                Effect::Done(Err(NodeError::GoesBack(to))) => {
                    return self.shard_goes_back(shard, to);
                }
                Effect::Done(result) => {
                    if let Err(error) = &result {
                        let late = shard as u32 + 1 >= self.settings.job.servers;
                        let fair = match error {
                            NodeError::Unreachable { .. } => true,
                            NodeError::Refused(Refusal::Server { .. }) => late,
                            _ => false,
                        };
                        assert!(fair, "a shard failed: {error}");
                    }
                    self.shards[shard].ended = Some(result);
                    for link in 0..self.links.len() {
                        if self.links[link].shard == Some(shard) {
                            self.close(link, End::Worker);
                        } else if self.links[link].callee == Some(shard) {
                            self.close(link, End::Server);
                        }
                    }
                    return;
                }
                Effect::Report(_) | Effect::Limit(..) | Effect::Recycle(_) | Effect::Pause => {}
                effect => panic!("no shard asks for {effect:?}"),
            }
        }
        self.save_shard(shard);
        if crashes {
            self.begin_shard_anew(shard);
        }
        self.plan_shard_wake(shard);
    }

    /// Saves the shard now and then, and replaces it by the restored one.
    fn save_shard(&mut self, shard: usize) {
        if self.settings.forgets || !self.is_time_to_save() {
            return;
        }
        let again = self.new_shard(shard);
        let ShardProcess { node, saved, log, .. } = &mut self.shards[shard];
        let before = format!("{node:?}");
        let state = node.save();
        assert_eq!(format!("{node:?}"), before, "saving changed the shard");
        *node = again.restored(&state).expect("what was saved can be restored");
        let after = format!("{node:?}");
        assert!(after == before, "what was restored is another shard:\n{after}\n{before}");
        *saved = Some(state);
        log.clear();
        self.kept.saves += 1;
    }

    /// Replaces the shard by one that handled the same inputs, and closes all its connections.
    fn begin_shard_anew(&mut self, shard: usize) {
        if self.settings.forgets {
            return self.shard_loses_all(shard);
        }
        let mut node = self.new_shard(shard);
        if let Some(saved) = &self.shards[shard].saved {
            node = node.restored(saved).expect("what was saved can be restored");
        }
        let mut out = Outbox::new();
        for record in &self.shards[shard].log {
            let (at, input) = decode_input(record).expect("what was kept");
            node.handle(at, input, &mut out);
            out.clear();
        }
        let same = format!("{node:?}") == format!("{:?}", self.shards[shard].node);
        assert!(same, "the same inputs made another shard");
        self.shards[shard].node = node;
        self.crashed += 1;
        let is_open = |link: &usize| {
            let is_its = [self.links[*link].shard, self.links[*link].callee].contains(&Some(shard));
            is_its && !self.links[*link].is_closed(self.end_of(*link, shard))
        };
        let open: Vec<usize> = (0..self.links.len()).filter(is_open).collect();
        open.iter().for_each(|link| self.close(*link, self.end_of(*link, shard)));
        for link in open {
            let end = self.end_of(link, shard);
            let known = self.links[link].is_known(end);
            let peer = PeerId(link as u64);
            let why = "the server started a new run".to_owned();
            match (known, end) {
                (true, _) => self.shard_input(shard, Input::Disconnected { peer, why }),
                (false, End::Worker) => self.shard_dial_failed(shard, &why),
                (false, End::Server) => {}
            }
        }
        self.shard_input(shard, Input::Overslept);
    }

    pub(super) fn wake_shard(&mut self, shard: usize, at: Time) {
        let process = &mut self.shards[shard];
        process.wake = process.wake.filter(|wake| *wake != at);
        if process.node.deadline().is_some_and(|at| at <= self.now) {
            self.shard_input(shard, Input::Wake);
        }
        self.plan_shard_wake(shard);
    }

    fn plan_shard_wake(&mut self, shard: usize) {
        let late = self.span(self.settings.late);
        let ShardProcess { node, wake, ended, .. } = &mut self.shards[shard];
        let Some(at) = node.deadline().filter(|_| ended.is_none()) else { return };
        if wake.is_none_or(|wake| wake > at + self.settings.late) {
            *wake = Some(at + late);
            self.after((at + late) - self.now, Entry::WakeShard(shard));
        }
    }
}
