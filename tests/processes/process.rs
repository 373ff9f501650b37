//! The binary as a process that cannot outlive its test, and everything it printed.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pstrain_transports::WallClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nothing here takes this long unless it hangs. Generous: tests share a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// How often something without an event is looked at.
const GLANCE: Duration = Duration::from_millis(10);

/// A running `pstrain`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    command: String,
    stdout: Printed,
    stderr: Printed,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) command: String,
    /// The exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// What a stream has brought so far, and whether it has ended.
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

    /// The text so far.
    fn now(&self) -> String {
        self.0.0.lock().unwrap().0.clone()
    }

    /// The text once it is as wanted or at its end, or after all patience.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> String {
        let state = self.0.0.lock().unwrap();
        let more = |state: &mut (String, bool)| !state.1 && !wanted(&state.0);
        let (state, _) = self.0.1.wait_timeout_while(state, PATIENCE, more).unwrap();
        state.0.clone()
    }
}

const PSTRAIN: &str = env!("CARGO_BIN_EXE_pstrain");

impl Process {
    /// Starts `pstrain` with `args`.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// Starts `pstrain` with `args` and `variables` in its environment.
    pub(crate) fn start_with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::spawn(Command::new(PSTRAIN).envs(variables.iter().copied()), args)
    }

    /// Starts `pstrain` with `args` in `folder`.
    pub(crate) fn start_in(folder: &Path, args: &[&str]) -> Self {
        Self::spawn(Command::new(PSTRAIN).current_dir(folder), args)
    }

    /// Has `command` start `pstrain` with `args`, in its own place.
    pub(crate) fn start_under(command: &[&str], args: &[&str]) -> Self {
        let (first, more) = command.split_first().expect("a command");
        Self::spawn(Command::new(first).args(more).arg(PSTRAIN), args)
    }

    fn spawn(command: &mut Command, args: &[&str]) -> Self {
        let mut child = command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = Printed::read(child.stdout.take().expect("it is piped"));
        let stderr = Printed::read(child.stderr.take().expect("it is piped"));
        Self { child, command: format!("pstrain {}", args.join(" ")), stdout, stderr }
    }

    /// Its number on this machine.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is still there");
    }

    /// Its stderr so far.
    pub(crate) fn said(&self) -> String {
        self.stderr.now()
    }

    /// Waits until it has said `words` on stderr; gives all it said.
    pub(crate) fn wait_to_say(&self, words: &str) -> String {
        let said = self.stderr.until(|text| text.contains(words));
        assert!(said.contains(words), "{}: never said {words:?}, only:\n{said}", self.command);
        said
    }

    /// Waits until it has ended.
    pub(crate) fn wait(mut self) -> Ended {
        self.ended_or(|_| false).expect("nothing it says is enough")
    }

    /// Waits until it has ended, or has said `words` on stderr, in which case it is killed.
    pub(crate) fn wait_or_say(mut self, words: &str) -> Option<Ended> {
        self.ended_or(|said| said.contains(words))
    }

    /// How it ended, unless it says what is `enough` before.
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
        // Either fails only if it has ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Ended {
    /// This, after having checked the exit code.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        let Self { command, stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "{command}\nstdout: {stdout}\nstderr: {stderr}");
        self
    }

    /// The one JSON object on stdout.
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

    /// Checks that it was refused with `code`, saying all of `words`, and printed no result.
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

/// Runs `pstrain` with `args` to its end.
pub(crate) fn finish(args: &[&str]) -> Ended {
    Process::start(args).wait()
}

/// Looks again and again until there is an answer.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within_patience(look).unwrap_or_else(|| panic!("no {what} in {PATIENCE:?}"))
}

/// The same; none if there is no answer for too long.
fn within_patience<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = WallClock::start();
    while clock.now().as_secs_f64() < PATIENCE.as_secs_f64() {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(GLANCE);
    }
    None
}
