//! Groups of server processes: parameters, failures and refusals.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::books::{check_alike, check_books};
use crate::cluster::{ENDLESS, PACED, SLOW, Server, names, number, path, shard_of};
use crate::process::{Process, finish, random_runs};

/// Starts servers 2 to `servers` of the job of `server`, on free ports.
pub(crate) fn others(server: &Server, servers: u32) -> Vec<Process> {
    let start = |place: u32| {
        let place = format!("{place}/{servers}");
        let args = ["server", "--shard", &place, "--coordinator", &server.address];
        let process = Process::start(&[&args[..], &["--listen", "127.0.0.1:0"]].concat());
        process.wait_to_say("listening on ");
        process
    };
    (2..=servers).map(start).collect()
}

#[test]
fn any_number_of_servers_ends_at_the_same_parameters() {
    let job =
        ["--epochs", "2", "--workers", "3", "--data", "synthetic:2000", "--optimizer", "adam"];
    let run =
        |more: &[&str]| finish(&[&["run", "--json"], &job[..], more].concat()).with_code(0).json();
    let one = run(&[]);
    for transport in ["memory", "unix", "tcp"] {
        for servers in ["2", "4"] {
            let several = run(&["--transport", transport, "--servers", servers]);
            assert_eq!(
                several["params_sha256"], one["params_sha256"],
                "{servers} over {transport}"
            );
            assert_eq!(several["accuracy"], one["accuracy"]);
            assert_eq!(several["batches"], one["batches"]);
            has_the_traffic_of(&several, &one);
        }
    }
}

/// Checks that the workers of both runs exchanged the same bytes with all of their servers
/// together. Nothing is filtered.
fn has_the_traffic_of(several: &Value, one: &Value) {
    let of = |summary: &Value| {
        let workers = summary["workers"].as_array().unwrap().iter();
        let bytes = workers.map(|worker| {
            ["pushed_bytes", "unfiltered_bytes", "pulled_bytes"].map(|name| number(&worker[name]))
        });
        bytes.collect::<Vec<_>>()
    };
    assert_eq!(of(several), of(one));
    assert!(of(one).iter().flatten().all(|bytes| *bytes > 0), "{one}");
    assert_eq!((&several["bytes_ratio"], &one["bytes_ratio"]), (&json!(1.0), &json!(1.0)));
}

#[test]
fn traffic_is_that_of_all_servers_in_virtual_time_and_of_processes() {
    let job = ["--epochs", "2", "--workers", "1", "--data", "synthetic:400"];
    let simulated = |servers: &str| {
        let args = [&["simulate", "--json", "--servers", servers], &job[..]].concat();
        finish(&[&args[..], &["--link", "all.delay=0ms", "--compute", "1ms"]].concat())
            .with_code(0)
            .json()
    };
    let one = simulated("1");
    has_the_traffic_of(&simulated("3"), &one);
    let server = Server::tcp(&[&job, &["--servers", "2"]]);
    let other = others(&server, 2);
    let worker = server.worker(&[]);
    has_the_traffic_of(&server.finish(vec![worker]).summary, &one);
    other.into_iter().for_each(|other| drop(other.wait().with_code(0)));
}

#[test]
fn servers_in_one_process_start_without_a_refused_connection() {
    let job = ["run", "--data", "synthetic:400", "--epochs", "1", "--servers", "4"];
    for (transport, durability) in
        [("memory", "none"), ("unix", "none"), ("tcp", "none"), ("unix", "log"), ("tcp", "log")]
    {
        let folder = TempDir::new().unwrap();
        let (out, state) = (folder.path().join("out"), folder.path().join("state"));
        let kept = ["--durability", durability, "--state", path(&state)];
        let kept = if durability == "none" { &[][..] } else { &kept[..] };
        let more = ["--transport", transport, "--out", path(&out)];
        let ended = finish(&[&job[..], &more, kept].concat()).with_code(0);
        assert!(!ended.stderr.contains("refused"), "{transport}: {}", ended.stderr);
        let events = std::fs::read_to_string(out.join("events.jsonl")).unwrap();
        assert!(!events.contains("refused"), "{transport}: {events}");
    }
}

#[test]
fn a_worker_that_dials_another_server_gets_the_coordinators_address() {
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--servers", "2"]]);
    let (_other, address) = shard_of(&server.address, (2, 2), "127.0.0.1:0", &[]);
    server.wait_for("server", |status| status["servers"][1]["away_s"].is_null());
    let words = ["it does not coordinate", "dial the server that does", &server.address];
    finish(&["worker", "--server", &address]).refused(1, &words);
}

/// Gradients of 6 MB: each server inspects its part of a gradient before the whole has arrived.
#[test]
fn long_gradients_end_at_the_same_parameters_for_any_transport_and_number_of_servers() {
    let job = ["--epochs", "1", "--workers", "3", "--data", "synthetic:300", "--batch-size", "8"];
    let run = |more: &[&str]| {
        let args = [&["run", "--json", "--model", "mlp:16000"], &job[..], more].concat();
        finish(&args).with_code(0).json()
    };
    let whole = run(&["--transport", "memory"]);
    for more in [
        &["--transport", "tcp"][..],
        &["--transport", "unix", "--servers", "2"],
        &["--transport", "tcp", "--servers", "4"],
        &["--transport", "unix", "--servers", "2", "--clip-contribution", "1e6"],
    ] {
        assert_eq!(run(more)["params_sha256"], whole["params_sha256"], "{more:?}");
    }
}

#[test]
fn clipping_and_krum_end_at_the_same_parameters_with_any_number_of_servers() {
    let folder = TempDir::new().unwrap();
    let data = ["--epochs", "1", "--data", "synthetic:2000", "--optimizer", "adam"];
    for (place, rule) in [
        &["--workers", "3", "--clip-norm", "0.2"][..],
        &["--workers", "3", "--clip-contribution", "0.2"],
        &["--workers", "5", "--aggregation", "krum:1"],
        &["--workers", "5", "--aggregation", "krum:1,3", "--clip-norm", "0.2"],
    ]
    .into_iter()
    .enumerate()
    {
        let run = |more: &[&str]| {
            let args = [&["run", "--json"], &data[..], rule, more].concat();
            finish(&args).with_code(0).json()
        };
        let one = run(&[]);
        for transport in ["memory", "tcp"] {
            for servers in ["2", "4"] {
                let out = folder.path().join(format!("{place}-{transport}-{servers}"));
                let args = ["--transport", transport, "--servers", servers, "--out", path(&out)];
                let several = run(&args);
                assert_eq!(
                    several["params_sha256"], one["params_sha256"],
                    "{rule:?}: {servers} over {transport}"
                );
                check_books(&out, &several);
                let order = out.join("order.log");
                let again = finish(&["replay", path(&order), "--json"]).with_code(0).json();
                assert_eq!(again["identical"], true, "{rule:?}: {again}");
            }
        }
    }
}

#[test]
fn several_servers_in_virtual_time_end_at_the_same_parameters_and_share_the_load() {
    let job = ["--epochs", "2", "--workers", "3", "--data", "synthetic:2000", "--json"];
    let run = finish(&[&["run"], &job[..]].concat()).with_code(0).json();
    let link = ["--link", "all.delay=1ms server.rate=2mbit", "--compute", "1ms"];
    let simulate = |servers: &str| {
        let args = [&["simulate", "--servers", servers], &job[..], &link].concat();
        finish(&args).with_code(0).json()
    };
    let times = ["1", "2", "4"].map(|servers| {
        let (first, again) = (simulate(servers), simulate(servers));
        assert_eq!(first["params_sha256"], run["params_sha256"], "{servers} servers");
        assert_eq!(first["trace_sha256"], again["trace_sha256"], "{servers} servers");
        first["virtual_time_s"].as_f64().unwrap()
    });
    // The servers' links take nearly all of the time, and each server carries its share. The
    // speed-up is below the number of servers since decisions wait behind the coordinator's own
    // parameters.
    assert!(times[0] > times[1] && times[0] > 1.5 * times[2], "{times:?}");
}

#[test]
fn server_processes_end_at_the_parameters_of_a_single_process() {
    let job = ["--epochs", "2", "--workers", "2", "--data", "synthetic:2000"];
    let one = finish(&[&["run", "--json"], &job[..]].concat()).with_code(0).json();
    let server = Server::tcp(&[&job, &["--servers", "3"]]);
    // Workers that start before the servers retry.
    let workers = server.workers(2);
    let others = others(&server, 3);
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    check_books(&left.out, &left.summary);
    for other in others {
        let said = other.wait().with_code(0);
        assert!(said.stderr.contains("keys ["), "{}", said.stderr);
    }
}

#[test]
fn a_client_pulls_any_key_range_from_any_number_of_servers() {
    let folder = TempDir::new().unwrap();
    let job = ["--epochs", "2", "--workers", "2", "--data", "synthetic:2000"];
    let alone = Server::tcp(&[&job]);
    let group = Server::tcp(&[&job, &["--servers", "3"]]);
    let others = others(&group, 3);
    let pull = |server: &Server, keys: &str| {
        let file = folder.path().join("part");
        let pull = ["pull", &server.address, "--keys", keys, "-o", path(&file), "--json"];
        let said = finish(&pull).with_code(0).json();
        (said, std::fs::read_to_string(&file).unwrap())
    };
    // No worker trains yet, so the parameters are the initial ones.
    for keys in ["0..10", "690..1400", "2083..2084", "1000..", ".."] {
        let (said, part) = pull(&alone, keys);
        assert_eq!(pull(&group, keys), (said.clone(), part.clone()), "{keys}");
        let lines = part.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count() as u64, number(&said["non_zeros"]), "{keys}");
        assert_eq!((number(&said["version"]), number(&said["total"])), (0, 2084));
    }
    let wrong = ["pull", &group.address, "--keys", "2000..2085"];
    finish(&wrong).refused(2, &["[2000, 2085)", "[0, 2084)"]);
    for server in [alone, group] {
        let workers = server.workers(2);
        server.finish(workers);
    }
    others.into_iter().for_each(|other| drop(other.wait().with_code(0)));
}

#[test]
fn an_asp_run_with_several_servers_replays_to_the_same_parameters() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let run = ["run", "--transport", "tcp", "--servers", "3", "--workers", "3"];
    let job = ["--consistency", "asp", "--staleness", "dc:0.04", "--epochs", "2"];
    let data = ["--data", "synthetic:2000", "--out", path(&out), "--json"];
    let summary = finish(&[&run[..], &job, &data].concat()).with_code(0).json();
    check_books(&out, &summary);
    check_alike(&out);
}

#[test]
fn a_killed_worker_is_replaced_at_all_servers() {
    let server = Server::tcp(&[
        &SLOW,
        &["--epochs", "6", "--workers", "2", "--servers", "2", "--lease", "1s"],
    ]);
    let others = others(&server, 2);
    let mut workers = server.workers(2);
    server.wait_for_updates(4);
    drop(workers.pop());
    workers.push(server.worker(&["--id", "2"]));
    let left = server.finish(workers);
    check_books(&left.out, &left.summary);
    others.into_iter().for_each(|other| drop(other.wait().with_code(0)));
}

#[test]
fn a_lost_server_without_durability_ends_the_run_with_the_reason() {
    // The first epoch lasts half a minute, so no evaluation has collected the parameters of all
    // servers yet: an assembled copy would survive.
    let job = ["--batch-size", "1", "--workers", "1", "--servers", "2", "--lease", "200ms"];
    let server = Server::tcp(&[&PACED, &ENDLESS, &job]);
    let others = others(&server, 2);
    let workers = server.workers(1);
    server.wait_for_updates(2);
    drop(others);
    let ended = server.process.wait();
    assert!(ended.stderr.contains("server 2 was not there in time"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    // No server holds all parameters, so the summary is silent about them.
    let summary = ended.json();
    assert!(number(&summary["updates"]) >= 2, "{summary}");
    for of_parameters in ["params_sha256", "accuracy", "loss", "non_zeros"] {
        assert!(summary[of_parameters].is_null(), "{summary}");
    }
    workers.into_iter().for_each(|worker| drop(worker.wait()));
}

/// Starts the second of two servers; returns the process and its address.
fn second(coordinator: &str, listen: &str, how: &[&str]) -> (Process, String) {
    shard_of(coordinator, (2, 2), listen, how)
}

#[test]
fn killed_servers_resume_and_the_parameters_are_unchanged() {
    let folder = TempDir::new().unwrap();
    let kept = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let job = ["--epochs", "5", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let one = finish(&[&["run", "--json"], &PACED[..], &job].concat()).with_code(0).json();
    let log = ["--checkpoint-every", "60ms", "--durability", "log", "--state"];
    let mut server = Server::tcp(&[&PACED, &job, &["--servers", "2"], &log, &[&kept("first")]]);
    let state = kept("second");
    let log = [&log[..], &[&state]].concat();
    let (mut other, listen) = second(&server.address, "127.0.0.1:0", &log);
    let workers = server.workers(2);
    let (base, beside) = (["server", "--listen", "127.0.0.1:0"], ["--shard", "2/2", "--resume"]);
    finish(&[&base, &beside[..], &[&state]].concat()).refused(2, &["is in use by another"]);
    for updates in [2, 15, 40] {
        server.wait_for_updates(updates);
        drop(other);
        (other, _) = second(&server.address, &listen, &["--resume", &kept("second")]);
        server.wait_for_updates(updates + 5);
        server = server.replace(&[&["--resume", &kept("first")]]);
    }
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], one["params_sha256"]);
    assert_eq!(left.summary["batches"], one["batches"]);
    check_books(&left.out, &left.summary);
    let said = other.wait().with_code(0).stderr;
    assert!(said.contains("resumed from checkpoint"), "{said}");
    for folder in ["first", "second"] {
        let names = names(Path::new(&kept(folder)));
        let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
        // The last two checkpoints and the logs after them; the initial log was removed long ago.
        assert!(of("checkpoint-") > 0 && of("inputs-") <= 3, "{folder}: {names:?}");
        assert!(!names.contains(&"inputs-0.log".to_owned()), "{folder}: {names:?}");
    }
    let wrong =
        ["server", "--shard", "2/3", "--listen", "127.0.0.1:0", "--resume", &kept("second")];
    finish(&wrong).refused(2, &["is of server 2 of 2", "server 2 of 3"]);
    let resume = ["server", "--listen", "127.0.0.1:0", "--resume"];
    finish(&[&resume[..], &[&kept("second")]].concat()).refused(2, &["--shard K/M"]);
    finish(&[&resume[..], &[&kept("first"), "--shard", "2/2"]].concat())
        .refused(2, &["is of a server that coordinates", "leave --shard out"]);
}

#[test]
fn processes_of_a_group_killed_at_random_moments_do_not_change_the_parameters() {
    let job = ["--epochs", "4", "--workers", "2", "--lease", "2s", "--on-worker-loss", "wait"];
    let one = finish(&[&["run", "--json"], &PACED[..], &job].concat()).with_code(0).json();
    for run in 0..random_runs() {
        let folder = TempDir::new().unwrap();
        let kept = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        // A checkpoint is always under way, sometimes, or never.
        let every = ["1ms", "40ms", "1h"][run as usize % 3];
        let log = ["--checkpoint-every", every, "--durability", "log", "--state"];
        let mut server = Server::tcp(&[&PACED, &job, &["--servers", "2"], &log, &[&kept("first")]]);
        let state = kept("second");
        let how = [&log[..], &[&state]].concat();
        let (mut other, listen) = second(&server.address, "127.0.0.1:0", &how);
        let mut workers = server.workers(2);
        server.status();
        let mut moments = Stream::new(run).fork("kills of a group", 0).rng();
        for _ in 0..3 {
            sleep(Duration::from_millis(moments.below(300)));
            match moments.below(4) {
                0 => server = server.replace(&[&["--resume", &kept("first")]]),
                1 => {
                    drop(other);
                    (other, _) = second(&server.address, &listen, &["--resume", &kept("second")]);
                }
                place => {
                    let place = place as usize - 2;
                    // A restarted worker whose partition is finished is dismissed at once.
                    workers[place] = server.worker(&["--id", &(place + 1).to_string()]);
                }
            }
        }
        let left = server.finish(Vec::new());
        for worker in workers {
            // A worker restarted after the end of the run may find no server.
            let Some(ended) = worker.wait_or_say("try 9 in") else { continue };
            let late = ended.code == Some(1) && ended.stderr.contains("over");
            assert!(ended.code == Some(0) || late, "run {run}: {}", ended.stderr);
        }
        assert_eq!(left.summary["params_sha256"], one["params_sha256"], "run {run}");
        check_books(&left.out, &left.summary);
        // A server restarted after the end of the run may find no coordinator, so its exit is not
        // checked.
        drop(other);
    }
}

#[test]
fn inconsistent_server_groups_are_refused_with_the_reason() {
    let refused = |args: &[&str], words: &[&str]| {
        finish(&[&["server", "--listen", "127.0.0.1:0"], args].concat()).refused(2, words);
    };
    refused(&["--shard", "1/4"], &["server 1 coordinates"]);
    refused(&["--shard", "5/4"], &["K/M"]);
    refused(&["--shard", "2/4", "--epochs", "3"], &["--epochs", "comes from server 1"]);
    refused(&["--servers", "0"], &["servers = 0", "1 to 64"]);
    let times = ["simulate", "--servers", "2", "--model", "timing:10", "--link", "all.delay=1ms"];
    finish(&[&times[..], &["--compute", "1ms"]].concat()).refused(2, &["servers = 2", "times"]);

    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "1", "--servers", "2"]]);
    let shard = ["server", "--listen", "127.0.0.1:0", "--coordinator", &server.address, "--shard"];
    finish(&[&shard[..], &["2/3"]].concat()).refused(1, &["one of 3 servers", "servers = 2"]);
    let worker = server.worker(&[]);
    worker.wait_to_say("server 2 of 2 is not there yet");
    assert_eq!(server.status()["wait"]["reason"], "server 2 to come");

    let nowhere = ["--advertise", "127.0.0.1:1"];
    let (second, listens) = second(&server.address, "127.0.0.1:0", &nowhere);
    second.wait_to_say("--advertise tcp://127.0.0.1:1: it cannot be reached from here");
    let asked = ["status", &listens];
    finish(&asked)
        .refused(2, &["does not coordinate; ask the one that does, at ", &server.address]);
    let words = "no connection: server 2 at tcp://127.0.0.1:1: Connection refused";
    worker.wait_to_say(words);
    let is_known = |status: &Value| status["wait"]["reason"] == "a way to server 2";
    let status = server.wait_for("the worker to say so", is_known);
    assert_eq!(status["servers"][1]["id"], 2, "{status}");
    assert_eq!(status["servers"][1]["address"], "tcp://127.0.0.1:1", "{status}");
    assert_eq!(status["servers"][0]["keys"][1], status["servers"][1]["keys"][0], "{status}");
    assert_eq!(status["workers"][0]["unreached"]["server"], 2, "{status}");
    let why = finish(&["why", &server.address]).with_code(0).stdout;
    let words = ") does not reach server 2 at tcp://127.0.0.1:1, since ";
    assert!(why.starts_with("worker 1 ("), "{why}");
    assert!(why.contains(words) && why.contains("Connection refused"), "{why}");
    // A client that pulls from the missing server gets the same reason.
    let pull = ["pull", &server.address, "--timeout", "200ms"];
    drop(second);
    server.wait_for("it to be gone", |status| status["wait"]["reason"] == "server 2 to come");
    finish(&pull).refused(2, &["did not answer within 200ms: it waits for server 2 to come"]);
    assert!(Path::new(&server.out).exists());
}
