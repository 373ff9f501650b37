//! The drivers run other nodes than servers and workers: a ring of three members passes a token,
//! over the simulator, memory and TCP.

use std::thread;
use std::time::Duration;

use pstrain_compute::decided::Decided;
use pstrain_compute::id::{PartId, PeerId, Sequence, WorkerId};
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Effect, Event, Input, Node, Outbox, Target};
use pstrain_transports::scenario::Links;
use pstrain_transports::simulation::{Environment, Network, ProcessId, Simulation};
use pstrain_transports::{
    Address, Handle, Mailbox, MemoryHub, Services, SocketTransport, Transport, drive,
};
use pstrain_wire::Message;
use pstrain_wire::worker::{EndReason, ExamplesChunk};

const MEMBERS: u64 = 3;
/// Number of times that the token is passed on.
const HOPS: u64 = 30;

/// A member of the ring. The token's value is the number of times that it has been passed on.
#[derive(Debug)]
struct Member {
    next: Target,
    connection: Option<PeerId>,
    /// The token, until the next member is connected.
    token: Option<u64>,
    /// Tokens received, in order.
    received: Vec<u64>,
}

impl Member {
    /// Creates a member that dials `next`; the first member holds the token.
    const fn new(next: Target, is_first: bool) -> Self {
        let token = if is_first { Some(0) } else { None };
        Self { next, connection: None, token, received: Vec::new() }
    }

    fn pass_on(&mut self, out: &mut Outbox) {
        if let (Some(connection), Some(token)) = (self.connection, self.token)
            && token < HOPS
        {
            self.token = None;
            let token = Decided::after(None, Sequence(token + 1), None);
            out.push(Effect::Send(connection, Message::Ack(token)));
        }
        if self.received.last().is_some_and(|last| last + MEMBERS > HOPS) {
            out.push(Effect::Done(Ok(EndReason::BudgetReached)));
        }
    }
}

impl Node for Member {
    fn handle(&mut self, _: Time, input: Input, out: &mut Outbox) {
        match input {
            Input::Start => out.push(Effect::Dial(self.next.clone())),
            Input::Dialled(peer, _) => self.connection = Some(peer),
            Input::Message(_, Message::Ack(token)) => {
                self.received.push(token.sequence.0);
                self.token = Some(token.sequence.0);
            }
            Input::Connected(..) | Input::Disconnected { .. } => return,
            input => panic!("{input:?}"),
        }
        self.pass_on(out);
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// Returns the tokens that a member receives.
fn tokens_of(member: u64) -> Vec<u64> {
    (1..=HOPS).filter(|token| token % MEMBERS == member).collect()
}

/// Services of nodes that need none.
struct Nothing;

impl Services for Nothing {
    fn report(&mut self, _: Time, event: Event) {
        panic!("{event:?}");
    }

    fn work(&mut self, effect: Effect, _: &Handle) -> Option<Input> {
        panic!("{effect:?}");
    }

    fn examples(&mut self, _: PartId, _: u64) -> Option<ExamplesChunk> {
        None
    }
}

/// Drives each member over its transport, on a thread of its own.
#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
fn pass_round<T: Transport + 'static>(members: Vec<(Member, T)>) {
    let run = |(mut member, mut transport): (Member, T)| {
        thread::spawn(move || {
            let mailbox = Mailbox::new(&transport);
            let end = drive(&mut member, &mut transport, &mut Nothing, &mailbox);
            assert_eq!(end.unwrap(), Ok(EndReason::BudgetReached));
            member.received
        })
    };
    let threads: Vec<_> = members.into_iter().map(run).collect();
    for (member, thread) in (0..).zip(threads) {
        assert_eq!(thread.join().unwrap(), tokens_of(member));
    }
}

#[test]
fn a_token_goes_round_the_ring_in_memory() {
    let hub = MemoryHub::new();
    let address = |name: &str| Target::Address(name.into());
    pass_round(vec![
        (Member::new(address("b"), true), hub.server()),
        (Member::new(address("c"), false), hub.other_server("b")),
        (Member::new(Target::Server, false), hub.other_server("c")),
    ]);
}

#[test]
fn a_token_goes_round_the_ring_over_tcp() {
    let any: Address = "127.0.0.1:0".parse().unwrap();
    let transports: Vec<_> = (0..MEMBERS).map(|_| SocketTransport::listen(&any).unwrap()).collect();
    let address = |it: &SocketTransport| Target::Address(it.local_address().unwrap().to_string());
    let mut next: Vec<Target> = transports.iter().map(address).collect();
    next.rotate_left(1);
    let members = next.into_iter().zip((0..).map(|member| member == 0));
    let members = members.map(|(next, is_first)| Member::new(next, is_first));
    pass_round(members.zip(transports).collect());
}

/// Environment in virtual time, in which a member's address is its number.
struct Ring;

impl Environment<Member> for Ring {
    fn resolve(&mut self, _: ProcessId, _: &Member, target: &Target) -> Option<ProcessId> {
        let Target::Address(address) = target else { return None };
        address.parse().ok().map(ProcessId)
    }
}

#[test]
fn a_token_goes_round_in_virtual_time_and_each_hop_takes_the_delay_of_its_link() {
    let links: Links = "1.delay=1ms 2.delay=10ms 3.delay=100ms".parse().unwrap();
    let mut network = Network::new(None);
    for member in 0..MEMBERS as u32 {
        let link = network.add(links.of(WorkerId(member)).unwrap(), member, Stream::new(1));
        network.join(ProcessId(member), ProcessId((member + 1) % MEMBERS as u32), link);
    }
    let mut simulation = Simulation::new(Ring, network, Duration::from_secs(1));
    let processes: Vec<ProcessId> = (0..MEMBERS)
        .map(|member| {
            let next = Target::Address(((member + 1) % MEMBERS).to_string());
            simulation.add(Member::new(next, member == 0), member as u32)
        })
        .collect();
    for process in &processes {
        simulation.input(*process, Input::Start);
    }
    while processes.iter().any(|process| simulation.runs(*process)) {
        simulation.step().unwrap();
    }
    // Only the uplinks have a delay. The first lap waits 100 ms for the connection of the third
    // member and ends 100 ms later.
    let lap = Duration::from_millis(111);
    let first = Duration::from_millis(200);
    assert_eq!(simulation.now(), Time::ZERO + first + lap * (HOPS / MEMBERS - 1) as u32);
    for (member, node) in (0..).zip(simulation.finish().nodes) {
        assert_eq!(node.received, tokens_of(member));
    }
}
