//! `pstrain control`: changes a running job.

use std::time::Duration;

use anyhow::bail;
use pstrain_compute::id::Version;
use pstrain_compute::time::Time;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::{LEAVE_SERVER, STOP};
use pstrain_transports::WallClock;
use pstrain_wire::client::{Begun, Control, Controlled};
use pstrain_wire::{Message, PROTOCOL_VERSION, Status, WaitReason};
use serde::Serialize;

use super::client::{NoAnswer, ask_slow};
use super::status;
use crate::args::{ControlArgs, ControlCommand};
use crate::exit::Ending;
use crate::job::suggestion;
use crate::messages;
use crate::wait_text::waiting;

/// Output of `--json`.
#[derive(Serialize)]
struct View<'a> {
    key: &'a str,
    value: &'a str,
    /// The first version of the parameters under the change.
    version: Version,
    /// The complete mode.
    mode: &'a str,
}

pub(crate) fn run(args: &ControlArgs) -> anyhow::Result<Ending> {
    let clock = WallClock::start();
    let (key, value) = match &args.command {
        ControlCommand::Set { key, value } => (key.as_str(), value.clone()),
        ControlCommand::Stop => (STOP, String::new()),
        ControlCommand::LeaveServer { server } => (LEAVE_SERVER, server.to_string()),
    };
    let Begun { version, mode } = match order(args, key, &value)? {
        Ok(begun) => begun,
        Err(why) => bail!("{}: {}", args.server.address, in_short(key, &value, why)),
    };
    if key == STOP {
        wait_for_end(args, clock)?;
    }
    let view = View { key, value: &value, version, mode: &mode };
    args.form.print(&view, || match key {
        STOP => format!(
            "the run was told to stop at version {version} and has ended; pushes under way \
             counted\n"
        ),
        LEAVE_SERVER => format!("server {value} has no keys from version {version} on, and goes\n"),
        _ => format!("{key} = {value} from version {version} on; the mode is {mode}\n"),
    })?;
    Ok(Ending::Done)
}

/// Sends the command and waits for the answer.
fn order(args: &ControlArgs, key: &str, value: &str) -> anyhow::Result<Controlled> {
    let order = Message::Control(Control {
        protocol_max: PROTOCOL_VERSION,
        key: key.to_owned(),
        value: value.to_owned(),
    });
    let answer = |message| match message {
        Message::Controlled(controlled) => Some(controlled),
        _ => None,
    };
    let address = args.server.way();
    let answered = ask_slow(address, args.timeout, &order, answer, || waits(args));
    answered.or_else(|error| {
        if !matches!(error.downcast_ref(), Some(NoAnswer::Lost(_))) {
            return Err(error);
        }
        // If the run has ended, this returns the same error as `pstrain status`.
        let Status { phase, .. } = status::ask(address, args.timeout)?;
        bail!("{error:#}, and whether the order came is not known; ask again (the job is {phase})")
    })
}

/// Why a command was refused. If it is clear which value was meant, that value is named instead of
/// the list of all values.
fn in_short(key: &str, value: &str, why: String) -> String {
    let is_valid = |value: &str| Mode::default().set(key, value).is_ok();
    match suggestion(key, value, is_valid) {
        Some(suggestion) => format!("{key} = {value}: did you mean {suggestion:?}?"),
        None => why,
    }
}

/// Period of the requests to a server that is ending.
const GLANCE: Duration = Duration::from_millis(100);

/// Waits until no server answers any more: by then the results are written.
fn wait_for_end(args: &ControlArgs, clock: WallClock) -> anyhow::Result<()> {
    let timeout = Duration::from(args.timeout);
    let mut said = false;
    loop {
        let asked = status::ask(args.server.way(), args.timeout);
        let spent = clock.now().since(Time::ZERO);
        match asked {
            Err(error) if matches!(error.downcast_ref(), Some(NoAnswer::Unreachable(_))) => {
                return Ok(());
            }
            asked if spent >= timeout => {
                let why = asked.ok().map_or_else(String::new, |status| doing(&status));
                bail!("{}: it has not ended within {}{why}", args.server.address, args.timeout)
            }
            Ok(status) if spent >= super::client::LONG && !std::mem::replace(&mut said, true) => {
                messages::say(&format!("it has not ended yet{}", doing(&status)));
            }
            _ => {}
        }
        std::thread::sleep(GLANCE);
    }
}

/// The phase of a run that is ending, and the workers that it waits for.
fn doing(status: &Status) -> String {
    let waits = status.wait.as_ref();
    let waits = waits.map_or_else(String::new, |it| format!(", waiting {}", waiting(it)));
    format!(": it is {}{waits}", status.phase)
}

/// Describes the work that the server awaits before the next mode can begin.
fn waits(args: &ControlArgs) -> Option<String> {
    let status = status::at_once(args.server.way())?;
    let wait = status.wait?;
    if wait.reason == WaitReason::Keys {
        return Some(format!("keys will move; waiting {}", waiting(&wait)));
    }
    let Some(ordered) = status.ordered else {
        return Some(format!("it waits {}", waiting(&wait)));
    };
    Some(format!("{ordered} is ordered and will begin; waiting {}", waiting(&wait)))
}
