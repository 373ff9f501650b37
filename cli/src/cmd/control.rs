//! `pstrain control`: changes a running job.

use anyhow::bail;
use pstrain_core::id::Version;
use pstrain_core::node::LEAVE_SERVER;
use pstrain_core::protocol::message::{Begun, Control};
use pstrain_core::protocol::{Message, PROTOCOL_VERSION, WaitReason};
use serde::Serialize;

use super::client::ask_for_long;
use super::status;
use crate::args::{ControlArgs, ControlCommand};
use crate::exit::Ending;
use crate::messages;

/// What `--json` prints.
#[derive(Serialize)]
struct View<'a> {
    key: &'a str,
    value: &'a str,
    /// The version of the parameters from which on it is so.
    version: Version,
    /// All of the mode.
    mode: &'a str,
}

pub(crate) fn run(args: &ControlArgs) -> anyhow::Result<Ending> {
    let (key, value) = match &args.command {
        ControlCommand::Set { key, value } => (key.clone(), value.clone()),
        ControlCommand::LeaveServer { server } => (LEAVE_SERVER.into(), server.to_string()),
    };
    let order = Message::Control(Control {
        protocol_max: PROTOCOL_VERSION,
        key: key.clone(),
        value: value.clone(),
    });
    let answer = |message| match message {
        Message::Controlled(controlled) => Some(controlled),
        _ => None,
    };
    let address = (&args.address, &args.security);
    match ask_for_long(address, args.timeout, &order, answer, || waits(args))? {
        Ok(Begun { version, mode }) if args.json => {
            let view = View { key: &key, value: &value, version, mode: &mode };
            messages::result(&serde_json::to_string(&view)?)?;
        }
        Ok(Begun { version, .. }) if key == LEAVE_SERVER => messages::result(&format!(
            "server {value} has no keys from version {version} on, and goes\n"
        ))?,
        Ok(Begun { version, mode }) => messages::result(&format!(
            "{key} = {value} from version {version} on; the mode is {mode}\n"
        ))?,
        Err(why) => bail!("{}: {why}", args.address),
    }
    Ok(Ending::Done)
}

/// For whom the server waits, if that is before the next mode can begin.
fn waits(args: &ControlArgs) -> Option<String> {
    let status = status::at_once((&args.address, &args.security))?;
    let wait = status.wait?;
    if wait.reason == WaitReason::Keys {
        return Some(format!("keys will move; waiting {}", status::waiting(&wait)));
    }
    let Some(ordered) = status.ordered else {
        return Some(format!("it waits {}", status::waiting(&wait)));
    };
    Some(format!("{ordered} is ordered and will begin; waiting {}", status::waiting(&wait)))
}
