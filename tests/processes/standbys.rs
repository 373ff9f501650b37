//! Several servers, each with a standby: any of them is killed or stopped, and the run continues.

use rustix::process::Signal;

use crate::cluster::{ENDLESS, LONG, SLOW, Server, number, path};
use crate::process::{Process, finish};

const JOB: [&str; 10] = [
    "--epochs",
    "14",
    "--workers",
    "2",
    "--optimizer",
    "momentum",
    "--lease",
    "1s",
    "--on-worker-loss",
    "wait",
];
const SERVERS: [&str; 2] = ["--servers", "2"];

/// A server that does not coordinate, or its standby.
struct Shard {
    process: Process,
    address: String,
}

impl Shard {
    fn start(args: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", args)
    }

    fn start_at(address: &str, args: &[&str]) -> Self {
        let process = Process::start(&[&["server", "--listen", address], args].concat());
        let said = process.wait_to_say("listening on ");
        let line = said.lines().find_map(|line| line.split_once("listening on "));
        let address = line.and_then(|(_, rest)| rest.split_whitespace().next());
        let address = address.expect("it says where it listens").trim_end_matches(',').to_owned();
        Self { process, address }
    }

    /// Starts server 2 of the two of `coordinator`.
    fn of(coordinator: &Server) -> Self {
        Self::start(&["--shard", "2/2", "--coordinator", &coordinator.address])
    }

    /// Starts a standby of this server and waits until no input takes effect before it is
    /// replicated.
    fn standby(&self) -> Self {
        let of = ["--standby-of", &self.address];
        let standby = Self::start(&[&LONG[..], &JOB, &SERVERS, &of].concat());
        standby.process.wait_to_say("stands by: it has all that is acknowledged");
        standby
    }
}

fn standby_of(server: &Server) -> Server {
    let of = ["--standby-of", &server.address];
    let standby = Server::tcp(&[&LONG, &JOB, &SERVERS, &of]);
    server.wait_for("standby", |status| status["standby"] == standby.address);
    standby
}

fn undisturbed() -> serde_json::Value {
    finish(&[&["run", "--json"], &SLOW[..], &JOB].concat()).with_code(0).json()
}

#[test]
fn any_killed_server_is_replaced_and_bsp_ends_at_the_same_parameters() {
    let one = undisturbed();
    let server = Server::tcp(&[&LONG, &JOB, &SERVERS]);
    let shard = Shard::of(&server);
    let workers = server.workers(2);
    server.wait_for_updates(2);
    let (standby, other) = (standby_of(&server), shard.standby());
    server.wait_for("both standbys", |status| {
        let standbys = [0, 1].map(|id| &status["servers"][id]["standby"]);
        standbys == [&standby.address, &other.address]
    });
    // A server that joins while there are standbys gets a standby, too.
    let join = ["--join", "--coordinator", &server.address];
    let joined = Shard::start(&join);
    joined.process.wait_to_say("keys [");
    let beside = joined.standby();
    server.wait_for_updates(6);
    drop(shard);
    let updates = number(&server.status()["updates"]);
    server.wait_for_updates(updates + 3);
    drop(server);
    standby.wait_for("takeover", |status| status["stands_by"] == false);
    let last = other.standby();
    let updates = number(&standby.status()["updates"]);
    standby.wait_for_updates(updates + 3);
    // The joined server leaves, and its standby ends with it.
    let control = ["control", &standby.address, "leave-server", "3"];
    let said = finish(&control).with_code(0);
    assert!(said.stdout.contains("server 3 has no keys from version"), "{}", said.stdout);
    for process in [joined.process, beside.process] {
        process.wait().with_code(3);
    }
    drop(other);
    let again = standby_of(&standby);
    let left = standby.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    assert_eq!(left.summary["batches"]["applied"], one["batches"]["applied"]);
    last.process.wait().with_code(0);
    again.process.wait().with_code(0);
}

#[test]
fn servers_that_return_as_standbys_redirect_connections_to_the_leaders() {
    // This test has no silent process, so it uses a lease that even a busy machine keeps.
    let patient = ["--workers", "2", "--lease", "10s", "--on-worker-loss", "wait"];
    let job = [&SLOW[..], &ENDLESS, &patient, &SERVERS].concat();
    let server = Server::tcp(&[&job]);
    let known = server.address.clone();
    let shard = Shard::of(&server);
    let mut workers = server.workers(2);
    server.wait_for_updates(2);
    let of = ["--standby-of", server.address.as_str()];
    let leader = Server::tcp(&[&job, &of]);
    let other = Shard::start(&[&job[..], &["--standby-of", &shard.address]].concat());
    server.wait_for("both standbys", |status| {
        let standbys = [0, 1].map(|id| &status["servers"][id]["standby"]);
        standbys == [&leader.address, &other.address]
    });
    let place = shard.address.clone();
    drop((server, shard));
    leader.wait_for("takeover", |status| status["stands_by"] == false);
    let is_there = |status: &serde_json::Value| status["servers"][1]["address"] == other.address;
    leader.wait_for("the other takeover", is_there);
    assert!(leader.status()["servers"][1]["standby"].is_null(), "{}", leader.table());
    let of = ["--standby-of", leader.address.as_str()];
    let standby = Server::under(&[], &known, &[&job, &of]);
    let back = Shard::start_at(&place, &[&job[..], &["--standby-of", &other.address]].concat());
    leader.wait_for("both standbys", |status| {
        let standbys = [0, 1].map(|id| &status["servers"][id]["standby"]);
        standbys == [&standby.address, &back.address]
    });
    drop(workers.pop());
    workers.push(standby.worker(&["--id", "2"]));
    let updates = number(&leader.status()["workers"][1]["updates"]);
    leader.wait_for_updates_of(1, updates + 1);
    let joined = Shard::start(&["--join", "--coordinator", &known]);
    joined.process.wait_to_say("keys [");
    let asked = finish(&["status", &place, "--json"]);
    asked.refused(2, &["does not coordinate; ask the one that does, at", &leader.address]);
    drop(back);
    let is_alone = |status: &serde_json::Value| status["servers"][1]["standby"].is_null();
    leader.wait_for("server 2 alone", is_alone);
    leader.interrupt(workers);
}

#[test]
fn a_non_coordinating_server_stopped_past_its_lease_is_fenced() {
    let one = undisturbed();
    let server = Server::tcp(&[&LONG, &JOB, &SERVERS]);
    let shard = Shard::of(&server);
    let workers = server.workers(2);
    server.wait_for_updates(2);
    let standby = shard.standby();
    shard.process.signal(Signal::STOP);
    standby.process.wait_to_say("after the server was gone");
    let updates = number(&server.status()["updates"]);
    server.wait_for_updates(updates + 2);
    shard.process.signal(Signal::CONT);
    let ended = shard.process.wait().with_code(1);
    assert!(ended.stderr.contains("leads in its place (term 2)"), "{}", ended.stderr);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    standby.process.wait().with_code(0);
}

#[test]
fn a_server_and_its_standby_with_logs_resume_after_both_are_killed() {
    let one = undisturbed();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let log =
        |state| ["--durability", "log", "--state", path(state), "--checkpoint-every", "300ms"];
    let server = Server::tcp(&[&LONG, &JOB, &log(&first)]);
    let of = ["--standby-of", &server.address];
    let standby = Server::tcp(&[&LONG, &JOB, &of, &log(&second)]);
    server.wait_for("standby", |status| status["standby"] == standby.address);
    let workers = server.workers(2);
    server.wait_for_updates(6);
    server.process.signal(Signal::KILL);
    standby.process.signal(Signal::KILL);
    let server = server.replace(&[&["--resume", path(&first)]]);
    // The workers vote for the server without its standby, which follows again once it is back.
    let updates = number(&server.status()["updates"]);
    server.wait_for_updates(updates + 2);
    let standby = standby.replace(&[&["--resume", path(&second)]]);
    server.wait_for("standby", |status| status["standby"] == standby.address);
    server.process.signal(Signal::KILL);
    standby.wait_for("takeover", |status| status["stands_by"] == false);
    let updates = number(&standby.status()["updates"]);
    standby.wait_for_updates(updates + 2);
    let server = server.replace(&[&["--resume", path(&first)]]);
    let ended = server.process.wait().with_code(1);
    assert!(ended.stderr.contains("leads in its place (term "), "{}", ended.stderr);
    let left = standby.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    assert_eq!(left.summary["batches"]["applied"], one["batches"]["applied"]);
}
