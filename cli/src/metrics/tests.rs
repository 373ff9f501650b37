use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pstrain_compute::decided::DropReason;
use pstrain_compute::id::{BatchId, PartId, Sequence, Version, WorkerId};
use pstrain_policy::rules::Closing;
use pstrain_roles::node::{Departure, Event, Point};
use pstrain_wire::TimeSpent;

use super::http::{Endpoint, Then, answer};
use super::{ByName, ByWorker, Metrics};
use crate::tests::{assert_page, row};

fn ask(metrics: &Metrics, request: &str) -> String {
    let place = metrics.serve("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn some_events() -> Vec<Event> {
    let worker = WorkerId(1);
    let spent = TimeSpent {
        compute: Duration::from_millis(250),
        called_off: Duration::ZERO,
        network: Duration::from_millis(500),
        barrier: Duration::from_millis(125),
    };
    let point =
        Point { version: Version(1), samples: 32, epoch: 0.5, time: Duration::from_secs(1) };
    vec![
        Event::Joined {
            worker,
            name: "edge \"7\"".into(),
            incarnation: Default::default(),
            resumed: false,
        },
        Event::Started { workers: 1 },
        Event::Pushed {
            worker,
            sequence: Sequence(1),
            base: Version(0),
            part: PartId(1),
            batch: BatchId(0),
            loss: 1.5,
            turnaround: spent.total(),
            ago: Duration::ZERO,
            compute: spent.compute,
            spent,
            bytes: 0,
            unfiltered: 0,
        },
        Event::Updated { point, closing: Closing::Everything },
        Event::Dropped { worker, sequence: Sequence(2), reason: DropReason::Stale },
    ]
}

/// The reference page of all metrics, from the text that is served.
fn page(text: &str) -> String {
    let mut page = String::from(
        "# Metrics\n\n`pstrain server --metrics HOST:PORT` serves the numbers of a run to Prometheus \
         at `/metrics`. It is plain text without\nauthentication: give it an address that only those \
         can reach who may. Of several servers the first has these numbers.\nThis page is generated \
         from the served text.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for described in text.split("# HELP ").skip(1) {
        let (name, rest) = described.split_once(' ').unwrap();
        let (meaning, rest) = rest.split_once('\n').unwrap();
        let kind = rest.split_once(&format!("# TYPE {name} ")).unwrap().1.lines().next().unwrap();
        let sample = rest.lines().find(|line| line.starts_with("pstrain_")).unwrap();
        let labels = sample.split_once('{').map_or("", |(_, rest)| rest.split('}').next().unwrap());
        let labels = labels.split(',').filter_map(|it| it.split_once('=')).map(|(name, _)| name);
        let labels: Vec<_> = labels.filter(|name| *name != "le").collect();
        let total = if kind == "counter" { "_total" } else { "" };
        let meaning = meaning.trim_end_matches('.');
        page.push_str(&row(&[&format!("`{name}{total}`"), kind, &labels.join(", "), meaning]));
    }
    page + "\nThe log of a durable server alone has `pstrain_log_commit_seconds`.\n"
}

#[test]
fn the_page_of_metrics_is_that_of_the_served_text() {
    let metrics = Metrics::new(true);
    metrics.count(Arc::default());
    some_events().iter().for_each(|event| metrics.note(event));
    // Labels exist once there was an event that sets them.
    let worker = ByWorker { worker: 1 };
    metrics.staleness.get_or_create(&worker).observe(0.0);
    metrics.stopped.get_or_create(&worker).inc();
    metrics.called_off.get_or_create(&worker).inc_by(0.0);
    metrics.evaluation.get_or_create(&ByName { name: "accuracy".into() }).set(0.5);
    let text = ask(&metrics, "GET /metrics HTTP/1.1\r\n\r\n");
    let registered = include_str!("mod.rs").matches("all.register").count();
    // A loop registers the parts of a worker's time: three, and what was called off.
    assert_eq!(text.matches("# HELP ").count(), registered + 3 + 2, "each has a sample:\n{text}");
    assert_page("metrics", &page(&text));
}

#[test]
fn what_happened_is_in_the_text() {
    let metrics = Metrics::new(true);
    some_events().iter().for_each(|event| metrics.note(event));
    let text = ask(&metrics, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    for line in [
        "pstrain_updates_total 1",
        "pstrain_samples_total 32",
        "pstrain_version 1",
        "pstrain_minibatch_loss 1.5",
        "pstrain_members 1",
        "pstrain_phase{phase=\"training\"} 1",
        "pstrain_phase{phase=\"gathering\"} 0",
        "pstrain_worker_pushes_total{worker=\"2\"} 1",
        "pstrain_worker_dropped_total{worker=\"2\",reason=\"stale\"} 1",
        "pstrain_worker_compute_seconds_total{worker=\"2\"} 0.25",
        "pstrain_worker_network_seconds_total{worker=\"2\"} 0.5",
        "pstrain_worker_barrier_seconds_total{worker=\"2\"} 0.125",
        "pstrain_log_commit_seconds_count 0",
        "# EOF",
    ] {
        assert!(body.lines().any(|found| found == line), "no {line}:\n{body}");
    }
    metrics.note(&Event::Departed {
        worker: WorkerId(1),
        how: Departure::Left,
        lost: 0,
        why: None,
    });
    let text = ask(&metrics, "GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(text.contains("pstrain_members 0\n"), "{text}");
}

#[test]
fn other_requests_are_answered_in_kind() {
    let metrics = Metrics::new(false);
    for (request, status) in [
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        ("\x16\x03\x01 hello\r\n\r\n", "400 Bad Request"),
        (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(9000)), "431 Request"),
        (&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100)), "431 Request"),
    ] {
        let text = ask(&metrics, request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{request:?}: {text}");
    }
    let text = ask(&metrics, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(text.ends_with("\r\n\r\n"), "a head has no body: {text}");
}

#[test]
fn part_of_a_request_has_no_answer_yet() {
    let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    for end in 0..request.len() {
        assert_eq!(answer(&request[..end], &String::new), None, "{end}");
    }
    assert!(answer(request, &String::new).is_some());
}

#[test]
fn an_address_that_is_none_is_named() {
    let error = Metrics::new(false).serve("nowhere").unwrap_err();
    assert!(error.to_string().starts_with("--metrics nowhere: cannot listen there"), "{error}");
}

/// An endpoint and one connection to it, both driven by this thread.
struct Kept<F> {
    endpoint: Endpoint<F>,
    client: TcpStream,
}

impl<F: Fn() -> String> Kept<F> {
    fn connect((endpoint, place): (Endpoint<F>, SocketAddr)) -> Self {
        let client = TcpStream::connect(place).unwrap();
        client.set_nonblocking(true).unwrap();
        Self { endpoint, client }
    }

    /// Sends `request` and reads `bytes` bytes while the endpoint takes its turns.
    fn ask(&mut self, request: &[u8], bytes: usize) -> String {
        self.client.write_all(request).unwrap();
        let mut answer = Vec::new();
        while answer.len() < bytes {
            self.endpoint.turn(Some(Duration::from_millis(10))).unwrap();
            match (&self.client).take((bytes - answer.len()) as u64).read_to_end(&mut answer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => assert!(read.unwrap() > 0, "closed: {answer:?}"),
            }
        }
        String::from_utf8(answer).unwrap()
    }

    /// Counts the turns with events until a turn has none.
    fn wakes(&mut self) -> usize {
        let woken = |_: &usize| self.endpoint.turn(Some(Duration::from_millis(20))).unwrap() > 0;
        (0..1000).take_while(woken).count()
    }
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

#[test]
fn a_client_that_keeps_its_connection_has_an_answer_to_each_get_and_wakes_no_one() {
    let text = || "numbers\n".to_owned();
    let length = answer(GET, &text).unwrap().bytes.len();
    let mut kept = Kept::connect(Endpoint::listen("127.0.0.1:0", text).unwrap());
    for _ in 0..3 {
        let answer = kept.ask(GET, length);
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("numbers\n"), "{answer}");
        let wakes = kept.wakes();
        assert!(wakes < 10, "{wakes} wakes after an answer");
    }
    // Several requests at once are answered in order.
    let both = kept.ask(&[GET, b"GET / HTTP/1.1\r\n\r\n", GET].concat(), 2 * length + 50);
    assert_eq!(both.matches("200 OK").count(), 2, "{both}");
    assert_eq!(both.matches("404 Not Found").count(), 1, "{both}");
}

#[test]
fn a_client_that_stays_after_the_last_answer_wakes_no_one() {
    let text = String::new;
    for request in [&b"GET /metrics HTTP/1.0\r\n\r\n"[..], b"POST /metrics HTTP/1.1\r\n\r\n"] {
        let length = answer(request, &text).unwrap().bytes.len();
        let mut kept = Kept::connect(Endpoint::listen("127.0.0.1:0", text).unwrap());
        kept.ask(request, length);
        let wakes = kept.wakes();
        assert!(wakes < 10, "{wakes} wakes after the last answer");
    }
}

#[test]
fn what_may_have_a_body_is_the_last_request() {
    let then = |headers: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        let answer = answer(request.as_bytes(), &String::new).unwrap();
        let says = String::from_utf8(answer.bytes).unwrap().contains("\r\nConnection: close\r\n");
        assert_eq!(answer.then == Then::Close, says, "{headers}");
        (answer.then, request.len())
    };
    for headers in ["", "Content-Length: 0\r\n", "connection: Keep-Alive\r\n"] {
        let (then, length) = then(headers);
        assert_eq!(then, Then::Next(length), "{headers}");
    }
    for headers in
        ["content-length: 3\r\n", "Transfer-Encoding: chunked\r\n", "Connection: te, Close\r\n"]
    {
        assert_eq!(then(headers).0, Then::Close, "{headers}");
    }
}
