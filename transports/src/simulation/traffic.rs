//! How messages and connections travel.

use std::iter;
use std::time::Duration;

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{DialFault, Input, Node, Target};
use pstrain_wire::Message;
use pstrain_wire::identity::Identity;

use super::connection::{Connection, End};
use super::{Due, Environment, ProcessId, Simulation, trace};

/// An item that travels over a link.
#[derive(Debug)]
pub(super) enum Item {
    /// The connection itself.
    Open,
    Message(Message),
    /// The other end has closed the connection.
    Hangup,
    /// The connection has broken: everything else that is under way is lost.
    Reset,
}

const fn peer(connection: u32) -> PeerId {
    PeerId(connection as u64)
}

impl<N: Node, E: Environment<N>> Simulation<N, E> {
    /// Begins a connection from a process to an address.
    pub(super) fn dial(&mut self, from: ProcessId, target: &Target) {
        let process = &self.processes[from.0 as usize];
        match self.environment.resolve(from, &process.node, target) {
            Some(listener) => self.connect(from, listener),
            None => {
                let why = String::from("there is no such server");
                let input = Input::DialFailed { why, fault: DialFault::Permanent };
                self.agenda.put(self.now, Due::Answer(from, process.life, input));
            }
        }
    }

    fn connect(&mut self, dialler: ProcessId, listener: ProcessId) {
        let number = self.connections.len() as u32;
        let path = self.network.path(dialler, listener);
        self.connections.push(Connection::new(dialler, listener, path));
        self.processes[dialler.0 as usize].connections.insert(number);
        self.network.reconnect(path, End::Listener);
        self.carry(number, End::Listener, Item::Open);
        let limit = self.processes[dialler.0 as usize].dial_limit;
        self.agenda.put(self.now + limit, Due::DialOver(number));
    }

    pub(super) fn dial_over(&mut self, number: u32) {
        if !self.is_awaited(number) {
            return;
        }
        self.close_end(number, End::Dialler);
        let dialler = self.connections[number as usize].at(End::Dialler);
        let limit = self.processes[dialler.0 as usize].dial_limit;
        let why = format!("no answer within {limit:?}");
        self.hand(number, End::Dialler, Input::DialFailed { why, fault: DialFault::Temporary });
    }

    /// Hands an input to the process at an end of a connection.
    fn hand(&mut self, number: u32, end: End, input: Input) {
        self.input(self.connections[number as usize].at(end), input);
    }

    /// Sends a message over a connection of a process, if that is open.
    pub(super) fn send(&mut self, from: ProcessId, peer: PeerId, message: Message) {
        let connection = &self.connections[peer.0 as usize];
        let end = connection.end_of(from);
        if connection.is_open(end) {
            self.carry(peer.0 as u32, end.other(), Item::Message(message));
        }
    }

    /// Closes the end of a process; the other end learns of it over the link.
    pub(super) fn close(&mut self, process: ProcessId, peer: PeerId) {
        let number = peer.0 as u32;
        let end = self.connections[number as usize].end_of(process);
        if self.close_end(number, end) {
            self.carry(number, end.other(), Item::Hangup);
        }
        self.environment.closed(process, peer);
    }

    /// The system of a process that has ended closes its connections.
    pub(super) fn close_all(&mut self, process: ProcessId) {
        for number in std::mem::take(&mut self.processes[process.0 as usize].connections) {
            self.close(process, peer(number));
        }
    }

    /// Marks one end of a connection as closed; false if it was already.
    fn close_end(&mut self, number: u32, end: End) -> bool {
        let connection = &mut self.connections[number as usize];
        self.processes[connection.at(end).0 as usize].connections.remove(&number);
        connection.close(end)
    }

    /// Puts an item into the link.
    fn carry(&mut self, number: u32, to: End, item: Item) {
        let connection = &self.connections[number as usize];
        let (from, goal) = (connection.at(to.other()), connection.at(to));
        let path = connection.path;
        let departure = self.network.depart(self.now, (from, goal), (path, to), &item);
        if departure.in_parts {
            let parts = parts(departure.begin, departure.end, self.heartbeat);
            let parts = parts.filter(|at| self.network.is_open(path, to, *at));
            let parts: Vec<Time> = parts.collect();
            self.trickle(number, to, &parts);
        }
        self.passes_on(departure.end, (number, to), item, (1, departure.bytes));
    }

    /// An item has passed so many legs of its path at a time.
    fn passes_on(
        &mut self,
        at: Time,
        (number, to): (u32, End),
        item: Item,
        (passed, bytes): (usize, u64),
    ) {
        let connection = &self.connections[number as usize];
        let (path, goal) = (connection.path, connection.at(to));
        let due = if self.network.goes_on((path, to), passed, goal) {
            Due::Merge(number, to, item, (passed, bytes))
        } else {
            Due::Arrive(number, to, item)
        };
        self.agenda.put(at, due);
    }

    /// A message that is under way for long comes in parts, which tell the receiver that the
    /// sender is alive.
    fn trickle(&mut self, number: u32, to: End, parts: &[Time]) {
        for at in parts {
            self.agenda.put(*at, Due::Receiving(number, to));
        }
    }

    /// Part of a message comes out of the link, unless that is cut.
    pub(super) fn receiving(&mut self, number: u32, end: End) {
        let connection = &self.connections[number as usize];
        let heard = connection.is_open(end) && !connection.is_broken();
        if !heard || self.cut_of(number).is_some() {
            return;
        }
        let whom = self.label(connection.at(End::Dialler));
        self.trace.note(self.now, trace::RECEIVING, whom, end as u64);
        self.hand(number, end, Input::Receiving(peer(number)));
    }

    /// The process at an end of a connection that is cut off, if one is.
    fn cut_of(&self, number: u32) -> Option<ProcessId> {
        let connection = &self.connections[number as usize];
        let mut ends = [End::Dialler, End::Listener].map(|end| connection.at(end)).into_iter();
        ends.find(|process| self.processes[process.0 as usize].is_cut)
    }

    /// An item that has passed so many legs of its path enters the next one, or the access link of
    /// the process at its end.
    pub(super) fn merge(
        &mut self,
        number: u32,
        end: End,
        item: Item,
        (passed, bytes): (usize, u64),
    ) {
        let connection = &self.connections[number as usize];
        let (process, path) = (connection.at(end), connection.path);
        let at = self.network.pass(self.now, (path, end), passed, (process, bytes));
        let parts: Vec<Time> = parts(self.now, at, self.heartbeat).collect();
        self.trickle(number, end, &parts);
        match path.is_some_and(|path| path.has(end, passed)) {
            true => self.passes_on(at, (number, end), item, (passed + 1, bytes)),
            false => self.agenda.put(at, Due::Arrive(number, end, item)),
        }
    }

    /// An item comes out of the link, unless that is cut.
    pub(super) fn arrive(&mut self, number: u32, end: End, item: Item) {
        let connection = &self.connections[number as usize];
        if connection.is_broken() && !matches!(item, Item::Reset) {
            return;
        }
        if let Some(cut) = self.cut_of(number) {
            // TCP sends it again until it comes through.
            return self.processes[cut.0 as usize].held_back.push((number, end, item));
        }
        self.take_note(number, end, &item);
        match (item, end) {
            (Item::Open, End::Listener) => self.called(number),
            (Item::Open, End::Dialler) => self.answered(number),
            (Item::Hangup, end) => self.hung_up(number, end, "closed by the other side"),
            (Item::Reset, End::Dialler) if self.is_awaited(number) => {
                self.hung_up(number, End::Dialler, "connection refused");
            }
            (Item::Reset, end) => self.hung_up(number, end, "connection reset"),
            (Item::Message(message), end) => self.deliver(number, end, message),
        }
    }

    fn is_awaited(&self, number: u32) -> bool {
        self.connections[number as usize].is_awaited(End::Dialler)
    }

    fn take_note(&mut self, number: u32, end: End, item: &Item) {
        let whom = self.label(self.connections[number as usize].at(end));
        let (kind, sequence) = match item {
            Item::Open => (trace::OPEN, 0),
            Item::Hangup => (trace::HANGUP, 0),
            Item::Reset => (trace::RESET, 0),
            Item::Message(message) => {
                let sequence = match message {
                    Message::Push(push) => push.header.sequence.0,
                    Message::Parameters(parameters) => parameters.header.sequence.0,
                    _ => 0,
                };
                (message.kind() as u8, sequence)
            }
        };
        self.trace.note(self.now, kind, whom, u64::from(number) << 40 ^ sequence);
    }

    /// A process is dialled.
    fn called(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        let listener = &mut self.processes[connection.at(End::Listener).0 as usize];
        if !listener.runs {
            connection.close(End::Listener);
            return self.carry(number, End::Dialler, Item::Reset);
        }
        connection.open(End::Listener);
        listener.connections.insert(number);
        self.network.reconnect(connection.path, End::Dialler);
        self.carry(number, End::Dialler, Item::Open);
        self.hand(number, End::Listener, Input::Connected(peer(number), Identity::Anyone));
    }

    /// A dial has been answered.
    fn answered(&mut self, number: u32) {
        if self.connections[number as usize].open(End::Dialler) {
            let input = Input::Dialled(peer(number), Identity::Anyone);
            self.hand(number, End::Dialler, input);
        } else {
            self.carry(number, End::Listener, Item::Hangup);
        }
    }

    fn deliver(&mut self, number: u32, end: End, message: Message) {
        let connection = &self.connections[number as usize];
        if !connection.is_open(end) {
            return;
        }
        let (from, to) = (connection.at(end.other()), connection.at(end));
        let receiver = &self.processes[to.0 as usize].node;
        let breaks = self.environment.delivers(from, to, receiver, &message);
        self.hand(number, end, Input::Message(peer(number), message));
        if breaks {
            self.break_down(number, end);
        }
    }

    /// An end learns that the connection is gone.
    fn hung_up(&mut self, number: u32, end: End, why: &str) {
        let connection = &self.connections[number as usize];
        let (was_awaited, was_open) = (connection.is_awaited(end), connection.is_open(end));
        let (process, why) = (connection.at(end), String::from(why));
        self.close_end(number, end);
        if was_open {
            self.environment.closed(process, peer(number));
            self.input(process, Input::Disconnected { peer: peer(number), why });
        } else if was_awaited && end == End::Dialler {
            self.input(process, Input::DialFailed { why, fault: DialFault::Temporary });
        }
    }

    /// Breaks a connection in the middle: everything under way is lost. The process at `end`
    /// knows at once, the other when the link has told it.
    fn break_down(&mut self, number: u32, end: End) {
        self.connections[number as usize].break_down();
        self.hung_up(number, end, "connection reset");
        self.carry(number, end.other(), Item::Reset);
    }

    /// The items that a cut has held back arrive now, in order.
    pub(super) fn arrive_late(&mut self, held_back: Vec<(u32, End, Item)>) {
        for (number, end, item) in held_back {
            self.arrive(number, end, item);
        }
    }
}

/// Times at which parts arrive of a message that comes from `begin` until `end`.
fn parts(begin: Time, end: Time, heartbeat: Duration) -> impl Iterator<Item = Time> {
    let parts = iter::successors(Some(begin + heartbeat), move |at| Some(*at + heartbeat));
    parts.take_while(move |at| *at < end)
}
