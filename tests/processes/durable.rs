//! Servers that are killed and begin anew with all that was acknowledged.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use pstrain_core::rng::Stream;
use tempfile::TempDir;

use crate::books::check_books;
use crate::cluster::{ENDLESS, Left, SLOW, Server, number, path};
use crate::process::{Ended, finish};

/// Starts a durable server, lets it be killed after each of so many updates, and waits for the end.
fn killed_after(updates: &[u64], folder: &TempDir, parts: &[&[&str]]) -> Left {
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[parts, &[&durable]].concat());
    let workers = server.workers(2);
    for &updates in updates {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept), "--overwrite"]]);
    }
    server.finish(workers)
}

#[test]
fn bsp_with_a_server_that_is_killed_again_and_again_has_the_parameters_of_one_that_is_not() {
    let folder = TempDir::new().unwrap();
    let job = ["--epochs", "5", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let undisturbed = finish(&[&["run", "--json"], &SLOW[..], &job].concat()).with_code(0).json();
    let left = killed_after(&[1, 20, 50], &folder, &[&SLOW, &job]);
    assert_eq!(left.summary["params_sha256"], undisturbed["params_sha256"]);
    assert_eq!(left.summary["batches"], undisturbed["batches"]);
    check_books(&left.out, &left.summary);
}

#[test]
fn asp_with_a_server_that_is_killed_applies_each_gradient_once() {
    let folder = TempDir::new().unwrap();
    let job = ["--epochs", "5", "--workers", "2", "--consistency", "asp", "--lease", "2s"];
    let Left { out, summary, _folder } = killed_after(&[5, 30], &folder, &[&SLOW, &job]);
    check_books(&out, &summary);
    assert_eq!(number(&summary["batches"]["lost"]), 0, "{summary}");
    let again = finish(&["replay", path(&out.join("order.log")), "--json"]).with_code(0).json();
    assert_eq!((&again["identical"], &again["complete"]), (&true.into(), &true.into()), "{again}");
}

/// `PSTRAIN_KILLS` runs, or a few.
#[test]
fn a_server_killed_at_random_moments_loses_nothing_and_repeats_nothing() {
    let runs = env::var("PSTRAIN_KILLS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(4);
    let job = ["--epochs", "4", "--workers", "2", "--lease", "2s"];
    let undisturbed = finish(&[&["run", "--json"], &SLOW[..], &job].concat()).with_code(0).json();
    for run in 0..runs {
        let folder = TempDir::new().unwrap();
        let kept = folder.path().join("kept");
        let durable = ["--durability", "log", "--state", path(&kept)];
        let consistency = ["--consistency", if run % 2 == 0 { "bsp" } else { "asp" }];
        let mut server = Server::tcp(&[&SLOW, &job, &consistency, &durable]);
        let workers = server.workers(2);
        // Before it answers there is nothing to go on with.
        server.status();
        let mut moments = Stream::new(run).fork("kills", 0).rng();
        for _ in 0..3 {
            sleep(Duration::from_millis(moments.below(250)));
            server = server.replace(&[&["--resume", path(&kept), "--overwrite"]]);
        }
        let Left { out, summary, _folder } = server.finish(workers);
        check_books(&out, &summary);
        assert_eq!(number(&summary["batches"]["lost"]), 0, "run {run}: {summary}");
        if run % 2 == 0 {
            assert_eq!(summary["params_sha256"], undisturbed["params_sha256"], "run {run}");
        }
    }
}

#[test]
fn a_run_that_had_finished_says_once_more_how() {
    let folder = TempDir::new().unwrap();
    let job = ["--epochs", "1", "--workers", "2", "--data", "synthetic:2000"];
    let left = killed_after(&[], &folder, &[&job]);
    let kept = folder.path().join("kept");
    let again = resume(&kept, &["--json"]).with_code(0).json();
    assert_eq!(again["params_sha256"], left.summary["params_sha256"]);
    assert_eq!(again["batches"], left.summary["batches"]);
}

/// What is kept of a run that was killed.
fn kept(folder: &TempDir) -> PathBuf {
    let kept = folder.path().join("kept");
    let log = ["--durability", "log", "--state", path(&kept)];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "1"], &log]);
    let _workers = server.workers(1);
    server.wait_for_updates(3);
    drop(server);
    kept
}

fn resume(kept: &Path, more: &[&str]) -> Ended {
    let base = ["server", "--listen", "127.0.0.1:0", "--resume", path(kept)];
    finish(&[&base[..], more].concat())
}

#[test]
fn what_cannot_be_resumed_is_said_and_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let kept = kept(&folder);
    resume(&kept, &["--epochs", "7"]).refused(2, &["--epochs", "leave it out"]);
    resume(folder.path(), &[]).refused(2, &["holds no run", "--durability log"]);
    finish(&["server", "--durability", "log"]).refused(2, &["--state"]);
    let again =
        ["server", "--listen", "127.0.0.1:0", "--durability", "log", "--state", path(&kept)];
    finish(&again).refused(2, &["holds a run already", "--resume"]);

    let log = kept.join("inputs.log");
    let whole = fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    fs::write(&log, &damaged).unwrap();
    resume(&kept, &[]).refused(2, &["inputs.log is damaged at byte", "backup"]);
    assert_eq!(fs::read(&log).unwrap(), damaged);
    fs::write(&log, "something else").unwrap();
    resume(&kept, &[]).refused(2, &["inputs.log is no log"]);
    fs::write(&log, &whole).unwrap();
    fs::write(kept.join("run.json"), "{}").unwrap();
    resume(&kept, &[]).refused(2, &["run.json is not what a server wrote"]);
}
