//! Cost of transport security: pushes answered per second between two threads over the loopback
//! address, in plain text, with TLS and with a shared key, as a ratio to plain text.
//!
//! The modes take turns, so that other load on the machine affects all of them; the best rate of
//! each is printed. Compare ratios of one run, not times of different runs.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "a benchmark prints what it finds")]
#![expect(clippy::unwrap_used, reason = "a benchmark's own settings are right")]

use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use pstrain_compute::id::{BatchId, Incarnation, PeerId, Sequence, Version, WorkerId};
use pstrain_compute::params::KeyRange;
use pstrain_compute::task::Task;
use pstrain_roles::node::Target;
use pstrain_transports::{KeyAccess, Security, SocketTransport, Transport, TransportEvent};
use pstrain_wire::worker::{Heartbeat, Push, PushHeader};
use pstrain_wire::{Limits, Message};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

const TURN: Duration = Duration::from_secs(2);
const TURNS: usize = 3;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    fs::write(place.join("key"), "0123456789abcdef".repeat(4)).unwrap();
    fs::set_permissions(place.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    certificates(place);
    type Make = fn(&Path, &str) -> Security;
    let modes: [(&str, Make); 3] = [
        ("plain", |_, _| Security::local()),
        ("tls", |place, who| Security::tls(&place.join(who), KeyAccess::Owner).unwrap()),
        ("psk", |place, _| Security::psk(&place.join("key"), KeyAccess::Owner).unwrap()),
    ];
    println!("{:>12} {:>6} {:>12} {:>10} {:>6}", "gradient", "mode", "pushes/s", "MB/s", "ratio");
    for bytes in [8 * 1024, 16 * 1024 * 1024] {
        let mut best = [0.0_f64; 3];
        for _ in 0..TURNS {
            for ((_, make), best) in modes.iter().zip(&mut best) {
                let rate = rate(make(place, "server"), make(place, "worker"), bytes);
                *best = best.max(rate);
            }
        }
        for ((name, _), rate) in modes.iter().zip(best) {
            let megabytes = 2.0 * rate * bytes as f64 / 1e6;
            let ratio = rate / best[0];
            println!("{bytes:>12} {name:>6} {rate:>12.1} {megabytes:>10.0} {ratio:>6.2}");
        }
    }
}

/// Writes a CA and the folders of a server and a worker.
fn certificates(place: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let root = ca.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(ca, key);
    for (who, identity) in [("server", "pstrain:server"), ("worker", "pstrain:worker")] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        params.subject_alt_names.push(SanType::URI(identity.try_into().unwrap()));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let folder = place.join(who);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("ca.pem"), &root).unwrap();
        fs::write(folder.join("node.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(folder.join("node.key"), key.serialize_pem()).unwrap();
        let secret = fs::Permissions::from_mode(0o600);
        fs::set_permissions(folder.join("node.key"), secret).unwrap();
    }
}

const OPEN: Limits = Limits { control: 1 << 20, payload: 1 << 28 };

fn push(bytes: usize) -> Message {
    let keys = KeyRange::new(0, bytes as u64 / 4).unwrap();
    let header = PushHeader {
        incarnation: Incarnation(1),
        sequence: Sequence(1),
        base: Version(0),
        task: Task::own(WorkerId(0), BatchId(0)),
        samples: 64,
        loss: 1.0,
        compute_ns: 0,
        keys,
        pull: true,
        allowed: Sequence(0),
    };
    Message::Push(Push::new(header, Arc::new(vec![0.5; bytes / 4])))
}

/// Returns the pushes per second; each comes back before the next is sent.
fn rate(server: Security, worker: Security, bytes: usize) -> f64 {
    let here = "127.0.0.1:0".parse().unwrap();
    let mut server = SocketTransport::listen(&here).unwrap().secured(server);
    let address = server.local_address().unwrap();
    let echo = thread::spawn(move || {
        let answer = |server: &mut SocketTransport, peer, message| {
            server.send(peer, message);
            true
        };
        // The worker sends nothing until the server has raised its limits for this connection.
        let ready = Message::Heartbeat(Heartbeat { incarnation: None });
        for_each(&mut server, answer, |server, peer| server.send(peer, ready.clone()));
    });
    let mut worker = SocketTransport::dialer(address).unwrap().secured(worker);
    worker.dial(&Target::Server);
    let (first, begin, mut count) = (push(bytes), Cell::new(Instant::now()), 0_u32);
    for_each(
        &mut worker,
        |worker, peer, message| {
            if matches!(message, Message::Heartbeat(_)) {
                worker.send(peer, first.clone());
                begin.set(Instant::now());
                return true;
            }
            count += 1;
            worker.send(peer, message);
            begin.get().elapsed() < TURN
        },
        |_, _| {},
    );
    let rate = f64::from(count) / begin.get().elapsed().as_secs_f64();
    drop(worker);
    echo.join().unwrap();
    rate
}

/// Serves a connection until it ends, or `take` returns false.
fn for_each(
    transport: &mut SocketTransport,
    mut take: impl FnMut(&mut SocketTransport, PeerId, Message) -> bool,
    mut begin: impl FnMut(&mut SocketTransport, PeerId),
) {
    let mut events = Vec::new();
    loop {
        transport.wait(None, &mut events).unwrap();
        for event in events.drain(..) {
            match event {
                TransportEvent::Connected(peer, _) | TransportEvent::Dialled(peer, _) => {
                    transport.limit(peer, OPEN);
                    begin(transport, peer);
                }
                TransportEvent::Message(peer, message) => {
                    if !take(transport, peer, message) {
                        return;
                    }
                }
                TransportEvent::Receiving(_) => {}
                TransportEvent::Disconnected { .. } => return,
                other => panic!("{other:?}"),
            }
        }
    }
}
