//! Messages of a server and its workers on stderr: JSON log, progress lines, rate limits.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::books::{called, events};
use crate::cluster::{ENDLESS, SLOW, Server, number, shard_of};
use crate::process::{Process, eventually, finish};

/// Parses a log into JSON objects and checks the fields that each must have.
#[track_caller]
fn objects(stderr: &str) -> Vec<Value> {
    let object = |line: &str| {
        let object: Value =
            serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        assert!(humantime_like(object["time"].as_str().unwrap()), "{line}");
        assert!(
            ["info", "warning", "error"].contains(&object["level"].as_str().unwrap()),
            "{line}"
        );
        assert!(!object["message"].as_str().unwrap().is_empty(), "{line}");
        object
    };
    stderr.lines().map(object).collect()
}

/// True if a text is a UTC time as in RFC 3339.
fn humantime_like(text: &str) -> bool {
    let digits = |part: &str| part.chars().all(|char| char.is_ascii_digit());
    text.len() == 24
        && text.ends_with('Z')
        && text.as_bytes()[10] == b'T'
        && digits(&text[..4])
        && digits(&text[20..23])
}

#[test]
fn a_json_log_has_one_object_per_line_with_progress_and_lost_workers() {
    let args = ["--listen", "127.0.0.1:0", "--workers", "3", "--lease", "1s"];
    let log = ["--log", "json", "--log-every", "100ms"];
    let server = Process::start(&[&["server"], &args[..], &log, &SLOW, &ENDLESS].concat());
    let said_so_far = |words| {
        let said = server.wait_to_say(words);
        objects(&said[..=said.rfind('\n').unwrap()])
    };
    let said = said_so_far("listening on ");
    let message = said[0]["message"].as_str().unwrap();
    let address = message.trim_start_matches("listening on ").split_whitespace().next().unwrap();
    let worker = |id| Process::start(&["worker", "--server", address, "--id", id, "--log", "json"]);
    let [first, second, third] = ["1", "2", "3"].map(worker);
    first.wait_to_say("\"event\":\"welcomed\"");
    server.wait_to_say("\"there\":[1,2,3],\"away\":[]");
    // On a busy machine, workers join long before they train.
    eventually("a line with a loss", || {
        let lines = said_so_far("epoch ");
        lines.iter().any(|it| it["fields"]["loss"].is_f64()).then_some(())
    });
    second.signal(Signal::STOP);
    let lost = "\"there\":[1,3],\"away\":[{\"worker\":2,\"state\":\"lost\"";
    server.wait_to_say(lost);
    drop(second);
    server.signal(Signal::INT);
    let said = objects(&server.wait().with_code(3).stderr);
    let pulses: Vec<_> = said.iter().filter(|it| it["fields"]["updates"].is_u64()).collect();
    let updates = pulses.iter().map(|pulse| number(&pulse["fields"]["updates"]));
    assert!(updates.is_sorted(), "{pulses:?}");
    assert!(pulses.iter().any(|pulse| pulse["fields"]["loss"].is_f64()), "{pulses:?}");
    let departed = said.iter().find(|it| it["fields"]["event"] == "departed").unwrap();
    assert_eq!((&departed["level"], &departed["fields"]["worker"]), (&json!("warning"), &json!(2)));
    for worker in [first, third] {
        objects(&worker.wait().with_code(3).stderr);
    }
    let refused = finish(&["worker", "--server", "no address", "--log", "json"]);
    assert!(refused.code == Some(2), "what is wrong with the command line is said as ever");
}

#[test]
fn a_server_without_a_terminal_logs_progress_periodically_unless_disabled() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "2", "--log-every", "100ms"]]);
    let before = server.process.wait_to_say("; not there: worker 1 (awaited), worker 2 (awaited)");
    assert!(before.contains("; waits for workers 1, 2 to come, since "), "{before}");
    let workers = server.workers(2);
    server.process.wait_to_say(", 2 workers");
    server.process.wait_to_say("epoch ");
    drop(server.interrupt(workers));
    for never in ["never", "0s"] {
        let server = Server::tcp(&[&SLOW, &["--epochs", "1", "--log-every", never]]);
        let (workers, process) = (server.workers(2), server);
        for worker in workers {
            worker.wait().with_code(0);
        }
        let said = process.process.wait().with_code(0).stderr;
        assert!(!said.contains(", 2 workers"), "{said}");
    }
    finish(&["server", "--log-every", "often"]).refused(2, &["or never"]);
}

#[test]
fn while_a_server_is_away_reconnecting_workers_are_counted_instead_of_logged() {
    let job = ["--servers", "2", "--workers", "2", "--lease", "2s"];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &job]);
    let (shard, _) = shard_of(&server.address, (2, 2), "127.0.0.1:0", &[]);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    drop(shard); // kills it with SIGKILL
    server.process.wait_to_say("server 2 was cut off: ");
    // Each worker that is welcomed without reaching the lost server is cut off again.
    eventually("several attempts", || {
        let said = workers[0].wait_to_say("no connection: server 2 at ");
        (said.matches("no connection").count() >= 5).then_some(())
    });
    let why = finish(&["why", &server.address]).with_code(0).stdout;
    let resumed = format!("only `pstrain server --shard 2/2 --coordinator {} ", server.address);
    assert!(why.contains(&resumed), "{why}");
    assert!(!why.contains("worker 1") && !why.contains("start it with"), "{why}");
    server.process.signal(Signal::INT);
    let said = server.process.wait().stderr;
    let lines = |words: &str| said.lines().filter(|line| line.contains(words)).count();
    assert!(lines("worker 1 was cut off") <= 2, "{said}");
    assert!(lines(") is back") <= 4, "{said}");
    for worker in workers {
        let said = worker.wait().stderr;
        assert!(said.matches("no connection").count() < 20, "{said}");
    }
}

#[test]
fn a_refused_worker_is_logged_with_its_host_despite_many_refused_unauthenticated_connections() {
    let server = Server::tcp(&[&SLOW, &ENDLESS]);
    let workers = server.workers(2);
    server.wait_for_updates(3);
    for _ in 0..300 {
        let mut stranger = TcpStream::connect(server.address.trim_start_matches("tcp://")).unwrap();
        let _closed = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _closed = stranger.read_to_end(&mut Vec::new());
    }
    let why = "there is no worker 9 in a job of 2 workers";
    server.worker(&["--id", "9", "--name", "edge-9"]).wait().refused(1, &[why]);
    let said = server.process.wait_to_say("worker edge-9 at 127.0.0.1 was refused: ");
    assert!(said.contains("a connection from 127.0.0.1 was refused: "), "{said}");
    assert!(said.matches("a connection from").count() <= 40, "{said}");
    let status = server.status();
    let refused = &status["refused"][0];
    assert_eq!((&refused["who"], &refused["from"]), (&json!("worker edge-9"), &json!("127.0.0.1")));
    assert!(refused["why"].as_str().unwrap().contains(why), "{status}");
    assert!(server.table().contains("worker edge-9"), "{}", server.table());
    let left = server.interrupt(workers);
    let events = events(&left.out);
    let of_worker = called(&events, "refused").find(|event| event["who"] == "worker edge-9");
    assert_eq!(of_worker.unwrap()["from"], "127.0.0.1");
    assert!(called(&events, "refused").all(|event| event["from"] == "127.0.0.1"));
}
