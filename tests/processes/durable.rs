//! Durable servers are killed and resume with everything that they acknowledged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::books::{check_alike, check_books};
use crate::cluster::{ENDLESS, Left, PACED, SLOW, Server, names, number, path, real, undisturbed};
use crate::process::{Ended, Process, eventually, finish, random_runs};
use crate::small_disk::SmallDisk;

/// Checkpoints so frequent that every run takes some.
const OFTEN: [&str; 2] = ["--checkpoint-every", "60ms"];
/// Checkpoints so rare that no run takes any.
const NEVER: [&str; 2] = ["--checkpoint-every", "1h"];

/// Column of the class in an NSL-KDD record.
const CLASS: usize = 41;

/// Starts a server with a log, kills it after each of these updates, and waits for the end.
fn killed_after(updates: &[u64], folder: &TempDir, parts: &[&[&str]]) -> Left {
    let kept = folder.path().join("kept");
    let durable = ["--durability", "log", "--state", path(&kept)];
    let mut server = Server::tcp(&[parts, &[&durable]].concat());
    let workers = server.workers(2);
    for &updates in updates {
        server.wait_for_updates(updates);
        server = server.replace(&[&["--resume", path(&kept)]]);
    }
    server.finish(workers)
}

#[test]
fn bsp_with_a_repeatedly_killed_server_ends_at_the_parameters_of_an_undisturbed_run() {
    let job = ["--epochs", "5", "--workers", "2", "--optimizer", "momentum", "--lease", "2s"];
    let out = TempDir::new().unwrap();
    let undisturbed = ["run", "--json", "--transport", "tcp", "--out", path(out.path())];
    let undisturbed = finish(&[&undisturbed, &PACED[..], &job].concat()).with_code(0).json();
    for often in [OFTEN, NEVER] {
        let folder = TempDir::new().unwrap();
        let left = killed_after(&[1, 20, 50], &folder, &[&PACED, &job, &often]);
        assert_eq!(left.summary["params_sha256"], undisturbed["params_sha256"]);
        assert_eq!(left.summary["batches"], undisturbed["batches"]);
        check_books(&left.out, &left.summary);
        // The records equal the undisturbed run's line by line, although part of the log was
        // replayed.
        let order = |folder: &Path| fs::read_to_string(folder.join("order.log")).unwrap();
        assert_eq!(order(&left.out), order(out.path()));
        assert_eq!(course(&left.out), course(out.path()));
        let has_checkpoint = |name: &String| name.starts_with("checkpoint-");
        let kept = names(&folder.path().join("kept"));
        assert_eq!(kept.iter().any(has_checkpoint), often == OFTEN, "{kept:?}");
    }
}

/// Returns the curve without its times.
fn course(folder: &Path) -> Vec<Vec<String>> {
    let mut curve = csv::Reader::from_path(folder.join("curve.csv")).unwrap();
    let row = |row: csv::StringRecord| [0, 1, 2, 4, 5].map(|field| row[field].to_owned()).to_vec();
    curve.records().map(|record| row(record.unwrap())).collect()
}

#[test]
fn asp_with_a_killed_server_applies_each_gradient_once() {
    for often in [OFTEN, NEVER] {
        let folder = TempDir::new().unwrap();
        let job = ["--epochs", "5", "--workers", "2", "--consistency", "asp", "--lease", "2s"];
        let left = killed_after(&[5, 30], &folder, &[&PACED, &job, &often]);
        let Left { out, summary, _folder } = left;
        check_books(&out, &summary);
        assert_eq!(number(&summary["batches"]["lost"]), 0, "{summary}");
        check_alike(&out);
    }
}

#[test]
fn a_server_killed_at_random_moments_loses_nothing_and_repeats_nothing() {
    let job = ["--epochs", "4", "--workers", "2", "--lease", "2s"];
    let undisturbed = undisturbed(&[&PACED, &job]);
    for run in 0..random_runs() {
        let folder = TempDir::new().unwrap();
        let kept = folder.path().join("kept");
        let durable = ["--durability", "log", "--state", path(&kept)];
        let consistency = ["--consistency", if run % 2 == 0 { "bsp" } else { "asp" }];
        // A checkpoint is always under way, sometimes, or never.
        let every = ["1ms", "40ms", "1h"][run as usize / 2 % 3];
        let every = ["--checkpoint-every", every];
        let mut server = Server::tcp(&[&PACED, &job, &consistency, &durable, &every]);
        let workers = server.workers(2);
        // Before the server answers, its folder holds nothing to resume from.
        server.status();
        let mut moments = Stream::new(run).fork("kills", 0).rng();
        for _ in 0..3 {
            sleep(Duration::from_millis(moments.below(250)));
            server = server.replace(&[&["--resume", path(&kept)]]);
        }
        let Left { out, summary, _folder } = server.finish(workers);
        check_books(&out, &summary);
        assert_eq!(number(&summary["batches"]["lost"]), 0, "run {run}: {summary}");
        if run % 2 == 0 {
            assert_eq!(summary["params_sha256"], undisturbed["params_sha256"], "run {run}");
        }
    }
}

/// The log's end is lost by a lying disk, by damage at the end of the file, or by a restored copy.
#[test]
fn workers_ahead_of_a_log_with_a_lost_end_prove_it_and_rejoin_as_new_incarnations() {
    let job = ["--epochs", "12", "--workers", "2", "--lease", "2s", "--exchange", "separate"];
    for restores in [false, true] {
        let folder = TempDir::new().unwrap();
        let (kept, copy) = (folder.path().join("kept"), folder.path().join("copy"));
        let durable = ["--durability", "log", "--state", path(&kept)];
        let server = Server::tcp(&[&PACED, &job, &durable, &NEVER]);
        let workers = server.workers(2);
        server.wait_for_updates(10);
        server.process.signal(Signal::STOP);
        fs::create_dir(&copy).unwrap();
        for name in names(&kept) {
            fs::copy(kept.join(&name), copy.join(&name)).unwrap();
        }
        server.process.signal(Signal::CONT);
        if restores {
            let updates = number(&server.status()["updates"]);
            server.wait_for_updates(updates + 4);
        } else {
            let log = copy.join("inputs-0.log");
            let length = fs::metadata(&log).unwrap().len();
            let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
            file.set_len(length - length / 3).unwrap();
        }
        let server = server.replace(&[&["--resume", path(&copy)]]);
        let said = server.process.wait_to_say("was answered what the log here does not have");
        assert!(!said.contains("never acknowledged"), "{said}");
        assert!(restores || said.contains("which are no whole record"), "{said}");
        let Left { out, summary, _folder } = server.finish(workers);
        check_books(&out, &summary);
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
    }
}

#[test]
fn with_checkpoints_alone_everything_after_the_last_checkpoint_is_lost_as_a_whole() {
    for consistency in ["bsp", "asp", "buffered:3"] {
        let folder = TempDir::new().unwrap();
        let kept = folder.path().join("kept");
        let job = ["--epochs", "8", "--workers", "2", "--consistency", consistency];
        let durable = ["--durability", "checkpoint", "--state", path(&kept), "--lease", "2s"];
        let mut server = Server::tcp(&[&PACED, &job, &durable, &OFTEN]);
        // Workers without an explicit id must get their old slot back.
        let workers = vec![server.worker(&[]), server.worker(&[])];
        for updates in [20, 40, 60] {
            server.wait_for_updates(updates);
            server = server.replace(&[&["--resume", path(&kept)]]);
        }
        let Left { out, summary, _folder } = server.finish(workers);
        check_books(&out, &summary);
        let batches = |name: &str| number(&summary["batches"][name]);
        let ended = batches("applied") + batches("discarded") + batches("lost");
        assert_eq!(batches("assigned"), ended, "{summary}");
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        assert!(real(&summary["accuracy"]) > 0.9, "{summary}");
        // The records hold exactly the updates that made the parameters.
        check_alike(&out);
        assert!(names(&kept).iter().all(|name| !name.starts_with("inputs")), "{:?}", names(&kept));
    }
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_previous_one_is_used() {
    let folder = TempDir::new().unwrap();
    let kept = folder.path().join("kept");
    let job = ["--epochs", "8", "--workers", "2", "--lease", "2s"];
    let undisturbed = undisturbed(&[&PACED, &job]);
    let durable = ["--durability", "log", "--state", path(&kept)];
    let server = Server::tcp(&[&PACED, &job, &durable, &OFTEN]);
    let workers = server.workers(2);
    // The folder exists once the server answers.
    server.status();
    let checkpoints = || -> Vec<PathBuf> {
        let is_one = |name: &String| name.starts_with("checkpoint") && !name.ends_with(".new");
        names(&kept).into_iter().filter(is_one).map(|name| kept.join(name)).collect()
    };
    eventually("second checkpoint", || (checkpoints().len() >= 2).then_some(()));
    server.process.signal(Signal::STOP);
    // The stopped server still owns the folder; a second writer would lose acknowledged gradients.
    in_use(&kept, &["--resume", path(&kept)]);
    in_use(&kept, &durable);
    in_use(&kept, &["--durability", "checkpoint", "--state", path(&kept)]);
    // Copies the disk as it is now, while no process changes it.
    let (whole, all) = (folder.path().join("whole"), checkpoints());
    fs::create_dir(&whole).unwrap();
    for name in names(&kept) {
        fs::copy(kept.join(&name), whole.join(&name)).unwrap();
    }
    let damage = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        fs::write(path, bytes).unwrap();
    };
    let newest = all.iter().max_by_key(|path| number_of(path)).unwrap();
    damage(newest);
    let server = server.replace(&[&["--resume", path(&kept)]]);
    let name = newest.file_name().unwrap().to_str().unwrap();
    let said = server.process.wait_to_say("resumed from");
    assert!(said.contains(&format!("{name} is damaged")), "{said}");
    let left = server.finish(workers);
    assert_eq!(left.summary["params_sha256"], undisturbed["params_sha256"]);

    // A file is not accepted under another file's name, even if undamaged.
    let is_log = |name: &String| name.starts_with("inputs");
    let mut logs: Vec<PathBuf> =
        names(&whole).into_iter().filter(is_log).map(|name| whole.join(name)).collect();
    logs.sort_by_key(|path| number_of(path));
    rotated(&logs, || {
        resume(&whole, &[]).refused(2, &["that of another run or of another checkpoint"]);
    });
    // The initial log alone would suffice to resume; it may not have been removed yet.
    drop(fs::remove_file(whole.join("inputs-0.log")));
    let all: Vec<PathBuf> = all.iter().map(|path| whole.join(path.file_name().unwrap())).collect();
    rotated(&all, || {
        resume(&whole, &[]).refused(2, &["that of another run or another number"]);
    });

    // Without any undamaged checkpoint there is nothing to resume from.
    all.iter().for_each(|path| damage(path));
    let ended = resume(&whole, &[]);
    assert_eq!(ended.stderr.matches("no other to continue from").count(), 1, "{}", ended.stderr);
    ended.refused(2, &["is damaged", "restore it from a backup"]);
}

/// Checks that a server with these flags is refused because `folder` is in use.
#[track_caller]
fn in_use(folder: &Path, flags: &[&str]) {
    let words = format!("{} is in use by another pstrain process", folder.display());
    finish(&[&["server", "--listen", "127.0.0.1:0"], flags].concat()).refused(2, &[&words]);
}

/// Calls `look` while each file has the content of the next.
fn rotated(paths: &[PathBuf], look: impl FnOnce()) {
    let files: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    let write = |from: usize| {
        for (path, bytes) in paths.iter().zip(files.iter().cycle().skip(from)) {
            fs::write(path, bytes).unwrap();
        }
    };
    write(1);
    look();
    write(0);
}

/// Returns the number in a file's name.
fn number_of(path: &Path) -> u64 {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn resuming_a_finished_run_prints_its_summary_again() {
    let folder = TempDir::new().unwrap();
    let job = ["--epochs", "1", "--workers", "2", "--data", "synthetic:2000"];
    let left = killed_after(&[], &folder, &[&job]);
    let kept = folder.path().join("kept");
    let again = resume(&kept, &["--json"]).with_code(0).json();
    assert_eq!(again["params_sha256"], left.summary["params_sha256"]);
    assert_eq!(again["batches"], left.summary["batches"]);
}

/// Returns the state folder of a killed run.
fn kept(folder: &TempDir) -> PathBuf {
    kept_as(folder, "log")
}

fn kept_as(folder: &TempDir, durability: &str) -> PathBuf {
    let kept = folder.path().join("kept");
    let state = ["--durability", durability, "--state", path(&kept)];
    let server = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "1"], &state]);
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
fn a_server_with_an_unwritable_log_ends_at_a_signal_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let kept = folder.path().join("kept");
    let log = ["--durability", "log", "--state", path(&kept)];
    // To its writer, a file that may not grow looks like a full disk.
    let full = ["sh", "-c", "trap '' XFSZ; ulimit -f 300; exec \"$0\" \"$@\""];
    let parts: [&[&str]; 4] = [&ENDLESS, &["--workers", "1"], &log, &NEVER];
    let server = Server::under(&full, "127.0.0.1:0", &parts);
    let _workers = server.workers(1);
    server.process.wait_to_say("nothing is acknowledged until it can be");
    server.process.signal(Signal::TERM);
    let ended = server.process.wait();
    let words = ["inputs-0.log cannot be written", "free some space and continue with --resume"];
    ended.refused(2, &words);
    let server = Process::start(&["server", "--listen", "127.0.0.1:0", "--resume", path(&kept)]);
    server.wait_to_say("resumed after ");
}

/// Starts a server that keeps its log in the folder `kept` of a small disk, and its two workers.
/// Their gradients are long, so that few updates fill the disk.
fn logging_on(disk: &SmallDisk, kept: &Path) -> (Server, Vec<Process>) {
    let log = ["--durability", "log", "--state", path(kept), "--model", "mlp:16"];
    let parts: [&[&str]; 4] = [&ENDLESS, &["--workers", "2"], &log, &NEVER];
    let server = Server::under(&disk.under(), "127.0.0.1:0", &parts);
    let workers = server.workers(2);
    (server, workers)
}

#[test]
#[cfg_attr(not(namespaces), ignore = "needs root: a disk of its own")]
fn a_log_on_a_small_disk_never_fills_it() {
    let disk = SmallDisk::mount();
    let kept = disk.path().join("kept");
    let (server, workers) = logging_on(&disk, &kept);
    // An update has two gradients of 2 KB or more each.
    server.wait_for_updates(1500);
    server.process.signal(Signal::INT);
    for worker in workers {
        worker.wait().with_code(3);
    }
    let ended = server.process.wait().with_code(3);
    assert!(!ended.stderr.contains("cannot be written"), "{}", ended.stderr);
    let summary = ended.json();
    assert!(number(&summary["workers"][0]["pushed_bytes"]) > 3_000_000, "{summary}");
}

#[test]
#[cfg_attr(not(namespaces), ignore = "needs root: a disk of its own")]
fn a_server_resumed_on_a_full_small_disk_continues_once_space_is_free_and_never_fills_it() {
    let disk = SmallDisk::mount();
    let kept = disk.path().join("kept");
    let (server, workers) = logging_on(&disk, &kept);
    // By then the logs have reached their share of the disk: the resumed server checkpoints at
    // once.
    server.wait_for_updates(150);
    server.process.signal(Signal::STOP);
    disk.fill();
    let server = server.replace(&[&["--resume", path(&kept)]]);
    server.process.wait_to_say("no checkpoint: ");
    server.process.wait_to_say("nothing is acknowledged until it");
    disk.free();
    let said = server.process.wait_to_say("checkpoints can be written again");
    server.wait_for_updates(1200);
    server.process.signal(Signal::INT);
    for worker in workers {
        worker.wait().with_code(3);
    }
    let ended = server.process.wait().with_code(3);
    let since = ended.stderr.strip_prefix(&said).unwrap();
    assert!(!since.contains("cannot be written"), "{since}");
}

#[test]
fn a_resumed_server_of_checkpoints_refuses_to_replicate() {
    let folder = TempDir::new().unwrap();
    let kept = kept_as(&folder, "checkpoint");
    resume(&kept, &["--replicate", "pushes"]).refused(2, &["--replicate", "takes no standby"]);
}

#[test]
fn a_resumed_server_does_not_repeat_earlier_messages() {
    let folder = TempDir::new().unwrap();
    let kept = kept(&folder);
    let server = Process::start(&["server", "--listen", "127.0.0.1:0", "--resume", path(&kept)]);
    let said = server.wait_to_say("resumed after ");
    assert!(!said.contains("worker 1 is ") && !said.contains("training begins"), "{said}");
}

#[test]
fn a_named_pipe_in_a_state_folder_is_refused() {
    let folder = TempDir::new().unwrap();
    let kept = kept(&folder);
    for name in ["lock", "run.json", "job.toml", "inputs-0.log"] {
        let (place, aside) = (kept.join(name), folder.path().join(name));
        fs::rename(&place, &aside).unwrap();
        assert!(Command::new("mkfifo").arg(&place).status().unwrap().success());
        resume(&kept, &[]).refused(2, &[name, "is not an ordinary file"]);
        fs::rename(&aside, &place).unwrap();
    }
    assert!(
        Command::new("mkfifo")
            .arg(kept.join("checkpoint-9.safetensors"))
            .status()
            .unwrap()
            .success()
    );
    let server = Process::start(&["server", "--listen", "127.0.0.1:0", "--resume", path(&kept)]);
    let said = server.wait_to_say("resumed");
    assert!(said.contains("checkpoint-9.safetensors is not an ordinary file"), "{said}");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    resume(&pipe, &[]).refused(2, &[path(&pipe), "holds no run"]);
}

#[test]
fn a_resumed_server_does_not_append_to_the_records_of_another_run() {
    let folder = TempDir::new().unwrap();
    let [kept, own, other] = ["kept", "own", "other"].map(|name| folder.path().join(name));
    let whole = ["run", "--data", "synthetic:2000", "--epochs", "9", "--out", path(&other)];
    finish(&whole).with_code(0);
    let records = || ["order.log", "curve.csv"].map(|name| fs::read(other.join(name)).unwrap());
    let whole = records();
    let log = ["--durability", "log", "--checkpoint-every", "1ms", "--state", path(&kept)];
    let job = ["server", "--listen", "127.0.0.1:0", "--workers", "1", "--out", path(&own)];
    let server = Process::start(&[&job[..], &SLOW, &ENDLESS, &log].concat());
    let said = server.wait_to_say("listening on ");
    let address = said.split("listening on ").nth(1).unwrap().split_whitespace().next().unwrap();
    let _worker = Process::start(&["worker", "--server", address]);
    eventually("a checkpoint", || {
        let mut names = fs::read_dir(&kept).ok()?.map(|entry| entry.unwrap().file_name());
        names.find(|name| name.to_str().unwrap().ends_with("safetensors"))
    });
    drop(server);
    resume(&kept, &["--out", path(&other)]).refused(2, &[path(&own), "leave it out"]);
    assert!(records() == whole, "the records of another run were cut off");
}

#[test]
fn a_run_does_not_resume_with_other_data_or_another_job() {
    let folder = TempDir::new().unwrap();
    let [data, kept] = ["data.csv", "kept"].map(|name| folder.path().join(name));
    finish(&["data", "synth", "--rows", "400", "--out", path(&data)]).with_code(0);
    let log = ["--durability", "log", "--state", path(&kept), "--data", path(&data)];
    // Without a checkpoint, only the run's initial data and job identify it.
    let server =
        Server::tcp(&[&["--batch-size", "8"], &ENDLESS, &["--workers", "1"], &log, &NEVER]);
    let _worker = server.worker(&["--data", path(&data)]);
    server.wait_for_updates(3);
    drop(server);
    let rows = fs::read_to_string(&data).unwrap();
    let fewer: String = rows.lines().skip(10).flat_map(|line| [line, "\n"]).collect();
    fs::write(&data, fewer).unwrap();
    resume(&kept, &[]).refused(2, &["data.csv) are not those", "where the job has", "put"]);
    // Change the class of one row after the other until an evaluation row is hit.
    let evaluated = (0..rows.lines().count()).any(|changed| {
        let line = |(number, line): (usize, &str)| {
            let mut fields: Vec<&str> = line.split(',').collect();
            if number == changed {
                fields[CLASS] = if fields[CLASS] == "normal" { "neptune" } else { "normal" };
            }
            fields.join(",") + "\n"
        };
        fs::write(&data, rows.lines().enumerate().map(line).collect::<String>()).unwrap();
        let ended = resume(&kept, &[]);
        let is_evaluated_with = ended.stderr.contains("other evaluation rows");
        ended.refused(2, &["data.csv) are not those"]);
        is_evaluated_with
    });
    assert!(evaluated, "no row was one of those that are evaluated with");
    fs::write(&data, rows).unwrap();
    let job = kept.join("job.toml");
    let lines = fs::read_to_string(&job).unwrap();
    let other = lines.replace("batch-size = 8", "batch-size = 9");
    assert_ne!(other, lines);
    fs::write(&job, other).unwrap();
    resume(&kept, &[]).refused(2, &["job.toml is not the one that the run began with"]);
}

#[test]
fn a_folder_that_cannot_be_resumed_is_refused_and_left_unchanged() {
    let folder = TempDir::new().unwrap();
    let kept = kept(&folder);
    let out = folder.path().join("out");
    let resume =
        |kept: &Path, more: &[&str]| resume(kept, &[more, &["--out", path(&out)]].concat());
    resume(&kept, &["--epochs", "7"]).refused(2, &["--epochs", "leave it out"]);
    resume(folder.path(), &[]).refused(2, &["holds no run", "--durability log"]);
    finish(&["server", "--durability", "log"]).refused(2, &["--state"]);
    finish(&["server", "--durability", "checkpoint"]).refused(2, &["--state"]);
    finish(&["server", "--state", path(folder.path())]).refused(2, &["--durability"]);
    finish(&["server", "--checkpoint-every", "1s"]).refused(2, &["--state"]);
    let always = ["--checkpoint-every", "0s", "--durability", "log", "--state", path(&out)];
    finish(&[&["server"], &always[..]].concat()).refused(2, &["must be more than 0"]);
    finish(&["pull", "127.0.0.1:1", "--timeout", "0s"]).refused(2, &["must be more than 0"]);
    let again =
        ["server", "--listen", "127.0.0.1:0", "--durability", "log", "--state", path(&kept)];
    finish(&again).refused(2, &["holds a run already", "--resume"]);
    let earlier = folder.path().join("earlier");
    finish(&["run", "--epochs", "1", "--data", "synthetic:200", "--out", path(&earlier)])
        .with_code(0);
    let replaces = ["--out", path(&earlier), "--overwrite"];
    finish(&[&again[..], &replaces].concat()).refused(2, &["holds a run already"]);
    assert!(earlier.join("summary.json").exists(), "its results are gone, and it did not begin");

    let log = kept.join("inputs-0.log");
    let whole = fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    fs::write(&log, &damaged).unwrap();
    resume(&kept, &[]).refused(2, &["inputs-0.log is damaged at byte", "backup"]);
    assert_eq!(fs::read(&log).unwrap(), damaged);
    fs::write(&log, "something else").unwrap();
    resume(&kept, &[]).refused(2, &["inputs-0.log is no log"]);
    fs::remove_file(&log).unwrap();
    resume(&kept, &[]).refused(2, &["inputs-0.log is missing", "begin anew in another folder"]);
    fs::write(&log, &whole).unwrap();
    fs::write(kept.join("run.json"), "{}").unwrap();
    resume(&kept, &[]).refused(2, &["run.json is not what a server wrote"]);
    fs::remove_file(kept.join("run.json")).unwrap();
    finish(&again).refused(2, &["holds inputs-0.log", "nothing that says of which run"]);
}
