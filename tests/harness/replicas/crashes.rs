//! Servers with a log: a crash loses their memory, and they resume from their disk.

use std::time::Duration;

use pstrain_compute::id::ServerId;
use pstrain_compute::saved::Saved;
use pstrain_roles::node::{
    DialFault, Durable, Input, Node, Outbox, Replica, ReplicaConfig, Server, Shard, ShardConfig,
    decode_input, encode_input,
};
use pstrain_wire::group::Place;

use super::{Happening, Lab, Machine};

/// The disk of a server.
#[derive(Debug, Default)]
pub(super) struct Disk {
    checkpoint: Option<Saved>,
    /// The inputs since the checkpoint.
    inputs: Vec<Vec<u8>>,
}

impl Lab {
    /// Builds a server in its initial state: a leader, or a standby of the leader at `address`. The
    /// coordinator is at `coordinator`.
    pub(super) fn begins(
        &self,
        process: usize,
        server: u32,
        [address, coordinator]: [&str; 2],
    ) -> Replica {
        let config = ReplicaConfig { leader: address.to_owned(), ..self.replica(process) };
        if !address.is_empty() {
            return Replica::standby(config, self.job().clone()).expect("a valid job");
        }
        if server == 0 {
            let server = Server::new(self.job().clone(), 1).expect("a valid job");
            return Replica::primary(config, server);
        }
        let servers = self.job().servers;
        let shard = Shard::new(ShardConfig {
            place: if server < servers {
                Place::First { server: ServerId(server), servers }
            } else {
                Place::Wanted
            },
            address: config.address.clone(),
            lease: self.job().membership.lease,
            stream: self.stream(process).fork("shard", 0),
        });
        Replica::primary_shard(config, shard.follows(coordinator.to_owned()))
    }

    /// Writes an input to the disk, before any of its effects are carried out.
    pub(super) fn log(&mut self, process: usize, input: &Input) {
        let mut bytes = Vec::new();
        if self.durable
            && let Some(tail) = encode_input(self.now, input, &mut bytes)
        {
            tail.append_to(&mut bytes);
            self.processes[process].disk.inputs.push(bytes);
        }
    }

    /// Saves the whole state now and then, once all effects of an input have been carried out.
    pub(super) fn rests(&mut self, process: usize) {
        if !self.durable || self.rng.below(20) > 0 {
            return;
        }
        let process = &mut self.processes[process];
        if let Machine::Replica { node, .. } = &mut *process.node
            && node.can_save()
        {
            process.disk = Disk { checkpoint: Some(node.save()), inputs: Vec::new() };
        }
    }

    /// Crashes a process, which restarts after `long`.
    pub(super) fn crash(&mut self, process: usize, long: Duration) {
        self.kill(process);
        self.happenings.retain(|_, happening| match happening {
            Happening::To(it, _) | Happening::Wake(it) | Happening::Dialled { by: it, .. } => {
                *it != process
            }
            _ => true,
        });
        self.processes[process].wakes.clear();
        self.after(long, Happening::Resume(process));
    }

    pub(super) fn resume(&mut self, process: usize) {
        let Machine::Replica { server, address, coordinator, .. } = &*self.processes[process].node
        else {
            return;
        };
        let Disk { checkpoint, inputs } = &self.processes[process].disk;
        let mut again = match checkpoint {
            Some(saved) => {
                let config = ReplicaConfig { leader: address.clone(), ..self.replica(process) };
                Replica::restore(config, self.job().clone(), saved).expect("it was saved")
            }
            None => self.begins(process, *server, [address, coordinator]),
        };
        for bytes in inputs {
            let (at, input) = decode_input(bytes).expect("it was kept");
            again.handle(at, input, &mut Outbox::new());
        }
        let (peers, unanswered, dialling) =
            (again.peers(), again.unanswered(), again.is_dialling());
        if let Machine::Replica { node, paired, .. } = &mut *self.processes[process].node {
            (*node, *paired) = (again, false);
        }
        self.processes[process].runs = true;
        unanswered.into_iter().for_each(|effect| self.obey(process, effect));
        let gone = || "the server started a new run".to_owned();
        for peer in peers {
            self.input(process, Input::Disconnected { peer, why: gone() });
        }
        if dialling {
            self.input(process, Input::DialFailed { why: gone(), fault: DialFault::Temporary });
        }
        self.input(process, Input::Overslept);
    }

    /// Crashes the standby of the last server; it is back long before a lease expires.
    pub(super) fn blink(&mut self) {
        if self.calm || self.ended() {
            return;
        }
        let lease = self.job().membership.lease;
        self.after(lease * 2, Happening::Disturb);
        let running: Vec<usize> = self.replicas_of(self.job().servers - 1).collect();
        if let &[primary, standby] = &running[..]
            && self.is_paired(primary)
            && self.is_paired(standby)
        {
            self.crash(standby, lease / 8);
        }
    }

    /// Crashes one of the replicas of a server, or all of them.
    pub(super) fn crash_some(&mut self) {
        if self.calm || self.ended() {
            return;
        }
        let lease = self.job().membership.lease;
        let span = self.span(lease * 4);
        self.after(span, Happening::Disturb);
        if self.now < self.settles_until {
            return;
        }
        let server = self.rng.below(u64::from(self.servers)) as u32;
        let mut victims: Vec<usize> = self.replicas_of(server).collect();
        if self.rng.below(3) > 0 && !victims.is_empty() {
            let only = self.rng.below(victims.len() as u64) as usize;
            victims = vec![victims[only]];
        }
        let mut longest = Duration::ZERO;
        for victim in victims {
            let long = lease.mul_f64(0.1 + 2.0 * self.rng.unit());
            longest = longest.max(long);
            self.crash(victim, long);
        }
        self.settles_until = self.now + longest + lease * 3;
    }
}
