//! Additional guarantees of a transport that models a link: messages take their time, and closes,
//! losses and wake-ups keep their order relative to them.

use super::*;

/// A server, and a client with these modelled links.
fn pair(kind: Kind, links: &str) -> (Net, Probe, PeerId, PeerId) {
    let (net, mut client, to_server, to_client) = Net::pair(kind);
    client.welcome(links);
    (net, client, to_server, to_client)
}

/// Runs `test` over both shaped transports.
fn over_both(test: fn(Kind)) {
    within(LIMIT, move || {
        for kind in [Kind::ShapedMemory, Kind::ShapedTcp] {
            test(kind);
        }
    });
}

fn number(event: TransportEvent) -> u64 {
    match event {
        TransportEvent::Message(_, message) => number_of(&message),
        other => panic!("{other:?} instead of a message"),
    }
}

#[test]
fn messages_arrive_in_order_and_not_before_their_time() {
    over_both(|kind| {
        let (mut net, mut client, to_server, to_client) =
            pair(kind, "delay=20ms jitter=5ms down.delay=10ms rate=100mbit");
        let begin = client.transport.now();
        for sent in 0..50 {
            client.transport.send(to_server, numbered(sent));
            net.server.transport.send(to_client, numbered(sent));
        }
        for expected in 0..50 {
            assert_eq!(number(client.event_with(&mut net.server)), expected);
            assert!(client.transport.now() - begin >= Duration::from_millis(10));
        }
        for expected in 0..50 {
            assert_eq!(number(net.server.event_with(&mut client)), expected);
            assert!(client.transport.now() - begin >= Duration::from_millis(15));
        }
    });
}

#[test]
fn a_large_message_takes_the_transmission_time_of_its_bytes() {
    over_both(|kind| {
        let (mut net, mut client, to_server, _) = pair(kind, "rate=80mbit");
        let begin = client.transport.now();
        client.transport.send(to_server, push(1, &zeroes(MIB)));
        assert_eq!(number(net.server.event_with(&mut client)), 1);
        let took = client.transport.now() - begin;
        assert!(took >= Duration::from_micros(104_857), "{took:?}");
    });
}

#[test]
fn messages_sent_before_a_close_arrive_before_the_disconnect() {
    over_both(|kind| {
        let (mut net, mut client, to_server, _) = pair(kind, "delay=10ms");
        for sent in 0..5 {
            client.transport.send(to_server, numbered(sent));
        }
        client.transport.close(to_server);
        client.transport.send(to_server, numbered(5));
        for expected in 0..5 {
            assert_eq!(number(net.server.event_with(&mut client)), expected);
        }
        let event = net.server.event_with(&mut client);
        assert!(matches!(event, TransportEvent::Disconnected { .. }), "{event:?}");
        assert!(!client.work(Duration::ZERO), "{:?}", client.pop());
    });
}

#[test]
fn messages_received_before_a_close_are_delivered_before_the_disconnect() {
    over_both(|kind| {
        let (mut net, mut client, to_server, to_client) = pair(kind, "down.delay=10ms");
        for sent in 0..5 {
            net.server.transport.send(to_client, numbered(sent));
        }
        net.server.transport.close(to_client);
        for expected in 0..5 {
            assert_eq!(number(client.event_with(&mut net.server)), expected);
        }
        let event = client.event_with(&mut net.server);
        let TransportEvent::Disconnected { peer, .. } = event else { panic!("{event:?}") };
        assert_eq!(peer, to_server);
    });
}

#[test]
fn messages_in_flight_from_a_closed_peer_are_not_delivered() {
    over_both(|kind| {
        let (mut net, mut client, to_server, to_client) = pair(kind, "down.delay=20ms delay=5ms");
        net.server.transport.send(to_client, numbered(1));
        while net.server.work(Duration::from_millis(1)) || client.work(Duration::from_millis(1)) {}
        client.transport.send(to_server, numbered(2));
        client.transport.close(to_server);
        let until = client.transport.now() + Duration::from_millis(40);
        while client.transport.now() < until {
            assert!(!client.work(Duration::from_millis(5)), "{:?}", client.pop());
        }
        assert_eq!(number(net.server.event_with(&mut client)), 2);
    });
}

#[test]
fn a_waker_ends_a_wait_while_messages_are_in_flight() {
    over_both(|kind| {
        let (_net, mut client, to_server, _) = pair(kind, "delay=10s");
        client.transport.send(to_server, numbered(1));
        for pause in [0, 5, 20] {
            let waker = client.transport.waker();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(pause));
                waker.wake();
            });
            let mut events = Vec::new();
            client.transport.wait(None, &mut events).unwrap();
            assert!(events.is_empty(), "{events:?}");
            thread.join().unwrap();
        }
        let until = client.transport.now() + Duration::from_micros(2_500);
        client.transport.wait(Some(until), &mut Vec::new()).unwrap();
        assert!(client.transport.now() >= until);
    });
}

#[test]
fn a_flush_sends_messages_before_their_modelled_time() {
    over_both(|kind| {
        let (mut net, mut client, to_server, _) = pair(kind, "delay=10s");
        client.transport.send(to_server, numbered(1));
        let until = client.transport.now() + Duration::from_millis(10);
        client.transport.flush(until).unwrap();
        assert!(client.transport.now() >= until);
        drop(client);
        assert_eq!(number(net.server.event()), 1);
    });
}

#[test]
fn a_backlog_above_the_limit_disconnects_the_peer() {
    over_both(|kind| {
        let (mut net, mut client, to_server, _) = pair(kind, "rate=1mbit");
        let values = zeroes(MIB);
        for sent in 0..=MAX_BACKLOG_BYTES / MIB {
            client.transport.send(to_server, push(sent as u64, &values));
        }
        assert_eq!(client.disconnected().0, to_server);
        let event = net.server.event_with(&mut client);
        assert!(matches!(event, TransportEvent::Disconnected { .. }), "{event:?}");
    });
}
