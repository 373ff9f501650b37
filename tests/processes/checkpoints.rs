//! Groups of servers with checkpoints and no log: if any server is killed, all return together to
//! the same checkpoint.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use pstrain_compute::rng::Stream;
use tempfile::TempDir;

use crate::books::{check_alike, check_books};
use crate::cluster::{ENDLESS, Left, PACED, SLOW, Server, names, number, path, shard_of};
use crate::process::{Process, eventually, finish, random_runs};

/// Flags of a server that takes checkpoints; a state folder follows.
const CHECKPOINT: [&str; 3] = ["--durability", "checkpoint", "--state"];

/// A group of servers; `first` is the coordinator.
struct Group {
    first: Server,
    /// Servers 2 and up, with their addresses.
    others: Vec<(Process, String)>,
    folder: TempDir,
}

impl Group {
    /// Starts the servers of a job that take a checkpoint `every` interval.
    fn new(servers: u32, every: &str, job: &[&[&str]]) -> Self {
        let folder = TempDir::new().unwrap();
        let kept: Vec<String> = (1..=servers)
            .map(|server| path(&folder.path().join(server.to_string())).to_owned())
            .collect();
        let every = ["--checkpoint-every", every];
        let how: Vec<Vec<&str>> =
            kept.iter().map(|kept| [&every[..], &CHECKPOINT, &[kept]].concat()).collect();
        let count = ["--servers", &servers.to_string()];
        let first = Server::tcp(&[job, &[&count, &how[0]]].concat());
        let other = |server: u32| {
            shard_of(&first.address, (server, servers), "127.0.0.1:0", &how[server as usize - 1])
        };
        let others = (2..=servers).map(other).collect();
        Self { first, others, folder }
    }

    /// Waits until a complete checkpoint is on disk.
    fn wait_for_checkpoint(&self) {
        let kept = self.kept(1);
        let is_whole = |name: &String| name.ends_with(".safetensors");
        // The server creates its folder only after it has read the data.
        let has_one = || Path::new(&kept).is_dir() && names(kept.as_ref()).iter().any(is_whole);
        eventually("checkpoint", || has_one().then_some(()));
    }

    fn kept(&self, server: usize) -> String {
        path(&self.folder.path().join(server.to_string())).to_owned()
    }

    /// Kills a server (counted from 1) and restarts it from its state folder.
    fn kill(mut self, server: usize) -> Self {
        let kept = self.kept(server);
        let how = ["--resume", &kept];
        if server == 1 {
            return Self { first: self.first.replace(&[&how]), ..self };
        }
        let servers = self.others.len() as u32 + 1;
        let (process, listens) = self.others.remove(server - 2);
        drop(process);
        let again = shard_of(&self.first.address, (server as u32, servers), &listens, &how);
        self.others.insert(server - 2, again);
        self
    }

    /// Waits for the end of the run; returns the results of the first server and stderr of the
    /// others.
    fn finish(self, workers: Vec<Process>) -> (Left, Vec<String>) {
        let left = self.first.finish(workers);
        let said = self.others.into_iter().map(|(other, _)| other.wait().with_code(0).stderr);
        (left, said.collect())
    }
}

#[test]
fn when_any_server_is_killed_all_servers_return_to_the_same_checkpoint() {
    for consistency in ["bsp", "asp"] {
        let job =
            ["--epochs", "8", "--workers", "2", "--lease", "2s", "--consistency", consistency];
        let group = Group::new(3, "60ms", &[&PACED, &job, &["--optimizer", "momentum"]]);
        let workers = vec![group.first.worker(&[]), group.first.worker(&[])];
        group.wait_for_checkpoint();
        let group = group.kill(2);
        group.first.process.wait_to_say("the servers go back to checkpoint");
        group.first.process.wait_to_say("resumed from checkpoint");
        group.first.wait_for_updates(40);
        let group = group.kill(1);
        let words = "; if anything came after it, it is computed again, except what clients pushed";
        let said = group.first.process.wait_to_say(words);
        assert!(said.contains("resumed from checkpoint ") && said.contains(", epoch "), "{said}");
        let (Left { out, summary, _folder }, said) = group.finish(workers);
        check_books(&out, &summary);
        assert_eq!(summary["ended"], "the budget is used up", "{summary}");
        // The records hold exactly the updates that made the parameters, on all servers.
        check_alike(&out);
        for said in said {
            assert!(said.contains("the servers go back to checkpoint"), "{said}");
        }
    }
}

#[test]
fn servers_with_checkpoints_that_are_killed_at_random_moments_agree_on_one_version() {
    let job = ["--epochs", "4", "--workers", "2", "--lease", "2s"];
    for run in 0..random_runs() {
        // A checkpoint is always under way, sometimes, or never.
        let every = ["1ms", "40ms", "1h"][run as usize % 3];
        let consistency = ["bsp", "asp"][run as usize / 3 % 2];
        let how = [&PACED[..], &job, &["--consistency", consistency]];
        let mut group = Group::new(2 + run as u32 % 2, every, &how);
        let mut workers = group.first.workers(2);
        group.first.status();
        let mut moments = Stream::new(run).fork("kills and checkpoints", 0).rng();
        for _ in 0..3 {
            sleep(Duration::from_millis(moments.below(300)));
            match moments.below(5) as usize {
                place @ 0..2 => {
                    workers[place] = group.first.worker(&["--id", &(place + 1).to_string()]);
                }
                other => {
                    let servers = group.others.len() + 1;
                    group = group.kill(1 + (other - 2).min(servers - 1));
                }
            }
        }
        let Left { out, summary, _folder } = group.first.finish(Vec::new());
        for worker in workers {
            // A worker restarted after the end of the run may find no server.
            let Some(ended) = worker.wait_or_say("try 9 in") else { continue };
            let late = ended.code == Some(1) && ended.stderr.contains("over");
            assert!(ended.code == Some(0) || late, "run {run}: {}", ended.stderr);
        }
        check_books(&out, &summary);
        check_alike(&out);
        assert_eq!(summary["ended"], "the budget is used up", "run {run}: {summary}");
        let batches = |name: &str| number(&summary["batches"][name]);
        let ended = batches("applied") + batches("discarded") + batches("lost");
        assert_eq!(batches("assigned"), ended, "run {run}: {summary}");
    }
}

#[test]
fn a_run_that_ended_by_a_lost_server_resumes_from_the_last_checkpoint() {
    let job = ["--epochs", "6", "--workers", "1", "--lease", "500ms"];
    let group = Group::new(2, "60ms", &[&PACED, &job]);
    let worker = group.first.worker(&[]);
    // A checkpoint may precede the run's first gradient. Until that gradient, servers are awaited
    // for longer than a lease.
    group.first.wait_for_updates(2);
    group.wait_for_checkpoint();
    let (kept, again) = (group.kept(1), group.kept(2));
    let Group { first, mut others, folder: _kept } = group;
    let (lost, listens) = others.pop().unwrap();
    drop(lost);
    let _told = worker.wait().with_code(1);
    first.process.wait_to_say("all servers continue from the last checkpoint");
    first.process.wait_to_say("server 2 was not there in time");
    let first = first.replace(&[&["--resume", &kept]]);
    let other = shard_of(&first.address, (2, 2), &listens, &["--resume", &again]);
    let worker = first.worker(&[]);
    let left = first.finish(vec![worker]);
    other.0.wait().with_code(0);
    check_books(&left.out, &left.summary);
    check_alike(&left.out);
    assert_eq!(left.summary["ended"], "the budget is used up", "{}", left.summary);
}

#[test]
fn servers_whose_durability_differs_from_the_groups_are_refused() {
    let job = ["--workers", "1", "--lease", "2s"];
    let group = Group::new(2, "60ms", &[&SLOW, &ENDLESS, &job]);
    let _worker = group.first.worker(&[]);
    group.first.wait_for_updates(5);
    let at = ["server", "--listen", "127.0.0.1:0", "--coordinator", &group.first.address];
    let refused = |args: &[&str], code: i32, words: &[&str]| {
        finish(&[&at[..], args].concat()).refused(code, words);
    };
    refused(&["--shard", "2/2"], 1, &["takes checkpoints", "--durability checkpoint --state DIR"]);
    let (new, log) = (group.kept(7), group.kept(8));
    let shard = ["--shard", "2/2"];
    let wrong = [&shard[..], &CHECKPOINT, &[&new]].concat();
    refused(&wrong, 1, &["continue from", "which it does not have", "--resume"]);
    refused(&[&shard[..], &["--durability", "log", "--state", &log]].concat(), 1, &["checkpoint"]);
    refused(&["--join"], 1, &["--durability checkpoint", "no server can join or leave"]);
    refused(&[&["--join"][..], &CHECKPOINT, &[&new]].concat(), 2, &["no server can join", "log"]);
    let leave = ["control", &group.first.address, "leave-server", "2"];
    finish(&leave).refused(2, &["no server can join or leave"]);
    let standby = ["server", "--listen", "127.0.0.1:0", "--workers", "1"];
    let standby = [&standby[..], &SLOW, &ENDLESS, &["--lease", "2s", "--standby-of"]].concat();
    finish(&[&standby[..], &[&group.others[0].1]].concat()).refused(1, &["takes no standby"]);
    // And the run has not noticed.
    group.first.wait_for_updates(20);

    let plain = Server::tcp(&[&SLOW, &ENDLESS, &["--workers", "1", "--servers", "2"]]);
    let shard = ["server", "--listen", "127.0.0.1:0", "--coordinator", &plain.address, "--shard"];
    let other = group.kept(9);
    finish(&[&shard[..], &["2/2"], &CHECKPOINT, &[&other]].concat())
        .refused(1, &["it takes checkpoints, but server 1 does not"]);
}
