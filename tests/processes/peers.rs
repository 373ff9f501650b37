//! Workers without a server as real processes: over every transport, killed, stopped, and with
//! strangers at their listeners.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use pstrain_policy::architecture::Architecture;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::books::{Row, called, check_books, events, timeline};
use crate::cluster::{ENDLESS, Left, PACED, Server, free_address, number, path, real, undisturbed};
use crate::process::{Process, finish, json};

pub(crate) const RING: [&str; 2] = ["--architecture", "all-reduce:ring"];
const THREE: [&str; 4] = ["--workers", "3", "--lease", "1s"];

/// Starts a worker that others reach at a free port.
pub(crate) fn peer(server: &Server, id: u32, more: &[&str]) -> Process {
    let id = id.to_string();
    server.worker(&[&["--id", &id, "--listen", "127.0.0.1:0"], more].concat())
}

fn peers(server: &Server, count: u32) -> Vec<Process> {
    (1..=count).map(|id| peer(server, id, &[])).collect()
}

/// The socket of a worker of a server at a Unix socket.
fn socket(server: &Server, id: u32) -> String {
    let folder = server.out.parent().unwrap();
    format!("{}/worker-{id}", folder.display())
}

/// The words of all architectures without a server.
pub(crate) fn all_without_a_server() -> impl Iterator<Item = String> {
    let gossip = [Architecture::DPsgd, Architecture::AdPsgd];
    Architecture::replicated().chain(gossip).map(|it| it.to_string())
}

pub(crate) fn departures(summary: &Value) -> &Vec<Value> {
    summary["departures"].as_array().unwrap_or_else(|| panic!("{summary}"))
}

#[test]
fn processes_end_at_the_parameters_of_a_single_process() {
    let short = ["--epochs", "1", "--data", "synthetic:2000", "--workers", "3"];
    for architecture in Architecture::replicated().map(|it| it.to_string()) {
        let job = [&["--architecture", &architecture], &short[..]].concat();
        let one = undisturbed(&[&job]);
        let server = Server::tcp(&[&job]);
        let workers = peers(&server, 3);
        let Left { summary, .. } = server.finish(workers);
        assert_eq!(summary["params_sha256"], one["params_sha256"], "{architecture} over tcp");
        let server = Server::unix(&[&job]);
        let worker = |id: u32| {
            let listen = format!("unix:{}", socket(&server, id));
            server.worker(&["--id", &id.to_string(), "--listen", &listen])
        };
        let workers = (1..=3).map(worker).collect();
        let Left { summary, .. } = server.finish(workers);
        assert_eq!(summary["params_sha256"], one["params_sha256"], "{architecture} over unix");
        if architecture == "all-reduce:all-to-all" {
            assert_eq!(summary["params_sha256"], undisturbed(&[&short])["params_sha256"]);
        }
    }
}

#[test]
fn the_times_of_a_run_without_a_server_are_those_of_its_timeline() {
    let short = ["--epochs", "2", "--data", "synthetic:2000", "--workers", "3"];
    for architecture in all_without_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let run = ["run", "--json", "--architecture", &architecture, "--out", path(&out)];
        let summary = finish(&[&run[..], &short].concat()).with_code(0).json();
        check_books(&out, &summary);
    }
}

#[test]
fn gossip_ends_at_the_mean_of_virtual_time_and_reports_the_distance_of_the_models() {
    let gossip = ["--architecture", "gossip:d-psgd", "--graph", "complete", "--workers", "4"];
    let job = [&gossip[..], &["--epochs", "1", "--data", "synthetic:2000"]].concat();
    let server = Server::tcp(&[&job]);
    let workers = peers(&server, 4);
    let Left { out, summary, _folder } = server.finish(workers);
    let virtually =
        json(&[&["simulate", "--json", "--compute", "1ms", "--link", "all.delay=0ms"], &job]);
    assert_eq!(summary["params_sha256"], virtually["params_sha256"]);
    let curve = fs::read_to_string(out.join("curve.csv")).unwrap();
    let mut lines = curve.lines().map(|line| line.split(',').next_back().unwrap());
    assert_eq!(lines.next(), Some("consensus_distance"), "{curve}");
    let distances: Vec<f64> = lines.map(|it| it.parse().unwrap()).collect();
    assert!(distances.len() > 1 && distances[0] == 0.0, "all begin alike: {curve}");
    assert!(distances[1..].iter().all(|it| *it > 0.0 && *it < 10.0), "{curve}");
}

/// Five workers around the third, and one more at the end.
const EDGES: &str = "# a star with a tail\n3 1\n3 2\n3 4\n4 5\n";

#[test]
fn workers_are_neighbors_as_a_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edges.txt");
    fs::write(&file, EDGES).unwrap();
    let graph = format!("file:{}", file.display());
    for architecture in ["gossip:d-psgd", "gossip:ad-psgd"] {
        let job = ["--architecture", architecture, "--graph", &graph, "--workers", "5"];
        let data = ["--data", "synthetic:2000", "--json"];
        for command in [&["run"][..], &["simulate", "--link", "delay=1ms", "--compute", "1ms"]] {
            let summary = json(&[command, &job, &data, &["--epochs", "2"]]);
            assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        }
        // Without the third worker nothing joins the others.
        let paced = ["--compute", "20ms", "--lease", "2s", "--epochs", "8"];
        let server = Server::tcp(&[&job, &data[..2], &paced]);
        let mut workers = peers(&server, 5);
        server.wait_for_updates(10);
        drop(workers.remove(2)); // kills it with SIGKILL
        let Left { out, summary, _folder } = server.finish(workers);
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        let events = events(&out);
        let why = called(&events, "regrouped").map(|it| it["why"].as_str().unwrap().to_owned());
        let why: Vec<String> = why.collect();
        let told = "neighbors now are 1 and 2, 1 and 4";
        assert!(why.iter().any(|why| why.ends_with(told)), "{why:?}");
    }
}

#[test]
fn a_file_that_is_no_graph_of_the_workers_is_refused_with_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edges.txt");
    let graph = format!("file:{}", file.display());
    let gossip = ["--architecture", "gossip:d-psgd", "--workers", "3"];
    let run = |graph: &str| finish(&[&["run", "--graph", graph], &gossip[..]].concat());
    for (text, told) in [
        ("1 2\n2 x\n", &["edges.txt:2: \"2 x\" is no edge", "such as 1 2"][..]),
        ("1 2\n3 3\n", &["edges.txt:2: 3 3 joins a worker to itself", "leave it out"]),
        ("1 2\n2 4\n", &["the edge 2 4", "numbered 1 to 3"]),
        ("1 2\n", &["no way leads from worker 1 to worker 3", "add an edge"]),
    ] {
        fs::write(&file, text).unwrap();
        run(&graph).refused(2, told);
    }
    run("file:/nonexistent").refused(2, &["cannot read the graph /nonexistent"]);
    run("file").refused(2, &["graph = file", "file:edges.txt"]);
    fs::write(&file, "1 2\n2 3\n").unwrap();
    let server = ["run", "--graph", &graph, "--workers", "3"];
    finish(&server).refused(2, &["graph = file", "gossip:d-psgd"]);
}

#[test]
fn a_model_of_times_alone_has_messages_of_its_size_in_virtual_time() {
    // A worker sends 2 x 3/4 of 4 MB: 0.48 s at 100 Mbit/s.
    let job = ["--workers", "4", "--model", "timing:1000000", "--batch-size", "40"];
    let data = ["--data", "synthetic:1000", "--epochs", "1", "--compute", "1ms"];
    let link = ["--link", "all.up.rate=100mbit all.down.rate=100mbit", "--json"];
    let summary = json(&[&["simulate"], &RING, &job, &data, &link]);
    let of_update = real(&summary["time_s"]) / real(&summary["updates"]);
    assert!((0.48..0.6).contains(&of_update), "{of_update} s: {summary}");
    let sent = |summary: &Value| {
        number(&summary["workers"][0]["pushed_bytes"]) / number(&summary["updates"])
    };
    assert_eq!(sent(&summary), 6_000_000, "{summary}");
    let delay = ["--link", "all.delay=1ms", "--json"];
    let summary = json(&[&["simulate"], &job, &data, &delay]);
    assert_eq!(sent(&summary), 4_000_000, "to a server: {summary}");
    let pulled = number(&summary["workers"][0]["pulled_bytes"]);
    assert_eq!(pulled, 4_000_000 * number(&summary["updates"]), "{summary}");
}

#[test]
fn a_report_says_of_which_update_the_model_is_when_all_workers_are_lost() {
    let folder = tempfile::TempDir::new().unwrap();
    let out = folder.path().join("out");
    let job = ["--data", "synthetic:2000", "--epochs", "40", "--evaluate-every", "10"];
    let faults = ["--faults", "1.crash@150ms 2.crash@150ms 3.crash@150ms"];
    let link = ["--link", "all.delay=1ms", "--compute", "1ms"];
    let ended = finish(
        &[&["simulate", "--json", "--out", path(&out)], &RING[..], &THREE, &job, &faults, &link]
            .concat(),
    );
    let ended = ended.with_code(1);
    assert!(ended.stderr.contains("all workers that had made update"), "{}", ended.stderr);
    let summary = ended.json();
    let updates = number(&summary["updates"]);
    assert_eq!((number(&summary["model_update"]), updates > 0), (0, true), "{summary}");
    let rows = timeline(&out);
    let applied = rows.iter().filter(|row| row.is("applied") && row.waited_ns.is_none());
    assert_eq!(applied.count() as u64, number(&summary["batches"]["assigned"]), "{summary}");
    let is_in_order =
        |row: &Row| row.pushed_ns.unwrap() >= row.granted_ns + row.compute_ns.unwrap();
    assert!(rows.iter().all(is_in_order), "{rows:?}");
}

#[test]
fn workers_that_never_get_through_to_each_other_end_the_run_and_say_so() {
    let link = "all.delay=100ms all.loss=30% all.jitter=300ms all.distribution=pareto";
    let job = ["--workers", "3", "--data", "synthetic:1000", "--epochs", "1", "--compute", "1ms"];
    let ended = finish(&[&["simulate", "--link", link], &RING[..], &job].concat()).with_code(1);
    let said = "the workers reach their meeting point, but no group of them has made an update";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

#[test]
fn the_others_finish_without_a_killed_worker_and_the_result_names_it() {
    let gossip = [Architecture::DPsgd, Architecture::AdPsgd];
    for architecture in Architecture::replicated().chain(gossip) {
        let architecture = ["--architecture", &architecture.to_string()];
        let server = Server::tcp(&[&PACED, &architecture, &THREE, &["--epochs", "6"]]);
        let mut workers = peers(&server, 3);
        server.wait_for_updates(10);
        drop(workers.remove(1)); // kills it with SIGKILL
        let Left { out, summary, _folder } = server.finish(workers);
        let departed = departures(&summary);
        assert_eq!(departed.len(), 1, "{summary}");
        let worker = (number(&departed[0]["worker"]), &departed[0]["how"]);
        assert_eq!(worker, (2, &"lost".into()), "{summary}");
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        let events = events(&out);
        assert!(called(&events, "regrouped").count() >= 1, "{architecture:?}");
    }
}

/// A worker whose advertised address leads nowhere.
#[test]
fn a_worker_that_no_other_reaches_is_named_and_dials_the_others() {
    let job = [&PACED[..], &RING, &["--workers", "2", "--lease", "2s"]].concat();
    let server = Server::tcp(&[&job]);
    let workers = vec![peer(&server, 1, &["--advertise", "127.0.0.1:1"]), peer(&server, 2, &[])];
    let is_named = |status: &Value| !status["workers"][1]["unreached"].is_null();
    let status = server.wait_for("the second worker to say so", is_named);
    let unreached = &status["workers"][1]["unreached"];
    assert_eq!(
        (&unreached["worker"], &unreached["address"]),
        (&1.into(), &"tcp://127.0.0.1:1".into())
    );
    let why = finish(&["why", &server.address]).with_code(0).stdout;
    let words = ") does not reach worker 1 at tcp://127.0.0.1:1, since ";
    assert!(why.contains(words) && why.contains("Connection refused"), "{why}");
    assert!(why.contains("; worker 1 dials it"), "{why}");
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], undisturbed(&[&job])["params_sha256"], "{summary}");
}

/// A worker whose advertised address is the one of another worker.
#[test]
fn a_worker_behind_the_address_of_another_is_named() {
    let job = ["--architecture", "all-reduce:all-to-all", "--workers", "3", "--lease", "2s"];
    let job = [&PACED[..], &job].concat();
    let server = Server::tcp(&[&job]);
    let third = free_address();
    let workers = vec![
        peer(&server, 1, &["--advertise", &third]),
        peer(&server, 2, &[]),
        server.worker(&["--id", "3", "--listen", &third]),
    ];
    let unreached = |status: &Value| {
        let workers = status["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().find_map(|it| it["unreached"]["why"].as_str().map(str::to_owned))
    };
    let status = server.wait_for("a worker to say so", |status| unreached(status).is_some());
    let why = unreached(&status).unwrap();
    assert!(why.contains("worker 3 answers at the address of worker 1"), "{why}");
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], undisturbed(&[&job])["params_sha256"], "{summary}");
}

#[test]
fn workers_that_listen_nowhere_exchange_values_by_way_of_the_meeting_point() {
    let short = ["--epochs", "1", "--data", "synthetic:2000", "--workers", "4"];
    for architecture in all_without_a_server() {
        let job = [&["--architecture", &architecture], &short[..]].concat();
        let server = Server::tcp(&[&job]);
        let hidden = |id: u32| server.worker(&["--id", &id.to_string(), "--listen", "none"]);
        let workers = vec![hidden(1), hidden(2), peer(&server, 3, &[]), hidden(4)];
        let Left { summary, .. } = server.finish(workers);
        if architecture != "gossip:ad-psgd" {
            let one = undisturbed(&[&job]);
            assert_eq!(summary["params_sha256"], one["params_sha256"], "{architecture}");
        }
        assert!(departures(&summary).is_empty(), "{summary}");
        let bytes = |name: &str| [0, 1, 2, 3].map(|at| number(&summary["workers"][at][name]));
        let (relayed, pushed) = (bytes("relayed_bytes"), bytes("pushed_bytes"));
        assert_eq!(relayed[2], 0, "{summary}");
        let is_relayed = relayed.iter().sum::<u64>() > 0;
        let sends_to_workers = !architecture.starts_with("in-network");
        assert_eq!(is_relayed, sends_to_workers, "{architecture}: {summary}");
        if architecture == "all-reduce:ring" {
            // Worker 2 sends to worker 3 alone, which listens.
            assert_eq!(relayed, [pushed[0], 0, 0, pushed[3]], "{summary}");
        }
    }
}

#[test]
fn status_names_the_workers_whose_values_are_relayed() {
    let server = Server::tcp(&[&PACED, &RING, &THREE, &ENDLESS]);
    let hidden = |id: u32| server.worker(&["--id", &id.to_string(), "--listen", "none"]);
    let workers = vec![hidden(1), hidden(2), peer(&server, 3, &[])];
    let status = server.wait_for_updates(5);
    let relayed = |place: usize| status["workers"][place]["relayed"].clone();
    assert_eq!([relayed(0), relayed(1)], [json!([2]), json!([1])]);
    assert!(relayed(2).is_null(), "{status}");
    let table = server.table();
    assert!(table.contains("messages between workers 1 and 2"), "{table}");
    finish(&["worker", "--server", &server.address, "--listen", "none", "--advertise", "here:1"])
        .refused(2, &["--advertise", "leave it out"]);
    server.interrupt(workers);
}

#[test]
fn a_target_that_is_reached_without_a_server_ends_with_its_evaluation() {
    let job = ["--data", "synthetic:8000", "--epochs", "30", "--target", "accuracy=0.9"];
    let often = ["--evaluate-every", "0.1", "--workers", "3", "--json"];
    for architecture in ["all-reduce:ring", "in-network", "gossip:d-psgd", "gossip:ad-psgd"] {
        let summary = json(&[&["run", "--architecture", architecture], &job, &often]);
        assert_eq!(summary["ended"], "the target is reached", "{architecture}: {summary}");
        assert!(real(&summary["accuracy"]) >= 0.9, "{architecture}: {summary}");
    }
}

#[test]
fn a_killed_worker_ends_a_run_that_stops_then() {
    let stop = ["--on-worker-loss", "stop"];
    let server = Server::tcp(&[&PACED, &RING, &THREE, &ENDLESS, &stop]);
    let mut workers = peers(&server, 3);
    server.wait_for_updates(5);
    drop(workers.pop());
    let summary = server.process.wait().with_code(1).json();
    assert!(summary["ended"].as_str().unwrap().starts_with("worker 3 "), "{summary}");
    assert_eq!(number(&departures(&summary)[0]["worker"]), 3, "{summary}");
    for worker in workers {
        worker.wait().with_code(1);
    }
}

#[test]
fn a_worker_that_is_stopped_for_long_is_lost_and_joins_again() {
    let filtered = ["--architecture", "all-reduce:all-gather", "--filters", "top-k:0.1"];
    let server = Server::tcp(&[&PACED, &filtered, &THREE, &ENDLESS]);
    let workers = peers(&server, 3);
    server.wait_for_updates(5);
    workers[0].signal(Signal::STOP);
    server.wait_for("it to be lost", |status| status["workers"][0]["state"] == "lost");
    let before = number(&server.status()["updates"]);
    server.wait_for_updates(before + 5);
    workers[0].signal(Signal::CONT);
    server.wait_for("it to train again", |status| status["workers"][0]["state"] == "computing");
    let before = number(&server.status()["updates"]);
    server.wait_for_updates(before + 5);
    workers[0].wait_to_say("the residual of the filters is lost");
    server.interrupt(workers);
}

#[test]
fn a_run_whose_processes_all_die_one_after_the_other_ends_at_the_parameters_of_an_undisturbed_one()
{
    let job = [&PACED[..], &RING, &THREE, &["--epochs", "3"]].concat();
    let folder = tempfile::TempDir::new().unwrap();
    let kept = folder.path().join("kept");
    let every = ["--durability", "checkpoint", "--checkpoint-every", "100ms"];
    let mut server = Server::tcp(&[&job, &every, &["--state", path(&kept)]]);
    let resume = ["--resume", path(&kept)];
    let mut workers = peers(&server, 3);
    // The workers live on, and join the meeting point that comes after.
    for updates in [10, 30] {
        server.wait_for_updates(updates);
        server = server.replace(&[&resume]);
        let said = server.process.wait_to_say("; if anything came after it, it is computed again");
        let is_resumed = said.lines().any(|line| {
            line.contains("resumed from checkpoint ") && line.ends_with("is computed again")
        });
        assert!(is_resumed, "{said}");
        assert!(said.contains(", epoch "), "{said}");
    }
    server.wait_for_updates(40);
    for worker in &workers {
        worker.signal(Signal::KILL);
    }
    server.process.wait_to_say("start this server again with --resume");
    drop(workers);
    server = server.replace(&[&resume]);
    workers = peers(&server, 3);
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], undisturbed(&[&job])["params_sha256"], "{summary}");
}

#[test]
fn workers_that_do_not_fit_the_architecture_are_told_the_cure() {
    let server = Server::tcp(&[&PACED, &RING, &THREE]);
    server.worker(&[]).wait().refused(1, &["all-reduce:ring", "--listen"]);
    let other = Server::tcp(&[&PACED, &["--workers", "1"]]);
    peer(&other, 1, &[]).wait().refused(1, &["leave --listen out"]);
    let folder = tempfile::TempDir::new().unwrap();
    let base = ["server", "--listen", "127.0.0.1:0", RING[0], RING[1]];
    let log = ["--durability", "log", "--state", path(folder.path())];
    let cure = ["--durability log", "all-reduce:ring", "use checkpoint"];
    finish(&[&base[..], &log].concat()).refused(2, &cure);
    let beside = ["server", "--listen", "127.0.0.1:0", "--standby-of", &server.address];
    finish(&beside).refused(1, &["the workers have the parameters"]);
    let several = ["--servers", "2"];
    finish(&[&base[..], &several].concat()).refused(2, &["servers = 1"]);
    let wait = ["--on-worker-loss", "wait"];
    finish(&[&base[..], &wait].concat()).refused(2, &["on-worker-loss = continue or stop"]);
}

#[test]
fn settings_that_need_a_server_are_refused_with_the_reason_that_holds() {
    for architecture in all_without_a_server() {
        let run =
            |more: &[&str]| finish(&[&["run", "--architecture", &architecture], more].concat());
        let words = "max-staleness = none: no server drops late gradients";
        run(&["--max-staleness", "2"]).refused(2, &[&architecture, words]);
        let why = match architecture.as_str() {
            "gossip:ad-psgd" => "workers without a server have no other",
            _ => "workers make each update together",
        };
        let words = format!("consistency = bsp, and no switch: {why}");
        run(&["--consistency", "asp"]).refused(2, &[&architecture, &words]);
    }
}

#[test]
fn status_and_why_answer_while_workers_gather_and_train() {
    let server = Server::tcp(&[&PACED, &RING, &THREE, &ENDLESS]);
    let mut workers = vec![peer(&server, 1, &[]), peer(&server, 2, &[])];
    let welcome = workers[0].wait_to_say("worker 1 of 3 in job");
    assert!(welcome.contains("(all-reduce:ring)"), "{welcome}");
    let both = |status: &Value| {
        let is_there = |place: usize| status["workers"][place]["state"] == "waiting";
        is_there(0) && is_there(1)
    };
    server.wait_for("two workers", both);
    let said = finish(&["why", &server.address]).with_code(0).stdout;
    assert!(said.contains("worker 3"), "{said}");
    assert!(said.contains(" --id 3 --listen 0.0.0.0:PORT`"), "{said}");
    workers.push(peer(&server, 3, &[]));
    let status = server.wait_for_updates(5);
    assert_eq!(status["consistency"], "all-reduce:ring", "{status}");
    for worker in status["workers"].as_array().unwrap() {
        assert!(number(&worker["updates"]) >= 5, "{status}");
    }
    finish(&["why", &server.address]).with_code(0);
    assert!(server.table().contains("all-reduce:ring"));
    server.interrupt(workers);
}

/// Bytes that no worker sends, on connections that stay open.
#[test]
fn strangers_at_a_workers_listener_change_nothing() {
    let job = [&PACED[..], &RING, &["--workers", "3", "--epochs", "2"]].concat();
    let one = undisturbed(&[&job]);
    let server = Server::unix(&[&job]);
    let worker = |id: u32| {
        let listen = format!("unix:{}", socket(&server, id));
        server.worker(&["--id", &id.to_string(), "--listen", &listen])
    };
    let workers: Vec<Process> = (1..=3).map(worker).collect();
    server.wait_for_updates(3);
    let mut strangers = Vec::new();
    for place in 0..60_u8 {
        let to = socket(&server, u32::from(place) % 3 + 1);
        let mut stream = UnixStream::connect(Path::new(&to)).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let bytes = vec![place.wrapping_mul(37); usize::from(place) * 50];
        // A worker may have hung up meanwhile.
        let _refused = stream.write_all(&bytes);
        strangers.push(stream);
    }
    let Left { summary, .. } = server.finish(workers);
    assert_eq!(summary["params_sha256"], one["params_sha256"]);
    assert!(departures(&summary).is_empty(), "{summary}");
}
