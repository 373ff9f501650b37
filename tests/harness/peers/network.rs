//! The connections of the lab.

use std::collections::VecDeque;

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Input};
use pstrain_wire::Message;
use pstrain_wire::identity::Identity;

use super::{Happening, Lab, State};

const DIALLER: usize = 0;
const LISTENER: usize = 1;

/// An item that travels on a connection.
#[derive(Debug)]
enum Item {
    Open,
    Message(Message),
    Hangup,
}

/// A connection: the processes at its ends, and the items on their way to each.
#[derive(Debug)]
pub(super) struct Link {
    /// None is at the dialler's end of a connection that was given up at once.
    ends: [Option<usize>; 2],
    open: [bool; 2],
    items: [VecDeque<Item>; 2],
    last: [Time; 2],
    /// The dialler has an answer.
    answered: bool,
}

impl Lab<'_> {
    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now)
    }

    pub(super) fn dial(&mut self, by: usize, target: usize) {
        if matches!(self.processes[target].state, State::Gone) {
            let failed =
                Input::DialFailed { why: "nobody answers".into(), fault: DialFault::Temporary };
            return self.after(self.delay * 2, Happening::Input(by, failed));
        }
        let is_blocked = self.apart.is_blocked(by, target);
        if is_blocked || self.is_cut(by, target) || self.is_cut(target, by) {
            let takes = self.span(self.toy.job.membership.lease);
            let failed =
                Input::DialFailed { why: "no answer in time".into(), fault: DialFault::Temporary };
            return self.after(takes, Happening::Input(by, failed));
        }
        if self.duplicates && self.random.below(10) == 0 {
            self.abandoned(target, None);
        }
        let link = self.link([Some(by), Some(target)]);
        self.put(link, LISTENER, Item::Open);
        self.put(link, DIALLER, Item::Open);
        // As long as a dial over a socket, with a lease of five seconds.
        self.after(self.toy.job.membership.lease, Happening::DialOver(link));
    }

    /// A dial has taken as long as one may.
    pub(super) fn dial_over(&mut self, link: usize) {
        let [Some(dialler), _] = self.links[link].ends else { return };
        if self.links[link].answered || matches!(self.processes[dialler].state, State::Gone) {
            return;
        }
        self.links[link].answered = true;
        self.close(dialler, PeerId(link as u64));
        let failed =
            Input::DialFailed { why: "no answer in time".into(), fault: DialFault::Temporary };
        self.input(dialler, failed);
    }

    fn link(&mut self, ends: [Option<usize>; 2]) -> usize {
        let items = [VecDeque::new(), VecDeque::new()];
        let last = [self.now; 2];
        self.links.push(Link { ends, open: [true; 2], items, last, answered: false });
        self.links.len() - 1
    }

    /// A connection that its dialler gives up at once, after a first message perhaps.
    fn abandoned(&mut self, target: usize, first: Option<Message>) {
        let link = self.link([None, Some(target)]);
        self.put(link, LISTENER, Item::Open);
        first.into_iter().for_each(|message| self.put(link, LISTENER, Item::Message(message)));
        if self.random.below(2) == 0 {
            self.put(link, LISTENER, Item::Hangup);
        }
    }

    fn put(&mut self, link: usize, end: usize, item: Item) {
        let at = self.now + self.delay + self.span(self.delay);
        let it = &mut self.links[link];
        it.last[end] = it.last[end].max(at);
        it.items[end].push_back(item);
        let span = it.last[end].since(self.now);
        self.after(span, Happening::Arrives(link, end));
    }

    fn end_of(&self, process: usize, peer: PeerId) -> Option<usize> {
        let it = &self.links[peer.0 as usize];
        (0..2).find(|end| it.ends[*end] == Some(process)).filter(|end| it.open[*end])
    }

    /// The process at the other end of a connection.
    pub(super) fn other_end(&self, process: usize, peer: PeerId) -> Option<usize> {
        let ends = self.links[peer.0 as usize].ends;
        ends.into_iter().flatten().find(|end| *end != process)
    }

    pub(super) fn send(&mut self, process: usize, peer: PeerId, message: Message) {
        let Some(end) = self.end_of(process, peer) else { return };
        let link = peer.0 as usize;
        if let (Message::Meet(_), Some(target)) = (&message, self.links[link].ends[LISTENER])
            && self.duplicates
            && self.random.below(30) == 0
        {
            self.abandoned(target, Some(message.clone()));
        }
        self.put(link, 1 - end, Item::Message(message));
    }

    pub(super) fn close(&mut self, process: usize, peer: PeerId) {
        let Some(end) = self.end_of(process, peer) else { return };
        self.links[peer.0 as usize].open[end] = false;
        self.put(peer.0 as usize, 1 - end, Item::Hangup);
    }

    /// Breaks an open connection, with all that is on its way. Returns false if there is none.
    pub(super) fn breaks(&mut self) -> bool {
        let open = |it: &Link| it.open == [true; 2] && it.ends.iter().all(Option::is_some);
        let open: Vec<usize> = (0..self.links.len()).filter(|it| open(&self.links[*it])).collect();
        if open.is_empty() {
            return false;
        }
        let link = open[self.random.below(open.len() as u64) as usize];
        for end in [DIALLER, LISTENER] {
            // A dial that is under way is answered first.
            self.links[link].items[end].retain(|item| matches!(item, Item::Open));
            self.put(link, end, Item::Hangup);
        }
        true
    }

    /// A process is gone, and its system closes its connections.
    pub(super) fn end(&mut self, process: usize) {
        self.processes[process].state = State::Gone;
        for link in 0..self.links.len() {
            self.close(process, PeerId(link as u64));
        }
    }

    pub(super) fn arrives(&mut self, link: usize, end: usize) {
        let Link { ends, .. } = self.links[link];
        if let [Some(from), Some(to)] = [ends[1 - end], ends[end]]
            && let Some(until) = self.cuts.get(&(from, to)).filter(|until| **until > self.now)
        {
            let span = until.since(self.now) + self.delay;
            return self.after(span, Happening::Arrives(link, end));
        }
        let it = &mut self.links[link];
        let Some(item) = it.items[end].pop_front() else { return };
        let Some(process) = ends[end].filter(|_| it.open[end]) else { return };
        let peer = PeerId(link as u64);
        let input = match item {
            Item::Open if end == DIALLER => {
                it.answered = true;
                Input::Dialled(peer, Identity::Anyone)
            }
            Item::Open => Input::Connected(peer, Identity::Anyone),
            Item::Message(message) => Input::Message(peer, message),
            Item::Hangup => {
                it.open[end] = false;
                Input::Disconnected { peer, why: "closed by the peer".into() }
            }
        };
        self.input(process, input);
    }
}
