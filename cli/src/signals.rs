//! Ctrl-C and SIGTERM: the first signal requests an orderly end, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use pstrain_roles::node::Input;
use pstrain_transports::Handle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{exit, messages};

/// Installs a handler: the first signal raises the returned flag and prints `what`, the second ends
/// the process.
pub(crate) fn flag_on_signal(what: &'static str) -> anyhow::Result<Arc<AtomicBool>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::spawn(move || {
        for _signal in signals.forever() {
            if raised.swap(true, Ordering::Relaxed) {
                exit::abort(None);
            }
            messages::say(what);
        }
    });
    Ok(flag)
}

/// Drain on signal for a process that runs several nodes in succession. The first signal drains the
/// current node and every later one; the second signal aborts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(Arc<Mutex<Wanted>>);

#[derive(Debug, Default)]
struct Wanted {
    node: Option<Handle>,
    asked: bool,
    /// A signal handler is installed, or none is wanted.
    is_watched: bool,
    /// How long after the first signal the node is drained.
    after: Duration,
    /// How the run goes on after the second signal, if it does.
    goes_on: Option<String>,
}

/// How long a process of a batch system goes on after a signal. The system may have signalled all
/// processes of the run, and the run is stopped by its server: a worker that left before would not
/// be a member of the run that is resumed.
const TOGETHER: Duration = Duration::from_secs(2);

impl Drain {
    /// A drain that signals do not reach.
    pub(crate) fn without_signals() -> Self {
        Self(Arc::new(Mutex::new(Wanted { is_watched: true, ..Wanted::default() })))
    }

    /// A drain of a process that a batch system may signal together with all others of the run.
    pub(crate) fn together() -> Self {
        Self(Arc::new(Mutex::new(Wanted { after: TOGETHER, ..Wanted::default() })))
    }

    /// Sets how the run goes on after the second signal, if it does.
    pub(crate) fn goes_on(&self, how: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).goes_on = how;
    }

    /// Ends the current node and every later one: a server that does not coordinate asks at first
    /// to leave, and ends when it is told again.
    pub(crate) fn end(&self) {
        self.ask();
        let wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = &wanted.node {
            node.post(Input::Drain);
        }
    }

    /// Drains the current node and every later one, as the first signal does.
    pub(crate) fn ask(&self) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut wanted.asked, true)
            && let Some(node) = &wanted.node
        {
            node.post(Input::Drain);
        }
    }

    /// True after the first signal.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// Makes the node behind `handle` the one to drain; drains it at once if a signal came before.
    pub(crate) fn turn_to(&self, handle: Handle) -> anyhow::Result<()> {
        self.watch()?;
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.asked {
            handle.post(Input::Drain);
        }
        wanted.node = Some(handle);
        Ok(())
    }

    /// Installs the signal handler, unless there is one. A process that has announced itself must
    /// have it: it is stopped in order from then on.
    pub(crate) fn watch(&self) -> anyhow::Result<()> {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut wanted.is_watched, true) {
            return Ok(());
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let shared = Arc::clone(&self.0);
        std::thread::spawn(move || {
            for _signal in signals.forever() {
                let mut wanted = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::replace(&mut wanted.asked, true) {
                    exit::abort(wanted.goes_on.as_deref());
                }
                messages::say("draining: letting outstanding gradients come back (again to abort)");
                let Some(node) = wanted.node.clone() else { continue };
                let after = wanted.after;
                if after.is_zero() {
                    node.post(Input::Drain);
                    continue;
                }
                // A thread of its own, since a second signal is heard meanwhile.
                std::thread::spawn(move || {
                    std::thread::sleep(after);
                    node.post(Input::Drain);
                });
            }
        });
        Ok(())
    }
}
