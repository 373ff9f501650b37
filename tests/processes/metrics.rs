//! The Prometheus endpoint of a real server: strictly valid OpenMetrics, unaffected by slow
//! clients.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::cluster::{ENDLESS, SLOW, Server, number};
use crate::process::{Process, finish};

/// Samples by series: name and labels as in the text.
type Samples = BTreeMap<String, f64>;

/// Returns the suffixes that samples of a family of this type may have.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "histogram" => &["_bucket", "_sum", "_count"],
        other => panic!("no type of OpenMetrics that is used here: {other}"),
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Parses OpenMetrics text strictly: every family is declared once, with help and type, before its
/// samples, which are contiguous; names, labels and numbers are well formed; the text ends with
/// EOF.
fn parse(text: &str) -> Samples {
    let body = text.strip_suffix("# EOF\n").expect("the end is marked");
    let (mut samples, mut known) = (Samples::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let word = words.next().unwrap();
            let (name, rest) = (words.next().unwrap(), words.next().unwrap());
            assert!(is_name(name) && !rest.is_empty(), "{line}");
            match word {
                "HELP" => {
                    assert!(known.insert(name.to_owned()), "declared twice: {line}");
                    (family, kind) = (name.to_owned(), String::new());
                }
                "TYPE" => kind = rest.to_owned(),
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                other => panic!("{other}: {line}"),
            }
            assert_eq!(name, family, "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffix = name.strip_prefix(family.as_str()).expect("families are not mixed");
        assert!(suffixes(&kind).contains(&suffix), "{line} in a {kind}");
        if let Some((_, labels)) = series.split_once('{') {
            let labels = labels.strip_suffix('}').unwrap();
            for label in labels.split(',') {
                let (name, value) = label.split_once('=').unwrap();
                let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
                assert!(is_name(name) && quoted.is_some_and(|text| !text.contains('"')), "{line}");
            }
        }
        assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line}");
    }
    samples
}

/// Returns the address of the metrics endpoint that a server prints.
fn place(process: &Process) -> String {
    let said = process.wait_to_say("metrics at http://");
    let (_, rest) = said.split_once("metrics at http://").unwrap();
    rest.split('/').next().unwrap().to_owned()
}

fn scrape(place: &str) -> Samples {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length), "{head}");
    parse(body)
}

#[test]
fn metrics_agree_with_the_status_of_the_run() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--metrics", "127.0.0.1:0"]]);
    let place = place(&server.process);
    assert_eq!(scrape(&place)["pstrain_phase{phase=\"gathering\"}"], 1.0);
    let workers = server.workers(2);
    let before = number(&server.wait_for_updates(20)["updates"]);
    let samples = scrape(&place);
    let after = number(&server.status()["updates"]);
    let updates = samples["pstrain_updates_total"] as u64;
    assert!((before..=after).contains(&updates), "{before} {updates} {after}");
    assert_eq!(samples["pstrain_phase{phase=\"training\"}"], 1.0);
    assert_eq!(samples["pstrain_members"], 2.0);
    for worker in [1, 2] {
        let of = |name: &str| samples[&format!("pstrain_worker_{name}{{worker=\"{worker}\"}}")];
        assert!(of("pushes_total") >= before as f64);
        assert!(of("compute_seconds_total") > 0.0);
        assert!(of("staleness_updates_count") >= before as f64);
        // Under BSP every gradient has staleness 0.
        let fresh =
            format!("pstrain_worker_staleness_updates_bucket{{le=\"0.0\",worker=\"{worker}\"}}");
        assert_eq!(samples[&fresh], of("staleness_updates_count"));
    }
    assert!(samples["pstrain_received_bytes_total"] > 1e6, "{samples:?}");
    assert!(samples["pstrain_sent_bytes_total"] > 1e6, "{samples:?}");
    server.interrupt(workers);
}

#[test]
fn two_hundred_slow_connections_delay_neither_training_nor_scrapes() {
    let job = ["--epochs", "40", "--metrics", "127.0.0.1:0"];
    let server = Server::tcp(&[&SLOW, &job]);
    let place = place(&server.process);
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&place).unwrap();
            stream.write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    let workers = server.workers(2);
    for round in 0..5 {
        server.wait_for_updates(4 + 4 * round);
        // Most connections were closed to stay within the limit; the remaining ones send a byte now
        // and then.
        slow.iter_mut().for_each(|stream| drop(stream.write(b"r")));
        assert!(scrape(&place)["pstrain_updates_total"] >= 4.0);
    }
    server.finish(workers);
}

#[test]
fn an_address_in_use_is_refused_with_advice() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["server", "--listen", "127.0.0.1:0", "--metrics", &address];
    finish(&args)
        .refused(2, &["--metrics", &address, "cannot listen there", "a port that is free"]);
}
