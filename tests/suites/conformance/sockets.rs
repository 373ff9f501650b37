//! Guarantees specific to sockets: malformed bytes, partial frames, and addresses.

use pstrain_compute::id::WorkerId;
use pstrain_roles::node::{DialFault, Event, Target};
use pstrain_tests::{RawPeer, Received, Toy};
use pstrain_transports::{Address, SocketTransport, TransportError};
use pstrain_wire::{HEADER_BYTES, PROTOCOL, Protocol};

use super::*;

const SOCKETS: [Kind; 2] = [Kind::Unix, Kind::Tcp];

/// Returns a server, a raw client, and the client's id at the server.
fn raw_pair(kind: Kind) -> (Net, RawPeer, PeerId) {
    let mut net = Net::new(kind);
    let raw = RawPeer::connect(net.address.as_ref().unwrap());
    let peer = net.server.connected();
    net.server.transport.limit(peer, OPEN);
    (net, raw, peer)
}

/// Writes `bytes` after a valid message; returns the server's frame error.
fn garbage(kind: Kind, limits: Limits, bytes: &[u8]) -> FrameError {
    let (mut net, mut raw, peer) = raw_pair(kind);
    net.server.transport.limit(peer, limits);
    raw.send(&numbered(7));
    assert_eq!(net.server.message(), (peer, numbered(7)));
    raw.write(bytes);
    let error = match net.server.event() {
        TransportEvent::Garbage(from, error) => {
            assert_eq!(from, peer);
            error
        }
        other => panic!("{other:?}"),
    };
    // The client gets the reason, no further message of it is delivered, and the connection is
    // closed.
    raw.write(&frame(&numbered(8)));
    net.server.transport.send(peer, Message::Refused(error.into()));
    net.server.transport.close(peer);
    assert!(!net.server.work(Duration::from_millis(5)), "{:?}", net.server.pop());
    match raw.message() {
        Message::Refused(Refusal::Frame { what }) => assert_eq!(what, error.to_string()),
        other => panic!("{other:?}"),
    }
    assert_eq!(raw.receive(), Received::End);
    error
}

/// Returns a valid frame with one byte changed.
fn changed(at: usize, to: u8) -> Vec<u8> {
    let mut bytes = frame(&numbered(9));
    bytes[at] = to;
    bytes
}

#[test]
fn malformed_frames_are_garbage_with_a_reason() {
    within(LIMIT, || {
        for kind in SOCKETS {
            let found = |bytes: &[u8]| garbage(kind, OPEN, bytes);
            assert_eq!(found(b"GET / HTTP/1.1\r\n\r\n"), FrameError::Magic(*b"GET "));
            assert_eq!(found(b"PX"), FrameError::Magic(*b"PX\0\0"));
            let version = PROTOCOL.version + 1;
            let next = FrameError::Version(Protocol { version, ..PROTOCOL });
            assert_eq!(found(&changed(4, version)), next);
            let layout = PROTOCOL.layout ^ 0x100;
            let other = FrameError::Version(Protocol { layout, ..PROTOCOL });
            assert_eq!(found(&changed(7, layout.to_le_bytes()[1])), other);
            assert_eq!(found(&changed(5, 0)), FrameError::Kind(0));
            let last = frame(&numbered(9)).len() - 1;
            let broken = found(&changed(last, frame(&numbered(9))[last] ^ 1));
            assert!(matches!(broken, FrameError::Checksum { .. }), "{broken:?}");
            let flipped = found(&changed(HEADER_BYTES, 10));
            assert!(matches!(flipped, FrameError::Checksum { .. }), "{flipped:?}");
        }
    });
}

#[test]
fn lengths_over_the_limit_are_refused_before_their_bytes_arrive() {
    within(LIMIT, || {
        for kind in SOCKETS {
            let header = |control: u32, payload: u32| {
                let mut bytes = b"PSTR".to_vec();
                bytes.extend([PROTOCOL.version, 1]);
                bytes.extend(PROTOCOL.layout.to_le_bytes());
                bytes.extend(control.to_le_bytes());
                bytes.extend(payload.to_le_bytes());
                bytes
            };
            let found = |bytes: &[u8]| garbage(kind, Limits::UNAUTHENTICATED, bytes);
            let (length, limit) = (u32::MAX, Limits::UNAUTHENTICATED.control);
            assert_eq!(found(&header(length, 0)), FrameError::Control { length, limit });
            assert_eq!(found(&header(10, 1)), FrameError::Payload { length: 1, limit: 0 });
            let big = FrameError::Payload { length: 1 << 31, limit: 0 };
            assert_eq!(found(&header(0, 1 << 31)), big);
        }
    });
}

#[test]
fn a_frame_truncated_by_a_close_is_reported_as_such() {
    within(LIMIT, || {
        for kind in SOCKETS {
            let whole = frame(&push(1, &zeroes(4000)));
            for cut in [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5, whole.len() - 1] {
                let (mut net, mut raw, peer) = raw_pair(kind);
                raw.send(&numbered(1));
                raw.write(&whole[..cut]);
                drop(raw);
                assert_eq!(net.server.message(), (peer, numbered(1)));
                let why = "closed by the peer in the middle of a message";
                assert_eq!(net.server.disconnected(), (peer, why.into()), "{kind:?} {cut}");
            }
        }
    });
}

/// A stopped server accepts, once it continues, connections that were dialled and closed meanwhile.
#[test]
fn messages_sent_before_the_accept_are_delivered_although_the_dialler_has_closed() {
    within(LIMIT, || {
        for kind in SOCKETS {
            let mut net = Net::new(kind);
            let address = net.address.clone().unwrap();
            for says in [true, false] {
                let mut raw = RawPeer::connect(&address);
                if says {
                    raw.send(&numbered(7));
                }
                drop(raw);
                let peer = net.server.connected();
                if says {
                    assert_eq!(net.server.message(), (peer, numbered(7)));
                }
                assert_eq!(net.server.disconnected(), (peer, "closed by the peer".into()));
            }
        }
    });
}

#[test]
fn a_frame_may_arrive_byte_by_byte() {
    within(LIMIT, || {
        for kind in SOCKETS {
            let (mut net, mut raw, peer) = raw_pair(kind);
            let mut bytes = frame(&push(1, &zeroes(40)));
            bytes.extend(frame(&numbered(2)));
            for byte in bytes {
                raw.write(&[byte]);
                net.server.work(Duration::ZERO);
            }
            assert_eq!(net.server.message(), (peer, push(1, &zeroes(40))));
            assert_eq!(net.server.message(), (peer, numbered(2)));
            assert!(net.server.parts > 20, "whoever is slow is not silent");
        }
    });
}

#[test]
fn a_push_may_arrive_in_pieces_that_split_its_values() {
    within(LIMIT, || {
        for kind in SOCKETS {
            let (mut net, mut raw, peer) = raw_pair(kind);
            let values = Arc::new((0..MIB).map(|key| key as f32 - 0.5).collect::<Vec<_>>());
            let sent = push(3, &values);
            for piece in frame(&sent).chunks(60_001) {
                raw.write(piece);
                net.server.work(Duration::from_millis(1));
            }
            assert_eq!(net.server.message(), (peer, sent));
        }
    });
}

#[test]
fn closed_connections_end_although_the_peer_does_not_hang_up() {
    // Two connections are closed at once and neither client hangs up: each must end by itself.
    within(LIMIT, || {
        for kind in SOCKETS {
            let (mut net, mut first, to_first) = raw_pair(kind);
            let mut second = RawPeer::connect(net.address.as_ref().unwrap());
            let to_second = net.server.connected();
            net.server.transport.close(to_first);
            net.server.transport.close(to_second);
            let until = net.server.transport.now() + Duration::from_millis(1300);
            while net.server.transport.now() < until {
                assert!(!net.server.work(Duration::from_millis(100)), "{:?}", net.server.pop());
            }
            for raw in [&mut first, &mut second] {
                assert_eq!(raw.receive(), Received::End);
                // The server's side is gone: further writes return an error.
                assert!(raw.is_reset(), "{kind:?}: a connection was kept");
            }
        }
    });
}

#[test]
fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
    within(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        // The listener is gone and its socket file remains, as after a killed server.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = SocketTransport::listen(&address).unwrap();
        let error = SocketTransport::listen(&address).unwrap_err();
        assert!(matches!(&error, TransportError::Listen { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("cannot listen on unix:") && text.contains("another program has"));
        // The failed attempt has not harmed the live listener.
        let mut client = Probe::new(SocketTransport::dialer(address.clone()).unwrap());
        client.transport.dial(&Target::Server);
        client.dialled();
        drop(live);
        assert!(!path.exists(), "a server removes its own socket");
        // A file that is not a socket is never removed.
        std::fs::write(&path, "mine").unwrap();
        let error = SocketTransport::listen(&address).unwrap_err();
        assert!(error.to_string().contains("cannot listen on unix:"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    });
}

#[test]
fn a_tcp_address_in_use_is_reported_with_a_hint() {
    let any = "127.0.0.1:0".parse().unwrap();
    let first = SocketTransport::listen(&any).unwrap();
    let taken = first.local_address().unwrap();
    let error = SocketTransport::listen(&taken).unwrap_err().to_string();
    assert!(error.contains(&taken.to_string()), "{error}");
    assert!(error.contains("another program has this address, choose another port"), "{error}");
    drop(first);
    SocketTransport::listen(&taken).unwrap();
}

#[test]
fn a_path_too_long_for_a_socket_is_a_permanent_failure() {
    let mut client =
        Probe::new(SocketTransport::dialer(Address::Unix("x".repeat(200).into())).unwrap());
    client.transport.dial(&Target::Server);
    assert_eq!(client.dial_failed().1, DialFault::Permanent);
}

#[test]
fn an_unanswered_dial_times_out() {
    within(LIMIT, || {
        // The listener's queue is full and stays full: further dials get no answer.
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let listener = listener.unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let _first = std::net::TcpStream::connect(address).unwrap();
        let mut client =
            Probe::new(SocketTransport::dialer(Address::Tcp(address.to_string())).unwrap());
        client.transport.dial(&Target::Server);
        let (why, fault) = client.dial_failed();
        assert!(fault == DialFault::Temporary && why.contains("no answer within 5s"), "{why}");
        // With a lease of its job a dial ends before the others take its node for lost.
        for (lease, within) in [(2500, "2.5s"), (100, "1s")] {
            let mut job = Box::new(Toy::new(1, 8).job);
            job.membership.lease = Duration::from_millis(lease);
            let welcomed = Event::Welcomed { worker: WorkerId(0), resumed: false, job };
            client.transport.note(&welcomed);
            client.transport.dial(&Target::Server);
            let (why, _) = client.dial_failed();
            assert!(why.ends_with(&format!("no answer within {within}")), "{why}");
        }
    });
}

#[test]
fn a_closed_listener_does_not_remove_its_successors_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = Address::Unix(path.clone());
    let first = SocketTransport::listen(&address).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = SocketTransport::listen(&address).unwrap();
    drop(first);
    assert!(path.exists(), "the successor cannot be reached any more");
    drop(second);
    assert!(!path.exists(), "a socket was left behind");
}
