//! The machines of the server and of its standby: their processes, and what befalls them.
//!
//! Without a standby there is one of them, and the server on it is alone; with one the two are
//! [`Replica`]s, the very ones that run over sockets. A machine keeps its name whoever leads: the
//! server begins on the first.

use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    Effect, Event, Input, Node, Outbox, Replica, ReplicaConfig, Replicate, Server, WorkerError,
};
use pstrain_wire::Message;
use pstrain_wire::worker::EndReason;

use super::connection::{Caller, End};
use super::{Due, Host, Item, Origin, Simulation, SimulationError, kind, traced};
use crate::scenario::Fault;

/// Where workers reach the two, when they are told.
const ADDRESSES: [&str; 2] = ["virtual server", "virtual standby"];

/// A machine for the server, or for its standby.
#[derive(Debug)]
pub(super) struct Seat {
    process: Process,
    /// Whether that has not ended or died.
    pub(super) runs: bool,
    /// Counts its processes. What is meant for an earlier one is void.
    pub(super) life: u32,
    wake: Option<Time>,
    pub(super) is_cut: bool,
    /// What would have arrived since its way was cut.
    pub(super) held_back: Vec<(u32, End, Item)>,
}

/// What runs there.
#[derive(Debug)]
enum Process {
    Server(Box<Server>),
    Replica(Box<Replica>),
}

impl Process {
    fn node(&mut self) -> &mut dyn Node {
        match self {
            Self::Server(server) => &mut **server,
            Self::Replica(replica) => &mut **replica,
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Self::Server(server) => server.deadline(),
            Self::Replica(replica) => replica.deadline(),
        }
    }
}

impl Seat {
    /// That of the server, and that of its standby if it has one.
    pub(super) fn all(
        server: Server,
        standby: Option<Replicate>,
        stream: Stream,
    ) -> Result<Vec<Self>, SimulationError> {
        let Some(replicate) = standby else {
            return Ok(vec![Self::new(Process::Server(Box::new(server)))]);
        };
        let job = server.job().clone();
        let primary = Replica::primary(config(0, 0, replicate, stream), server);
        let follower = Replica::standby(config(1, 0, replicate, stream), job)
            .map_err(|_invalid| SimulationError::Standby)?;
        let seat = |replica| Self::new(Process::Replica(Box::new(replica)));
        Ok(vec![seat(primary), seat(follower)])
    }

    const fn new(process: Process) -> Self {
        Self { process, runs: true, life: 0, wake: None, is_cut: false, held_back: Vec::new() }
    }

    /// Which of the two has an address.
    pub(super) fn of_address(address: &str) -> Option<usize> {
        ADDRESSES.iter().position(|own| *own == address)
    }

    pub(super) fn leads(&self) -> bool {
        match &self.process {
            Process::Server(_) => true,
            Process::Replica(replica) => replica.leads(),
        }
    }

    pub(super) fn server(&self) -> Option<&Server> {
        match &self.process {
            Process::Server(server) => Some(server),
            Process::Replica(replica) => replica.server(),
        }
    }

    /// The server as it is here, if there is one.
    pub(super) fn into_server(self) -> Option<Server> {
        match self.process {
            Process::Server(server) => Some(*server),
            Process::Replica(replica) => replica.into_server(),
        }
    }
}

/// What a process on a machine knows before it has met anybody.
fn config(seat: usize, life: u32, replicate: Replicate, stream: Stream) -> ReplicaConfig {
    let stream = stream.fork("replica", seat as u64).fork("life", life.into());
    // No two processes have the same number.
    let id = u64::from(life) * ADDRESSES.len() as u64 + seat as u64;
    let [address, leader] = [seat, 1 - seat].map(|seat| ADDRESSES[seat].to_owned());
    ReplicaConfig { id, address, leader, stream, replicate }
}

impl<H: Host> Simulation<'_, H> {
    /// Hands an input to the process on a machine and obeys what follows.
    pub(super) fn server_input(&mut self, place: usize, input: Input) {
        let now = self.now;
        let seat = &mut self.seats[place];
        if self.reason.is_some() || !seat.runs {
            return;
        }
        let mut happened = now;
        if let Some(history) = &mut self.history {
            happened = history.hears(place, now, &input);
        }
        if let Process::Server(_) = seat.process {
            self.host.before_server(now, &input);
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        seat.process.node().handle(now, input, &mut outbox);
        self.obey_server(place, happened, &mut outbox);
        self.outbox = outbox;
        if let Process::Server(server) = &self.seats[place].process {
            self.host.after_server(now, server);
        }
        self.plan_server_wake(place);
    }

    fn obey_server(&mut self, place: usize, happened: Time, outbox: &mut Outbox) {
        for effect in outbox.drain(..) {
            match effect {
                Effect::Send(peer, message) => {
                    let number = peer.0 as u32;
                    if let Some(history) = &mut self.history {
                        history.sends(place, self.now, number, &message);
                    }
                    let to = self.end_of_seat(number, place).other();
                    self.send(number, to, Item::Message(message));
                }
                Effect::SendStatus { peer, status, .. } => {
                    let item = Item::Message(Message::Status(status));
                    self.send(peer.0 as u32, End::Worker, item);
                }
                Effect::Report(event) => self.server_reports(place, happened, event),
                Effect::Close(peer) => {
                    let number = peer.0 as u32;
                    self.close(number, self.end_of_seat(number, place));
                }
                Effect::Dial(_) => {
                    let other = ADDRESSES.len() - 1 - place;
                    let _number = self.connect(Caller::Replica(place), other);
                }
                Effect::Evaluate(order) => {
                    // Off the training path: it costs no training time.
                    let evaluated = self.host.evaluate(order);
                    let life = self.seats[place].life;
                    let input = Input::Evaluated(evaluated);
                    self.agenda.put(self.now, Due::ToServer(place, life, input));
                }
                Effect::SendExamples { peer, part, from } => match self.host.examples(part, from) {
                    Some(chunk) => {
                        let item = Item::Message(Message::Examples(chunk));
                        self.send(peer.0 as u32, End::Worker, item);
                    }
                    None => self.close(peer.0 as u32, End::Server),
                },
                Effect::Done(result) => self.server_done(place, result),
                // Limits guard against hostile bytes, and there are no bytes here. The others are
                // a worker's.
                Effect::Limit(..)
                | Effect::Checkpoint(_)
                | Effect::Write
                | Effect::Spare(_)
                | Effect::Prepare(_)
                | Effect::Compute(_) => {}
            }
        }
    }

    /// Passes on what belongs to the one history of the run.
    fn server_reports(&mut self, place: usize, happened: Time, event: Event) {
        if let Event::TookOver { .. } = event {
            self.leader = place;
        }
        let is_alone = matches!(self.seats[place].process, Process::Server(_));
        let at = match &mut self.history {
            None => Some(happened),
            Some(history) if is_alone => Some(history.note(happened, &event)),
            Some(history) => history.tells(place, self.now, happened, &event),
        };
        if let Some(at) = at {
            self.host.report(at, Origin::Server, event);
        }
    }

    fn server_done(&mut self, place: usize, result: Result<EndReason, WorkerError>) {
        match result {
            Ok(reason) => {
                self.leader = place;
                self.reason = Some(reason);
            }
            Err(_) => self.end_server(place),
        }
    }

    /// A process is gone, and its system closes its connections.
    fn end_server(&mut self, place: usize) {
        self.seats[place].runs = false;
        for number in 0..self.connections.len() as u32 {
            for end in [End::Server, End::Worker] {
                let connection = &self.connections[number as usize];
                let is_its = connection.server_at(end) == Some(place);
                let dials = end == End::Worker && connection.is_awaited(end);
                if is_its && (dials || connection.is_open(end)) {
                    self.close(number, end);
                }
            }
        }
    }

    /// The end of a connection at which a machine of a server is.
    fn end_of_seat(&self, number: u32, place: usize) -> End {
        match self.connections[number as usize].caller {
            Caller::Replica(caller) if caller == place => End::Worker,
            _ => End::Server,
        }
    }

    /// Lets a fault happen. One that cannot changes nothing.
    pub(super) fn server_fault(&mut self, place: usize, fault: Fault) {
        let Some(seat) = self.seats.get_mut(place) else { return };
        let counts = seat.leads();
        match fault {
            Fault::Crash if seat.runs => {
                self.server_fails(counts);
                self.end_server(place);
            }
            Fault::Restart if !seat.runs => self.restart_server(place),
            Fault::Cut if !seat.is_cut => {
                seat.is_cut = true;
                self.server_fails(counts);
            }
            Fault::Heal if seat.is_cut => {
                seat.is_cut = false;
                if let Some(history) = &mut self.history {
                    history.mended();
                }
                let held_back = std::mem::take(&mut self.seats[place].held_back);
                self.arrive_late(held_back);
            }
            Fault::Crash | Fault::Restart | Fault::Cut | Fault::Heal | Fault::Duplicate => {}
        }
    }

    fn server_fails(&mut self, leads: bool) {
        if let Some(history) = &mut self.history {
            history.failed(self.now, leads);
        }
    }

    /// Starts a process that stands by for the other, on a machine that has none.
    fn restart_server(&mut self, place: usize) {
        let life = self.seats[place].life + 1;
        let Some(job) = self.seats.iter().find_map(Seat::server).map(|it| it.job().clone()) else {
            return;
        };
        let config = config(place, life, self.replicate, self.stream);
        let Ok(replica) = Replica::standby(config, job) else { return };
        let seat = &mut self.seats[place];
        let before = std::mem::replace(&mut seat.process, Process::Replica(Box::new(replica)));
        if place == self.leader
            && let Process::Replica(before) = before
        {
            self.remains = before.into_server();
        }
        (seat.life, seat.runs, seat.wake) = (life, true, None);
        self.server_input(place, Input::Start);
    }

    pub(super) fn wake_server(&mut self, place: usize, at: Time) {
        let seat = &mut self.seats[place];
        if seat.wake != Some(at) {
            return; // an earlier one was planned after this
        }
        seat.wake = None;
        if seat.runs && seat.process.deadline().is_some_and(|deadline| deadline <= at) {
            self.trace.note(at, kind::WAKE, traced(place), 0);
            self.server_input(place, Input::Wake);
        } else {
            self.plan_server_wake(place);
        }
    }

    /// Most deadlines move on before they come, so one wake-up is planned and looks again then.
    fn plan_server_wake(&mut self, place: usize) {
        let seat = &mut self.seats[place];
        if let Some(at) = seat.process.deadline()
            && seat.runs
            && seat.wake.is_none_or(|wake| at < wake)
        {
            let at = at.max(self.now);
            seat.wake = Some(at);
            self.agenda.put(at, Due::WakeServer(place));
        }
    }
}
