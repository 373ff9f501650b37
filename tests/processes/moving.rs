//! Server processes that join and leave a run; the keys are rebalanced among them.

use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{ENDLESS, PACED, Server};
use crate::process::{Process, finish};

/// Starts a server that joins the job of `server`.
fn joining(server: &Server, more: &[&str]) -> Process {
    let args = ["server", "--join", "--coordinator", &server.address, "--listen", "127.0.0.1:0"];
    Process::start(&[&args[..], more].concat())
}

/// Waits until the joining server has keys; returns its number.
fn has_keys(process: &Process) -> String {
    let said = process.wait_to_say("keys [");
    let line = said.lines().find(|line| line.contains("keys [")).unwrap();
    let (_, rest) = line.split_once("server ").unwrap();
    rest.split(':').next().unwrap().to_owned()
}

#[test]
fn servers_that_join_and_leave_do_not_change_the_parameters() {
    let job = ["--epochs", "6", "--workers", "3", "--optimizer", "adam"];
    let one = finish(&[&["run", "--json"], &PACED[..], &job].concat()).with_code(0).json();
    let server = Server::tcp(&[&PACED, &job]);
    let workers = server.workers(3);
    server.wait_for_updates(3);
    let first = joining(&server, &[]);
    assert_eq!(has_keys(&first), "2");
    let second = joining(&server, &[]);
    assert_eq!(has_keys(&second), "3");
    server.wait_for_updates(8);
    // One server leaves by `control leave-server`, the other because it is interrupted.
    let control = ["control", &server.address, "leave-server", "2"];
    let said = finish(&control).with_code(0);
    assert!(said.stdout.contains("server 2 has no keys from version"), "{}", said.stdout);
    first.wait().with_code(3);
    let third = joining(&server, &[]);
    assert_eq!(has_keys(&third), "4");
    second.signal(Signal::INT);
    second.wait().with_code(3);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    assert_eq!(left.summary["batches"], one["batches"]);
    // The bytes that went to servers that have left count, too.
    for (worker, alone) in (0..3).map(|it| (&left.summary["workers"][it], &one["workers"][it])) {
        assert_eq!(worker["pushed_bytes"], alone["pushed_bytes"]);
        assert_eq!(worker["unfiltered_bytes"], alone["unfiltered_bytes"]);
    }
    check_books(&left.out, &left.summary);
    third.wait().with_code(0);
    let events = std::fs::read_to_string(left.out.join("events.jsonl")).unwrap();
    assert_eq!(events.matches("\"keys_moved\"").count(), 5, "{events}");
}

#[test]
#[ignore = "slow: .ci/nightly kills"]
fn servers_killed_during_a_rebalance_lose_and_repeat_nothing() {
    let folder = TempDir::new().unwrap();
    let kept = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let job = ["--epochs", "32", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let one = finish(&[&["run", "--json"], &PACED[..], &job].concat()).with_code(0).json();
    let first = ["--durability", "log", "--state", &kept("first")];
    let mut server = Server::tcp(&[&PACED, &job, &first]);
    let workers = server.workers(2);
    let mut others = Vec::new();
    for round in 0..4_u64 {
        server.wait_for_updates(2 + 6 * round);
        let state = kept(&format!("other-{round}"));
        let mut other = joining(&server, &["--durability", "log", "--state", &state]);
        let address = listens_at(&other.wait_to_say("listening on "));
        // A moment between its first message and its receipt of keys, or a little later.
        std::thread::sleep(Duration::from_millis(5 * round));
        if round % 2 == 0 {
            drop(other);
            let args = ["server", "--join", "--coordinator", &server.address, "--listen", &address];
            other = Process::start(&[&args[..], &["--resume", &state]].concat());
        } else {
            server = server.replace(&[&["--resume", &kept("first")]]);
        }
        others.push(other);
    }
    for other in &others {
        has_keys(other);
    }
    let control = ["control", &server.address, "leave-server", "2"];
    let leaves = Process::start(&control);
    server = server.replace(&[&["--resume", &kept("first")]]);
    drop(leaves);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    check_books(&left.out, &left.summary);
    for other in others {
        let ended = other.wait();
        assert!([Some(0), Some(3)].contains(&ended.code), "{ended:?}");
    }
}

/// Extracts the address from a server's listening message.
fn listens_at(said: &str) -> String {
    let (_, rest) = said.split_once("listening on ").unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn joins_and_leaves_that_cannot_be_are_refused_with_the_reason() {
    let filters = ["--workers", "1", "--pull-filter", "changed"];
    let server = Server::tcp(&[&PACED, &ENDLESS, &filters]);
    let refused = joining(&server, &[]).wait().with_code(1);
    assert!(refused.stderr.contains("lists of keys"), "{}", refused.stderr);
    let refused = |more: &[&str], words: &[&str]| joining(&server, more).wait().refused(2, words);
    refused(&["--advertise", &server.address], &["there is the other server already"]);
    #[cfg(feature = "metrics")]
    refused(&["--metrics", "127.0.0.1:0"], &["--metrics", "server 1, which coordinates"]);
    // The options that secure the connection may stand anywhere.
    let control =
        |number: &str| finish(&["control", &server.address, "leave-server", number, "--insecure"]);
    control("1").refused(2, &["server 1 coordinates"]);
    control("2").refused(2, &["no server 2"]);
}
