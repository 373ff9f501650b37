//! Logs and checkpoints on a disk that stops, or is full, after any operation.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use pstrain_compute::id::PeerId;
use pstrain_compute::time::Time;
use pstrain_roles::node::{Effect, Input, Node, Outbox, Server};
use pstrain_tests::Toy;
use pstrain_transports::Journal;
use pstrain_transports::journal::{
    Checkpoints, CheckpointsOnly, Companion, Disk, Files, Found, InputLog, Recovered, StateFolder,
    recover,
};
use pstrain_wire::identity::Identity;

/// Fault that occurs after a number of disk operations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The machine stops: all further operations fail.
    Crash,
    /// The disk is full for a while: writes fail.
    Full,
}

/// Number of operations for which a full disk refuses writes.
const WHILE: i64 = 4;

#[derive(Clone)]
struct Faulty {
    fault: Fault,
    left: Arc<AtomicI64>,
}

impl Faulty {
    fn after(done: i64, fault: Fault) -> Self {
        Self { fault, left: Arc::new(AtomicI64::new(done)) }
    }

    fn has_failed(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    fn has_crashed(&self) -> bool {
        self.fault == Fault::Crash && self.has_failed()
    }

    /// Performs an operation unless the fault applies.
    fn attempt(&self, is_write: bool, does: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        let fails = match self.fault {
            Fault::Crash => left <= 0,
            Fault::Full => is_write && (-WHILE..=0).contains(&left),
        };
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { does() }
    }
}

impl Disk for Faulty {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let half = || Files.write(path, &bytes[..bytes.len() / 2]);
        let was_up = !self.has_failed();
        let written = self.attempt(true, || Files.write(path, bytes));
        if written.is_err() && was_up {
            half()?;
        }
        written
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.attempt(false, || Files.rename(from, to))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.attempt(false, || Files.sync_folder(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.attempt(false, || Files.remove(path))
    }
}

/// Time between inputs; checkpoints are due every five steps.
const STEP: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(10);

/// Returns the input with this number: connections arrive, and every third input closes one. So the
/// open connections show which inputs a server has handled.
fn input(number: u64) -> Input {
    match number {
        0 => Input::Start,
        number if number % 3 == 2 => {
            Input::Disconnected { peer: PeerId(number - 1), why: "gone".into() }
        }
        number => Input::Connected(PeerId(number), Identity::Anyone),
    }
}

fn begun() -> Server {
    Server::new(Toy::new(2, 40).job, 1).unwrap()
}

fn words(server: &mut Server) -> String {
    format!("{:?}", server.save())
}

fn beside() -> Companion {
    Companion { bytes: vec![1, 2, 3], files: Vec::new() }
}

fn say_nothing(_: &str) {}

fn checkpoints(folder: &StateFolder, disk: &Faulty, now: Time, found: &Found) -> Checkpoints {
    let beside = Box::new(beside);
    Checkpoints::new(folder.clone(), disk.clone(), (EVERY, now), found, beside, say_nothing)
}

/// Handles an input and obeys its checkpoint effects.
fn hand_in(server: &mut Server, journal: &mut dyn Journal, now: Time, input: Input) {
    let mut out = Outbox::new();
    journal.append(now, &input);
    server.handle(now, input, &mut out);
    if out.iter().any(|effect| matches!(effect, Effect::Pause)) {
        journal.pause();
    }
    journal.commit().unwrap();
    for effect in out {
        match effect {
            Effect::Checkpoint(checkpoint) => journal.take(now, *checkpoint),
            Effect::Write => journal.write(now),
            _ => {}
        }
    }
}

/// Lets the journal rest until every write that has begun is complete, which makes runs repeatable.
fn rest<J: Journal>(
    server: &mut Server,
    (journal, checkpoints): (&mut J, fn(&mut J) -> &mut Checkpoints),
    now: Time,
) {
    loop {
        while let Some(input) = journal.rest(now, server) {
            hand_in(server, journal, now, input);
        }
        if !checkpoints(journal).is_writing() {
            break;
        }
        sleep(Duration::from_micros(50));
    }
}

/// Hands inputs to a server until the disk stops; returns the server's state after each.
fn run<J: Journal>(
    server: &mut Server,
    (journal, checkpoints): (&mut J, fn(&mut J) -> &mut Checkpoints),
    inputs: std::ops::Range<u64>,
    disk: &Faulty,
) -> Vec<String> {
    let mut states = Vec::new();
    for number in inputs {
        let now = Time::ZERO + STEP * number as u32;
        let input = input(number);
        hand_in(server, journal, now, input);
        states.push(words(server));
        rest(server, (journal, checkpoints), now);
        if disk.has_crashed() {
            break;
        }
    }
    states
}

/// Restores a server from the folder.
fn resumed(folder: &StateFolder, has_log: bool) -> (Server, Found, Recovered) {
    let found = folder.find(has_log).unwrap();
    let mut server = match &found.checkpoint {
        None => begun(),
        Some(checkpoint) => {
            assert_eq!(checkpoint.beside, [1, 2, 3]);
            Server::restore(begun().job().clone(), &checkpoint.saved).unwrap()
        }
    };
    let recovered = recover(folder, &found, &mut server, |_, _| {}).unwrap();
    (server, found, recovered)
}

const INPUTS: u64 = 40;

#[test]
fn a_log_with_checkpoints_restores_the_last_state_wherever_the_disk_stops() {
    let (mut with_checkpoint, of) =
        (0, InputLog::checkpoints as fn(&mut InputLog) -> &mut Checkpoints);
    for done in 0.. {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(place.path());
        let disk = Faulty::after(done, Fault::Crash);
        let log = folder.begin_log(&Files, 0).unwrap();
        let none = Found { checkpoint: None, logs: vec![], newest: 0, damaged: vec![] };
        let checkpoints_of = |disk, now, found| checkpoints(&folder, disk, now, found);
        let mut server = begun();
        let mut journal = InputLog::new(log, checkpoints_of(&disk, Time::ZERO, &none), say_nothing);
        let states = run(&mut server, (&mut journal, of), 0..INPUTS, &disk);
        journal.end(Time::ZERO + STEP * INPUTS as u32, &mut server);
        drop(journal);
        let stopped = disk.has_failed();

        let (mut again, found, recovered) = resumed(&folder, true);
        assert_eq!(&words(&mut again), states.last().unwrap(), "stopped at {done}");
        assert!(found.damaged.is_empty(), "stopped at {done}: {:?}", found.damaged);
        with_checkpoint += u64::from(found.checkpoint.is_some());

        // The server continues from there and takes checkpoints of its own.
        let disk = Faulty::after(i64::MAX, Fault::Crash);
        let begin = states.len() as u64;
        let kept = checkpoints_of(&disk, recovered.now, &found);
        let mut journal = InputLog::new(recovered.log.unwrap(), kept, say_nothing);
        let more = run(&mut again, (&mut journal, of), begin..begin + 12, &disk);
        journal.end(Time::ZERO + STEP * 100, &mut again);
        let (mut after, found, _) = resumed(&folder, true);
        assert_eq!(&words(&mut after), more.last().unwrap(), "stopped at {done}");
        assert!(found.number() > 0);
        if states.len() as u64 == INPUTS && !stopped {
            assert!(done > 30, "only {done} things were done");
            break;
        }
    }
    assert!(with_checkpoint > 20);
}

#[test]
fn a_log_restores_the_state_before_a_stop_whatever_follows_it() {
    let of: fn(&mut InputLog) -> &mut Checkpoints = InputLog::checkpoints;
    for inputs in 0..INPUTS {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(place.path());
        let log = folder.begin_log(&Files, 0).unwrap();
        let none = Found { checkpoint: None, logs: vec![], newest: 0, damaged: vec![] };
        let disk = Faulty::after(i64::MAX, Fault::Crash);
        let kept = checkpoints(&folder, &disk, Time::ZERO, &none);
        let mut server = begun();
        let mut journal = InputLog::new(log, kept, say_nothing);
        let states = run(&mut server, (&mut journal, of), 0..inputs, &disk);
        let now = Time::ZERO + STEP * inputs as u32;
        hand_in(&mut server, &mut journal, now, Input::Drain);
        // A second stop and a checkpoint that is due change nothing.
        for later in [EVERY, EVERY * 2] {
            hand_in(&mut server, &mut journal, now + later, Input::Drain);
            rest(&mut server, (&mut journal, of), now + later);
        }
        journal.end(now + EVERY * 3, &mut server);
        drop(journal);
        let (mut again, ..) = resumed(&folder, true);
        let before = states.last().cloned().unwrap_or_else(|| words(&mut begun()));
        assert_eq!(words(&mut again), before, "after {inputs} inputs");
    }
}

#[test]
fn a_full_disk_costs_checkpoints_only() {
    let of: fn(&mut InputLog) -> &mut Checkpoints = InputLog::checkpoints;
    for done in 0..50 {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(place.path());
        let disk = Faulty::after(done, Fault::Full);
        let log = folder.begin_log(&Files, 0).unwrap();
        let none = Found { checkpoint: None, logs: vec![], newest: 0, damaged: vec![] };
        let mut server = begun();
        let kept = checkpoints(&folder, &disk, Time::ZERO, &none);
        let mut journal = InputLog::new(log, kept, say_nothing);
        let states = run(&mut server, (&mut journal, of), 0..INPUTS, &disk);
        journal.end(Time::ZERO + STEP * INPUTS as u32, &mut server);
        let (mut again, found, _) = resumed(&folder, true);
        assert_eq!(&words(&mut again), states.last().unwrap(), "full at {done}");
        assert!(found.damaged.is_empty() && found.number() > 0, "full at {done}: {found:?}");
    }
}

/// A disk of limited size that counts the files in its folder. Checkpoints take a fixed time, and
/// the first few whole-file writes are refused.
#[derive(Clone)]
struct Small(u64, Duration, Arc<AtomicI64>);

impl Small {
    fn new(bytes: u64, takes: Duration, refuses: i64) -> Self {
        Self(bytes, takes, Arc::new(AtomicI64::new(refuses)))
    }

    fn refuses(&self) -> bool {
        self.2.load(Ordering::Relaxed) > 0
    }

    fn used(folder: &Path) -> u64 {
        let files = std::fs::read_dir(folder).unwrap();
        files.map(|file| file.unwrap().metadata().map_or(0, |file| file.len())).sum()
    }
}

impl Disk for Small {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_refused = self.2.fetch_sub(1, Ordering::Relaxed) > 0;
        if is_refused || self.free(path.parent().unwrap())? < bytes.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        sleep(self.1);
        Files.write(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Files.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        Files.sync_folder(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Files.remove(path)
    }

    fn free(&self, folder: &Path) -> io::Result<u64> {
        Ok(self.0.saturating_sub(Self::used(folder)))
    }
}

fn fail(why: &str) {
    panic!("{why}");
}

/// Hands a server enough inputs to fill a small disk several times; returns the number of
/// checkpoints.
fn fills(disk: &Small, waits: bool) -> u64 {
    let place = tempfile::tempdir().unwrap();
    let folder = StateFolder::new(place.path());
    let log = folder.begin_log(&Files, 0).unwrap();
    let none = Found { checkpoint: None, logs: vec![], newest: 0, damaged: vec![] };
    let when = (Duration::from_secs(3600), Time::ZERO);
    let beside = Box::new(beside);
    let warn: fn(&str) = if disk.refuses() { say_nothing } else { fail };
    let kept = Checkpoints::new(folder.clone(), disk.clone(), when, &none, beside, warn);
    let mut journal = InputLog::new(log, kept, warn);
    let mut server = begun();
    let mut written = 0;
    for number in 0..1000 {
        let input = match input(number) {
            Input::Disconnected { peer, .. } => {
                written += 25_000;
                Input::Disconnected { peer, why: "gone ".repeat(5000) }
            }
            other => other,
        };
        hand_in(&mut server, &mut journal, Time::ZERO, input);
        while journal.rest(Time::ZERO, &mut server).is_some()
            || waits && journal.checkpoints().is_writing()
        {
            sleep(Duration::from_micros(50));
        }
        let used = Small::used(place.path());
        assert!(used < disk.0, "{used} bytes after {number} inputs");
    }
    assert!(written > 3 * disk.0, "{written} bytes fill no disk");
    journal.end(Time::ZERO, &mut server);
    drop(journal);
    let (mut again, found, _) = resumed(&folder, true);
    assert_eq!(words(&mut again), words(&mut server));
    found.number()
}

#[test]
fn a_log_on_a_small_disk_is_checkpointed_before_it_fills_the_disk() {
    let size = 2 * 1024 * 1024;
    let checkpoints = fills(&Small::new(size, Duration::ZERO, 0), true);
    assert!((3..100).contains(&checkpoints), "{checkpoints} checkpoints");
    // The disk does not fill up either when a checkpoint takes its time.
    let checkpoints = fills(&Small::new(size, Duration::from_millis(100), 0), false);
    assert!((3..100).contains(&checkpoints), "{checkpoints} checkpoints");
}

#[test]
fn a_log_on_a_small_disk_keeps_space_for_a_failed_checkpoint() {
    // The clock stands still, so a retry that depends on time would never come.
    for refused in 1..=4 {
        let disk = Small::new(2 * 1024 * 1024, Duration::ZERO, refused);
        let checkpoints = fills(&disk, true);
        assert!(!disk.refuses());
        assert!((3..100).contains(&checkpoints), "{checkpoints} checkpoints");
    }
}

#[test]
fn with_checkpoints_alone_a_refused_checkpoint_is_written_later_unchanged() {
    let of: fn(&mut CheckpointsOnly) -> &mut Checkpoints = CheckpointsOnly::checkpoints;
    let mut retried = 0;
    for done in 0..20 {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(place.path());
        let disk = Faulty::after(done, Fault::Full);
        let none = Found { checkpoint: None, logs: vec![], newest: 0, damaged: vec![] };
        let mut server = begun().with_checkpoints();
        let mut journal = CheckpointsOnly::new(checkpoints(&folder, &disk, Time::ZERO, &none));
        let states = run(&mut server, (&mut journal, of), 0..INPUTS, &disk);
        let (mut again, found, _) = resumed(&folder, false);
        let state = states.iter().position(|state| *state == words(&mut again));
        let checkpoint = found.checkpoint.unwrap();
        let since = (Time::ZERO + STEP * (INPUTS as u32 - 1)) - checkpoint.now;
        // Each refused attempt costs a pause of 5 s.
        let pauses = STEP * 3 * (WHILE as u32 + 1);
        assert!(state.is_some() && since <= EVERY + pauses, "full at {done}: {since:?} old");
        retried += u64::from(disk.has_failed());
        assert!(found.damaged.is_empty(), "full at {done}: {:?}", found.damaged);
    }
    assert!(retried > 10, "only {retried} times the disk was full");
}

#[test]
fn with_checkpoints_alone_a_whole_checkpoint_always_exists() {
    let of: fn(&mut CheckpointsOnly) -> &mut Checkpoints = CheckpointsOnly::checkpoints;
    let mut last = 0;
    for done in 0.. {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(place.path());
        let disk = Faulty::after(done, Fault::Crash);
        let none = Found { checkpoint: None, logs: vec![], newest: 0, damaged: vec![] };
        let mut server = begun().with_checkpoints();
        let mut journal = CheckpointsOnly::new(checkpoints(&folder, &disk, Time::ZERO, &none));
        let states = run(&mut server, (&mut journal, of), 0..INPUTS, &disk);
        let is_whole = states.len() as u64 == INPUTS;
        if is_whole {
            let now = Time::ZERO + STEP * INPUTS as u32;
            hand_in(&mut server, &mut journal, now, Input::Drain);
            rest(&mut server, (&mut journal, of), now);
            journal.end(now, &mut server);
        }
        drop(journal);
        let (mut again, found, recovered) = resumed(&folder, false);
        assert!(recovered.log.is_none() && found.damaged.is_empty());
        let state = states.iter().position(|state| *state == words(&mut again));
        assert!(state.is_some() || found.checkpoint.is_none(), "stopped at {done}");
        let number = found.number();
        assert!(number >= last, "stopped at {done} it goes back from {last} to {number}");
        last = number;
        if is_whole && !disk.has_failed() {
            assert_eq!(state, Some(states.len() - 1), "the state before the stop is kept");
            break;
        }
    }
}
