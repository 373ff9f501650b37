//! Unauthenticated connections do not disturb a run: noise, replayed handshakes, silent connections
//! and floods.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_tests::connect_from;
use pstrain_transports::WallClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::books::{called, events};
use crate::cluster::{ENDLESS, Server, number};
use crate::lab::Lab;
use crate::process::Process;

const SMALL: [&str; 4] = ["--data", "synthetic:4000", "--model", "mlp:64"];

/// Bytes of noise per security mode; `PSTRAIN_NOISE` overrides.
fn noise_bytes() -> usize {
    std::env::var("PSTRAIN_NOISE").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

/// Returns the security modes, each with the flags of the server, its two workers and a client.
fn modes(lab: &Lab) -> Vec<(&'static str, [Vec<String>; 4])> {
    let tls = |name: &str| vec!["--tls".to_owned(), lab.at(name)];
    let psk = vec!["--psk".to_owned(), lab.at("key")];
    vec![
        ("plain", [const { Vec::new() }; 4]),
        ("tls", [tls("server"), tls("worker-1"), tls("worker-2"), tls("client")]),
        ("psk", [psk.clone(), psk.clone(), psk.clone(), psk]),
    ]
}

fn texts(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Starts an endless run with two workers and waits until it trains.
fn begin(flags: &[Vec<String>; 4]) -> (Server, Vec<Process>) {
    let [own, first, second, client] = flags;
    let server = Server::tcp(&[&SMALL, &ENDLESS, &["--compute", "2ms"], &texts(own)])
        .for_clients(&texts(client));
    let worker = |id, flags: &[String]| server.worker(&[&["--id", id], &texts(flags)[..]].concat());
    let workers = vec![worker("1", first), worker("2", second)];
    server.wait_for_updates(5);
    (server, workers)
}

/// Ends a run, checks that no member was disturbed, and returns its events.
fn end(server: Server, workers: Vec<Process>) -> Vec<Value> {
    let before = number(&server.status()["updates"]);
    server.wait_for_updates(before + 20);
    let left = server.interrupt(workers);
    let events = events(&left.out);
    assert_eq!(called(&events, "cut_off").count(), 0);
    assert_eq!(called(&events, "joined").count(), 2);
    events
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address.trim_start_matches("tcp://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Waits until the server has closed a connection, which it must; returns the bytes it sent before.
fn wait_for_end(mut stream: TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    match stream.read_to_end(&mut came) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    came
}

#[test]
fn noise_on_the_port_does_not_reach_the_node() {
    let lab = Lab::with_nodes();
    for (name, flags) in modes(&lab) {
        let (server, workers) = begin(&flags);
        let mut rng = Stream::new(7).fork("noise", 0).rng();
        let mut left = noise_bytes();
        let mut connections = 0;
        while left > 0 {
            // Some pieces begin like a TLS hello, a PSK handshake or a pstrain frame.
            let begins: &[u8] = match rng.below(4) {
                0 => &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
                1 => &[0, 48],
                2 => b"PSTR",
                _ => &[],
            };
            let length = left.min(1 + rng.below(20_000) as usize);
            left -= length;
            let mut bytes = begins.to_vec();
            bytes.extend((0..length).map(|_| rng.bits() as u8));
            let mut stream = connect(&server.address);
            let _closed = stream.write_all(&bytes);
            // Some connections wait for the end, some close, some stay silent.
            if rng.below(3) > 0 {
                let _closed = stream.shutdown(std::net::Shutdown::Write);
                wait_for_end(stream);
            }
            connections += 1;
        }
        let events = end(server, workers);
        let refused = called(&events, "refused").count();
        println!("{name}: {connections} connections with noise, {refused} refused by the node");
        if name != "plain" {
            assert_eq!(refused, 0, "{name}: strangers reached the node");
        }
    }
}

/// Forwards one connection to `target` and records the bytes that the dialler sends.
fn tap(target: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (target, heard) = (target.to_owned(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&heard);
    thread::spawn(move || {
        let (mut dialler, _) = listener.accept().unwrap();
        let mut server = connect(&target);
        server.set_read_timeout(None).unwrap();
        let (mut back, mut from) = (dialler.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut back));
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = dialler.read(&mut buffer) {
            kept.lock().unwrap().extend_from_slice(&buffer[..read]);
            if server.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
        let _gone = server.shutdown(std::net::Shutdown::Both);
    });
    (address, heard)
}

#[test]
fn a_replayed_handshake_is_refused() {
    let lab = Lab::with_nodes();
    for (name, flags) in modes(&lab).split_off(1) {
        let (server, workers) = begin(&flags);
        let client = texts(&flags[3]);
        let (address, heard) = tap(&server.address);
        let args = [&["status", &address], &client[..]].concat();
        crate::process::finish(&args).with_code(0);
        let heard = heard.lock().unwrap().clone();
        assert!(heard.len() > 50, "{name}: {} bytes", heard.len());
        for cut in [heard.len(), heard.len() / 2, 50] {
            let mut stream = connect(&server.address);
            let _closed = stream.write_all(&heard[..cut]);
            let _closed = stream.shutdown(std::net::Shutdown::Write);
            let answer = wait_for_end(stream);
            // The server may answer with a handshake at most, not with a status.
            assert!(answer.len() < 4096, "{name}: {} bytes of answer", answer.len());
        }
        let events = end(server, workers);
        assert_eq!(called(&events, "refused").count(), 0, "{name}");
    }
}

#[test]
#[ignore = "slow: .ci/nightly kills"]
fn a_thousand_half_open_connections_do_not_block_training() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let lab = Lab::with_nodes();
    for (name, flags) in modes(&lab) {
        let (server, workers) = begin(&flags);
        let half_open: Vec<TcpStream> = (0..1000)
            .map(|number| {
                let mut stream = connect(&server.address);
                // Half of them have sent part of a hello.
                if number % 2 == 0 {
                    let _closed = stream.write_all(&[22, 3, 1, 2, 0, 1]);
                }
                stream
            })
            .collect();
        println!("{name}: 1000 connections are half open");
        end(server, workers);
        drop(half_open);
    }
}

#[test]
fn the_record_logs_few_refused_connections_and_counts_the_rest() {
    let (server, workers) = begin(&[const { Vec::new() }; 4]);
    let (clock, strangers) = (WallClock::start(), 500);
    for _ in 0..strangers {
        let mut stream = connect(&server.address);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: somebody-else\r\n\r\n").unwrap();
        wait_for_end(stream);
    }
    let most = 100 * (1 + clock.now().since(Time::ZERO).as_secs() / 10);
    let events = end(server, workers);
    let lines = called(&events, "refused").count() as u64;
    assert!(lines < strangers && lines <= most, "{lines} lines, {most} at most");
    let others: u64 = events.iter().filter_map(|event| event["refused_before"].as_u64()).sum();
    assert_eq!(lines + others, strangers);
}

#[test]
#[ignore = "slow: .ci/nightly kills"]
fn a_flood_of_connections_does_not_block_training() {
    let lab = Lab::with_nodes();
    for (name, flags) in modes(&lab) {
        let (server, workers) = begin(&flags);
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flood = {
            // The server serves origins in turn, so the flood comes from another address: among
            // connections of its own address a client has no such guarantee.
            let (stop, from) = (Arc::clone(&stop), Ipv4Addr::new(127, 0, 0, 2));
            let to = server.address.trim_start_matches("tcp://").parse().unwrap();
            thread::spawn(move || {
                let mut count = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    count += u64::from(connect_from(from, to).is_ok());
                }
                count
            })
        };
        let before = number(&server.status()["updates"]);
        server.wait_for_updates(before + 50);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        println!("{name}: 50 updates during {} connections", flood.join().unwrap());
        // More connections than slots, from the client's own address: each frees its slot at once.
        (0..1500).for_each(|_| drop(connect(&server.address)));
        server.status();
        end(server, workers);
    }
}
