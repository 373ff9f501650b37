//! Observation of a lab: checks and counts messages, events and the ends of processes.

use pstrain_roles::node::{Departure, Event, NodeError};
use pstrain_wire::worker::EndReason;
use pstrain_wire::{Message, Refusal};

use super::{Lab, Machine, Replaced};

impl Lab {
    /// Checks that every worker receives the same parameters and the same decisions.
    pub(super) fn look_at(&mut self, process: usize, message: &Message) {
        let Machine::Worker(worker) = &*self.processes[process].node else { return };
        let decided = match message {
            Message::Parameters(parameters) => {
                let version = parameters.header.version;
                let keys = parameters.header.keys;
                // Under a pull filter each worker has a copy of its own.
                if self.job().filters.pull.is_none() {
                    let seen = self.seen.entry((version, keys));
                    let seen = seen.or_insert_with(|| parameters.values.to_vec());
                    let seed = self.seed;
                    assert_eq!(*seen, *parameters.values, "seed {seed}: two versions {version}");
                }
                parameters.header.decided
            }
            Message::Ack(decided) => Some(*decided),
            _ => None,
        };
        if let (Some(decided), Some(id)) = (decided, worker.id()) {
            let incarnation = worker.incarnation().expect("it has been welcome");
            let key = (id, incarnation, decided.sequence);
            let before = *self.decided.entry(key).or_insert_with(|| decided.dropped.is_some());
            let seed = self.seed;
            assert_eq!(
                before,
                decided.dropped.is_some(),
                "seed {seed}: push {key:?} has two fates"
            );
        }
    }

    pub(super) fn report(&mut self, process: usize, event: &Event) {
        match event {
            Event::StandbyJoined { .. } => {
                if let Machine::Replica { node, paired, .. } = &mut *self.processes[process].node {
                    *paired = true;
                    if let Some(server) = node.server() {
                        self.result.joined_at = (server.version().0, server.ledger().applied);
                    }
                }
                if self.leads(process) {
                    // A worker that has not heard of the standby yet could not find it.
                    self.settles_until = self.settles_until.max(self.now + self.delay * 2);
                }
            }
            Event::EvaluationRequested { .. } => self.result.evaluations += 1,
            Event::StandbyLost { .. } => {
                self.result.alone += 1;
                if let Machine::Replica { paired, .. } = &mut *self.processes[process].node {
                    *paired = false;
                }
            }
            Event::TookOver { .. } => {
                self.result.takeovers += 1;
                self.note_replaced(process);
                if let Machine::Replica { paired, .. } = &mut *self.processes[process].node {
                    *paired = false;
                }
            }
            Event::Updated { .. } if self.leads(process) => {
                let fallen = self.fallen.take_if(|fallen| fallen.replaced);
                if let (Some(fallen), Some(it)) = (fallen, self.result.replaced.last_mut()) {
                    it.updated = Some(self.now.since(fallen.at));
                }
            }
            Event::KeysMoved { .. } if self.leads(process) => self.result.moves += 1,
            Event::Ended { .. } if self.leads(process) => self.over = true,
            Event::Enlisted { .. } if self.leads(process) => {
                if let Machine::Replica { server, .. } = &*self.processes[process].node {
                    self.holders.insert(*server);
                }
            }
            Event::Departed { how: Departure::Lost, .. } if !self.ended() => {
                self.result.departed += 1;
            }
            _ => {}
        }
    }

    /// Records that another replica leads in place of a server that a fault hit.
    fn note_replaced(&mut self, process: usize) {
        let Machine::Replica { server, .. } = &*self.processes[process].node else { return };
        let Some(fallen) = &mut self.fallen else { return };
        if fallen.server == *server && !std::mem::replace(&mut fallen.replaced, true) {
            let (fate, coordinated, delay) = (fallen.fate, *server == 0, self.delay);
            let led = self.now.since(fallen.at);
            self.result.replaced.push(Replaced { fate, coordinated, led, updated: None, delay });
        }
    }

    pub(super) fn done(&mut self, process: usize, result: Result<EndReason, NodeError>) {
        let seed = self.seed;
        match (&*self.processes[process].node, result) {
            (Machine::Replica { node, .. }, Ok(reason)) => {
                // Once both replicas have the end either may finish alone, and the other then finds
                // no servers.
                let is_over = self.result.reason.is_some_and(|reason| reason.is_success());
                if let Some(server) = node.server()
                    && (node.leads() && !is_over || self.result.reason.is_none())
                {
                    self.result.reason = Some(reason);
                    self.result.parameters.clone_from(server.parameters());
                    self.result.version = server.version();
                    self.result.ledger = server.ledger();
                }
            }
            (Machine::Replica { .. }, Err(NodeError::Deposed { .. })) => self.result.deposed += 1,
            (Machine::Replica { .. }, Err(NodeError::Unreachable { .. })) if self.disturbed => {}
            // It came too late, or stands by for a server that had no keys then.
            (
                Machine::Replica { server, address, .. },
                Err(NodeError::Refused(Refusal::Server { .. })),
            ) if self.disturbed
                && (!self.holders.contains(server)
                    || *server >= self.toy.job.servers && !address.is_empty()) => {}
            (Machine::Replica { .. }, Err(NodeError::Abandoned { .. })) if self.disturbed => {}
            (Machine::Worker(_), Err(NodeError::Unreachable { .. })) if self.ended() => {}
            (Machine::Worker(_), Err(NodeError::Refused(why))) if self.over => {
                assert_eq!(why, Refusal::Over, "seed {seed}");
            }
            (_, Err(error)) => panic!("seed {seed}: process {process} failed: {error}"),
            (Machine::Worker(_), Ok(reason)) => {
                assert!(reason.is_success(), "seed {seed}: a worker was told: {reason}");
            }
        }
        self.kill(process);
    }
}
