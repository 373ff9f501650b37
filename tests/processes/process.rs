//! Harness: the binary as a child process that cannot outlive its test, with captured output. Use
//! [`finish`] for a command that ends by itself and [`Process`] for one that the test disturbs.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pstrain_transports::WallClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Limit of every wait. Generous, since tests share a busy machine: only a hang takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Polling interval for conditions without an event.
const GLANCE: Duration = Duration::from_millis(10);

/// A running `pstrain`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    command: String,
    stdout: Printed,
    stderr: Printed,
}

/// Exit code and output of a process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) command: String,
    /// The exit code; `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Text that a stream has delivered so far, and a flag that it has ended.
#[derive(Clone, Debug, Default)]
struct Printed(Arc<(Mutex<(String, bool)>, Condvar)>);

impl Printed {
    fn read(mut stream: impl Read + Send + 'static) -> Self {
        let printed = Self::default();
        let writer = printed.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                let mut state = writer.0.0.lock().unwrap();
                state.0.push_str(&String::from_utf8_lossy(&buffer[..read]));
                writer.0.1.notify_all();
            }
            writer.0.0.lock().unwrap().1 = true;
            writer.0.1.notify_all();
        });
        printed
    }

    /// Returns the text so far.
    fn now(&self) -> String {
        self.0.0.lock().unwrap().0.clone()
    }

    /// Returns the text once it satisfies `wanted`, the stream has ended or [`PATIENCE`] is over.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> String {
        let state = self.0.0.lock().unwrap();
        let more = |state: &mut (String, bool)| !state.1 && !wanted(&state.0);
        let (state, _) = self.0.1.wait_timeout_while(state, PATIENCE, more).unwrap();
        state.0.clone()
    }
}

pub(crate) const PSTRAIN: &str = env!("CARGO_BIN_EXE_pstrain");

impl Process {
    /// Starts `pstrain` with `args`.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// Starts `pstrain` with `args` and `variables` in its environment.
    pub(crate) fn start_with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::spawn(Command::new(PSTRAIN).envs(variables.iter().copied()), args)
    }

    /// Starts `pstrain` with `args` and this standard input.
    pub(crate) fn start_reading(args: &[&str], stdin: impl Into<Stdio>) -> Self {
        Self::spawn_reading(&mut Command::new(PSTRAIN), args, stdin.into())
    }

    /// Starts `pstrain` with `args` in `folder`.
    pub(crate) fn start_in(folder: &Path, args: &[&str]) -> Self {
        // A compute process in the arguments may be pstrain itself.
        let own = Path::new(PSTRAIN).parent().expect("it is in a folder");
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = [own.to_owned()].into_iter().chain(std::env::split_paths(&paths));
        let paths = std::env::join_paths(paths).expect("they were joined before");
        Self::spawn(Command::new(PSTRAIN).current_dir(folder).env("PATH", paths), args)
    }

    /// Starts `command`, which must replace itself by `pstrain` with `args`: signals must reach it.
    pub(crate) fn start_under(command: &[&str], args: &[&str]) -> Self {
        let (first, more) = command.split_first().expect("a command");
        Self::spawn(Command::new(first).args(more).arg(PSTRAIN), args)
    }

    fn spawn(command: &mut Command, args: &[&str]) -> Self {
        Self::spawn_reading(command, args, Stdio::null())
    }

    fn spawn_reading(command: &mut Command, args: &[&str], stdin: Stdio) -> Self {
        let mut child = command
            .args(args)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = Printed::read(child.stdout.take().expect("it is piped"));
        let stderr = Printed::read(child.stderr.take().expect("it is piped"));
        Self { child, command: format!("pstrain {}", args.join(" ")), stdout, stderr }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is still there");
    }

    /// Returns its stderr so far.
    pub(crate) fn said(&self) -> String {
        self.stderr.now()
    }

    /// Waits until its stderr contains `words`; returns its stderr so far.
    pub(crate) fn wait_to_say(&self, words: &str) -> String {
        let said = self.stderr.until(|text| text.contains(words));
        assert!(said.contains(words), "{}: never said {words:?}, only:\n{said}", self.command);
        said
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(mut self) -> Ended {
        self.ended_or(|_| false).expect("nothing it says is enough")
    }

    /// Waits until the process has ended (`Some`) or its stderr contains `words` (`None`); then
    /// kills it.
    pub(crate) fn wait_or_say(mut self, words: &str) -> Option<Ended> {
        self.ended_or(|said| said.contains(words))
    }

    /// Returns the exit, or `None` if `enough` accepts its stderr first.
    fn ended_or(&mut self, enough: impl Fn(&str) -> bool) -> Option<Ended> {
        let found = within_patience(|| {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return Some(Some(Ended {
                    command: self.command.clone(),
                    code: status.code(),
                    stdout: self.stdout.until(|_| false),
                    stderr: self.stderr.until(|_| false),
                }));
            }
            enough(&self.stderr.now()).then_some(None)
        });
        found.unwrap_or_else(|| {
            let said = self.stderr.now();
            panic!("{} has not ended in {PATIENCE:?}, and said only:\n{said}", self.command)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Ended {
    /// Checks the exit code and returns `self`.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        let Self { command, stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "{command}\nstdout: {stdout}\nstderr: {stderr}");
        self
    }

    /// Parses stdout as one JSON object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let Self { command, stdout, stderr, .. } = self;
        let value = serde_json::from_str(stdout);
        let value: Value = value.unwrap_or_else(|error| {
            panic!("{command}: {error}\nstdout: {stdout}\nstderr: {stderr}");
        });
        assert!(value.is_object(), "{command}: {value}");
        value
    }

    /// Checks for exit code `code`, all of `words` on stderr, and an empty stdout.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, words: &[&str]) {
        let Self { command, stdout, stderr, .. } = self.with_code(code);
        for word in words {
            assert!(stderr.contains(word), "{command}: says nothing of {word:?}:\n{stderr}");
        }
        assert!(stdout.is_empty(), "{command}: {stdout}");
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
    }
}

/// The runs of a test of random moments: `PSTRAIN_KILLS`, or one.
pub(crate) fn random_runs() -> u64 {
    std::env::var("PSTRAIN_KILLS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

/// Runs `pstrain` with `args` until it exits.
pub(crate) fn finish(args: &[&str]) -> Ended {
    Process::start(args).wait()
}

/// Runs `pstrain` with all these arguments, and returns the object that it prints.
#[track_caller]
pub(crate) fn json(args: &[&[&str]]) -> Value {
    finish(&args.concat()).with_code(0).json()
}

/// True if there is a Python for compute processes; a test without one is skipped.
#[expect(clippy::print_stderr, reason = "the reader should know that a test was skipped")]
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no python3 for compute processes");
    }
    found
}

/// Polls `look` until it returns a value; panics after [`PATIENCE`].
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within_patience(look).unwrap_or_else(|| panic!("no {what} in {PATIENCE:?}"))
}

/// Polls `look` until it returns a value; `None` after [`PATIENCE`].
pub(crate) fn within_patience<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = WallClock::start();
    while clock.now().as_secs_f64() < PATIENCE.as_secs_f64() {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(GLANCE);
    }
    None
}
