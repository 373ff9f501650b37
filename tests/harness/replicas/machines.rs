//! Machines of a lab: their connections, and the faults that hit them.

use std::collections::VecDeque;
use std::time::Duration;

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Input, decode_input};
use pstrain_wire::Message;
use pstrain_wire::identity::Identity;
use pstrain_wire::replica::{EntryKind, Stage, Vote};

use super::{Fallen, Happening, Lab, Machine, Process, Rank, ReplicaFault, SERVERS};

/// An item that travels on a connection.
#[derive(Debug)]
pub(super) enum Item {
    Open,
    Message(Message),
    Hangup,
}

/// A primary that dies once its standby is back.
#[derive(Debug)]
pub(super) struct Return {
    /// The primary, once the replicas have lost each other.
    pub(super) victim: Option<usize>,
    /// True if a worker is bound to it.
    pub(super) binds: bool,
}

/// A connection between two processes: two directions, each in order.
#[derive(Debug)]
pub(super) struct Link {
    caller: usize,
    callee: usize,
    to_caller: Way,
    to_callee: Way,
}

/// The direction to one end of a connection.
#[derive(Debug, Default)]
struct Way {
    items: VecDeque<Item>,
    last: Time,
    /// True if the receiving end has closed it, or knows that it is gone.
    closed: bool,
    /// True if an item was lost: nothing after it arrives, either.
    broken: bool,
}

impl Link {
    fn way(&mut self, to_callee: bool) -> &mut Way {
        if to_callee { &mut self.to_callee } else { &mut self.to_caller }
    }
}

impl Lab {
    /// True if two processes can reach each other now.
    fn can_reach(&self, one: usize, other: usize) -> bool {
        !self.cut.contains(&(one.min(other), one.max(other)))
    }

    pub(super) fn dialled(&mut self, by: usize, address: &str) {
        let callee: usize = address.trim_start_matches(SERVERS).parse().expect("an address");
        if !self.processes[callee].runs || !self.can_reach(by, callee) {
            let why = "nobody answers".to_owned();
            return self.input(by, Input::DialFailed { why, fault: DialFault::Temporary });
        }
        let link = self.links.len();
        let (to_caller, to_callee) = (Way::default(), Way::default());
        self.links.push(Link { caller: by, callee, to_caller, to_callee });
        self.put(link, true, Item::Open);
        self.put(link, false, Item::Open);
    }

    fn put(&mut self, link: usize, to_callee: bool, item: Item) {
        let takes = self.span(self.delay) + self.delay;
        let at = self.now + takes;
        let Link { caller, callee, .. } = self.links[link];
        let reach = self.can_reach(caller, callee);
        let way = self.links[link].way(to_callee);
        way.broken |= !reach;
        if way.broken {
            return;
        }
        way.last = way.last.max(at);
        way.items.push_back(item);
        let span = way.last - self.now;
        self.after(span, Happening::Arrives { link, at_callee: to_callee });
    }

    pub(super) fn send(&mut self, process: usize, peer: PeerId, item: Item) {
        if let Item::Message(message) = &item {
            let asks = matches!(message, Message::VoteRequest(_)) && !self.leads(process);
            self.result.asked += u64::from(asks);
            self.count(message);
        }
        let link = peer.0 as usize;
        let to_callee = self.links[link].caller == process;
        if !self.links[link].way(!to_callee).closed {
            self.put(link, to_callee, item);
        }
    }

    /// Counts the gradients that are sent to standbys.
    fn count(&mut self, message: &Message) {
        let result = &mut self.result;
        match message {
            Message::Combined(_) => result.replicated += 1,
            Message::Entry(entry) if matches!(entry.header.kind, EntryKind::Bare(_)) => {
                result.bare += 1;
            }
            Message::Entry(entry) if entry.header.kind == EntryKind::Input => {
                let (_, input) = decode_input(&entry.input).expect("an input");
                result.replicated +=
                    u64::from(matches!(input, Input::Message(_, Message::Push(_))));
            }
            _ => {}
        }
    }

    pub(super) fn close(&mut self, process: usize, peer: PeerId) {
        self.send(process, peer, Item::Hangup);
        let link = peer.0 as usize;
        let is_caller = self.links[link].caller == process;
        self.links[link].way(!is_caller).closed = true;
    }

    pub(super) fn arrives(&mut self, link: usize, at_callee: bool) {
        let Link { caller, callee, .. } = self.links[link];
        let process = if at_callee { callee } else { caller };
        let way = self.links[link].way(at_callee);
        let Some(item) = way.items.pop_front().filter(|_| !way.closed) else { return };
        let peer = PeerId(link as u64);
        let input = match item {
            Item::Open if at_callee => Input::Connected(peer, Identity::Anyone),
            Item::Open => Input::Dialled(peer, Identity::Anyone),
            Item::Message(message) => Input::Message(peer, message),
            Item::Hangup => {
                way.closed = true;
                Input::Disconnected { peer, why: "it was closed".into() }
            }
        };
        self.input(process, input);
    }

    /// Kills a process; its system closes its connections.
    pub(super) fn kill(&mut self, process: usize) {
        for link in 0..self.links.len() {
            let Link { caller, callee, .. } = self.links[link];
            if caller == process || callee == process {
                self.close(process, PeerId(link as u64));
            }
        }
        self.processes[process].runs = false;
    }

    /// Lets a fault hit one of the replicas of a server, if both run and are paired.
    pub(super) fn disturb(&mut self) {
        if self.calm || self.ended() {
            return;
        }
        let lease = self.job().membership.lease;
        let span = self.span(lease * 4);
        self.after(span, Happening::Disturb);
        let server = self.rng.below(u64::from(self.servers)) as u32;
        let running: Vec<usize> = self.replicas_of(server).collect();
        let is_stopped = running.iter().any(|&it| self.processes[it].stopped.is_some());
        let &[one, other] = &running[..] else { return };
        if !running.iter().all(|&it| self.is_paired(it)) || is_stopped || !self.cut.is_empty() {
            return;
        }
        let victim = if self.rng.below(2) == 0 { one } else { other };
        if self.now < self.settles_until {
            return;
        }
        let long = lease.mul_f64(0.1 + 3.0 * self.rng.unit());
        // Workers reconnect to one server after the other.
        self.settles_until = self.now + long + lease * (2 * self.servers);
        let what = self.rng.below(5);
        let fate = [
            Some(ReplicaFault::Killed),
            Some(ReplicaFault::Killed),
            Some(ReplicaFault::Stopped),
            None,
        ];
        let fate = fate.get(what as usize).copied().unwrap_or(Some(ReplicaFault::CutOff));
        let (at, replaced) = (self.now, false);
        let fate = fate.filter(|_| self.leads(victim));
        self.fallen = fate.map(|fate| Fallen { server, fate, at, replaced });
        match what {
            0 | 1 => self.kill(victim),
            2 => {
                let until = self.now + long;
                self.processes[victim].stopped = Some((until, Vec::new()));
                self.after(long, Happening::GoOn(victim));
            }
            3 => {
                self.cut = vec![(one.min(other), one.max(other))];
                self.break_off(long);
            }
            _ => {
                let all = (0..self.processes.len()).filter(|&it| it != victim);
                self.cut = all.map(|it| (it.min(victim), it.max(victim))).collect();
                self.break_off(long);
            }
        }
    }

    /// Cuts the last server off for some leases.
    pub(super) fn cut_off_last(&mut self) {
        let lease = self.job().membership.lease;
        let last = self.servers as usize - 1;
        let all = (0..self.processes.len()).filter(|&it| it != last);
        self.cut = all.map(|it| (it.min(last), it.max(last))).collect();
        let long = lease.mul_f64(3.0 + 5.0 * self.rng.unit());
        self.break_off(long);
    }

    /// Parts the replicas of a server, so that one of them can be killed during its election.
    pub(super) fn part(&mut self) {
        let running: Vec<usize> = self.replicas_of(self.job().servers - 1).collect();
        let rank = self.ambush.map_or(Rank::Primary, |(rank, _)| rank);
        let &[primary, standby] = &running[..] else {
            return self.after(self.delay, Happening::Disturb);
        };
        if !self.is_paired(primary) || !self.is_paired(standby) {
            return self.after(self.delay, Happening::Disturb);
        }
        self.calm = true;
        let lease = self.job().membership.lease;
        if let Some(returns) = &mut self.returns {
            returns.victim = Some(primary);
        }
        match rank {
            Rank::Primary => {
                self.cut = vec![(primary, standby)];
                self.break_off(lease * if self.returns.is_some() { 1 } else { 4 });
            }
            Rank::Standby => {
                self.processes[primary].stopped = Some((Time::from_nanos(u64::MAX), Vec::new()));
            }
        }
    }

    /// Kills the process if this vote is the one at which it must die. Returns true if so.
    pub(super) fn falls(&mut self, process: usize) -> bool {
        let Some((rank, promises)) = &mut self.ambush else { return false };
        *promises -= 1;
        if *promises > 0 {
            return false;
        }
        let rank = *rank;
        self.ambush = None;
        self.kill(process);
        self.cut.clear();
        if rank == Rank::Standby {
            let is_stopped = |process: &Process| process.stopped.is_some();
            let stopped = self.processes.iter().position(is_stopped);
            self.go_on(stopped.expect("the primary"));
        }
        true
    }

    /// True if a binding vote must not get through.
    pub(super) fn is_deaf(&mut self, process: usize, message: &Message) -> bool {
        let Some(Return { victim, binds, .. }) = &mut self.returns else { return false };
        let is_bound =
            matches!(message, Message::Vote(Vote { stage: Stage::Binds, granted: true, .. }));
        let is_it = is_bound && *victim == Some(process);
        *binds |= is_it;
        is_it
    }

    /// True if this input is the return of the standby, at which the process dies. Its answers to
    /// the standby are lost.
    pub(super) fn is_last_heard(&mut self, process: usize, input: &Input) -> bool {
        let Input::Message(peer, Message::Follow(_)) = input else { return false };
        let dies = self.returns.take_if(|it| it.binds && it.victim == Some(process)).is_some();
        if dies {
            let Link { caller, callee, .. } = self.links[peer.0 as usize];
            self.cut = vec![(caller.min(callee), caller.max(callee))];
            self.result.returns += 1;
        }
        dies
    }

    pub(super) fn is_paired(&self, process: usize) -> bool {
        matches!(&*self.processes[process].node, Machine::Replica { paired: true, .. })
    }

    /// Loses everything under way between processes that are cut off from each other.
    fn break_off(&mut self, long: Duration) {
        for link in 0..self.links.len() {
            let Link { caller, callee, .. } = self.links[link];
            if !self.can_reach(caller, callee) {
                let is_open = |item: &Item| matches!(item, Item::Open);
                if self.links[link].to_caller.items.iter().any(is_open) {
                    let why = "nobody answers".to_owned();
                    let failed = Input::DialFailed { why, fault: DialFault::Temporary };
                    self.after(self.delay, Happening::To(caller, failed));
                }
                for to_callee in [true, false] {
                    let way = self.links[link].way(to_callee);
                    way.broken = true;
                    way.items.clear();
                }
            }
        }
        self.after(long, Happening::Heal);
    }

    /// Lets a stopped process continue.
    pub(super) fn go_on(&mut self, process: usize) {
        if let Some((_, held)) = self.processes[process].stopped.take() {
            self.input(process, Input::Overslept);
            held.into_iter().for_each(|(process, input)| self.input(process, input));
            self.wake(process);
            self.plan_wake(process);
        }
    }
}
