//! Clients that push values, driven by hand: which messages the server accepts, and when.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

use pstrain_compute::examples::{Shape, Target};
use pstrain_compute::id::{Incarnation, PeerId, ServerId, Version};
use pstrain_compute::optim::OptimizerSpec;
use pstrain_compute::params::KeyRange;
use pstrain_roles::node::{Effect, Event, Input, Outbox, Server};
use pstrain_tests::{Toy, all_keys};
use pstrain_wire::client::PullStatus;
use pstrain_wire::decision::Decision;
use pstrain_wire::group::{Decisions, Enlist, Place};
use pstrain_wire::identity::Identity;
use pstrain_wire::range::{MOST_PART_KEYS, PartDue, PushRange, PushRule, RangePart};
use pstrain_wire::worker::Bye;
use pstrain_wire::{BUILD, Limits, Message, PROTOCOL_VERSION, Refusal, WaitReason, encode};

use super::by_hand::{Hand, RUN, sent, server};

const CLIENT: PeerId = PeerId(7);

fn push_range(keys: Option<KeyRange>, how: PushRule) -> Message {
    Message::PushRange(PushRange { protocol_max: PROTOCOL_VERSION, keys, how })
}

/// Connects a client that sends `message`; returns the server's effects.
fn ask(server: &mut Hand<Server>, peer: PeerId, identity: Identity, message: Message) -> Outbox {
    server.give(Input::Connected(peer, identity));
    server.tell(peer, message)
}

fn part(keys: KeyRange, value: f32) -> Message {
    Message::RangePart(RangePart::new(keys, &vec![value; keys.len() as usize]))
}

/// Returns the reason in the server's last message, which must be a refusal.
fn why(out: &Outbox) -> String {
    match sent(out).last() {
        Some(Message::Refused(why)) => why.to_string(),
        Some(Message::RangePushed(Err(why))) => why.clone(),
        other => panic!("{other:?}"),
    }
}

fn all(server: &Hand<Server>) -> KeyRange {
    all_keys(server.node.job())
}

#[test]
fn only_clients_that_were_asked_may_send_values() {
    let mut server = server();
    let keys = all(&server);
    // Without a request, a part is not a valid first message, and its values would exceed the
    // limit.
    assert_eq!(Limits::UNAUTHENTICATED.payload, 0);
    let out = ask(&mut server, PeerId(1), Identity::Anyone, part(keys, 1.0));
    assert!(why(&out).contains("RangePart message came where a hello"), "{out:?}");
    // A worker may not push either.
    let out = ask(&mut server, PeerId(2), Identity::Worker(None), push_range(None, PushRule::Add));
    assert!(matches!(sent(&out)[..], [Message::Refused(Refusal::Identity { .. })]), "{out:?}");
    let raised = |out: &Outbox| {
        let is = |effect: &Effect| matches!(effect, Effect::Limit(_, limits) if *limits == Limits::PUSHER);
        out.iter().any(is)
    };
    assert!(!raised(&out));
    let out = ask(&mut server, CLIENT, Identity::Client, push_range(None, PushRule::Add));
    assert_eq!(sent(&out), [&Message::PartDue(PartDue { part: keys, keys })]);
    assert!(raised(&out), "{out:?}");
    // The number of concurrent pushes is limited.
    for peer in 10..13 {
        let out = ask(&mut server, PeerId(peer), Identity::Client, push_range(None, PushRule::Add));
        assert!(raised(&out), "{out:?}");
    }
    let out = ask(&mut server, PeerId(13), Identity::Client, push_range(None, PushRule::Add));
    assert!(why(&out).contains("other clients are pushing"), "{out:?}");
    server.give(Input::Disconnected { peer: PeerId(10), why: "gone".into() });
    let out = ask(&mut server, PeerId(14), Identity::Client, push_range(None, PushRule::Add));
    assert!(raised(&out), "{out:?}");
}

#[test]
fn invalid_values_change_nothing() {
    let mut server = server();
    let keys = all(&server);
    let before = server.node.parameters().to_vec();
    let other = KeyRange::new(0, keys.end() - 1).unwrap();
    let mut tries = vec![
        (part(keys, f32::NAN), "the value for key 0 is not finite, so nothing was pushed"),
        (part(keys, f32::NEG_INFINITY), "the value for key 0 is not finite"),
        (part(other, 1.0), "came where those for"),
        (Message::PullStatus(PullStatus { protocol_max: 1 }), "came where"),
    ];
    let Message::RangePart(mut short) = part(keys, 1.0) else { unreachable!() };
    short.encoded.bytes.pop();
    tries.push((Message::RangePart(short), "in no known form"));
    for (place, (message, words)) in (20..).zip(tries) {
        let peer = PeerId(place);
        ask(&mut server, peer, Identity::Client, push_range(None, PushRule::Set));
        let out = server.tell(peer, message);
        assert!(why(&out).contains(words), "{words:?}: {out:?}");
    }
    let beyond = KeyRange::new(1, keys.end() + 1).unwrap();
    let out = ask(&mut server, CLIENT, Identity::Client, push_range(Some(beyond), PushRule::Set));
    assert!(why(&out).contains("there are no keys"), "{out:?}");
    // The server does not wait for a client that sends nothing more.
    let silent = PeerId(30);
    ask(&mut server, silent, Identity::Client, push_range(None, PushRule::Set));
    server.now = server.now + Toy::new(1, 8).job.membership.lease;
    let out = server.give(Input::Wake);
    assert!(why(&out).contains("no values came within"), "{out:?}");
    assert_eq!((server.node.version(), server.node.parameters().to_vec()), (Version(0), before));
}

#[test]
fn a_push_waits_for_gradients_in_flight_and_workers_wait_for_the_push() {
    let mut server = server();
    let push = server.take_in(PeerId(1));
    let keys = all(&server);
    ask(&mut server, CLIENT, Identity::Client, push_range(None, PushRule::Set));
    let out = server.tell(CLIENT, part(keys, 0.25));
    assert!(sent(&out).is_empty(), "answered before the fence: {out:?}");
    let wait = server.node.status(server.now).wait.expect("somebody to wait for");
    assert_eq!((wait.reason, wait.workers.len()), (WaitReason::Push, 1));
    // The gradient is applied to the version that it was computed on; then the pushed values
    // follow.
    let out = server.tell(PeerId(1), Message::Push(push));
    let [Message::RangePushed(Ok(Version(2))), Message::Parameters(given)] = sent(&out)[..] else {
        panic!("{out:?}")
    };
    assert_eq!(given.header.version, Version(2));
    assert!(given.values.iter().all(|value| value.to_bits() == 0.25_f32.to_bits()));
    let pushed = |effect: &Effect| matches!(effect, Effect::Report(Event::RangePushed { .. }));
    assert_eq!(out.iter().filter(|effect| pushed(effect)).count(), 1);
    // Once the run has ended, waiting clients and new ones get the reason.
    ask(&mut server, PeerId(8), Identity::Client, push_range(None, PushRule::Add));
    server.tell(PeerId(8), part(keys, 1.0));
    ask(&mut server, PeerId(9), Identity::Client, push_range(None, PushRule::Add));
    server.give(Input::Drain);
    let out = ask(&mut server, PeerId(10), Identity::Client, push_range(None, PushRule::Add));
    assert_eq!(why(&out), "the run is over, or about to be");
    let out = server.tell(PeerId(1), Message::Bye(Bye { incarnation: Incarnation(1), why: None }));
    let told = sent(&out).into_iter().filter_map(|message| match message {
        Message::RangePushed(Err(why)) => Some(why.as_str()),
        _ => None,
    });
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 2, "{out:?}");
    assert!(told.iter().all(|why| why.starts_with("the run ended before: ")), "{told:?}");
}

#[test]
fn ftrl_accepts_values_before_training_only() {
    let mut job = Toy::new(1, 8).job;
    job.update.optimizer = OptimizerSpec::FTRL;
    let mut server = Hand::new(Server::new(job, RUN).unwrap());
    let keys = all(&server);
    ask(&mut server, CLIENT, Identity::Client, push_range(None, PushRule::Set));
    let out = server.tell(CLIENT, part(keys, 0.5));
    assert!(sent(&out).contains(&&Message::RangePushed(Ok(Version(1)))), "{out:?}");
    server.take_in(PeerId(1));
    let out = ask(&mut server, PeerId(8), Identity::Client, push_range(None, PushRule::Set));
    assert!(why(&out).contains("optimizer = ftrl"), "{out:?}");
}

#[test]
fn ten_million_keys_are_pushed_in_messages_within_the_limits() {
    const KEYS: u64 = 10_000_000;
    let mut job = Toy::sparse(1, 8).job;
    job.servers = 2;
    job.data.shape = Shape::sparse(KEYS as u32, Target::Classes(2));
    let mut server = Hand::new(Server::new(job, RUN).unwrap());
    let keys = all(&server);
    assert!(keys.len() >= KEYS);
    let other = PeerId(1);
    server.give(Input::Connected(other, Identity::Anyone));
    let enlist = |followed| Enlist {
        protocol: PROTOCOL_VERSION,
        build: BUILD.into(),
        place: Place::First { server: ServerId(1), servers: 2 },
        address: "there".into(),
        standby: None,
        followed,
        on_disk: None,
    };
    server.tell(other, Message::Enlist(enlist(None)));
    let mut out = ask(&mut server, CLIENT, Identity::Client, push_range(None, PushRule::Add));
    let mut parts = 0;
    while let [Message::PartDue(PartDue { part: due, .. })] = sent(&out)[..] {
        assert!(due.len() <= MOST_PART_KEYS);
        let message = part(*due, 0.5);
        let (mut head, limits) = (Vec::new(), Limits::PUSHER);
        let payload = encode(&message, &mut head).payload;
        assert!(payload.len() <= limits.payload as usize && head.len() <= limits.control as usize);
        out = server.tell(CLIENT, message);
        parts += 1;
    }
    assert_eq!(parts, keys.len().div_ceil(MOST_PART_KEYS));
    assert!(sent(&out).contains(&&Message::RangePushed(Ok(Version(1)))));
    // The decisions go out at once, and again to a server that was cut off before it received all.
    let last = |out: &Outbox| check_decisions(out, parts);
    let first = last(&out);
    server.give(Input::Disconnected { peer: other, why: "gone".into() });
    server.give(Input::Connected(PeerId(2), Identity::Anyone));
    let out = server.tell(PeerId(2), Message::Enlist(enlist(Some((RUN, first)))));
    last(&out);
    let own = server.node.parameters();
    assert!(own.iter().all(|value| value.to_bits() == 0.5_f32.to_bits()));
}

/// Checks that all parts are in messages that another server accepts; returns the number of the
/// first decision.
fn check_decisions(out: &Outbox, parts: u64) -> u64 {
    let mut first = None;
    let (mut next, mut pushed) = (0, 0);
    for message in sent(out) {
        let Message::Decisions(told) = message else { continue };
        let mut head = Vec::new();
        encode(message, &mut head);
        assert!(head.len() <= Limits::of_coordinator().control as usize, "{}", head.len());
        let Decisions { first: number, decisions } = told;
        assert_eq!(*number, *first.get_or_insert(*number) + next, "none is missing");
        next += decisions.len() as u64;
        let is_one = |it: &&Decision| matches!(it, Decision::PushRange { .. });
        pushed += decisions.iter().filter(is_one).count() as u64;
    }
    assert_eq!(pushed, parts);
    first.expect("decisions")
}
