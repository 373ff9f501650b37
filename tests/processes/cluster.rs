//! Harness: a server process with its worker processes. Use [`Server`] in any test that runs real
//! processes of one job.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::books::check_books;
use crate::process::{Ended, Process, eventually, finish};

/// A job whose updates take long enough for a test to disturb them.
pub(crate) const SLOW: [&str; 4] = ["--data", "synthetic:4000", "--model", "mlp:512"];

/// [`SLOW`] with a computing time that leaves a loaded machine time to ask how far the run is: 12
/// epochs with 2 workers take 8 s.
pub(crate) const LONG: [&str; 6] = [SLOW[0], SLOW[1], SLOW[2], SLOW[3], "--compute", "30ms"];

/// [`SLOW`] with a fixed computing time on any machine: 4 epochs with 2 workers take a second.
pub(crate) const PACED: [&str; 6] = [SLOW[0], SLOW[1], SLOW[2], SLOW[3], "--compute", "10ms"];

/// More epochs than any test waits for; a signal or an order ends such a run.
pub(crate) const ENDLESS: [&str; 2] = ["--epochs", "1000000"];

/// A server process, its address and its results folder, which is deleted on drop.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: String,
    pub(crate) out: PathBuf,
    /// Security flags that its clients need.
    access: Vec<String>,
    /// Wrapper command under which the server and its `status` and `control` clients start; may be
    /// empty.
    under: Vec<String>,
    _folder: TempDir,
}

/// Results of a server that has ended.
pub(crate) struct Left {
    pub(crate) out: PathBuf,
    pub(crate) summary: Value,
    /// Keeps `out` from being deleted.
    pub(crate) _folder: TempDir,
}

/// A free address for a process that starts later. Its host is of no other process: a port of
/// 127.0.0.1 could be given to another socket in between.
pub(crate) fn free_address() -> String {
    static HOSTS: AtomicU8 = AtomicU8::new(1);
    let host = Ipv4Addr::new(127, 1, 0, HOSTS.fetch_add(1, Ordering::Relaxed));
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().to_string()
}

/// Returns the summary of the job in `parts` without any fault, run in one process.
pub(crate) fn undisturbed(parts: &[&[&str]]) -> Value {
    finish(&[&["run", "--json"], &parts.concat()[..]].concat()).with_code(0).json()
}

/// Checks that a run of the job in `parts` ended at the parameters of the undisturbed run, and its
/// records.
#[track_caller]
pub(crate) fn check_undisturbed(left: &Left, parts: &[&[&str]]) {
    let summary = &left.summary;
    assert_eq!(summary["params_sha256"], undisturbed(parts)["params_sha256"], "{summary}");
    check_books(&left.out, summary);
}

impl Server {
    /// Starts a server on a free loopback port with the flags in `parts`.
    pub(crate) fn tcp(parts: &[&[&str]]) -> Self {
        Self::listen(&[], |_| "127.0.0.1:0".into(), parts)
    }

    /// Starts a server on a Unix socket with the flags in `parts`.
    pub(crate) fn unix(parts: &[&[&str]]) -> Self {
        Self::listen(&[], |folder| format!("unix:{}/socket", folder.display()), parts)
    }

    /// Starts a server at `address` under a wrapper command.
    pub(crate) fn under(command: &[&str], address: &str, parts: &[&[&str]]) -> Self {
        Self::listen(command, |_| address.to_owned(), parts)
    }

    fn listen(under: &[&str], address: impl FnOnce(&Path) -> String, parts: &[&[&str]]) -> Self {
        let under: Vec<String> = under.iter().map(|&word| word.to_owned()).collect();
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("out");
        let address = address(folder.path());
        let (process, address) = Self::start(&under, &address, &out, parts);
        Self { process, address, out, access: Vec::new(), under, _folder: folder }
    }

    /// Sets the security flags that the server's clients need.
    pub(crate) fn for_clients(mut self, access: &[&str]) -> Self {
        self.access = access.iter().map(|&flag| flag.to_owned()).collect();
        self
    }

    /// Starts a server and reads the address on which it listens.
    fn start(under: &[String], address: &str, out: &Path, parts: &[&[&str]]) -> (Process, String) {
        let mut args = vec!["server", "--listen", address, "--json", "--out", path(out)];
        args.extend(parts.concat());
        let process = started(under, &args);
        let said = process.wait_to_say("listening on ");
        let line = said.lines().find_map(|line| line.split_once("listening on "));
        let address = line.and_then(|(_, rest)| rest.split_whitespace().next());
        (process, address.expect("it says where it listens").to_owned())
    }

    /// Kills the server with SIGKILL and starts another with other flags at the same address.
    pub(crate) fn replace(self, parts: &[&[&str]]) -> Self {
        let Self { process, address, out, access, under, _folder } = self;
        drop(process);
        Self::again(under, access, _folder, (&address, out), parts)
    }

    /// Waits until the server has ended because it was stopped, and starts another at the same
    /// address. Returns what the first said, too.
    pub(crate) fn after_stop(self, parts: &[&[&str]]) -> (Self, Ended) {
        let Self { process, address, out, access, under, _folder } = self;
        let ended = process.wait().with_code(3);
        (Self::again(under, access, _folder, (&address, out), parts), ended)
    }

    fn again(
        under: Vec<String>,
        access: Vec<String>,
        _folder: TempDir,
        (address, out): (&str, PathBuf),
        parts: &[&[&str]],
    ) -> Self {
        let (process, address) = Self::start(&under, address, &out, parts);
        Self { process, address, out, access, under, _folder }
    }

    /// Starts a worker of this server.
    pub(crate) fn worker(&self, args: &[&str]) -> Process {
        Process::start(&[&["worker", "--server", &self.address], args].concat())
    }

    /// Interrupts the server and waits until it and its workers have ended with exit code 3.
    #[track_caller]
    pub(crate) fn interrupt(self, workers: Vec<Process>) -> Left {
        self.process.signal(Signal::INT);
        self.ends_with(3, workers)
    }

    /// Stops the run with `pstrain control stop` and waits as [`Server::interrupt`] does.
    #[track_caller]
    pub(crate) fn stop(self, workers: Vec<Process>) -> Left {
        let mut args = vec!["control", &self.address, "stop"];
        args.extend(self.access.iter().map(String::as_str));
        let said = started(&self.under, &args).wait().with_code(0).stdout;
        assert!(said.starts_with("the run was told to stop at version "), "{said}");
        assert!(
            self.out.join("summary.json").exists(),
            "it returned before the results were there"
        );
        self.ends_with(3, workers)
    }

    /// Waits until the run has ended with exit code 0.
    #[track_caller]
    pub(crate) fn finish(self, workers: Vec<Process>) -> Left {
        self.ends_with(0, workers)
    }

    #[track_caller]
    fn ends_with(self, code: i32, workers: Vec<Process>) -> Left {
        for worker in workers {
            worker.wait().with_code(code);
        }
        let summary = self.process.wait().with_code(code).json();
        Left { out: self.out, summary, _folder: self._folder }
    }

    /// Starts `count` workers that claim the ids from 1 up.
    pub(crate) fn workers(&self, count: u32) -> Vec<Process> {
        (1..=count).map(|id| self.worker(&["--id", &id.to_string()])).collect()
    }

    /// Returns the output of `status --json`.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        // A busy machine may answer late; the answer time is not under test.
        let mut args = vec!["status", &self.address, "--json", "--timeout", "40s"];
        args.extend(self.access.iter().map(String::as_str));
        let ended = started(&self.under, &args).wait();
        let said = self.process.said();
        assert_eq!(ended.code, Some(0), "{}\nand the server said:\n{said}", ended.stderr);
        ended.json()
    }

    /// Returns the output of `status`.
    pub(crate) fn table(&self) -> String {
        let mut args = vec!["status", &self.address];
        args.extend(self.access.iter().map(String::as_str));
        started(&self.under, &args).wait().with_code(0).stdout
    }

    /// Waits until the status satisfies `wanted`.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || Some(self.status()).filter(|status| wanted(status)))
    }

    /// Waits until the run has made `updates` updates.
    #[track_caller]
    pub(crate) fn wait_for_updates(&self, updates: u64) -> Value {
        self.wait_for("update", |status| number(&status["updates"]) >= updates)
    }

    /// Waits until the worker at index `id` of the status has contributed to `updates` updates.
    #[track_caller]
    pub(crate) fn wait_for_updates_of(&self, id: usize, updates: u64) -> Value {
        self.wait_for("update", |status| number(&status["workers"][id]["updates"]) >= updates)
    }
}

/// Starts server K of the M of `coordinator` with the flags `how`; returns the process and its
/// address.
pub(crate) fn shard_of(
    coordinator: &str,
    (server, servers): (u32, u32),
    listen: &str,
    how: &[&str],
) -> (Process, String) {
    let place = format!("{server}/{servers}");
    let args = ["server", "--shard", &place, "--coordinator", coordinator, "--listen", listen];
    let process = Process::start(&[&args[..], how].concat());
    let said = process.wait_to_say("listening on ");
    let (_, address) = said.split_once("listening on ").expect("it was said");
    (process, address.split_whitespace().next().expect("an address").to_owned())
}

/// Starts `pstrain`, under `command` if it is not empty.
fn started(command: &[String], args: &[&str]) -> Process {
    if command.is_empty() {
        return Process::start(args);
    }
    Process::start_under(&command.iter().map(String::as_str).collect::<Vec<_>>(), args)
}

/// Returns a path as a command-line argument.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Returns a whole number of a JSON document.
#[track_caller]
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

/// Returns a number of a JSON document.
#[track_caller]
pub(crate) fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Lists the names of the files in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}
