//! Redundant work with real processes: a killed worker does not change the result, and every run
//! replays to the same bits.

use std::path::Path;

use serde_json::Value;

use crate::books::check_alike;
use crate::cluster::{LONG, Left, Server, number, path};
use crate::process::finish;

/// Mini-batches that take a while, from partitions of different sizes.
const JOB: [&str; 8] = [
    "--data",
    "synthetic:4000",
    "--model",
    "mlp:512",
    "--epochs",
    "6",
    "--partition",
    "sizes:3,4,4,5",
];

/// Reads the parameters of the model in a results folder.
fn parameters(folder: &Path) -> Vec<f32> {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let values = &rest[u64::from_le_bytes(*length) as usize..];
    let (values, rest) = values.as_chunks::<4>();
    assert!(rest.is_empty());
    values.iter().map(|&value| f32::from_le_bytes(value)).collect()
}

/// Returns summary and parameters of the job under plain BSP.
fn plain(folder: &Path) -> (Value, Vec<f32>) {
    let out = folder.join("plain");
    let times = ["--compute", "1ms", "--link", "all.delay=0ms", "--out", path(&out)];
    let run = [&["simulate", "--json", "--workers", "4"], &times[..]].concat();
    let summary = finish(&[&run[..], &JOB].concat()).with_code(0).json();
    (summary, parameters(&out))
}

/// Ends a run of four workers, one of which is killed midway.
#[track_caller]
fn with_one_killed(server: Server) -> Left {
    let mut workers = server.workers(4);
    server.wait_for_updates_of(1, 8);
    drop(workers.remove(1)); // kills it with SIGKILL
    server.finish(workers)
}

#[test]
fn a_worker_killed_under_gradient_coding_changes_rounding_only() {
    let folder = tempfile::tempdir().unwrap();
    let (reference, expected) = plain(folder.path());
    let job = ["--workers", "4", "--redundancy", "cyclic:1", "--lease", "600ms"];
    let server = Server::tcp(&[&JOB, &job]);
    let Left { summary, out, _folder } = with_one_killed(server);
    assert_eq!(summary["updates"], reference["updates"]);
    assert_eq!(summary["samples"], reference["samples"]);
    let found = parameters(&out);
    let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-4 * largest, "{apart} of {largest}");
    check_alike(&out);
}

#[test]
fn the_rest_of_a_killed_workers_shard_is_done_by_the_others() {
    // So slow that the worker is killed in the middle of the run on any machine.
    let data = [&LONG[..], &["--epochs", "6"]].concat();
    for (consistency, from) in [("asp", "worker"), ("bsp", "server")] {
        let job = ["--workers", "4", "--work", "shards:16", "--lease", "600ms"];
        let more = ["--consistency", consistency, "--data-from", from, "--batch-size", "32"];
        let server = Server::tcp(&[&data, &job, &more]);
        let Left { summary, out, _folder } = with_one_killed(server);
        // Under BSP the killed worker may have been waiting at the barrier, so nothing is lost.
        let lost = number(&summary["batches"]["lost"]);
        assert!(lost > 0 || consistency == "bsp", "{summary}");
        assert_eq!(number(&summary["samples"]), 6 * 3000, "{summary}");
        check_alike(&out);
        let log = std::fs::read_to_string(out.join("order.log")).unwrap();
        let gradients = log.lines().skip(1).flat_map(|line| line.split(' ').skip(1));
        let mini_batches = gradients.filter_map(|gradient| {
            let fields: Vec<&str> = gradient.split(',').collect();
            // If a gradient has no partition field, the worker's number is the shard's number.
            Some((*fields.get(7).or_else(|| fields.first())?, *fields.get(3)?))
        });
        let mut mini_batches: Vec<(&str, &str)> = mini_batches.collect();
        let count = mini_batches.len();
        mini_batches.sort_unstable();
        mini_batches.dedup();
        // 3,000 rows in 16 shards of 187 or 188 rows: 6 mini-batches each.
        assert_eq!((mini_batches.len(), count), (6 * 16 * 6, 6 * 16 * 6));
    }
}

#[test]
fn partial_gradients_over_tcp_equal_bsp_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (reference, _) = plain(folder.path());
    let job = ["--workers", "4", "--redundancy", "partial:2", "--compute", "4ms 3.factor=20"];
    let server = Server::tcp(&[&JOB, &job]);
    for worker in server.workers(4) {
        worker.wait().with_code(0);
    }
    let Server { process, out, .. } = server;
    let summary = process.wait().with_code(0).json();
    assert_eq!(summary["params_sha256"], reference["params_sha256"]);
    assert_eq!(summary["samples"], reference["samples"]);
    check_alike(&out);
    // The neighbour of the slow worker did part of its work.
    let updates = |worker: usize| number(&summary["workers"][worker]["updates"]);
    assert!(updates(1) > updates(2), "{summary}");
}

#[test]
fn redundant_runs_in_virtual_time_replay_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for redundancy in ["cyclic:2", "fractional:1", "partial:3"] {
        for aggregation in ["mean", "sum"] {
            let out = folder.path().join(format!("{redundancy}-{aggregation}"));
            let args = [
                &["simulate", "--json", "--workers", "4", "--aggregation", aggregation][..],
                &["--redundancy", redundancy, "--link", "all.delay=1ms"],
                &["--compute", "straggler:2ms,60ms,0.3,0.5"],
                &["--learning-rate", "0.01", "--optimizer", "momentum", "--out", path(&out)],
                &JOB,
            ];
            finish(&args.concat()).with_code(0);
            check_alike(&out);
        }
    }
}

#[test]
fn impossible_redundancy_and_work_settings_are_refused_before_training() {
    for (flags, told) in [
        (["--workers", "4", "--redundancy", "fractional:2"], "groups of 3 workers"),
        (["--workers", "4", "--redundancy", "partial:5"], "must be 1 to 4 here"),
        (["--consistency", "asp", "--redundancy", "cyclic:1"], "needs consistency = bsp"),
        (["--workers", "4", "--redundancy", "cyclic"], "partial:R"),
        (["--workers", "4", "--work", "fast"], "use equal, speed or shards:COUNT"),
        (["--work", "speed", "--budget", "partition"], "needs budget = global"),
        (["--work", "shards:0", "--workers", "2"], "shards:0: COUNT must be 1 to 4096"),
        (["--work", "shards:9", "--budget", "partition"], "needs budget = global"),
        (["--work", "shards:9", "--partition", "by-class"], "needs partition = iid"),
        (["--work", "shards:9", "--consistency", "ringleader"], "than malenia and ringleader"),
        (["--work", "shards:9", "--participation", "share"], "needs participation = plain"),
        (["--work", "shards:4000", "--data", "synthetic:2000"], "at most the 1500 training rows"),
    ] {
        let ended = finish(&[&["simulate", "--compute", "1ms"][..], &flags].concat());
        let ended = ended.with_code(2);
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}
