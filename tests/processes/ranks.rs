//! Workers that take their id from the environment of the engine that starts them.

use crate::cluster::{ENDLESS, SLOW, Server, check_undisturbed};
use crate::process::{Process, finish};

const JOB: [&str; 6] = ["--data", "synthetic:2000", "--model", "mlp:16", "--epochs", "2"];

/// Starts a worker of `server` with the environment variables of an engine.
fn worker(server: &Server, rank: &str, variables: &[(&str, &str)]) -> Process {
    let args = ["worker", "--server", &server.address, "--rank", rank, "--data", "synthetic"];
    Process::start_with(&args, variables)
}

#[test]
fn ranks_of_every_engine_map_to_worker_ids() {
    let engines: [(&str, Option<&str>); 6] = [
        ("SLURM_PROCID", Some("SLURM_STEP_NUM_TASKS")),
        ("OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE")),
        ("PMI_RANK", Some("PMI_SIZE")),
        ("PMIX_RANK", None),
        ("RANK", Some("WORLD_SIZE")),
        ("JOB_COMPLETION_INDEX", None),
    ];
    for (rank, size) in engines {
        let server = Server::tcp(&[&JOB]);
        // The last rank starts first, so that no worker gets its id by order of arrival.
        let started = ["1", "0"].map(|number| {
            let variables: Vec<_> =
                [(rank, number)].into_iter().chain(size.map(|it| (it, "2"))).collect();
            let worker = worker(&server, "auto", &variables);
            let place = if number == "1" { 2 } else { 1 };
            worker.wait_to_say(&format!("worker {place} by {rank}={number}"));
            worker.wait_to_say(&format!("worker {place} of 2 in job"));
            worker
        });
        check_undisturbed(&server.finish(started.into()), &[&JOB]);
    }
}

#[test]
fn the_innermost_engine_is_used_unless_one_is_named() {
    let nested = [
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
    ];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "2"]]);
    let inner = worker(&server, "auto", &nested);
    inner.wait_to_say("OMPI_COMM_WORLD_SIZE=2 (further out: SLURM_PROCID=0)");
    inner.wait_to_say("worker 2 of 2 in job");
    let outer = worker(&server, "slurm", &nested).wait();
    outer.refused(2, &["SLURM_STEP_NUM_TASKS=1, but the job has 2 workers", "--workers"]);
}

#[test]
fn a_worker_whose_engine_started_too_many_or_too_few_is_refused_and_its_slot_stays_free() {
    let server = Server::tcp(&[&JOB, &["--workers", "2"]]);
    for (rank, size) in [("0", "3"), ("2", "3"), ("0", "1")] {
        let variables = [("RANK", rank), ("WORLD_SIZE", size)];
        let words =
            [&format!("WORLD_SIZE={size}, but the job has 2 workers")[..], "engine start 2"];
        worker(&server, "auto", &variables).wait().refused(2, &words);
    }
    let words = ["JOB_COMPLETION_INDEX=2, but the job has 2 workers"];
    worker(&server, "auto", &[("JOB_COMPLETION_INDEX", "2")]).wait().refused(2, &words);
    let workers = server.workers(2);
    check_undisturbed(&server.finish(workers), &[&JOB]);
}

#[test]
fn a_worker_without_an_engine_or_with_invalid_ranks_does_not_dial() {
    let args = ["worker", "--server", "127.0.0.1:1", "--rank", "auto"];
    let refused = |variables: &[(&str, &str)], words: &[&str]| {
        Process::start_with(&args, variables).wait().refused(2, words);
    };
    refused(&[], &["RANK and WORLD_SIZE", "JOB_COMPLETION_INDEX not set here", "--id"]);
    // A Slurm batch script has these variables; only its steps have more.
    refused(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")], &["SLURM_STEP_NUM_TASKS", "srun"]);
    refused(&[("RANK", "first"), ("WORLD_SIZE", "2")], &["RANK=first is no whole number"]);
    refused(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")], &["PMI_RANK=2 is not below PMI_SIZE=2"]);
    let both = [&args[..], &["--id", "1"]].concat();
    finish(&both).refused(2, &["--rank", "--id"]);
}
