//! `pstrain control`: changes a running job.

use anyhow::bail;
use pstrain_core::id::Version;
use pstrain_core::protocol::message::Control;
use pstrain_core::protocol::{Message, PROTOCOL_VERSION};
use serde::Serialize;

use super::client::ask;
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
}

pub(crate) fn run(args: &ControlArgs) -> anyhow::Result<Ending> {
    let ControlCommand::Set { key, value } = &args.command;
    let order = Message::Control(Control {
        protocol_max: PROTOCOL_VERSION,
        key: key.clone(),
        value: value.clone(),
    });
    let controlled = ask(&args.address, args.timeout, &order, |message| match message {
        Message::Controlled(controlled) => Some(controlled),
        _ => None,
    });
    match controlled? {
        Ok(version) if args.json => {
            messages::result(&serde_json::to_string(&View { key, value, version })?)?;
        }
        Ok(version) => messages::result(&format!("{key} = {value} from version {version} on\n"))?,
        Err(why) => bail!("{}: {why}", args.address),
    }
    Ok(Ending::Done)
}
