//! Modelled links and computing times in real time.

use crate::cluster::{Server, number, real};
use crate::process::finish;

const JOB: [&str; 8] = [
    "--data",
    "synthetic:2000",
    "--epochs",
    "1",
    "--link",
    "delay=20ms",
    "--link",
    "down.delay=20ms",
];

/// Updates of [`JOB`]: two partitions of 750 rows make 12 mini-batches of at most 64 each.
const UPDATES: u64 = 12;

#[test]
fn a_run_respects_its_modelled_links_and_reports_the_lateness() {
    for transport in ["memory", "tcp"] {
        let args = ["run", "--json", "--compute", "5ms", "--transport", transport];
        let summary = finish(&[&args[..], &JOB].concat()).with_code(0).json();
        assert_eq!(number(&summary["updates"]), UPDATES);
        assert!(real(&summary["time_s"]) >= 0.045 * UPDATES as f64, "{summary}");
        let shaping = &summary["shaping"];
        // At least two messages per gradient: one up and one down.
        assert!(number(&shaping["messages"]["count"]) >= 4 * UPDATES, "{summary}");
        assert!(real(&shaping["messages"]["late_p99_ms"]) >= 0.0, "{summary}");
        let gradients = number(&shaping["batches"]["count"]) + number(&shaping["overruns"]);
        assert_eq!(gradients, 2 * UPDATES, "{summary}");
    }
    let table = finish(&[&["run"], &JOB[..]].concat()).with_code(0).stdout;
    assert!(table.contains("\nshaping        ") && table.contains(" messages late by "), "{table}");
    let plain = finish(&["run", "--json", "--data", "synthetic:2000", "--epochs", "1"]);
    assert!(plain.with_code(0).json().get("shaping").is_none());
}

#[test]
fn workers_learn_their_links_from_the_server() {
    let server = Server::tcp(&[&JOB, &["--compute", "1.time=5ms"]]);
    let workers = [server.worker(&[]), server.worker(&[])];
    for worker in workers {
        let said = worker.wait().with_code(0).stderr;
        assert!(said.contains("; ") && said.contains(" messages late by "), "{said}");
    }
    let summary = server.process.wait().with_code(0).json();
    assert!(real(&summary["time_s"]) >= 0.045 * UPDATES as f64, "{summary}");
}

#[test]
fn settings_of_virtual_time_and_unknown_links_are_refused_in_real_time() {
    for command in ["run", "server"] {
        let args = [command, "--data", "synthetic:2000", "--faults", "1.crash@10s"];
        finish(&args).refused(2, &["faults", "1.crash@10s", "virtual time", "pstrain simulate"]);
    }
    finish(&["run", "--link", "1.dela=5ms"]).refused(2, &["--link", "did you mean delay?"]);
    finish(&["run", "--link", "3.delay=5ms"]).refused(2, &["3.up.delay=5ms", "1 to 2"]);
}
