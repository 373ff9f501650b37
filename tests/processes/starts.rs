//! The first moments of a process: first messages that are damaged on the way, other keys and
//! protocols, and signals at any time of a start.

use std::env;
use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use pstrain_tests::{Disturbance, Proxy};
use rustix::process::Signal;

use crate::cluster::{ENDLESS, PACED, SLOW, Server, check_undisturbed, free_address, number, path};
use crate::lab::Lab;
use crate::process::{Process, finish};

const JOB: [&str; 4] = ["--epochs", "2", "--lease", "5s"];
/// Bytes on a connection, both ways, until a node is admitted.
const FIRST: Range<u64> = 0..500;
/// Connections in a row that are damaged: a node gives up after twice as many.
const TIMES: u64 = 4;

/// A share of what a test does in full with `PSTRAIN_KILLS=50`.
fn share(usual: u64) -> u64 {
    let kills = env::var("PSTRAIN_KILLS").ok().and_then(|kills| kills.parse::<u64>().ok());
    kills.map_or(usual, |kills| usual * kills / 4)
}

/// A path to `address` that flips a byte of the first messages of the next connections.
fn damaging(address: &str, name: &str) -> Proxy {
    let proxy = Proxy::new(&address.parse().unwrap(), Stream::new(8).fork(name, 0).rng());
    proxy.disturb(TIMES, Disturbance::Flip, FIRST);
    proxy
}

#[test]
fn damaged_first_messages_of_workers_servers_and_standbys_are_lost_connections() {
    let job: [&[&str]; 2] = [&PACED, &JOB];
    let server = Server::tcp(&[&PACED, &JOB, &["--servers", "2"]]);
    let free = free_address();
    let paths = ["first worker", "second worker", "second server"]
        .map(|name| (name, damaging(&server.address, name)));
    let [first, second, other] = [0, 1, 2].map(|place: usize| paths[place].1.address().to_string());
    let shard = ["server", "--shard", "2/2", "--coordinator", &other, "--listen", &free];
    let shard = Process::start(&shard);
    let worker = |at: &str, id| Process::start(&["worker", "--server", at, "--id", id]);
    let workers = vec![worker(&first, "1"), worker(&second, "2")];
    check_undisturbed(&server.finish(workers), &job);
    shard.wait().with_code(0);
    for (name, path) in paths {
        assert_eq!(path.times_disturbed(), TIMES, "{name}");
    }
}

#[test]
fn damaged_first_messages_of_a_standby_and_of_clients_are_repeated() {
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &["--lease", "5s"]];
    let server = Server::tcp(&job);
    let to_primary = damaging(&server.address, "standby");
    let of = ["--standby-of", &to_primary.address().to_string()].map(str::to_owned);
    let of = of.each_ref().map(String::as_str);
    let standby = Server::tcp(&[&SLOW, &ENDLESS, &["--lease", "5s"], &of]);
    let workers = server.workers(2);
    server.wait_for("standby", |status| !status["standby"].is_null());
    assert_eq!(to_primary.times_disturbed(), TIMES);
    for query in [&["status", "--json"][..], &["why", "--json"]] {
        let path = damaging(&server.address, query[0]);
        path.disturb(3, Disturbance::Flip, 0..60);
        let address = path.address().to_string();
        let waits = ["--timeout", "1m"];
        finish(&[&query[..1], &[address.as_str()], &query[1..], &waits].concat()).with_code(0);
        assert_eq!(path.times_disturbed(), 3, "{query:?}");
    }
    // A request that was damaged has not been taken: it is repeated, too.
    let path = damaging(&server.address, "control");
    path.disturb(3, Disturbance::Flip, 0..4);
    finish(&["control", &path.address().to_string(), "set", "consistency", "asp"]).with_code(0);
    server.interrupt(workers);
    drop(standby);
}

#[test]
fn another_key_or_security_ends_each_node_after_a_few_attempts_with_its_name() {
    let (lab, other) = (Lab::with_nodes(), Lab::new());
    let [own, key, wrong] = [lab.at("server"), lab.at("key"), other.at("key")];
    let (tls, psk, wrong) = (["--tls", &own], ["--psk", &key], ["--psk", &wrong]);
    let worker_tls = lab.at("worker-1");
    let worker_tls = ["--tls", &worker_tls];
    let cases: [(&[&str], &[&str], &str); 7] = [
        (&tls, &[], "the peer speaks TLS, this side plain text; use --tls on both"),
        (&tls, &psk, "it does not speak Noise with a shared key; is it run with --psk?"),
        (&psk, &[], "the peer wants a shared key, this side has none; use --psk on both"),
        (&psk, &worker_tls, "it does not speak TLS; is it run with --tls?"),
        (&psk, &wrong, "it has another shared key"),
        (&[], &psk, "it does not speak Noise with a shared key; is it run with --psk?"),
        (&[], &worker_tls, "it does not speak TLS; is it run with --tls?"),
    ];
    for (of_server, of_node, why) in cases {
        let server = Server::tcp(&[&SLOW, of_server]);
        let words = [why, "(5 attempts in a row)"];
        // The default lease: without a name it would dial for minutes.
        server.worker(of_node).wait().refused(1, &words);
        if of_node != worker_tls {
            let dials = ["server", "--listen", "127.0.0.1:0"];
            let joins = ["--join", "--coordinator", &server.address];
            let joins = finish(&[&dials[..], &joins, of_node].concat());
            assert!(joins.stderr.contains(why), "{}: {}", joins.command, joins.stderr);
            let follows = ["--standby-of", &server.address];
            let follows = finish(&[&dials[..], &follows, &SLOW, of_node].concat());
            assert!(follows.stderr.contains(why), "{}: {}", follows.command, follows.stderr);
        }
        finish(&[&["status", &server.address], of_node].concat()).refused(2, &[why]);
    }
}

/// Starts a process, stops it after `delay`, and checks that it either has not said `ready` and has
/// the signal's own end, or ends in order. SIGINT may be ignored in the background, up to there.
fn struck(args: &[&str], ready: &str, delay: Duration) {
    let process = Process::start(args);
    sleep(delay);
    process.signal(Signal::TERM);
    let ended = process.wait();
    let is_ready = ended.stderr.contains(ready);
    assert!(!ended.stderr.contains("panicked"), "{delay:?}: {}", ended.stderr);
    match ended.code {
        None => assert!(!is_ready, "{} after {delay:?}: {}", ended.command, ended.stderr),
        Some(code) => assert_eq!(code, 3, "{} after {delay:?}: {}", ended.command, ended.stderr),
    }
}

/// `PSTRAIN_KILLS` / 4 times as many moments as by default.
#[test]
fn signals_at_random_moments_of_a_start_end_it_in_order_once_it_has_announced_itself() {
    let primary = Server::tcp(&[&SLOW]);
    let folder = tempfile::tempdir().unwrap();
    let socket = |name: &str| format!("unix:{}/{name}", folder.path().display());
    let (listen, state) = ("127.0.0.1:0", folder.path().join("state"));
    let log = ["--durability", "log", "--state", path(&state)];
    let server = [&["server", "--listen", listen], &SLOW[..]].concat();
    let nowhere = socket("nowhere");
    let kinds: [(Vec<&str>, &str); 6] = [
        (server.clone(), "listening on"),
        ([&server[..], &log].concat(), "listening on"),
        ([&server[..], &["--standby-of", &primary.address]].concat(), "listening on"),
        (
            vec!["server", "--join", "--coordinator", &primary.address, "--listen", listen],
            "listening on",
        ),
        (vec!["worker", "--server", &nowhere], "no connection"),
        ([&["run", "--transport", "unix"], &SLOW[..], &ENDLESS].concat(), "draining"),
    ];
    let mut rng = Stream::new(9).fork("moments", 0).rng();
    for (args, ready) in &kinds {
        for _ in 0..share(8) {
            let _gone = std::fs::remove_dir_all(&state);
            let delay = Duration::from_micros(rng.below(120_000));
            struck(args, ready, delay);
        }
        let _gone = std::fs::remove_dir_all(&state);
        // The moment of the announcement itself.
        if *ready != "draining" {
            let process = Process::start(args);
            process.wait_to_say(ready);
            process.signal(Signal::TERM);
            let ended = process.wait().with_code(3);
            assert!(ended.stderr.contains("draining"), "{}", ended.stderr);
        }
        let _gone = std::fs::remove_dir_all(&state);
    }
    assert_eq!(number(&primary.status()["updates"]), 0);
}
