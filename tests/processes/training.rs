//! The same job gives the same bits with any transport, process layout and data source.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use serde_json::Value;

use crate::books::check_books;
use crate::cluster::{Server, check_undisturbed, number, path, real};
use crate::process::finish;

const JOB: [&str; 4] = ["--data", "synthetic:4000", "--epochs", "4"];

/// Checks that a summary is complete and describes a whole run of [`JOB`].
fn check_summary(summary: &Value) {
    assert!(real(&summary["accuracy"]) > 0.85, "{summary}");
    assert!(real(&summary["loss"]) < 1.0, "{summary}");
    // Two partitions of 1500 rows make 24 mini-batches of at most 64 each.
    assert_eq!(number(&summary["updates"]), 4 * 24, "{summary}");
    assert_eq!(number(&summary["samples"]), 4 * 3000, "{summary}");
    assert_eq!(real(&summary["epochs"]), 4.0, "{summary}");
    assert!(real(&summary["time_s"]) > 0.0 && real(&summary["samples_per_s"]) > 0.0, "{summary}");
    for (field, value) in [("mean", 0.0), ("p99", 0.0), ("max", 0.0)] {
        assert_eq!(real(&summary["staleness"][field]), value, "BSP is never stale: {summary}");
    }
    let digest = summary["params_sha256"].as_str().unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{digest}");
    let workers = summary["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2);
    for (id, worker) in (1..).zip(workers) {
        assert_eq!(number(&worker["id"]), id, "{worker}");
        assert_eq!(number(&worker["updates"]), 4 * 24, "{worker}");
        assert_eq!(number(&worker["samples"]), 4 * 1500, "{worker}");
        for field in ["compute_s", "communicate_s", "wait_s"] {
            assert!(real(&worker[field]) >= 0.0, "{worker}");
        }
        assert!(real(&worker["compute_s"]) > 0.0, "{worker}");
    }
}

/// Returns the digest of the parameters at the end of a `run`.
fn digest_of_run(args: &[&str]) -> String {
    let args = [&["run", "--json"], args].concat();
    digest(&finish(&args).with_code(0).json())
}

fn digest(summary: &Value) -> String {
    summary["params_sha256"].as_str().unwrap().to_owned()
}

/// Trains with workers of these flags; returns the summary of `server`.
fn train(server: Server, workers: &[&[&str]]) -> Value {
    let workers: Vec<_> = workers.iter().map(|args| server.worker(args)).collect();
    for worker in workers {
        let ended = worker.wait().with_code(0);
        assert!(ended.stderr.contains("done: the budget is used up"), "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    }
    server.process.wait().with_code(0).json()
}

#[test]
fn every_transport_and_separate_processes_end_with_the_same_parameters() {
    let mut digests = Vec::new();
    for transport in ["memory", "unix", "tcp"] {
        let args = [&["run", "--json", "--transport", transport], &JOB[..]].concat();
        let ended = finish(&args).with_code(0);
        // --json is quiet, but for this.
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("nothing of this run is kept: --out DIR"),
            "{}",
            ended.stderr
        );
        let summary = ended.json();
        check_summary(&summary);
        assert_eq!(summary["transport"], transport);
        digests.push(digest(&summary));
    }
    for server in [Server::tcp(&[&JOB]), Server::unix(&[&JOB])] {
        // The claimed ids contradict the order of arrival.
        let summary = train(server, &[&["--id", "2"], &["--id", "1"]]);
        check_summary(&summary);
        digests.push(digest(&summary));
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[test]
fn workers_may_get_their_data_from_the_server() {
    let wanted = digest_of_run(&JOB);
    // First one worker asks for it, then the job sets it for all.
    let summary = train(Server::tcp(&[&JOB]), &[&["--data", "server"], &["--data", "synthetic"]]);
    assert_eq!(digest(&summary), wanted);
    let server = Server::unix(&[&JOB, &["--data-from", "server"]]);
    assert_eq!(digest(&train(server, &[&[], &[]])), wanted);
}

#[test]
fn server_and_workers_read_plain_and_compressed_files() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("synth.csv");
    let synth = ["data", "synth", "--rows", "4000", "--out", path(&plain)];
    let ended = finish(&synth).with_code(0);
    assert!(ended.stderr.contains("wrote 4,000 rows"), "{}", ended.stderr);
    finish(&synth).refused(2, &["synth.csv", "is there already", "--overwrite"]);
    let (gz, xz) = pack(&plain);
    let plain = path(&plain);
    let epochs = ["--epochs", "4"];
    let wanted = digest_of_run(&[&["--data", plain], &epochs[..]].concat());
    for copy in [path(folder.path()), path(&gz), path(&xz)] {
        assert_eq!(digest_of_run(&[&["--data", copy], &epochs[..]].concat()), wanted, "{copy}");
    }
    // The file's rows equal `synthetic:4000`.
    assert_eq!(digest_of_run(&JOB), wanted);
    let server = Server::tcp(&[&["--data", plain], &epochs]);
    let summary = train(server, &[&["--data", path(&gz)], &["--data", path(&xz)]]);
    check_summary(&summary);
    assert_eq!(digest(&summary), wanted);
}

/// Compresses `plain` with gzip and xz.
fn pack(plain: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let bytes = fs::read(plain).unwrap();
    let (gz, xz) = (plain.with_extension("packed.gz"), plain.with_extension("packed.xz"));
    let mut packer = GzEncoder::new(File::create(&gz).unwrap(), flate2::Compression::fast());
    packer.write_all(&bytes).unwrap();
    packer.finish().unwrap();
    let options = XzOptions::with_preset(0);
    let mut packer = XzWriter::new(File::create(&xz).unwrap(), options).unwrap();
    packer.write_all(&bytes).unwrap();
    packer.finish().unwrap();
    (gz, xz)
}

#[test]
fn a_worker_without_the_data_file_advises_how_to_get_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    finish(&["data", "synth", "--rows", "400", "--out", path(&file)]).with_code(0);
    let server = Server::tcp(&[&["--data", path(&file), "--workers", "1"]]);
    let lost = server.worker(&[]).wait();
    lost.refused(2, &["rows.csv", "--data PATH", "--data server"]);
    // The worker slot is free again.
    assert_eq!(number(&train(server, &[&["--data", "server"]])["samples"]), 3000);
}

#[test]
fn a_server_that_keeps_no_rows_trains_identically_and_refuses_to_send_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    finish(&["data", "synth", "--rows", "400", "--out", path(&file)]).with_code(0);
    let (gz, _) = pack(&file);
    for own in [path(&file), path(&gz)] {
        let job = ["--data", own, "--data-from", "own", "--epochs", "4"];
        let server = Server::tcp(&[&job]);
        let without = server.worker(&[]).wait();
        assert!(!without.stderr.contains("--data server"), "{}", without.stderr);
        without.refused(2, &["give its copy here with --data PATH"]);
        let asks = server.worker(&["--data", "server"]).wait();
        asks.refused(1, &["keeps no rows to send", "data-from = own", "--data PATH"]);
        let workers = [path(&file), path(&gz)].map(|copy| server.worker(&["--data", copy]));
        check_undisturbed(&server.finish(workers.into()), &[&job]);
    }
}

#[test]
fn asp_and_ssp_runs_have_consistent_records() {
    for consistency in ["asp", "ssp:1", "ssp:0"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut args = vec!["run", "--json", "--transport", "tcp", "--workers", "3"];
        args.extend(["--consistency", consistency, "--exchange", "separate"]);
        args.extend(["--out", path(&out)]);
        args.extend(JOB);
        let summary = finish(&args).with_code(0).json();
        assert_eq!(summary["consistency"], consistency);
        assert!(number(&summary["samples"]) >= 4 * 3000, "{summary}");
        let (mean, max) = (&summary["staleness"]["mean"], &summary["staleness"]["max"]);
        assert!(real(mean) <= real(max), "{summary}");
        check_books(&out, &summary);
    }
}

#[test]
fn a_schedule_over_the_run_is_the_one_of_its_updates() {
    let cluster = ["--workers", "3", "--batch-size", "50"];
    for consistency in ["bsp", "asp", "k-sync:2"] {
        let run = |schedule: &str| {
            let job = ["simulate", "--json", "--consistency", consistency, "--schedule", schedule];
            let network = ["--link", "all.delay=1ms", "--compute", "2ms"];
            finish(&[&job[..], &network, &JOB, &cluster].concat()).with_code(0).json()
        };
        let whole = run("cosine-run");
        let updates = number(&whole["updates"]);
        assert_eq!(digest(&run(&format!("cosine:{updates}"))), digest(&whole), "{consistency}");
        let warm = run(&format!("cosine-run:0,0.1,{updates}"));
        assert_eq!(digest(&run("cosine-run:0,0.1")), digest(&warm), "{consistency}");
        assert_ne!(digest(&warm), digest(&whole), "{consistency}");
    }
}
