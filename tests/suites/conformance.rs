//! Guarantees of the `Transport` trait: one set of tests for memory, Unix sockets, TCP and TLS,
//! plain and shaped. Virtual time has no transport; the guarantees of its links are tested in
//! `simulation`.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::id::{BatchId, PartId, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::rng::Stream;
use pstrain_compute::task::Task;
use pstrain_roles::node::{DialFault, Target};
use pstrain_tests::{Kind, Net, OPEN, Probe, frame, within};
use pstrain_transports::{MAX_BACKLOG_BYTES, TransportEvent};
use pstrain_wire::worker::{Parameters, ParametersHeader, PullExamples, Push, PushHeader};
use pstrain_wire::{FrameError, Limits, Message, Refusal};

mod shaped;
mod slow;
mod sockets;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1024 * 1024;

/// Generates one test per function and transport.
macro_rules! over_every_transport {
    ($($name:path as $test:ident),+ $(,)?) => {
        over_every_transport!(@ memory, Memory, $($name as $test),+);
        over_every_transport!(@ unix, Unix, $($name as $test),+);
        over_every_transport!(@ tcp, Tcp, $($name as $test),+);
        over_every_transport!(@ tls, Tls, $($name as $test),+);
        over_every_transport!(@ shaped_memory, ShapedMemory, $($name as $test),+);
        over_every_transport!(@ shaped_tcp, ShapedTcp, $($name as $test),+);
    };
    (@ $module:ident, $kind:ident, $($name:path as $test:ident),+) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $test() {
                    within(LIMIT, || $name(Kind::$kind));
                }
            )+
        }
    };
}

over_every_transport! {
    order_per_peer as small_messages_both_ways_arrive_in_order,
    large_messages as large_messages_come_back_bit_for_bit,
    many_peers as many_peers_are_told_apart,
    half_open as what_was_sent_before_a_close_arrives_and_then_the_end,
    last_words as last_words_arrive_although_unread_data_are_under_way,
    failed_write as last_words_arrive_although_a_write_finds_the_peer_gone,
    silence_after_close as nothing_is_heard_of_a_peer_after_closing_it,
    reconnect as one_transport_dials_again_after_a_close_and_after_a_loss,
    nobody as a_dial_where_nobody_listens_fails_and_may_be_tried_again,
    over_the_limit as a_payload_over_the_limit_is_garbage_of_that_peer_only,
    wakes as a_waker_ends_a_wait,
    deadlines as a_wait_ends_at_its_deadline_and_not_before,
    dropped_server as a_server_that_is_dropped_disconnects_its_peers,
    dropped_dialer as a_dialer_that_is_dropped_is_disconnected,
    dropped_before_accepting as a_dial_under_way_ends_when_the_server_is_dropped,
    dropped_before_connected as a_dialer_dropped_before_it_knew_it_was_connected_is_disconnected,
    flush as flushed_messages_arrive_although_the_transport_is_dropped,
    slow::reader_that_never_reads as a_peer_that_never_reads_is_disconnected_at_the_backlog,
    slow::after_a_long_message as what_follows_a_long_message_arrives_after_it,
    slow::requester_that_never_reads as a_requester_that_takes_no_answers_is_not_read_from,
    slow::both_at_once as both_sides_may_send_much_at_once,
    slow::slow_peer_among_others as a_peer_that_does_not_read_does_not_hold_up_others,
}

fn numbered(number: u64) -> Message {
    Message::PullExamples(PullExamples { part: PartId(0), from: number })
}

fn number_of(message: &Message) -> u64 {
    match message {
        Message::PullExamples(pull) => pull.from,
        Message::Push(push) => push.header.sequence.0,
        Message::Parameters(parameters) => parameters.header.sequence.0,
        other => panic!("{other:?}"),
    }
}

fn push(number: u64, gradient: &Arc<Vec<f32>>) -> Message {
    let header = PushHeader {
        incarnation: pstrain_compute::id::Incarnation(1),
        sequence: Sequence(number),
        base: Version(3),
        task: Task::own(WorkerId(0), BatchId(4)),
        samples: 5,
        loss: 0.5,
        compute_ns: 6,
        keys: KeyRange::new(0, gradient.len().max(1) as u64).unwrap(),
        pull: true,
        allowed: Sequence(0),
    };
    Message::Push(Push::new(header, Arc::clone(gradient)))
}

fn parameters(number: u64, values: &Arc<Vec<f32>>) -> Message {
    let header = ParametersHeader {
        version: Version(3),
        keys: KeyRange::new(0, values.len().max(1) as u64).unwrap(),
        sequence: Sequence(number),
        task: Task::own(WorkerId(0), BatchId(4)),
        ahead: 0,
        decided: None,
    };
    Message::Parameters(Parameters { header, values: Arc::clone(values), changes: None })
}

/// A vector of zeroes that takes `bytes` on the wire.
fn zeroes(bytes: usize) -> Arc<Vec<f32>> {
    Arc::new(vec![0.0; bytes / 4])
}

fn order_per_peer(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let (mut sent, mut seen) = ([0; 2], [0; 2]);
    let mut rng = Stream::new(1).fork("order", 0).rng();
    while seen != [20_000; 2] {
        // Each side sends a burst, in changing proportions, then receives everything that has
        // arrived.
        for (side, probe, peer) in [(0, &mut client, to_server), (1, &mut net.server, to_client)] {
            for _ in 0..rng.below(40) {
                if sent[side] < 20_000 {
                    probe.transport.send(peer, numbered(sent[side]));
                    sent[side] += 1;
                }
            }
        }
        for (side, probe, peer) in [(0, &mut net.server, to_client), (1, &mut client, to_server)] {
            if seen[side] < sent[side] {
                probe.work(Duration::from_millis(1));
            }
            while let Some(event) = probe.pop() {
                let TransportEvent::Message(from, message) = event else { panic!("{event:?}") };
                assert_eq!((from, number_of(&message)), (peer, seen[side]));
                seen[side] += 1;
            }
        }
    }
}

fn large_messages(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let mut rng = Stream::new(2).fork("large", 0).rng();
    // All bit patterns occur, so also every kind of NaN.
    let mut values =
        |count| Arc::new((0..count).map(|_| f32::from_bits(rng.bits() as u32)).collect());
    for (number, count) in [(1, 3 * MIB / 4), (2, 1), (3, 5 * MIB / 4 + 1), (4, 0), (5, 100_003)] {
        let values: Arc<Vec<f32>> = values(count);
        client.transport.send(to_server, push(number, &values));
        let TransportEvent::Message(from, there) = net.server.event_with(&mut client) else {
            panic!("no message")
        };
        assert_eq!(from, to_client);
        assert_eq!(frame(&there), frame(&push(number, &values)), "{number}");
        let Message::Push(there) = there else { panic!("{there:?}") };
        net.server.transport.send(to_client, parameters(number, &there.gradient));
        let TransportEvent::Message(_, back) = client.event_with(&mut net.server) else {
            panic!("no message")
        };
        assert_eq!(frame(&back), frame(&parameters(number, &values)), "{number}");
    }
}

fn many_peers(kind: Kind) {
    // An emulated processor takes a good second for a handshake of both sides.
    let dialers = if kind == Kind::Tls { 40 } else { 200 };
    let mut net = Net::new(kind);
    let mut clients: Vec<(Probe, PeerId, PeerId)> = (0..dialers)
        .map(|_| {
            let mut client = net.dialer();
            let (to_server, to_client) = net.connect(&mut client);
            (client, to_server, to_client)
        })
        .collect();
    for (number, (client, to_server, _)) in (0..).zip(&mut clients) {
        for part in 0..3 {
            client.transport.send(*to_server, numbered(10 * number + part));
        }
    }
    let mut seen = vec![Vec::new(); dialers];
    for _ in 0..3 * dialers {
        let (from, message) = net.server.message();
        let which = clients.iter().position(|&(.., to_client)| to_client == from).unwrap();
        seen[which].push(number_of(&message));
        net.server.transport.send(from, message);
    }
    for (number, ((client, ..), seen)) in (0..).zip(clients.iter_mut().zip(seen)) {
        assert_eq!(seen, [10 * number, 10 * number + 1, 10 * number + 2]);
        let answers: Vec<u64> = (0..3).map(|_| number_of(&client.message().1)).collect();
        assert_eq!(answers, seen);
    }
    // One client disconnects; the server loses that connection and no other.
    let (gone, _, to_gone) = clients.remove(dialers / 3);
    drop(gone);
    assert_eq!(net.server.disconnected().0, to_gone);
    for (client, to_server, to_client) in &mut clients {
        client.transport.send(*to_server, numbered(1));
        assert_eq!(net.server.message(), (*to_client, numbered(1)));
    }
}

fn half_open(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let values = zeroes(MIB / 2);
    for number in 0..5 {
        client.transport.send(to_server, numbered(number));
    }
    client.transport.send(to_server, push(5, &values));
    client.transport.send(to_server, numbered(6));
    client.transport.close(to_server);
    for number in 0..7 {
        match net.server.event_with(&mut client) {
            TransportEvent::Message(from, message) => {
                assert_eq!((from, number_of(&message)), (to_client, number));
            }
            other => panic!("{other:?}"),
        }
    }
    match net.server.event_with(&mut client) {
        TransportEvent::Disconnected { peer, why } => {
            assert_eq!((peer, why.as_str()), (to_client, "closed by the peer"));
        }
        other => panic!("{other:?}"),
    }
    // Messages to a disconnected peer are dropped.
    net.server.transport.send(to_client, numbered(1));
    assert!(!net.server.work(Duration::from_millis(20)));
}

fn last_words(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let values = zeroes(MIB / 4);
    for number in 0..16 {
        client.transport.send(to_server, push(number, &values));
    }
    net.server.transport.send(to_client, Message::Refused(Refusal::Over));
    net.server.transport.close(to_client);
    match client.event_with(&mut net.server) {
        TransportEvent::Message(peer, message) => {
            assert_eq!((peer, message), (to_server, Message::Refused(Refusal::Over)));
        }
        other => panic!("{other:?}"),
    }
    let TransportEvent::Disconnected { .. } = client.event_with(&mut net.server) else {
        panic!("it is not over")
    };
}

fn failed_write(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    client.transport.send(to_server, numbered(7));
    let until = client.transport.now() + Duration::from_secs(20);
    client.transport.flush(until).unwrap();
    // The client has not read this: its end resets the connection.
    net.server.transport.send(to_client, numbered(1));
    drop(client);
    for number in 2..10 {
        std::thread::sleep(Duration::from_millis(2));
        net.server.transport.send(to_client, numbered(number));
    }
    assert_eq!(net.server.message(), (to_client, numbered(7)));
    assert_eq!(net.server.disconnected().0, to_client);
}

fn silence_after_close(kind: Kind) {
    let mut net = Net::new(kind);
    // Several connections: closing one must not disturb the closing of the others.
    let mut clients: Vec<_> = (0..3).map(|_| net.dialer()).collect();
    let peers: Vec<_> = clients.iter_mut().map(|client| net.connect(client)).collect();
    for (&(to_server, to_client), client) in peers.iter().zip(&mut clients) {
        client.transport.send(to_server, numbered(1));
        net.server.transport.close(to_client);
        client.transport.send(to_server, numbered(2));
    }
    let until = net.server.transport.now() + Duration::from_millis(50);
    while net.server.transport.now() < until {
        assert!(!net.server.work(Duration::from_millis(10)), "{:?}", net.server.pop());
    }
    for client in &mut clients {
        let why = client.disconnected().1;
        assert!(why.starts_with("closed by the peer"), "{why}");
    }
}

fn reconnect(kind: Kind) {
    let (mut net, mut client, first, first_at_server) = Net::pair(kind);
    client.transport.close(first);
    assert_eq!(net.server.disconnected().0, first_at_server);
    let (second, second_at_server) = net.connect(&mut client);
    assert!(second != first && second_at_server != first_at_server, "a new connection is new");
    client.transport.send(first, numbered(1));
    client.transport.send(second, numbered(2));
    assert_eq!(net.server.message(), (second_at_server, numbered(2)));
    net.server.transport.close(second_at_server);
    assert_eq!(client.disconnected().0, second);
    let (third, third_at_server) = net.connect(&mut client);
    net.server.transport.send(third_at_server, numbered(3));
    assert_eq!(client.message(), (third, numbered(3)));
}

fn nobody(kind: Kind) {
    let mut client = Net::new(kind).abandon();
    for _ in 0..3 {
        client.transport.dial(&Target::Server);
        let (why, fault) = client.dial_failed();
        assert!(fault == DialFault::Temporary && !why.is_empty(), "{why}");
    }
}

fn over_the_limit(kind: Kind) {
    let (mut net, mut bad, to_server, to_bad) = Net::pair(kind);
    let mut good = net.dialer();
    let (good_to_server, to_good) = net.connect(&mut good);
    net.server.transport.limit(to_bad, Limits { control: 4096, payload: 400 });
    bad.transport.send(to_server, push(1, &zeroes(400)));
    assert_eq!(number_of(&net.server.message().1), 1);
    bad.transport.send(to_server, push(2, &zeroes(404)));
    bad.transport.send(to_server, push(3, &zeroes(4)));
    match net.server.event() {
        TransportEvent::Garbage(peer, error) => {
            assert_eq!((peer, error), (to_bad, FrameError::Payload { length: 404, limit: 400 }));
        }
        other => panic!("{other:?}"),
    }
    // No further message of this peer is delivered, but the server can send it the reason. Other
    // peers are unaffected.
    net.server.transport.send(to_bad, Message::Refused(Refusal::Over));
    net.server.transport.close(to_bad);
    good.transport.send(good_to_server, push(4, &zeroes(404)));
    assert_eq!(net.server.message(), (to_good, push(4, &zeroes(404))));
    assert_eq!(bad.message(), (to_server, Message::Refused(Refusal::Over)));
    assert_eq!(bad.disconnected().0, to_server);
    // A limit applies to its own connection only.
    let (again, to_again) = net.connect(&mut bad);
    bad.transport.send(again, push(5, &zeroes(404)));
    assert_eq!(net.server.message().0, to_again);
}

fn wakes(kind: Kind) {
    let (mut net, _client, ..) = Net::pair(kind);
    for pause in [0, 1, 5, 20] {
        let waker = net.server.transport.waker();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(pause));
            waker.wake();
        });
        let mut events = Vec::new();
        net.server.transport.wait(None, &mut events).unwrap();
        assert!(events.is_empty(), "{events:?}");
        thread.join().unwrap();
    }
    // A wake-up before the wait is not lost, and ends one wait only.
    net.server.transport.waker().wake();
    net.server.transport.wait(None, &mut Vec::new()).unwrap();
    let until = net.server.transport.now() + Duration::from_millis(20);
    net.server.transport.wait(Some(until), &mut Vec::new()).unwrap();
    assert!(net.server.transport.now() >= until);
}

fn deadlines(kind: Kind) {
    let (mut net, _client, ..) = Net::pair(kind);
    let mut events = Vec::new();
    for micros in [0, 1, 100, 999, 1000, 1001, 2500, 10_000, 20_000] {
        let until = net.server.transport.now() + Duration::from_micros(micros);
        net.server.transport.wait(Some(until), &mut events).unwrap();
        let late = net.server.transport.now();
        assert!(late >= until, "{micros} us: {} early", until.since(late).as_nanos());
        assert!(late.since(until) < Duration::from_secs(2), "{micros} us");
    }
    assert!(events.is_empty(), "{events:?}");
}

fn dropped_server(kind: Kind) {
    let (net, mut client, to_server, _) = Net::pair(kind);
    let mut other = net.dialer();
    let mut net = net;
    let (other_to_server, _) = net.connect(&mut other);
    drop(net);
    assert_eq!(client.disconnected().0, to_server);
    assert_eq!(other.disconnected().0, other_to_server);
    client.transport.dial(&Target::Server);
    assert_eq!(client.dial_failed().1, DialFault::Temporary);
}

fn dropped_dialer(kind: Kind) {
    let (mut net, client, _, to_client) = Net::pair(kind);
    drop(client);
    assert_eq!(net.server.disconnected(), (to_client, "closed by the peer".into()));
}

fn dropped_before_accepting(kind: Kind) {
    let net = Net::new(kind);
    let mut client = net.dialer();
    client.transport.dial(&Target::Server);
    drop(net);
    // The operating system may have accepted the connection on the server's behalf.
    match client.event() {
        TransportEvent::DialFailed { fault, .. } => assert_eq!(fault, DialFault::Temporary),
        TransportEvent::Dialled(peer, _) => assert_eq!(client.disconnected().0, peer),
        other => panic!("{other:?}"),
    }
}

fn dropped_before_connected(kind: Kind) {
    let mut net = Net::new(kind);
    let mut client = net.dialer();
    client.transport.dial(&Target::Server);
    let to_client = net.server.connected_with(&mut client);
    drop(client);
    assert_eq!(net.server.disconnected().0, to_client);
}

fn flush(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let values = zeroes(MIB);
    let reader = std::thread::spawn(move || {
        let numbers: Vec<u64> = (0..12).map(|_| number_of(&net.server.message().1)).collect();
        assert_eq!(numbers, (0..12).collect::<Vec<_>>());
        assert_eq!(net.server.disconnected().0, to_client);
    });
    for number in 0..12 {
        client.transport.send(to_server, push(number, &values));
    }
    let until = client.transport.now() + Duration::from_secs(20);
    client.transport.flush(until).unwrap();
    assert!(client.transport.now() < until, "it was not flushed");
    drop(client);
    reader.join().unwrap();
}
