//! Connections that send bytes other than frames do not disturb a run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_wire::client::PullStatus;
use pstrain_wire::{Message, PROTOCOL_VERSION, encode};
use serde_json::Value;

use crate::books::{called, check_books, events};
use crate::cluster::{Server, number};

const JOB: [&str; 6] = ["--data", "synthetic:4000", "--model", "mlp:256", "--epochs", "40"];

/// Trains while `disturb` is called; returns the server's summary and its events.
fn train(disturb: impl FnOnce(&Server)) -> (Value, Vec<Value>) {
    let server = Server::tcp(&[&JOB]);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    disturb(&server);
    for worker in workers {
        let ended = worker.wait().with_code(0);
        assert!(!ended.stderr.contains("no connection"), "it noticed: {}", ended.stderr);
    }
    let Server { process, out, .. } = server;
    let summary = process.wait().with_code(0).json();
    check_books(&out, &summary);
    (summary, events(&out))
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address.trim_start_matches("tcp://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends `bytes` and reads until the server closes the connection, which it must.
fn offend(server: &Server, bytes: &[u8]) {
    let mut stream = connect(server);
    // Either call may fail half-way: the server may close before all bytes are sent.
    let _closed = stream.write_all(bytes);
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

/// Returns an encoded frame that the server would answer.
fn question() -> Vec<u8> {
    let mut frame = Vec::new();
    let question = Message::PullStatus(PullStatus { protocol_max: PROTOCOL_VERSION });
    encode(&question, &mut frame).append_to(&mut frame);
    frame
}

#[test]
fn garbage_on_the_port_does_not_disturb_training() {
    let (calm, _) = train(|_| {});
    let mut rng = Stream::new(1).fork("garbage", 0).rng();
    let noise: Vec<u8> = (0..200_000).map(|_| rng.bits() as u8).collect();
    let (disturbed, events) = train(|server| {
        let silent = connect(server);
        offend(server, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        offend(server, &noise);
        offend(server, &[0xff; 64]);
        offend(server, &[0; 64]);
        let mut frame = question();
        // An incomplete frame, then a hang-up.
        let mut broken = connect(server);
        broken.write_all(&frame[..frame.len() - 1]).unwrap();
        drop(broken);
        // A complete frame with one flipped bit.
        let last = frame.len() - 1;
        frame[last] ^= 1;
        offend(server, &frame);
        for _ in 0..100 {
            drop(connect(server));
        }
        drop(silent);
    });
    assert_eq!(disturbed["params_sha256"], calm["params_sha256"]);
    assert_eq!(number(&disturbed["updates"]), number(&calm["updates"]));
    assert!(called(&events, "refused").count() >= 5);
    assert!(called(&events, "refused").all(|event| event["worker"].is_null()));
    assert_eq!(called(&events, "cut_off").count(), 0);
}
