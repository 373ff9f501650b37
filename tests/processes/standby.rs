//! A server process and its standby: either is killed or stopped, and the run continues.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use rustix::process::Signal;
use serde_json::Value;

use crate::books::{called, check_alike, check_books, check_counts, events, missing, timeline};
use crate::cluster::{ENDLESS, LONG, Left, PACED, SLOW, Server, number, path, real, undisturbed};
use crate::process::{Ended, Process, finish, random_runs};

const JOB: [&str; 8] =
    ["--epochs", "12", "--workers", "2", "--optimizer", "momentum", "--lease", "1s"];

/// Both kinds of replication to a standby.
const REPLICATE: [[&str; 2]; 2] = [["--replicate", "pushes"], ["--replicate", "updates"]];

/// Starts a standby of `server` and waits until no input takes effect before it is replicated.
fn standby_of(server: &Server, parts: &[&[&str]]) -> Server {
    let of = ["--standby-of", server.address.as_str()];
    let standby = Server::tcp(&[parts, &[&of]].concat());
    server.wait_for("standby", |status| status["standby"] == standby.address);
    standby
}

/// Starts a standby of a training server and waits until both workers know its address.
fn known_standby_of(server: &Server, parts: &[&[&str]]) -> Server {
    let standby = standby_of(server, parts);
    let updates = number(&server.status()["updates"]);
    server.wait_for_updates(updates + 2);
    standby
}

/// Kills a server with SIGKILL.
fn kill(server: Server) {
    drop(server);
}

#[test]
fn bsp_with_successively_killed_servers_ends_at_the_parameters_of_an_undisturbed_run() {
    let one = undisturbed(&[&SLOW, &JOB]);
    let mut server = Server::tcp(&[&LONG, &JOB, &REPLICATE[1]]);
    let workers = server.workers(2);
    // Each new standby chooses its own replication.
    for (updates, replicate) in [2, 20, 50].into_iter().zip(REPLICATE.iter().cycle()) {
        let standby = known_standby_of(&server, &[&LONG, &JOB, replicate]);
        server.wait_for_updates(updates);
        kill(server);
        server = standby;
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    assert_eq!(left.summary["batches"], one["batches"]);
}

#[test]
fn a_standby_from_the_start_has_complete_records() {
    let job: [&[&str]; 3] = [&LONG, &JOB, &["--consistency", "asp"]];
    let server = Server::tcp(&job);
    let standby = standby_of(&server, &job);
    let workers = server.workers(2);
    server.wait_for_updates(20);
    kill(server);
    let Left { out, summary, _folder } = standby.finish(workers);
    check_books(&out, &summary);
    assert_eq!(number(&summary["batches"]["lost"]), 0, "{summary}");
    check_alike(&out);
}

#[test]
fn a_server_continues_without_a_killed_or_stopped_standby() {
    let job: [&[&str]; 2] = [&LONG, &JOB];
    let one = undisturbed(&[&SLOW, &JOB]);
    let server = Server::tcp(&job);
    let workers = server.workers(2);
    kill(standby_of(&server, &job));
    server.wait_for("server alone", |status| status["standby"].is_null());
    let stopped = standby_of(&server, &job);
    stopped.process.signal(Signal::STOP);
    server.wait_for("server alone", |status| status["standby"].is_null());
    let updates = number(&server.status()["updates"]);
    server.wait_for_updates(updates + 2);
    // The continued standby has missed updates, follows again, and can take over.
    stopped.process.signal(Signal::CONT);
    server.wait_for("standby", |status| status["standby"] == stopped.address);
    kill(server);
    let left = stopped.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    let missed = missing(&left.out, &left.summary);
    assert!(missed.last().is_some_and(|[_, last]| *last >= updates + 2), "{missed:?}");
}

#[test]
fn a_late_standby_reports_the_updates_missing_from_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let two: [&str; 4] = ["--workers", "2", "--lease", "500ms"];
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &two];
    let log = ["--durability", "log", "--state", path(&kept)];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &two, &log]);
    let workers = server.workers(2);
    server.wait_for_updates(3);
    let standby = known_standby_of(&server, &job);
    kill(server);
    standby.wait_for("takeover", |status| status["stands_by"] == false);
    // Restarted at an address that no process dials, the old server asks whether the standby leads.
    let resume = ["server", "--listen", "127.0.0.1:0", "--resume", path(&kept)];
    finish(&resume).refused(1, &["leads in its place (term 2)"]);
    standby.process.signal(Signal::INT);
    for worker in workers {
        worker.wait().with_code(3);
    }
    let ended: Ended = standby.process.wait().with_code(3);
    let summary = ended.json();
    let missed = missing(&standby.out, &summary);
    let &[[1, last]] = &missed[..] else { panic!("{missed:?}") };
    assert!(last >= 3, "{missed:?}");
    let told = format!("without updates 1 to {last}");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    assert_eq!(summary["first_update_s"], Value::Null);
    let rows = timeline(&standby.out);
    assert!(rows.iter().filter_map(|row| row.version).all(|version| version > last));
    assert!(rows.iter().any(|row| row.version == Some(number(&summary["updates"]))));
    let begins = format!("begins with update {}", last + 1);
    finish(&["replay", path(&standby.out.join("order.log"))]).refused(2, &[&begins]);
}

#[test]
fn a_primary_stopped_past_its_lease_is_fenced() {
    let job: [&[&str]; 2] = [&LONG, &JOB];
    let one = undisturbed(&[&SLOW, &JOB]);
    let server = Server::tcp(&job);
    let standby = standby_of(&server, &job);
    let workers = server.workers(2);
    server.wait_for_updates(5);
    server.process.signal(Signal::STOP);
    standby.wait_for("takeover", |status| status["stands_by"] == false);
    let updates = number(&standby.status()["updates"]);
    standby.wait_for_updates(updates + 2);
    server.process.signal(Signal::CONT);
    let ended = server.process.wait().with_code(1);
    assert!(ended.stderr.contains("leads in its place (term 2)"), "{}", ended.stderr);
    let left = standby.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
}

#[test]
fn a_server_without_standby_and_votes_stands_still_and_reports_it() {
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &["--workers", "2", "--lease", "500ms"]];
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let server = Server::tcp(&[&job.concat(), &log(&kept)]);
    let standby = standby_of(&server, &job);
    let workers = server.workers(2);
    server.wait_for_updates(2);
    drop(workers);
    kill(standby);
    let waits = "the standby, or most workers' promise to do without it";
    server.wait_for("standstill", |status| status["wait"]["reason"] == waits);
    let ended = server.process.wait().with_code(1);
    assert!(ended.stderr.contains("its standby is gone"), "{}", ended.stderr);
    // Each restart from its folder ends the same way, however often.
    resume(&kept).refused(1, &["its standby is gone"]);
    resume(&kept).refused(1, &["its standby is gone"]);
}

/// Flags of a server that keeps a log in `folder`.
fn log(folder: &Path) -> [&str; 4] {
    ["--durability", "log", "--state", path(folder)]
}

fn resume(folder: &Path) -> Ended {
    finish(&["server", "--listen", "127.0.0.1:0", "--json", "--resume", path(folder)])
}

#[test]
fn resuming_an_ended_standby_prints_its_summary_again() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|name| folder.path().join(name));
    let data = ["--data", "synthetic:2000", "--epochs", "1"];
    let job: [&[&str]; 2] = [&data, &["--workers", "2", "--lease", "1s"]];
    let server = Server::tcp(&[&job.concat(), &log(&first)]);
    let standby = standby_of(&server, &[&job.concat(), &log(&second)]);
    let workers = server.workers(2);
    let left = server.finish(workers);
    let end = standby.process.wait().with_code(0).json();
    for again in [end, resume(&first).with_code(0).json(), resume(&second).with_code(0).json()] {
        assert_eq!(again["params_sha256"], left.summary["params_sha256"]);
    }
    // A standby that has lost its server and that no worker contacts.
    let job: [&[&str]; 2] = [&data, &["--workers", "1", "--lease", "200ms"]];
    let server = Server::tcp(&job);
    let standby = standby_of(&server, &[&job.concat(), &log(&third)]);
    kill(server);
    standby.process.wait().refused(1, &["cannot reach the server that it stands by for"]);
    resume(&third).refused(1, &["cannot reach the server that it stands by for"]);
}

#[test]
fn inconsistent_standbys_are_refused_with_the_reason() {
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &["--workers", "1"]];
    let server = Server::tcp(&job);
    let standby = |of: &str, more: &[&[&str]]| {
        let args = ["server", "--listen", "127.0.0.1:0", "--standby-of", of];
        Process::start(&[&args[..], &more.concat()].concat())
    };
    standby(&server.address, &[&SLOW, &["--epochs", "3"]])
        .wait()
        .refused(1, &["its job is another", "the job file and options of the server"]);
    let first = standby_of(&server, &job);
    assert_eq!(first.status()["stands_by"], true);
    let second = standby(&server.address, &job);
    second.wait_to_say("has a standby already");
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let checkpoints = ["--durability", "checkpoint", "--state", path(&kept)];
    let durable = Server::tcp(&[&SLOW, &ENDLESS, &checkpoints]);
    let alone = ["--workers", "2"];
    standby(&durable.address, &[&SLOW, &ENDLESS, &alone])
        .wait()
        .refused(1, &["takes no standby", "--durability none or log"]);
    standby(&server.address, &[&SLOW, &ENDLESS, &alone, &["--advertise", &server.address]])
        .wait()
        .refused(2, &["there is the other server already"]);
    kill(server);
    let waits = "the server that it stands by for, or most workers' promise";
    first.wait_for("the loss", |status| status["wait"]["reason"] == waits);
}

/// The first server returns as the standby of the new leader, at the address that all know.
#[test]
fn workers_and_clients_of_a_standby_are_redirected_to_the_leader() {
    let job = ["--workers", "2", "--lease", "1s", "--on-worker-loss", "wait"];
    let job: [&[&str]; 3] = [&SLOW, &ENDLESS, &job];
    let server = Server::tcp(&job);
    let known = server.address.clone();
    let mut workers = server.workers(2);
    let leader = known_standby_of(&server, &job);
    kill(server);
    leader.wait_for("takeover", |status| status["stands_by"] == false);
    let of = ["--standby-of", &leader.address];
    let standby = Server::under(&[], &known, &[&job.concat(), &of]);
    leader.wait_for("standby", |status| status["standby"] == known);
    // A replacement for a killed worker, which knows only that address.
    drop(workers.pop());
    workers.push(standby.worker(&["--id", "2"]));
    let updates = number(&leader.status()["workers"][1]["updates"]);
    leader.wait_for_updates_of(1, updates + 1);

    let status = standby.status();
    assert_eq!((&status["stands_by"], &status["leader"]), (&true.into(), &of[1].into()));
    let table = standby.table();
    assert!(table.contains(&format!("this one, for the server at {}", leader.address)), "{table}");
    assert_eq!(leader.status()["leader"], Value::Null);
    // Only the leader measures the links.
    let why = finish(&["why", &known, "--json"]).with_code(0).json();
    assert!(number(&why["workers"][0]["link"]["received_bytes"]) > 0, "{why}");
    let pulled = finish(&["pull", &known, "--json"]).with_code(0).json();
    assert!(number(&pulled["version"]) >= 3, "{pulled}");
    let said = finish(&["control", &known, "set", "consistency", "asp"]).with_code(0).stdout;
    assert!(said.contains("consistency = asp from version"), "{said}");
    // If neither server leads, the error names both addresses.
    drop(workers);
    let gone = leader.address.clone();
    kill(leader);
    finish(&["control", &known, "set", "consistency", "bsp"])
        .refused(2, &[&format!("sent on by {known}, which stands by"), "cannot reach", &gone]);
}

/// A job in virtual time with a standby.
const VIRTUAL: [&str; 14] = [
    "simulate",
    "--json",
    "--data",
    "synthetic:2000",
    "--epochs",
    "30",
    "--lease",
    "500ms",
    "--on-worker-loss",
    "wait",
    "--compute",
    "lognormal:4ms,0.3",
    "--link",
    "all.delay=1ms standby.delay=2ms standby.down.delay=2ms standby.down.rate=100mbit",
];

#[test]
fn in_virtual_time_the_records_of_a_takeover_form_one_history() {
    let folder = tempfile::tempdir().unwrap();
    for (number_of_run, (consistency, faults, takeovers, alone)) in [
        ("asp", "none", 0, 0),
        ("bsp", "server.crash@400ms", 1, 0),
        ("ssp:2", "server.crash@400ms", 1, 0),
        ("asp", "server.crash@400ms server.restart@800ms standby.cut@1200ms", 2, 0),
        ("asp", "standby.crash@400ms", 0, 1),
        ("bsp", "standby.cut@400ms", 0, 1),
        ("delay:2", "server.cut@400ms server.heal@2s", 1, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.path().join(number_of_run.to_string());
        let args = ["--consistency", consistency, "--faults", faults, "--out", path(&out)];
        let summary = finish(&[&VIRTUAL, &args[..]].concat()).with_code(0).json();
        check_counts(&out, &summary);
        if faults.starts_with("none") || faults.starts_with("server.crash") {
            check_books(&out, &summary);
        }
        let failover = &summary["failover"];
        let counts = ["takeovers", "alone", "lost", "updates_lost", "repeated"];
        let counts = counts.map(|count| number(&failover[count]));
        assert_eq!(counts, [takeovers, alone, 0, 0, 0], "{faults}: {failover}");
        assert!(number(&failover["acknowledged"]) > 100, "{failover}");
        let order = out.join("order.log");
        let again = finish(&["replay", path(&order), "--json"]).with_code(0).json();
        let told = (&again["identical"], &again["complete"]);
        assert_eq!(told, (&true.into(), &true.into()), "{faults}: {again}");
        let events = events(&out);
        assert_eq!(called(&events, "took_over").count() as u64, takeovers, "{faults}");
        assert_eq!(called(&events, "standby_lost").count() as u64, alone, "{faults}");
        assert_eq!(called(&events, "ended").count(), 1);
        let times: Vec<f64> = events.iter().map(|event| real(&event["at_s"])).collect();
        assert!(times.is_sorted(), "{faults}");
        // The same seed gives the same trace.
        let same = finish(&[&VIRTUAL, &args[..4]].concat()).with_code(0).json();
        let trace = |summary: &Value| summary["trace_sha256"].clone();
        assert_eq!(trace(&same), trace(&summary));
    }
}

#[test]
fn in_virtual_time_a_crash_without_a_standby_ends_the_run_and_keeps_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let job = ["simulate", "--data", "synthetic:2000", "--link", "delay=1ms", "--compute", "4ms"];
    let args = ["--faults", "server.crash@100ms", "--json", "--out", path(&out)];
    let ended = finish(&[&job, &args[..]].concat()).with_code(1);
    let gone = "its server was gone, and no standby took over";
    assert!(ended.stderr.contains(gone), "{}", ended.stderr);
    let summary = ended.json();
    assert_eq!(summary["ended"], gone);
    let failover = &summary["failover"];
    assert_eq!(failover["lost"], failover["acknowledged"], "{failover}");
    assert!(number(&summary["updates"]) > 10, "{summary}");
    assert!(!timeline(&out).is_empty());
}

#[test]
fn standbys_that_virtual_time_does_not_support_are_refused_with_the_reason() {
    let job = ["simulate", "--data", "synthetic:2000", "--compute", "4ms", "--link", "delay=1ms"];
    let standby = ["--link", "standby.delay=1ms"];
    for (flags, told) in [
        (&["--faults", "standby.crash@1s"][..], "standby.crash@1s: there is no standby"),
        (&["--faults", "server.restart@1s"], "server.restart@1s: there is no standby"),
        (&["--servers", "2", standby[0], standby[1]], "only a job with one server has a standby"),
        (&["--model", "timing:100", standby[0], standby[1]], "nothing that a standby could keep"),
    ] {
        finish(&[&job, flags].concat()).refused(2, &[told]);
    }
    let run = ["run", "--data", "synthetic:2000", standby[0], standby[1]];
    finish(&run).refused(2, &["virtual time only", "pstrain server --standby-of"]);
}

/// Servers, standbys and workers are killed at random moments.
#[test]
fn processes_killed_at_random_moments_lose_and_repeat_nothing() {
    // The run outlasts all kills: they take some seconds, in which it often waits, and it twelve.
    let long = ["--epochs", "48", "--workers", "2", "--lease", "1s", "--on-worker-loss", "wait"];
    let one = undisturbed(&[&PACED, &long]);
    for run in 0..random_runs() {
        let job: [&[&str]; 3] = [&PACED, &long, &REPLICATE[(run % 2) as usize]];
        let mut moments = Stream::new(run).fork("kills", 1).rng();
        let mut server = Server::tcp(&job);
        let mut workers = server.workers(2);
        let mut standby = None;
        for kill_number in 0..3 {
            let other = standby.take().unwrap_or_else(|| known_standby_of(&server, &job));
            sleep(Duration::from_millis(moments.below(250)));
            match (run + kill_number) % 3 {
                0 => {
                    kill(server);
                    server = other;
                    server.wait_for("takeover", |status| status["stands_by"] == false);
                }
                1 => {
                    kill(other);
                    server.wait_for("server alone", |status| status["standby"].is_null());
                }
                _ => {
                    drop(workers.pop());
                    workers.push(server.worker(&["--id", "2"]));
                    standby = Some(other);
                    // Without a standby, both of two workers must vote, so wait until the new
                    // worker takes part.
                    let updates = number(&server.status()["workers"][1]["updates"]);
                    server.wait_for_updates_of(1, updates + 1);
                }
            }
        }
        let left = server.finish(workers);
        assert_eq!(left.summary["params_sha256"], one["params_sha256"], "run {run}");
    }
}
