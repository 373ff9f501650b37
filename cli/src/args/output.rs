//! Arguments for the results and messages of commands.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::size::{SizeLimit, size_or_none};
use crate::messages::{self, LogForm};

/// The form of a command's results.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Form {
    /// Print one JSON object instead of text
    ///
    /// Nothing else is on stdout. Messages and errors on stderr are JSON objects, too, one on each
    /// line; those of a server and a worker with --log json.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Form {
    /// Prints a result: as JSON, or as the text that people read.
    pub(crate) fn print(
        self,
        result: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        messages::result(&if self.json { serde_json::to_string(result)? } else { text() })
    }

    /// Reports what was done: as JSON on stdout, or as a message on stderr.
    pub(crate) fn report(
        self,
        done: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            return messages::result(&serde_json::to_string(done)?);
        }
        messages::say(&text());
        Ok(())
    }
}

/// The output of a command that trains.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output", group(ArgGroup::new("recorded").multiple(true)))]
pub(crate) struct Output {
    /// Write the results to this folder
    ///
    /// The curve, the events, a row for every gradient, the order of updates, the summary, the job
    /// and the model.
    #[arg(long, short, value_name = "DIR", group = "recorded")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the results that --out already holds
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,
    /// Size limit of each growing file
    ///
    /// Of each file of --out that grows with every gradient, or none. The file ends there, or once
    /// little of the disk is free; training continues.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        requires = "recorded",
        value_parser = size_or_none
    )]
    pub(crate) out_limit: SizeLimit,
    #[command(flatten)]
    pub(crate) form: Form,
    /// Print neither progress nor tables
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Form of messages.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LogArgs {
    /// Form of messages on stderr
    ///
    /// text, or json: one object a line, with time, level, message and fields.
    #[arg(
        long = "log",
        id = "log",
        value_enum,
        value_name = "text|json",
        hide_possible_values = true,
        default_value = "text"
    )]
    pub(crate) form: LogForm,
}
