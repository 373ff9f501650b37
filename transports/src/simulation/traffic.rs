//! How messages and connections travel.

use std::iter;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Input, Target};
use pstrain_wire::identity::Identity;
use pstrain_wire::{Message, frame_len, payload};

use super::connection::{Caller, Connection, End};
use super::follower::Follower;
use super::seat::Seat;
use super::way::Ways;
use super::{Due, Host, Item, Simulation, kind, traced};

/// What opening or closing a connection weighs: a TCP segment without data.
const EMPTY_SEGMENT_BYTES: u64 = 60;
/// How long a dial may take, as for a socket.
const DIAL: Duration = Duration::from_secs(5);

/// Whose way is cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Machine(usize),
    Seat(usize),
}

impl<H: Host> Simulation<'_, H> {
    /// Begins a connection from a machine to a server.
    pub(super) fn dial(&mut self, machine: usize, target: &Target) {
        let life = self.machines[machine].life;
        let Some(callee) = self.callee(machine, target) else {
            let why = String::from("there is no such server");
            let input = Input::DialFailed { why, permanent: true };
            return self.agenda.put(self.now, Due::ToWorker(machine, life, input));
        };
        let number = self.connect(Caller::Machine(machine, life), callee);
        let open = |number: &u32| !self.connections[*number as usize].is_closed(End::Worker);
        let mut connections = std::mem::take(&mut self.machines[machine].connections);
        connections.retain(open);
        connections.push(number);
        self.machines[machine].connections = connections;
    }

    /// Which server a process of a machine wants to reach.
    fn callee(&mut self, machine: usize, target: &Target) -> Option<usize> {
        match target {
            Target::Server => {
                let leader = self.leader;
                let host = &mut self.machines[machine];
                if host.incarnation().is_none() {
                    host.server = leader;
                }
                Some(host.server)
            }
            Target::Address(address) => {
                let servers = self.seats.len() + self.followers.len();
                let server = Seat::of_address(address).or_else(|| Follower::callee(address));
                server.filter(|server| *server < servers)
            }
        }
    }

    /// Begins a connection.
    pub(super) fn connect(&mut self, caller: Caller, callee: usize) -> u32 {
        let number = self.connections.len() as u32;
        self.connections.push(Connection::new(caller, callee));
        if let Some((ways, to)) = self.ways(number, End::Server) {
            ways.pipe(to).reconnect();
        }
        self.carry(number, End::Server, Item::Open);
        self.agenda.put(self.now + DIAL, Due::DialOver(number));
        number
    }

    pub(super) fn dial_over(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        if !connection.is_awaited(End::Worker) {
            return;
        }
        connection.close(End::Worker);
        let why = format!("no answer within {DIAL:?}");
        self.hand(number, End::Worker, Input::DialFailed { why, permanent: false });
    }

    /// Hands an input to whoever is at an end of a connection.
    fn hand(&mut self, number: u32, end: End, input: Input) {
        let connection = &self.connections[number as usize];
        match (connection.server_at(end), connection.caller) {
            (Some(seat), _) if seat < self.seats.len() => self.server_input(seat, input),
            (Some(server), _) => self.follower_input(server - 1, input),
            (None, Caller::Machine(machine, life)) => self.worker_input(machine, life, input),
            (None, Caller::Follower(_) | Caller::Replica(_)) => {}
        }
    }

    /// The modelled ways of a connection, if any are, and which of the two leads towards `to`.
    fn ways(&mut self, number: u32, to: End) -> Option<(&mut Ways, End)> {
        let connection = &self.connections[number as usize];
        match connection.caller {
            Caller::Machine(machine, _) => Some((&mut self.machines[machine].ways, to)),
            Caller::Follower(_) => None,
            Caller::Replica(_) => {
                let is_up = connection.server_at(to) == Some(0);
                let way = if is_up { End::Server } else { End::Worker };
                self.standby_ways.as_mut().map(|ways| (ways, way))
            }
        }
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
        if self.connections[number as usize].server_at(end) == Some(0) {
            self.host.closed(Self::peer(number));
        }
    }

    /// Puts an item into the link.
    fn carry(&mut self, number: u32, to: End, item: Item) {
        let connection = &self.connections[number as usize];
        let [source, goal] = [to.other(), to].map(|end| connection.server_at(end));
        let is_counted = matches!(connection.caller, Caller::Replica(_));
        let weighs = self.ways(number, to).is_some_and(|(ways, to)| ways.weighs(to));
        let leaves = source.filter(|&server| self.shared_down[server].is_some());
        let enters = goal.filter(|&server| self.shared_up[server].is_some());
        let shared = leaves.is_some() || enters.is_some();
        let bytes = if weighs || shared || is_counted { self.bytes(&item) } else { 0 };
        if is_counted && let (Some(history), Some(goal)) = (&mut self.history, goal) {
            history.carried(goal, bytes);
        }
        let mut at = self.now;
        if let Some(shared) = leaves.and_then(|server| self.shared_down[server].as_mut()) {
            at = shared.pass(at, bytes);
        }
        let now = self.now;
        let mut begin = now;
        if let Some((ways, to)) = self.ways(number, to) {
            at = ways.pipe(to).send(at, bytes);
            begin = ways.pipe(to).first_bytes(now);
        }
        if weighs || shared {
            let parts = parts(begin, at, self.heartbeat);
            let parts: Vec<Time> = match self.ways(number, to) {
                None => parts.collect(),
                Some((ways, to)) => parts.filter(|at| ways.pipe(to).is_open(*at)).collect(),
            };
            self.trickle(number, to, &parts);
        }
        let due = if enters.is_some() {
            Due::Merge(number, to, item, bytes)
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
    fn trickle(&mut self, number: u32, to: End, parts: &[Time]) {
        for at in parts {
            self.agenda.put(*at, Due::Receiving(number, to));
        }
    }

    /// Part of a message comes out of the link, unless that is cut.
    pub(super) fn receiving(&mut self, number: u32, end: End) {
        let connection = &self.connections[number as usize];
        let heard = connection.is_open(end) && !connection.is_broken();
        if !heard || self.held_back_by(number).is_some() {
            return;
        }
        self.trace.note(self.now, kind::RECEIVING, self.caller_traced(number), end as u64);
        self.hand(number, end, Input::Receiving(Self::peer(number)));
    }

    /// The first of those at its ends whose way is cut, if any is.
    fn held_back_by(&self, number: u32) -> Option<Cut> {
        let connection = &self.connections[number as usize];
        let machine = connection.machine().filter(|&machine| self.machines[machine].is_cut);
        let is_cut = |seat: &usize| self.seats.get(*seat).is_some_and(|seat| seat.is_cut);
        let seat = || {
            let seats = [End::Server, End::Worker].map(|end| connection.server_at(end));
            seats.into_iter().flatten().find(is_cut)
        };
        machine.map(Cut::Machine).or_else(|| seat().map(Cut::Seat))
    }

    /// Whoever dialled, in the trace.
    fn caller_traced(&self, number: u32) -> u32 {
        match self.connections[number as usize].caller {
            Caller::Machine(machine, _) => machine as u32,
            Caller::Follower(place) => traced(1 + place),
            Caller::Replica(seat) => traced(seat),
        }
    }

    /// An item has come over a link to the one that all share at the server at that end.
    pub(super) fn merge(&mut self, number: u32, end: End, item: Item, bytes: u64) {
        let server = self.connections[number as usize].server_at(end);
        let shared = server.and_then(|server| self.shared_up[server].as_mut());
        let at = shared.map_or(self.now, |shared| shared.pass(self.now, bytes));
        let parts: Vec<Time> = parts(self.now, at, self.heartbeat).collect();
        self.trickle(number, end, &parts);
        self.agenda.put(at, Due::Arrive(number, end, item));
    }

    /// An item comes out of the link, unless that is cut.
    pub(super) fn arrive(&mut self, number: u32, end: End, item: Item) {
        let connection = &self.connections[number as usize];
        if connection.is_broken() && !matches!(item, Item::Reset) {
            return;
        }
        if let Some(cut) = self.held_back_by(number) {
            // TCP sends it again until it comes through.
            let held_back = match cut {
                Cut::Machine(machine) => &mut self.machines[machine].held_back,
                Cut::Seat(seat) => &mut self.seats[seat].held_back,
            };
            return held_back.push((number, end, item));
        }
        self.take_note(number, end, &item);
        match (item, end) {
            (Item::Open, End::Server) => self.called(number),
            (Item::Open, End::Worker) => self.answered(number),
            (Item::Hangup, end) => self.hung_up(number, end, "closed by the other side"),
            (Item::Reset, End::Worker) if self.is_awaited(number) => {
                self.hung_up(number, End::Worker, "connection refused");
            }
            (Item::Reset, end) => self.hung_up(number, end, "connection reset"),
            (Item::Message(message), end) => self.deliver(number, end, message),
        }
    }

    fn is_awaited(&self, number: u32) -> bool {
        self.connections[number as usize].is_awaited(End::Worker)
    }

    fn take_note(&mut self, number: u32, end: End, item: &Item) {
        let whom = match (end, self.connections[number as usize].callee) {
            (End::Server, server) => traced(server),
            (End::Worker, _) => self.caller_traced(number),
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

    /// A server is dialled.
    fn called(&mut self, number: u32) {
        let connection = &mut self.connections[number as usize];
        if self.seats.get(connection.callee).is_some_and(|seat| !seat.runs) {
            connection.close(End::Server);
            return self.carry(number, End::Worker, Item::Reset);
        }
        connection.open(End::Server);
        if let Some((ways, to)) = self.ways(number, End::Worker) {
            ways.pipe(to).reconnect();
        }
        self.carry(number, End::Worker, Item::Open);
        let input = Input::Connected(Self::peer(number), Identity::Anyone);
        self.hand(number, End::Server, input);
    }

    /// A dial has been answered.
    fn answered(&mut self, number: u32) {
        if self.connections[number as usize].open(End::Worker) {
            let input = Input::Dialled(Self::peer(number), Identity::Anyone);
            self.hand(number, End::Worker, input);
        } else {
            self.carry(number, End::Server, Item::Hangup);
        }
    }

    fn deliver(&mut self, number: u32, end: End, message: Message) {
        let connection = &self.connections[number as usize];
        if !connection.is_open(end) {
            return;
        }
        let to_seat = connection.server_at(end).is_some_and(|server| server < self.seats.len());
        let is_push = to_seat && matches!(message, Message::Push(_));
        let machine = connection.machine().filter(|_| is_push);
        if let (End::Worker, Some(place)) = (end, connection.machine())
            && let Some(history) = &mut self.history
            && let Some(incarnation) = self.machines[place].incarnation()
        {
            history.told_worker(WorkerId(place as u32), incarnation, &message);
        }
        self.hand(number, end, Input::Message(Self::peer(number), message));
        if let Some(machine) = machine
            && std::mem::take(&mut self.machines[machine].loses_next_answer)
        {
            self.break_down(number);
        }
    }

    /// An end learns that the connection is gone.
    pub(super) fn hung_up(&mut self, number: u32, end: End, why: &str) {
        let connection = &mut self.connections[number as usize];
        let (was_awaited, was_open) = (connection.is_awaited(end), connection.is_open(end));
        connection.close(end);
        let is_first = connection.server_at(end) == Some(0);
        let (peer, why) = (Self::peer(number), String::from(why));
        match end {
            _ if was_open => {
                if is_first {
                    self.host.closed(peer);
                }
                self.hand(number, end, Input::Disconnected { peer, why });
            }
            End::Worker if was_awaited => {
                self.hand(number, end, Input::DialFailed { why, permanent: false });
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
        let held_back = std::mem::take(&mut self.machines[machine].held_back);
        self.arrive_late(held_back);
    }

    /// What was held back comes now, in order.
    pub(super) fn arrive_late(&mut self, held_back: Vec<(u32, End, Item)>) {
        for (number, end, item) in held_back {
            self.arrive(number, end, item);
        }
    }
}

/// When parts of a message are heard of that comes from `begin` until `end`.
fn parts(begin: Time, end: Time, heartbeat: Duration) -> impl Iterator<Item = Time> {
    let parts = iter::successors(Some(begin + heartbeat), move |at| Some(*at + heartbeat));
    parts.take_while(move |at| *at < end)
}
