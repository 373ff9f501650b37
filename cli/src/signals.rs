//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use pstrain_roles::node::Input;
use pstrain_transports::Handle;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{exit, messages};

/// From now on, the first signal raises a flag and says `what`, the second ends the process.
pub(crate) fn flag_on_signal(what: &'static str) -> anyhow::Result<Arc<AtomicBool>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::spawn(move || {
        for _signal in signals.forever() {
            if raised.swap(true, Ordering::Relaxed) {
                messages::say("aborted");
                std::process::exit(exit::ABORTED);
            }
            messages::say(what);
        }
    });
    Ok(flag)
}

/// From now on, drains the node behind `handle` at the first signal and aborts at the second.
pub(crate) fn drain_on_signal(handle: Handle) -> anyhow::Result<()> {
    Drain::default().turn_to(handle)
}

/// Drains one node after the other in the place of the one before: whichever there is at the first
/// signal, and whichever follows. The second signal aborts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(Arc<Mutex<Wanted>>);

#[derive(Debug, Default)]
struct Wanted {
    node: Option<Handle>,
    asked: bool,
}

impl Drain {
    /// Whether there was a signal.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked
    }

    /// From now on it is about this node.
    pub(crate) fn turn_to(&self, handle: Handle) -> anyhow::Result<()> {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.asked {
            handle.post(Input::Drain);
        }
        if wanted.node.replace(handle).is_some() {
            return Ok(()); // it is watched already
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let shared = Arc::clone(&self.0);
        std::thread::spawn(move || {
            for _signal in signals.forever() {
                let mut wanted = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if std::mem::replace(&mut wanted.asked, true) {
                    messages::say("aborted");
                    std::process::exit(exit::ABORTED);
                }
                messages::say("draining: letting outstanding gradients come back (again to abort)");
                if let Some(node) = &wanted.node {
                    node.post(Input::Drain);
                }
            }
        });
        Ok(())
    }
}
