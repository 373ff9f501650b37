//! A server process with worker processes.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::books::check_books;
use crate::process::{Process, eventually, finish};

/// A job whose updates take long enough that something can happen during them.
pub(crate) const SLOW: [&str; 4] = ["--data", "synthetic:4000", "--model", "mlp:512"];

/// The same at a pace of its own, however fast the machine: 4 epochs with 2 workers take a second.
pub(crate) const PACED: [&str; 6] = [SLOW[0], SLOW[1], SLOW[2], SLOW[3], "--compute", "10ms"];

/// More epochs than any test waits for: such a run is ended by a signal.
pub(crate) const ENDLESS: [&str; 2] = ["--epochs", "1000000"];

/// A server process and its address. The results folder goes with it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: String,
    pub(crate) out: PathBuf,
    /// What its clients need to be let in.
    access: Vec<String>,
    /// The command that starts it and its clients, if they are not started as they are.
    under: Vec<String>,
    _folder: TempDir,
}

/// What a server left behind.
pub(crate) struct Left {
    pub(crate) out: PathBuf,
    pub(crate) summary: Value,
    /// Holds `out` while it is held.
    pub(crate) _folder: TempDir,
}

/// What the job in `parts` comes to where nothing happens to anybody: all of it in one process.
pub(crate) fn undisturbed(parts: &[&[&str]]) -> Value {
    finish(&[&["run", "--json"], &parts.concat()[..]].concat()).with_code(0).json()
}

/// Checks that a run of the job in `parts` came to the same, and that its books balance.
#[track_caller]
pub(crate) fn check_undisturbed(left: &Left, parts: &[&[&str]]) {
    let summary = &left.summary;
    assert_eq!(summary["params_sha256"], undisturbed(parts)["params_sha256"], "{summary}");
    check_books(&left.out, summary);
}

impl Server {
    /// A server on a free port of the loopback address, with the flags in `parts`.
    pub(crate) fn tcp(parts: &[&[&str]]) -> Self {
        Self::listen(&[], |_| "127.0.0.1:0".into(), parts)
    }

    /// A server on a Unix socket, with the flags in `parts`.
    pub(crate) fn unix(parts: &[&[&str]]) -> Self {
        Self::listen(&[], |folder| format!("unix:{}/socket", folder.display()), parts)
    }

    /// A server at `address` that is started by another command.
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

    /// The same server, which lets clients in that have these flags.
    pub(crate) fn for_clients(mut self, access: &[&str]) -> Self {
        self.access = access.iter().map(|&flag| flag.to_owned()).collect();
        self
    }

    /// A server that says where it listens.
    fn start(under: &[String], address: &str, out: &Path, parts: &[&[&str]]) -> (Process, String) {
        let mut args = vec!["server", "--listen", address, "--json", "--out", path(out)];
        args.extend(parts.concat());
        let process = started(under, &args);
        let said = process.wait_to_say("listening on ");
        let line = said.lines().find_map(|line| line.split_once("listening on "));
        let address = line.and_then(|(_, rest)| rest.split_whitespace().next());
        (process, address.expect("it says where it listens").to_owned())
    }

    /// Kills the server with SIGKILL and starts another at the same address, with other flags.
    pub(crate) fn replace(self, parts: &[&[&str]]) -> Self {
        let Self { process, address, out, access, under, _folder } = self;
        drop(process);
        let (process, address) = Self::start(&under, &address, &out, parts);
        Self { process, address, out, access, under, _folder }
    }

    /// Starts a worker of this server.
    pub(crate) fn worker(&self, args: &[&str]) -> Process {
        Process::start(&[&["worker", "--server", &self.address], args].concat())
    }

    /// Interrupts the server, and waits until it and its workers have ended as they should then.
    #[track_caller]
    pub(crate) fn interrupt(self, workers: Vec<Process>) -> Left {
        self.process.signal(Signal::INT);
        self.ends_with(3, workers)
    }

    /// Has the server stopped by an order, and waits as for one that was interrupted.
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

    /// Waits until the run of `workers` has come to its end.
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

    /// Starts workers that claim the numbers from 1 up to `count`.
    pub(crate) fn workers(&self, count: u32) -> Vec<Process> {
        (1..=count).map(|id| self.worker(&["--id", &id.to_string()])).collect()
    }

    /// What `status --json` prints.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        // How long the answer takes on a busy machine is not what is tested.
        let mut args = vec!["status", &self.address, "--json", "--timeout", "40s"];
        args.extend(self.access.iter().map(String::as_str));
        let ended = started(&self.under, &args).wait();
        let said = self.process.said();
        assert_eq!(ended.code, Some(0), "{}\nand the server said:\n{said}", ended.stderr);
        ended.json()
    }

    /// What `status` prints.
    pub(crate) fn table(&self) -> String {
        let mut args = vec!["status", &self.address];
        args.extend(self.access.iter().map(String::as_str));
        started(&self.under, &args).wait().with_code(0).stdout
    }

    /// Waits until the status is as wanted.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || Some(self.status()).filter(|status| wanted(status)))
    }

    /// Waits until so many updates have been made.
    #[track_caller]
    pub(crate) fn wait_for_updates(&self, updates: u64) -> Value {
        self.wait_for("update", |status| number(&status["updates"]) >= updates)
    }

    /// Waits until worker `id` has contributed to so many updates.
    #[track_caller]
    pub(crate) fn wait_for_updates_of(&self, id: usize, updates: u64) -> Value {
        self.wait_for("update", |status| number(&status["workers"][id]["updates"]) >= updates)
    }
}

/// Starts server K of the M of `coordinator` with the flags `how`; gives its address, too.
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

/// Has `command` start `pstrain`, or starts it as it is.
fn started(command: &[String], args: &[&str]) -> Process {
    if command.is_empty() {
        return Process::start(args);
    }
    Process::start_under(&command.iter().map(String::as_str).collect::<Vec<_>>(), args)
}

/// A path as an argument.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A whole number of a JSON document.
#[track_caller]
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

/// A number of a JSON document.
#[track_caller]
pub(crate) fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The files in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}
