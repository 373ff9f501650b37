//! Peers that do not read their messages: bounded queues, back-pressure, and no effect on other
//! peers.

use super::*;

/// Upper bound of the bytes that the operating system buffers between two peers, with a margin: the
/// socket queues do not belong to the transport.
const SYSTEM_BYTES: usize = 48 * MIB;

/// Sends to a peer that never reads: its queue ends at the backlog limit, and the peer is
/// disconnected.
pub(crate) fn reader_that_never_reads(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let values = zeroes(MIB);
    let mut sent = 0;
    let (peer, why) = loop {
        net.server.transport.send(to_client, parameters(sent, &values));
        sent += 1;
        if net.server.work(Duration::ZERO) {
            break net.server.disconnected();
        }
        let bytes = sent as usize * MIB;
        assert!(bytes <= MAX_BACKLOG_BYTES + SYSTEM_BYTES, "{bytes} bytes without an end");
    };
    assert_eq!((peer, why.as_str()), (to_client, "it does not take its messages"));
    assert!(sent as usize * MIB > MAX_BACKLOG_BYTES, "ended after {sent} MiB already");
    // The peer receives the messages that were sent, in order and whole, then the disconnect.
    let mut read = 0;
    loop {
        match client.event_with(&mut net.server) {
            TransportEvent::Message(from, message) => {
                assert_eq!((from, number_of(&message)), (to_server, read));
                read += 1;
            }
            TransportEvent::Disconnected { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(read < sent);
}

/// Messages sent behind a message longer than the backlog arrive after it.
pub(crate) fn after_a_long_message(kind: Kind) {
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let (long, short) = (zeroes(MAX_BACKLOG_BYTES + 16 * MIB), zeroes(1000));
    for number in 0..4 {
        let values = if number == 0 { &long } else { &short };
        net.server.transport.send(to_client, parameters(number, values));
    }
    for number in 0..4 {
        match client.event_with(&mut net.server) {
            TransportEvent::Message(from, message) => {
                assert_eq!((from, number_of(&message)), (to_server, number));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A client sends requests and reads no answers: the number of requests that are read is bounded,
/// however many it sends. Once it reads, it gets all answers.
pub(crate) fn requester_that_never_reads(kind: Kind) {
    const REQUESTS: u64 = 900;
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let values = zeroes(MIB / 16);
    let mut answered = 0;
    let answer = |server: &mut Probe, answered: &mut u64| {
        while let Some(event) = server.pop() {
            let TransportEvent::Message(from, message) = event else { panic!("{event:?}") };
            assert_eq!((from, number_of(&message)), (to_client, *answered));
            server.transport.send(to_client, parameters(*answered, &values));
            *answered += 1;
        }
    };
    for request in 0..REQUESTS {
        client.transport.send(to_server, push(request, &values));
        net.server.work(Duration::ZERO);
        answer(&mut net.server, &mut answered);
    }
    let held_back = answered;
    let bytes = held_back as usize * MIB / 16;
    assert!(bytes <= 2 * MIB + SYSTEM_BYTES / 2, "{bytes} bytes of requests were read");
    // Some time later the server still reads nothing from this client.
    let until = net.server.transport.now() + Duration::from_millis(30);
    while net.server.transport.now() < until {
        net.server.work(Duration::from_millis(5));
        answer(&mut net.server, &mut answered);
    }
    assert!(answered <= held_back + 1, "{answered} after {held_back}");
    for request in 0..REQUESTS {
        while !client.work(Duration::from_millis(1)) {
            net.server.work(Duration::ZERO);
            answer(&mut net.server, &mut answered);
        }
        assert_eq!(number_of(&client.message().1), request);
    }
    assert_eq!(answered, REQUESTS);
}

/// Each side sends more than the threshold of back-pressure: if both stopped reading until the
/// other read, they would deadlock.
pub(crate) fn both_at_once(kind: Kind) {
    const EACH: u64 = 40;
    let (mut net, mut client, to_server, to_client) = Net::pair(kind);
    let values = zeroes(MIB);
    for number in 0..EACH {
        client.transport.send(to_server, push(number, &values));
        net.server.transport.send(to_client, parameters(number, &values));
    }
    let mut seen = [0; 2];
    while seen != [EACH; 2] {
        for (seen, probe) in seen.iter_mut().zip([&mut client, &mut net.server]) {
            probe.work(Duration::from_millis(1));
            while let Some(event) = probe.pop() {
                let TransportEvent::Message(_, message) = event else { panic!("{event:?}") };
                assert_eq!(number_of(&message), *seen);
                *seen += 1;
            }
        }
    }
}

/// One peer reads nothing; another still gets its answers.
pub(crate) fn slow_peer_among_others(kind: Kind) {
    let (mut net, slow, _, to_slow) = Net::pair(kind);
    let mut quick = net.dialer();
    let (to_server, to_quick) = net.connect(&mut quick);
    let values = zeroes(MIB);
    for number in 0..40 {
        net.server.transport.send(to_slow, parameters(number, &values));
    }
    for number in 0..200 {
        quick.transport.send(to_server, numbered(number));
        assert_eq!(net.server.message(), (to_quick, numbered(number)));
        net.server.transport.send(to_quick, numbered(number));
        assert_eq!(quick.message(), (to_server, numbered(number)));
    }
    drop(slow);
    assert_eq!(net.server.disconnected().0, to_slow);
}
