//! Arguments for the results and messages of commands.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::size::{SizeLimit, size_or_none};
use crate::messages::LogForm;

/// The output of a command that trains.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("recorded").multiple(true)))]
pub(crate) struct Output {
    /// Write the curve, the events, a row for every gradient, the order of updates, the summary,
    /// the job and the model to this folder
    #[arg(long, value_name = "DIR", group = "recorded")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the results that --out already holds
    #[arg(long, requires = "out")]
    pub(crate) overwrite: bool,
    /// Size limit of each file of --out that grows with every gradient. The file ends there, or
    /// once little of the disk is free; training continues
    #[arg(
        long,
        value_name = "SIZE|none",
        default_value = "1GiB",
        requires = "recorded",
        value_parser = size_or_none
    )]
    pub(crate) out_limit: SizeLimit,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Print neither progress nor tables
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Form of messages.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LogArgs {
    /// Write messages on stderr as text, or as JSON: one object a line, with time, level, message
    /// and fields
    #[arg(long = "log", value_enum, value_name = "text|json", default_value = "text")]
    pub(crate) form: LogForm,
}
