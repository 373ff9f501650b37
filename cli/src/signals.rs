//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use pstrain_core::node::Input;
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
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    std::thread::spawn(move || {
        let mut asked = false;
        for _signal in signals.forever() {
            if asked {
                messages::say("aborted");
                std::process::exit(exit::ABORTED);
            }
            asked = true;
            messages::say("draining: letting outstanding gradients come back (again to abort)");
            handle.post(Input::Drain);
        }
    });
    Ok(())
}
