//! The world as a table of numbers: the state of each process, and the messages between them.

use std::collections::VecDeque;

use pstrain_compute::id::PeerId;
use pstrain_wire::Message;

use super::automaton::{Automata, Deed, Stimulus};
use super::{Bounds, Grain};

const COORDINATOR: usize = 0;
const SHARD: usize = 1;
const FIRST_WORKER: usize = 2;
/// Most connections of one process to another at a time.
const GENERATIONS: u64 = 16;

/// One state of the world.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// The coordinator, the other server, the workers.
    processes: Vec<Process>,
    /// Connections in the order of their ids.
    links: Vec<Link>,
    /// The connection on which the coordinator has enlisted the other server.
    enlisted: Option<PeerId>,
    /// Decisions that the other server has followed.
    followed: u32,
    /// True if the coordinator has ended the run.
    ended: bool,
    crashes: u8,
    /// Which events take time.
    grain: Grain,
}

#[derive(Clone, Copy, Debug, Default)]
struct Process {
    state: u32,
    /// The order for the gradient that is being computed.
    computing: Option<u32>,
    /// True if the process has finished, or the server that it dials has.
    done: bool,
}

/// A connection: two ordered pipes.
#[derive(Clone, Debug)]
struct Link {
    id: PeerId,
    /// The dialled end and the dialling end.
    ends: [End; 2],
    /// True if messages under way may be lost, since a process has crashed.
    torn: bool,
}

#[derive(Clone, Debug, Default)]
struct End {
    process: usize,
    /// True if the process knows of the connection.
    knows: bool,
    closed: bool,
    /// Messages on their way to this end.
    messages: VecDeque<u32>,
}

/// A possible next event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// The next message arrives at an end of a connection.
    Deliver(usize, usize),
    /// An end learns that the connection is gone.
    Tell(usize, usize),
    /// A gradient has been computed.
    Compute(usize),
    /// A process crashes and restarts.
    Crash(usize),
    /// Nothing else can happen: the coordinator has waited for a lease for the goodbye of a peer
    /// that is gone.
    Expire,
}

impl Action {
    const fn is_message(&self) -> bool {
        matches!(self, Self::Deliver(..) | Self::Tell(..))
    }
}

impl World {
    /// Starts all processes; if `bounds` say so, lets all workers join.
    pub(super) fn begin(bounds: Bounds, automata: &mut Automata) -> Self {
        let count = FIRST_WORKER + bounds.workers as usize;
        let mut world = Self {
            processes: vec![Process::default(); count],
            links: Vec::new(),
            enlisted: None,
            followed: 0,
            ended: false,
            crashes: bounds.crashes,
            grain: bounds.grain.min(Grain::Connections),
        };
        for process in 0..count {
            world.stimulate(process, Stimulus::Start, automata);
            while let Some(action) = world.urgent(automata) {
                world.happen(action, automata);
            }
        }
        while let Some(action) =
            world.actions().into_iter().find(Action::is_message).filter(|_| bounds.joined)
        {
            world.act(action, automata);
        }
        world.grain = bounds.grain;
        while let Some(action) = world.urgent(automata) {
            world.happen(action, automata);
        }
        world
    }

    /// Encodes everything that distinguishes this state from others.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        let mut put = |number: u32| bytes.extend_from_slice(&number.to_le_bytes());
        put(u32::from(self.crashes));
        put(self.enlisted.map_or(u32::MAX, |peer| peer.0 as u32));
        for Process { state, computing, done } in &self.processes {
            put(*state);
            put(computing.map_or(u32::MAX, |order| order));
            put(u32::from(*done));
        }
        for Link { id, ends, torn } in &self.links {
            put(id.0 as u32);
            put(u32::from(*torn));
            for End { knows, closed, messages, .. } in ends {
                put(u32::from(*knows) << 1 | u32::from(*closed));
                put(messages.len() as u32);
                messages.iter().for_each(|message| put(*message));
            }
        }
        bytes
    }

    /// Returns all actions that are possible in this state.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            for end in 0..2 {
                let (this, other) = (&link.ends[end], &link.ends[1 - end]);
                if this.closed {
                    continue;
                }
                if !this.messages.is_empty() {
                    actions.push(Action::Deliver(number, end));
                }
                if other.closed && (this.messages.is_empty() || link.torn) {
                    actions.push(Action::Tell(number, end));
                }
            }
        }
        for (number, process) in self.processes.iter().enumerate() {
            if process.computing.is_some() {
                actions.push(Action::Compute(number));
            }
        }
        if actions.is_empty() && self.ended && !self.processes[COORDINATOR].done {
            actions.push(Action::Expire);
        }
        for (number, process) in self.processes.iter().enumerate() {
            if self.crashes > 0 && !process.done && !self.processes[COORDINATOR].done {
                actions.push(Action::Crash(number));
            }
        }
        actions
    }

    /// Describes an action.
    pub(super) fn words(&self, action: Action, automata: &Automata) -> String {
        let name = |process: usize| match process {
            COORDINATOR => "coordinator".to_owned(),
            SHARD => "other server".to_owned(),
            _ => format!("worker {}", process - 1),
        };
        match action {
            Action::Deliver(link, end) => {
                let Link { id, ends, .. } = &self.links[link];
                let (to, from) = (name(ends[end].process), name(ends[1 - end].process));
                let message = ends[end].messages.front().map(|it| automata.words.message(*it));
                format!("{from} -> {to} ({id:?}): {message:?}")
            }
            Action::Tell(link, end) => {
                let Link { id, ends, .. } = &self.links[link];
                let lost = ends[end].messages.len();
                format!(
                    "{} hears that {id:?} is gone, with {lost} messages",
                    name(ends[end].process)
                )
            }
            Action::Compute(process) => format!("{} has computed", name(process)),
            Action::Crash(process) => format!("{} crashes", name(process)),
            Action::Expire => "a lease passes".to_owned(),
        }
    }

    /// Performs an action, and all that follows from it at once.
    pub(super) fn act(&mut self, action: Action, automata: &mut Automata) {
        let mut next = Some(action);
        while let Some(action) = next {
            self.happen(action, automata);
            next = self.urgent(automata);
        }
    }

    fn happen(&mut self, action: Action, automata: &mut Automata) {
        match action {
            Action::Deliver(link, end) => self.deliver(link, end, automata),
            Action::Tell(link, end) => {
                let Link { id, ends, .. } = &mut self.links[link];
                let (id, end) = (*id, &mut ends[end]);
                end.closed = true;
                end.messages.clear();
                let (process, knows) = (end.process, end.knows);
                self.forget_closed(id);
                if knows {
                    self.stimulate(process, Stimulus::Disconnected(id), automata);
                }
            }
            Action::Compute(process) => {
                if let Some(order) = self.processes[process].computing.take() {
                    self.stimulate(process, Stimulus::Computed(order), automata);
                }
            }
            Action::Crash(process) => self.crash(process, automata),
            Action::Expire => self.stimulate(COORDINATOR, Stimulus::Wake, automata),
        }
    }

    fn deliver(&mut self, link: usize, end: usize, automata: &mut Automata) {
        let Link { id, ends, .. } = &mut self.links[link];
        let (id, end) = (*id, &mut ends[end]);
        let process = end.process;
        let first = !std::mem::replace(&mut end.knows, true);
        let Some(message) = end.messages.pop_front() else { return };
        if first {
            self.stimulate(process, Stimulus::Connected(id), automata);
        }
        let mut told = None;
        match automata.words.message(message) {
            Message::Decisions(decisions) => {
                let last = decisions.first as u32 + decisions.decisions.len() as u32;
                self.followed = self.followed.max(last);
                told = self.enlisted;
            }
            Message::Enlist(_) => told = Some(id),
            _ => {}
        }
        self.stimulate(process, Stimulus::Message(id, message), automata);
        if process == COORDINATOR && told.is_some() && self.is_open(id, COORDINATOR) {
            self.enlisted = told;
        }
        if let Some(peer) = told.filter(|_| self.enlisted == told) {
            self.stimulate(COORDINATOR, Stimulus::Followed(peer, self.followed), automata);
        }
    }

    /// Crashes a process: its connections and all messages under way on them are lost. A worker
    /// also loses all its state, a server none.
    fn crash(&mut self, process: usize, automata: &mut Automata) {
        self.crashes -= 1;
        let mut known = Vec::new();
        for link in &mut self.links {
            for end in link.ends.iter_mut().filter(|end| end.process == process && !end.closed) {
                end.closed = true;
                end.messages.clear();
                link.torn = true;
                known.extend(end.knows.then_some(link.id));
            }
        }
        self.links.retain(|link| link.ends.iter().any(|end| !end.closed));
        if process >= FIRST_WORKER {
            self.processes[process] = Process::default();
            return self.stimulate(process, Stimulus::Start, automata);
        }
        if self.enlisted.is_some_and(|peer| process == COORDINATOR && known.contains(&peer)) {
            self.enlisted = None;
        }
        for peer in known {
            self.stimulate(process, Stimulus::Disconnected(peer), automata);
        }
        self.stimulate(process, Stimulus::Overslept, automata);
    }

    fn link(&mut self, id: PeerId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == id)
    }

    fn is_open(&self, id: PeerId, process: usize) -> bool {
        let link = self.links.iter().find(|link| link.id == id);
        link.is_some_and(|link| link.ends.iter().any(|end| end.process == process && !end.closed))
    }

    fn forget_closed(&mut self, id: PeerId) {
        if self.enlisted == Some(id) && !self.is_open(id, COORDINATOR) {
            self.enlisted = None;
        }
        self.links.retain(|link| link.id != id || link.ends.iter().any(|end| !end.closed));
    }

    /// Hands an input to a process and carries out its deeds, until nothing more follows.
    fn stimulate(&mut self, process: usize, stimulus: Stimulus, automata: &mut Automata) {
        let mut queue = VecDeque::from([(process, stimulus)]);
        while let Some((process, stimulus)) = queue.pop_front() {
            let state = self.processes[process].state;
            let (next, deeds) = automata.step(process, state, stimulus);
            self.processes[process].state = next;
            for deed in deeds.iter() {
                match *deed {
                    Deed::Send(peer, message) => self.send(process, peer, message),
                    Deed::Close(peer) => self.close(process, peer),
                    Deed::Dial { coordinator } => {
                        queue.extend(self.dial(process, coordinator).map(|it| (process, it)));
                    }
                    Deed::Redials => queue.push_back((process, Stimulus::Wake)),
                    Deed::Prepare => queue.push_back((process, Stimulus::Prepared)),
                    Deed::Compute(order) => self.processes[process].computing = Some(order),
                    Deed::Evaluate(point) => {
                        queue.push_back((process, Stimulus::Evaluated(point)));
                    }
                    Deed::End => self.ended = true,
                    Deed::Done => self.finish(process),
                }
            }
        }
    }

    /// Returns an action that happens before all others, since it takes no time.
    fn urgent(&self, automata: &Automata) -> Option<Action> {
        if self.grain == Grain::Messages {
            return None;
        }
        let ends = || self.links.iter().enumerate().flat_map(|it| [(it, 0), (it, 1)]);
        let gone = ends().find(|&((_, link), end)| {
            let (this, other) = (&link.ends[end], &link.ends[1 - end]);
            !this.closed && other.closed && (link.torn || this.messages.is_empty())
        });
        let arrives = |takes_no_time: &dyn Fn(&Link, usize, u32) -> bool| {
            let next = |link: &Link, end: usize| link.ends[end].messages.front().copied();
            let found = ends().find(|&((_, link), end)| {
                next(link, end).is_some_and(|next| takes_no_time(link, end, next))
            });
            found.map(|((number, _), end)| Action::Deliver(number, end))
        };
        let is_worker = |link: &Link, end: usize| link.ends[end].process >= FIRST_WORKER;
        let is_report = |link: &Link, end: usize| link.ends[1 - end].process == SHARD;
        let computed = || {
            let computing = |process: &usize| self.processes[*process].computing.is_some();
            (FIRST_WORKER..self.processes.len()).find(computing).map(Action::Compute)
        };
        let gone = gone.map(|((number, _), end)| Action::Tell(number, end));
        gone.or_else(|| arrives(&|_, _, message| automata.words.is_handshake(message))).or_else(
            || {
                arrives(&|link, end, _| is_worker(link, end) || is_report(link, end))
                    .or_else(computed)
                    .filter(|_| self.grain == Grain::Decisions)
            },
        )
    }

    fn send(&mut self, from: usize, peer: PeerId, message: u32) {
        let Some(link) = self.link(peer) else { return };
        let to = usize::from(link.ends[0].process == from);
        if !link.ends[to].closed {
            link.ends[to].messages.push_back(message);
        }
    }

    fn close(&mut self, process: usize, peer: PeerId) {
        let Some(link) = self.link(peer) else { return };
        for end in link.ends.iter_mut().filter(|end| end.process == process) {
            end.closed = true;
            end.messages.clear();
        }
        self.forget_closed(peer);
    }

    fn dial(&mut self, process: usize, coordinator: bool) -> Option<Stimulus> {
        let callee = if coordinator { COORDINATOR } else { SHARD };
        if self.processes[callee].done {
            self.processes[process].done = true; // there is no server left to find
            return None;
        }
        let pair = (process * FIRST_WORKER + callee) as u64 * GENERATIONS;
        let ids = (pair..pair + GENERATIONS).map(PeerId);
        let is_free = |id: &PeerId| self.links.iter().all(|link| link.id != *id);
        let id = ids.into_iter().find(is_free).expect("more connections than there is need for");
        let end = |process, knows| End { process, knows, ..End::default() };
        let link = Link { id, ends: [end(callee, false), end(process, true)], torn: false };
        let place = self.links.partition_point(|link| link.id < id);
        self.links.insert(place, link);
        Some(Stimulus::Dialled(id))
    }

    fn finish(&mut self, process: usize) {
        self.processes[process].done = true;
        self.processes[process].computing = None;
        let ids: Vec<PeerId> = self.links.iter().map(|link| link.id).collect();
        ids.into_iter().for_each(|id| self.close(process, id));
    }

    /// Checks a state in which nothing can happen: every process must have finished.
    pub(super) fn check_end(&self, automata: &mut Automata) {
        assert!(self.processes.iter().all(|process| process.done), "stuck: {self:#?}");
        automata.check_end(self.processes[COORDINATOR].state);
    }
}
