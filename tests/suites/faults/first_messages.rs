//! First messages of connections in plain text: damage on the way is a lost connection, and the
//! same misfit several times in a row ends the node that dials.

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{
    DialFault, Effect, Input, Node, Outbox, Peer, PeerConfig, Replica, ReplicaConfig, Replicate,
    Shard, ShardConfig, Worker, WorkerConfig,
};
use pstrain_wire::group::Place;
use pstrain_wire::identity::Identity;
use pstrain_wire::{FrameError, Message, PROTOCOL, Protocol, Refusal};

use super::*;

const LEASE: Duration = Duration::from_secs(2);

#[test]
fn a_flipped_byte_in_the_first_messages_does_not_change_the_result() {
    const TIMES: u64 = 6;
    within(LIMIT, || {
        let mut toy = toy(3, 5000);
        toy.job.budget.epochs = 20;
        let (end, flips) = disturbed(&toy, "first messages", TIMES, Disturbance::Flip, 0..IS_IN);
        check_unharmed(&toy, &end);
        assert!(flips > TIMES, "only {flips} bytes were damaged");
    });
}

/// The nodes that dial a server, each new.
fn diallers() -> Vec<(&'static str, Box<dyn Node>)> {
    let (stream, address) = (Stream::new(3), String::from("127.0.0.1:1"));
    let name = || String::from("new");
    let (worker, lease) = (None, LEASE);
    let config = WorkerConfig { name: name(), worker, wants_examples: false, lease, stream };
    let peer = PeerConfig { name: name(), worker, address: address.clone(), lease, stream };
    let shard = ShardConfig { place: Place::Wanted, address: address.clone(), lease, stream };
    let replicate = Replicate::default();
    let leader = address.clone();
    let standby = ReplicaConfig { id: 7, address, leader, stream, replicate };
    let standby = Replica::standby(standby, toy(2, 2000).job).unwrap();
    vec![
        ("worker", Box::new(Worker::new(config))),
        ("worker without a server", Box::new(Peer::new(peer))),
        ("second server", Box::new(Shard::new(shard))),
        ("standby", Box::new(standby)),
    ]
}

/// A node that dials, and its clock.
struct Dialling {
    node: Box<dyn Node>,
    now: Time,
    attempts: u64,
}

impl Dialling {
    fn new(mut node: Box<dyn Node>) -> Self {
        let mut out = Outbox::new();
        node.handle(Time::ZERO, Input::Start, &mut out);
        assert!(matches!(out[..], [Effect::Dial(_)]), "{out:?}");
        Self { node, now: Time::ZERO, attempts: 0 }
    }

    /// Ends an attempt by `input`. Returns why the node has ended; none once it dials again.
    fn attempt(&mut self, input: impl Fn(PeerId) -> Input) -> Option<NodeError> {
        self.attempts += 1;
        let peer = PeerId(self.attempts);
        let mut out = Outbox::new();
        let input = input(peer);
        if !matches!(input, Input::DialFailed { .. }) {
            self.node.handle(self.now, Input::Dialled(peer, Identity::Anyone), &mut out);
            let sends = |effect: &Effect| matches!(effect, Effect::Send(to, _) if *to == peer);
            assert!(out.iter().any(sends), "it introduces itself: {out:?}");
        }
        self.node.handle(self.now, input, &mut out);
        loop {
            for effect in out.drain(..) {
                match effect {
                    Effect::Done(end) => return end.err(),
                    Effect::Dial(_) => return None,
                    _ => {}
                }
            }
            self.now = self.node.deadline().unwrap();
            self.node.handle(self.now, Input::Wake, &mut out);
        }
    }
}

/// The effect of damage on a first message or on its answer, as the dialler sees it.
fn damages() -> Vec<FrameError> {
    let checksum = |computed| FrameError::Checksum { stated: 1, computed };
    vec![
        FrameError::Magic(*b"QSTR"),
        FrameError::Version(Protocol { version: PROTOCOL.version ^ 4, ..PROTOCOL }),
        FrameError::Kind(99),
        FrameError::Control { length: 1 << 30, limit: 4096 },
        checksum(2),
        FrameError::Gap,
        FrameError::Magic(*b"PSTS"),
        checksum(3),
    ]
}

#[test]
fn a_damaged_first_message_is_a_lost_connection_for_every_role_that_dials() {
    for (role, node) in diallers() {
        let mut dialling = Dialling::new(node);
        for (number, error) in damages().into_iter().enumerate() {
            let ended = dialling.attempt(|peer| match number % 2 {
                0 => Input::Garbage(peer, error),
                _ => Input::Message(peer, Message::Refused(error.into())),
            });
            assert_eq!(ended, None, "{role}: {error}");
        }
        // A path that damages all of them is named.
        let what = String::from("checksum");
        let refused = Message::Refused(Refusal::Frame { what });
        let ended = dialling.attempt(|peer| Input::Message(peer, refused.clone()));
        assert!(matches!(ended, Some(NodeError::Damaged { times: 9, .. })), "{role}: {ended:?}");
    }
}

#[test]
fn the_same_misfit_in_a_row_ends_every_role_that_dials_with_its_name() {
    let other = FrameError::Version(Protocol { layout: !PROTOCOL.layout, ..PROTOCOL });
    let key = || String::from("it has another shared key");
    let misfits: [(&dyn Fn(PeerId) -> Input, &str); 3] = [
        (&|peer| Input::Garbage(peer, FrameError::Magic(*b"HTTP")), "do not begin a pstrain frame"),
        (&|peer| Input::Garbage(peer, other), "use the same build on both"),
        (&|_| Input::DialFailed { why: key(), fault: DialFault::Mismatch }, "another shared key"),
    ];
    for (misfit, name) in misfits {
        for (role, node) in diallers() {
            let mut dialling = Dialling::new(node);
            // Nobody is there yet.
            for _ in 0..6 {
                let why = String::from("connection refused");
                let fault = DialFault::Temporary;
                let refused = |_| Input::DialFailed { why: why.clone(), fault };
                assert_eq!(dialling.attempt(refused), None, "{role}");
            }
            let ended: Vec<_> = (0..5).map(|_| dialling.attempt(misfit)).collect();
            assert!(ended[..4].iter().all(Option::is_none), "{role}: {ended:?}");
            let Some(NodeError::Mismatch { times: 5, why }) = &ended[4] else {
                panic!("{role}: {ended:?}")
            };
            assert!(why.contains(name), "{role}: {why}");
        }
    }
}
