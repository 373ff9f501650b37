//! Harness: a folder with everything that the documentation presupposes, in which its commands run.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::page::{Page, words};
use crate::cluster::path;
use crate::process::{Process, within_patience};

/// Host names in the documentation. All stand for this machine: their addresses become Unix
/// sockets.
const HOSTS: [&str; 6] = ["gw", "edge-gw", "127.0.0.1", "node2", "node3", "node4"];

/// Rows of the data set's stand-in: more than 500 updates in ten epochs of mini-batches of 64.
const ROWS: &str = "6000";

/// Settings that keep a run going until it is stopped, at a pace that leaves the machine idle.
const ENDLESS: [(&str, &str); 2] = [("--epochs", "1000000"), ("--compute", "5ms")];

/// Replacement flags, by prefix, for commands that take long or much memory.
const SHORTENED: &[(&str, &[(&str, &str)])] = &[
    ("pstrain data synth ", &[("--rows", "2000")]),
    ("pstrain experiment run ", &[("--reps", "1"), ("--set", "epochs=1")]),
    (
        "pstrain simulate --data sparse:20000,1000000 ",
        &[("--data", "sparse:500,5000"), ("--hash-features", "5000"), ("--epochs", "10")],
    ),
    ("pstrain run --data libsvm:part-0,part-1 ", &[("--hash-features", "10000")]),
    ("pstrain run --data sparse:100000,10000000 ", &[("--data", "sparse:2000,100000")]),
    ("pstrain validate job.toml", &[("--set", "epochs=1")]),
];

/// Placeholders and their values.
const PLACEHOLDERS: [(&str, &str); 3] =
    [("$seed", "2"), ("FILTERS", "top-k:0.1,fp16"), ("SETTINGS", "--proximal=l1:0.001")];

/// A process that runs while later commands are run.
struct Running {
    process: Process,
    words: Vec<String>,
}

impl Running {
    fn is(&self, command: &str) -> bool {
        self.words[1] == command
    }

    /// True if this is the coordinator, to which the other processes of its run connect.
    fn leads(&self) -> bool {
        let follows = |flag: &str| self.words.iter().any(|word| word == flag);
        self.is("server") && !["--shard", "--join", "--standby-of"].into_iter().any(follows)
    }
}

/// Returns the value of a flag.
fn value<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| word == flag)?;
    words.get(at + 1).map(String::as_str)
}

/// Replaces the value of a flag, or appends the flag; `--set` may be repeated.
fn set(words: &mut Vec<String>, flag: &str, value: &str) {
    match words.iter().position(|word| word == flag && flag != "--set") {
        Some(at) => words[at + 1] = value.to_owned(),
        None => words.extend([flag.to_owned(), value.to_owned()]),
    }
}

/// The folder, and the running processes of the current block.
pub(super) struct Stage {
    folder: TempDir,
    running: Vec<Running>,
    /// Updates of the run when last queried.
    updates: u64,
}

impl Stage {
    /// Creates the folder with copies of the data, the job of docs/job.md and certificates of all
    /// nodes.
    pub(super) fn new() -> Self {
        let stage = Self { folder: TempDir::new().unwrap(), running: Vec::new(), updates: 0 };
        let folder = stage.folder.path();
        fs::create_dir_all(folder.join("path/to/nsl-kdd")).unwrap();
        stage.run(&words(&format!("pstrain data synth --rows {ROWS} --out KDDTrain+.txt")));
        for copy in
            ["path/to/nsl-kdd/KDDTrain+.txt", "path/to/KDDTrain+.txt", "path/to/KDDTest+.txt"]
        {
            fs::copy(folder.join("KDDTrain+.txt"), folder.join(copy)).unwrap();
        }
        for sparse in ["path/to/a9a", "part-0", "part-1"] {
            fs::write(folder.join(sparse), sparse_rows()).unwrap();
        }
        let topic =
            |row: u32| format!("{} {}:1 {}:0.5\n", row % 20 + 1, row % 20 + 1, 100 + row % 9);
        fs::write(folder.join("topics"), (0..300).map(topic).collect::<String>()).unwrap();
        write_tables_and_images(folder);
        fs::write(folder.join("job.toml"), Page::read("docs/job.md").toml("# job.toml")).unwrap();
        let sweep = Page::read("docs/experiments.md").toml("name = \"slack\"");
        fs::write(folder.join("my-sweep.toml"), sweep).unwrap();
        fs::write(folder.join("changes.txt"), "0 0.001\n7 -0.001\n").unwrap();
        stage.run(&words("pstrain cert ca ca"));
        for node in ["server", "gw", "node2", "node3", "node4"] {
            stage.run(&words(&format!("pstrain cert node ca {node} --server localhost")));
        }
        for worker in 1..=2 {
            let node = format!("pstrain cert node ca worker-{worker} --worker {worker}");
            stage.run(&words(&node));
        }
        stage.run(&words("pstrain cert node ca client --client"));
        stage.run(&words("pstrain cert psk key"));
        stage
    }

    /// Runs the commands of one block, then ends the processes that they started.
    pub(super) fn play(&mut self, commands: &[String]) {
        let mut all: Vec<Vec<String>> = commands.iter().map(|it| self.adapted(it)).collect();
        // The block creates what the folder already holds, so it runs in another folder.
        let made = ["pstrain cert ca ", "pstrain cert psk "];
        if commands.iter().any(|it| made.iter().any(|begin| it.starts_with(begin))) {
            let elsewhere = TempDir::new().unwrap();
            all.iter().for_each(|words| Self::run_in(elsewhere.path(), words));
            return;
        }
        self.prepare(&all);
        for words in &mut all {
            match words[1].as_str() {
                "server" | "worker" => self.start(std::mem::take(words)),
                "status" | "why" | "pull" | "control" => {
                    self.staff();
                    self.run(words);
                }
                _ => self.run(words),
            }
        }
        self.end(&all);
    }

    /// Returns the words of a command, adapted to this machine.
    fn adapted(&self, command: &str) -> Vec<String> {
        let mut words = words(command);
        for word in &mut words {
            if let Some((_, stands)) = PLACEHOLDERS.iter().find(|(known, _)| known == word) {
                *word = (*stands).to_owned();
            }
        }
        let shortened = SHORTENED.iter().filter(|(begin, _)| command.starts_with(begin));
        for (flag, value) in shortened.flat_map(|(_, flags)| *flags) {
            set(&mut words, flag, value);
        }
        let trains = matches!(words[1].as_str(), "run" | "simulate")
            || words[1] == "server" && value(&words, "--job").is_none();
        let follows = ["--shard", "--join", "--resume"];
        if trains && !follows.iter().any(|flag| words.iter().any(|word| word == flag)) {
            match value(&words, "--data") {
                _ if value(&words, "--process").is_some() => {}
                None | Some("synthetic") => set(&mut words, "--data", "synthetic:4000"),
                Some(_) => {}
            }
        }
        // Each documented machine has its own disk, so the folder's name gets the node's name.
        if let Some(node) = value(&words, "--tls").map(str::to_owned) {
            for flag in ["--state", "--resume"] {
                if let Some(kept) = value(&words, flag).map(|kept| format!("{kept}-{node}")) {
                    set(&mut words, flag, &kept);
                }
            }
        }
        let listens = value(&words, "--advertise").and_then(|it| it.split(':').next());
        let listens = listens.unwrap_or("gw").to_owned();
        if words[1] == "cert" {
            for word in words.iter_mut().filter(|word| HOSTS.contains(&word.as_str())) {
                *word = String::from("localhost");
            }
        }
        words.into_iter().map(|word| self.address(word, &listens)).collect()
    }

    /// Returns a word, replaced by its local socket if it is an address.
    fn address(&self, word: String, listens: &str) -> String {
        let Some((host, port)) = word.split_once(':') else { return word };
        let is_port = port.len() == 4 && port.bytes().all(|byte| byte.is_ascii_digit());
        let host = match host {
            "0.0.0.0" => listens,
            host => host,
        };
        if !is_port || !HOSTS.contains(&host) {
            return word;
        }
        let host = if ["edge-gw", "127.0.0.1"].contains(&host) { "gw" } else { host };
        format!("unix:{}/{host}-{port}", path(self.folder.path()))
    }

    fn run(&self, words: &[String]) {
        Self::run_in(self.folder.path(), words);
    }

    /// Runs a command, whose output may go to a file.
    fn run_in(folder: &Path, words: &[String]) {
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let (args, file) = match args[..] {
            [ref args @ .., ">", file] => (args, Some(file)),
            ref args => (args, None),
        };
        let ended = Process::start_in(folder, args).wait().with_code(0);
        if let Some(file) = file {
            fs::write(folder.join(file), ended.stdout).unwrap();
        }
    }

    /// Starts the servers that a block queries or joins but does not start itself.
    fn prepare(&mut self, all: &[Vec<String>]) {
        let leads = |words: &Vec<String>| {
            words[1] == "server" && !words.iter().any(|word| word == "--join" || word == "--shard")
        };
        let asks = all
            .iter()
            .find(|words| matches!(words[1].as_str(), "status" | "why" | "pull" | "control"));
        let Some(asks) = asks.filter(|_| !all.iter().any(leads)) else { return };
        let address = asks.iter().find(|word| word.starts_with("unix:")).expect("an address");
        let secured = if value(asks, "--tls").is_some() { "--tls gw" } else { "" };
        let group = all.iter().flatten().any(|word| word == "leave-server");
        let servers = if group { "--servers 2" } else { "" };
        self.start(words(&format!(
            "pstrain server --listen {address} {secured} --job job.toml {servers}"
        )));
        if group {
            self.start(self.adapted(
                "pstrain server --shard 2/2 --tls node2 --coordinator gw:7070 --listen \
                 0.0.0.0:7071 --advertise node2:7071",
            ));
        }
        self.staff();
    }

    /// Starts a server or a worker. A resuming server replaces the one that wrote its state.
    fn start(&mut self, mut words: Vec<String>) {
        if let Some(kept) = value(&words, "--resume").map(str::to_owned) {
            self.staff();
            let before = |it: &Running| value(&it.words, "--state") == Some(kept.as_str());
            let before = self.running.iter().position(before).expect("whose place it takes");
            drop(self.running.remove(before));
        } else if words[1] == "server" && !words.iter().any(|it| it == "--shard" || it == "--join")
        {
            ENDLESS.iter().for_each(|(flag, value)| set(&mut words, flag, value));
        }
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let process = Process::start_in(self.folder.path(), &args);
        if words[1] == "server" {
            process.wait_to_say("listening on ");
        }
        // A standby that does not follow yet when its primary ends in order searches for it
        // forever.
        if value(&words, "--standby-of").is_some() {
            process.wait_to_say("following the server");
        }
        self.running.push(Running { process, words });
    }

    /// Returns the coordinator and the arguments to dial it.
    fn leader(&self) -> Option<(&Running, Vec<String>)> {
        let leader = self.running.iter().find(|it| it.leads())?;
        let mut access = vec![value(&leader.words, "--listen")?.to_owned()];
        if value(&leader.words, "--tls").is_some() {
            access.extend(["--tls".to_owned(), "client".to_owned()]);
        }
        if let Some(key) = value(&leader.words, "--psk") {
            access.extend(["--psk".to_owned(), key.to_owned()]);
        }
        Some((leader, access))
    }

    /// Starts the job's workers that the block omits, and waits until the run has made 5 more
    /// updates.
    fn staff(&mut self) {
        let Some((_, access)) = self.leader() else { return };
        for worker in 1..=2 {
            let node = format!("worker-{worker}");
            let secured = access.iter().any(|word| word == "--tls");
            let workers = self.running.iter().filter(|it| it.is("worker"));
            let is_there = if secured {
                workers.clone().any(|it| value(&it.words, "--tls") == Some(node.as_str()))
            } else {
                workers.count() >= worker
            };
            if !is_there {
                let secured = if secured { format!("--tls {node}") } else { String::new() };
                let dialled = &access[0];
                self.start(words(&format!(
                    "pstrain worker --server {dialled} {secured} --data server"
                )));
            }
        }
        let wanted = self.updates + 5;
        let ask = ["status", "--json", "--timeout", "40s"].map(str::to_owned);
        let args: Vec<&str> = ask.iter().chain(&access).map(String::as_str).collect();
        let mut last = String::new();
        let updates = within_patience(|| {
            let ended = Process::start_in(self.folder.path(), &args).wait();
            last = ended.stdout + &ended.stderr;
            let status: Value = serde_json::from_str(&last).ok()?;
            // A server that does not answer yet has none: its error is an object, too.
            status["updates"].as_u64().filter(|updates| *updates >= wanted)
        });
        self.updates = updates.unwrap_or_else(|| {
            let running: Vec<_> = self.running.iter().map(|it| it.words.join(" ")).collect();
            panic!("{running:#?} do not come to {wanted} updates: {last}")
        });
    }

    /// Stops the run of the block and waits for all of its processes.
    fn end(&mut self, all: &[Vec<String>]) {
        let is_stopped = all.iter().any(|words| words.last().is_some_and(|word| word == "stop"));
        if !is_stopped {
            self.staff();
            if let Some((leader, _)) = self.leader() {
                leader.process.signal(Signal::INT);
            }
        }
        for Running { process, .. } in self.running.drain(..) {
            let ended = process.wait();
            // Exit code 0 belongs to a server that left the run earlier.
            let code = if ended.code == Some(0) { 0 } else { 3 };
            ended.with_code(code);
        }
        self.updates = 0;
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with("state-") {
                fs::remove_dir_all(entry.path()).unwrap();
            }
        }
    }
}

/// Writes a table, images in the files of CIFAR-10 and in IDX files, arrays and raw records.
fn write_tables_and_images(folder: &Path) {
    let row = |row: u32| {
        let (class, site) = (row % 3, ["north", "south", "east"][(row / 3) as usize % 3]);
        let floor = if row % 50 == 7 { "?" } else { ["1", "2"][row as usize % 2] };
        format!("n{row},{}.5,{site},{floor},{},s{class}\n", 20 + 3 * class, 50 - class)
    };
    let rows = |rows: std::ops::Range<u32>| -> String {
        format!("id,temperature,site,floor,humidity,state\n{}", rows.map(row).collect::<String>())
    };
    for (name, rows) in [
        ("sensors.csv", rows(0..300)),
        ("part-1.csv", rows(0..200)),
        ("part-2.csv", rows(200..300)),
        ("test.csv", rows(300..390)),
        ("sensors.tsv", rows(0..300).replace(',', "\t")),
    ] {
        fs::write(folder.join(name), rows).unwrap();
    }
    fs::create_dir_all(folder.join("path/to/cifar10")).unwrap();
    let images: Vec<u8> =
        (0..20_u8).flat_map(|image| [vec![image % 10], vec![image; 3072]].concat()).collect();
    let training = (1..=5).map(|batch| format!("data_batch_{batch}"));
    for name in training.chain([String::from("test_batch")]) {
        let name = format!("path/to/cifar10/{name}.bin");
        fs::write(folder.join(name), &images).unwrap();
    }
    let header = |sizes: &[u32]| {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        [0, 0, 8, sizes.clone().count() as u8 / 4].into_iter().chain(sizes).collect::<Vec<_>>()
    };
    let pixels: Vec<u8> = (0..100 * 16_u32).map(|pixel| pixel as u8).collect();
    let classes: Vec<u8> = (0..100).map(|row| row % 4).collect();
    fs::write(folder.join("images"), [&header(&[100, 4, 4])[..], &pixels].concat()).unwrap();
    fs::write(folder.join("labels"), [&header(&[100])[..], &classes].concat()).unwrap();
    let features = array("(100, 4, 4)", &pixels);
    let classes = array("(100,)", &classes);
    fs::write(folder.join("features.npy"), &features).unwrap();
    fs::write(folder.join("labels.npy"), &classes).unwrap();
    let mut archive = ZipWriter::new(fs::File::create(folder.join("digits.npz")).unwrap());
    for (name, array) in [
        ("x", &features),
        ("y", &classes),
        ("x_train", &features),
        ("y_train", &classes),
        ("x_test", &features),
        ("y_test", &classes),
    ] {
        archive.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
        archive.write_all(array).unwrap();
    }
    archive.finish().unwrap();
    let mut records = b"{\"columns\": 3, \"classes\": [\"no\", \"yes\"]}\n".to_vec();
    let record = |row: u16| [f32::from(row), 1.0, 2.0, f32::from(row % 2)].map(f32::to_le_bytes);
    records.extend((0..300).flat_map(record).flatten());
    fs::write(folder.join("records"), records).unwrap();
}

/// The bytes of an array of unsigned bytes, as NumPy writes them.
fn array(shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
    let begin = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..]].concat();
    [&begin, header.as_bytes(), values].concat()
}

/// Returns rows in LIBSVM format whose features determine their class.
fn sparse_rows() -> String {
    let mut text = String::new();
    for row in 0..300_u32 {
        let label = if row % 3 == 0 { "+1" } else { "-1" };
        let (first, second) = (1 + row % 3, 10 + row * 7 % 110);
        let _infallible = writeln!(text, "{label} {first}:1 {second}:1 123:0.5");
    }
    text
}
