//! How messages and connections travel.

use std::time::Duration;

use pstrain_core::node::Input;
use pstrain_core::protocol::{Message, frame_len, payload};
use pstrain_core::time::Time;

use super::connection::{Connection, End};
use super::{Due, Host, Item, SERVER, Simulation, kind};

/// What opening or closing a connection weighs: a TCP segment without data.
const EMPTY_SEGMENT_BYTES: u64 = 60;
/// How long a dial may take, as for a socket.
const DIAL: Duration = Duration::from_secs(5);

impl<H: Host> Simulation<'_, H> {
    /// Begins a connection from a machine to the server.
    pub(super) fn dial(&mut self, machine: usize) {
        let number = self.connections.len() as u32;
        self.connections.push(Connection::new(machine, self.machines[machine].life));
        self.machines[machine].connection = Some(number);
        self.machines[machine].pipe(End::Server).reconnect();
        self.carry(number, End::Server, Item::Open);
        self.agenda.put(self.now + DIAL, Due::DialOver(number));
    }

    pub(super) fn dial_over(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        if !connection.is_awaited(End::Worker) {
            return;
        }
        connection.close(End::Worker);
        let (machine, life) = (connection.machine, connection.life);
        let why = format!("no answer within {DIAL:?}");
        self.worker_input(machine, life, Input::DialFailed { why, permanent: false });
    }

    /// Sends an item over an open connection towards `to`.
    pub(super) fn send(&mut self, number: u32, to: End, item: Item) {
        if self.connections[number as usize].is_open(to.other()) {
            self.carry(number, to, item);
        }
    }

    /// Closes one end; the other learns of it over the link.
    pub(super) fn close(&mut self, number: u32, end: End) {
        if self.connections[number as usize].close(end) {
            self.carry(number, end.other(), Item::Hangup);
        }
        if end == End::Server {
            self.host.closed(Self::peer(number));
        }
    }

    /// Puts an item into the link.
    fn carry(&mut self, number: u32, to: End, item: Item) {
        let machine = self.connections[number as usize].machine;
        let weighs = self.machines[machine].weighs(to);
        let shared = match to {
            End::Server => self.shared_up.is_some(),
            End::Worker => self.shared_down.is_some(),
        };
        let bytes = if weighs || shared { self.bytes(&item) } else { 0 };
        let mut at = self.now;
        if to == End::Worker
            && let Some(shared) = &mut self.shared_down
        {
            at = shared.pass(at, bytes);
        }
        at = self.machines[machine].pipe(to).send(at, bytes);
        if (weighs || shared)
            && let Some(begin) = self.machines[machine].first_bytes(to, self.now)
        {
            self.trickle(number, to, begin, at);
        }
        let due = if to == End::Server && shared {
            Due::Merge(number, item, bytes)
        } else {
            Due::Arrive(number, to, item)
        };
        self.agenda.put(at, due);
    }

    /// Bytes of an item on the wire.
    fn bytes(&mut self, item: &Item) -> u64 {
        let Item::Message(message) = item else { return EMPTY_SEGMENT_BYTES };
        let bytes = frame_len(message, &mut self.scratch);
        match (self.weight, message) {
            (Some(weight), Message::Push(_) | Message::Parameters(_)) => {
                bytes - payload(message).len() as u64 + weight
            }
            _ => bytes,
        }
    }

    /// A message that is under way for long comes in parts, from which the other end hears that
    /// its sender is alive.
    fn trickle(&mut self, number: u32, to: End, begin: Time, end: Time) {
        let step = self.server.job().membership.heartbeat();
        let mut at = begin + step;
        while at < end {
            self.agenda.put(at, Due::Receiving(number, to));
            at = at + step;
        }
    }

    /// Part of a message comes out of the link, unless that is cut.
    pub(super) fn receiving(&mut self, number: u32, end: End) {
        let connection = &self.connections[number as usize];
        let (machine, life) = (connection.machine, connection.life);
        let heard = connection.is_open(end) && !connection.is_broken();
        if !heard || self.machines[machine].is_cut {
            return;
        }
        self.trace.note(self.now, kind::RECEIVING, machine as u32, end as u64);
        let input = Input::Receiving(Self::peer(number));
        match end {
            End::Server => self.server_input(input),
            End::Worker => self.worker_input(machine, life, input),
        }
    }

    /// An item has come over a worker's link to the one that all share at the server.
    pub(super) fn merge(&mut self, number: u32, item: Item, bytes: u64) {
        let at = self.shared_up.as_mut().map_or(self.now, |shared| shared.pass(self.now, bytes));
        self.trickle(number, End::Server, self.now, at);
        self.agenda.put(at, Due::Arrive(number, End::Server, item));
    }

    /// An item comes out of the link, unless that is cut.
    pub(super) fn arrive(&mut self, number: u32, end: End, item: Item) {
        let connection = &self.connections[number as usize];
        let machine = &mut self.machines[connection.machine];
        if connection.is_broken() && !matches!(item, Item::Reset) {
            return;
        }
        if machine.is_cut {
            // TCP sends it again until it comes through.
            machine.held_back.push((number, end, item));
            return;
        }
        self.take_note(number, end, &item);
        match (item, end) {
            (Item::Open, End::Server) => self.called(number),
            (Item::Open, End::Worker) => self.answered(number),
            (Item::Hangup, end) => self.hung_up(number, end, "closed by the other side"),
            (Item::Reset, end) => self.hung_up(number, end, "connection reset"),
            (Item::Message(message), end) => self.deliver(number, end, message),
        }
    }

    fn take_note(&mut self, number: u32, end: End, item: &Item) {
        let whom = match end {
            End::Server => SERVER,
            End::Worker => self.connections[number as usize].machine as u32,
        };
        let (kind, sequence) = match item {
            Item::Open => (kind::OPEN, 0),
            Item::Hangup => (kind::HANGUP, 0),
            Item::Reset => (kind::RESET, 0),
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

    /// The server is dialled.
    fn called(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        connection.open(End::Server);
        let machine = connection.machine;
        self.machines[machine].pipe(End::Worker).reconnect();
        self.carry(number, End::Worker, Item::Open);
        self.server_input(Input::Connected(Self::peer(number)));
    }

    /// A dial has been answered.
    fn answered(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        if connection.open(End::Worker) {
            let (machine, life) = (connection.machine, connection.life);
            self.worker_input(machine, life, Input::Dialled(Self::peer(number)));
        } else {
            self.carry(number, End::Server, Item::Hangup);
        }
    }

    fn deliver(&mut self, number: u32, end: End, message: Message) {
        let connection = &self.connections[number as usize];
        if !connection.is_open(end) {
            return;
        }
        let (machine, life) = (connection.machine, connection.life);
        let input = |message| Input::Message(Self::peer(number), message);
        match end {
            End::Worker => self.worker_input(machine, life, input(message)),
            End::Server => {
                let is_push = matches!(message, Message::Push(_));
                self.server_input(input(message));
                if is_push && std::mem::take(&mut self.machines[machine].loses_next_answer) {
                    self.break_down(number);
                }
            }
        }
    }

    /// An end learns that the connection is gone.
    pub(super) fn hung_up(&mut self, number: u32, end: End, why: &str) {
        let connection = &mut self.connections[number as usize];
        let (was_awaited, was_open) = (connection.is_awaited(end), connection.is_open(end));
        connection.close(end);
        let (machine, life) = (connection.machine, connection.life);
        let (peer, why) = (Self::peer(number), String::from(why));
        match end {
            End::Server if was_open => {
                self.host.closed(peer);
                self.server_input(Input::Disconnected { peer, why });
            }
            End::Worker if was_open => {
                self.worker_input(machine, life, Input::Disconnected { peer, why });
            }
            End::Worker if was_awaited => {
                self.worker_input(machine, life, Input::DialFailed { why, permanent: false });
            }
            _ => {}
        }
    }

    /// Breaks a connection in the middle: what is under way is lost. The server knows at once, the
    /// worker when the link has told it.
    fn break_down(&mut self, number: u32) {
        self.connections[number as usize].break_down();
        self.hung_up(number, End::Server, "connection reset");
        self.carry(number, End::Worker, Item::Reset);
    }

    /// The way of a machine is whole again: what was held back comes now, in order.
    pub(super) fn heal(&mut self, machine: usize) {
        self.machines[machine].is_cut = false;
        for (number, end, item) in std::mem::take(&mut self.machines[machine].held_back) {
            self.arrive(number, end, item);
        }
    }
}
