//! Arguments of `pstrain data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Form, JobArgs};

#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Describes data: rows, classes, columns
    Info {
        /// The data, as the job setting `data`, or `nsl-kdd` for the shipped synthetic default
        source: String,
        /// Lists the layers of a model of the data: sizes, parameters and products for a row
        #[arg(long)]
        model: Option<String>,
    },
    /// Writes down the columns of a table, with their roles and statistics
    Profile {
        /// Tables, as the job setting `data`, and profiles (`*.toml`); several are merged
        #[arg(required = true)]
        sources: Vec<String>,
    },
    /// Writes synthetic data in the format of the original files
    Synth {
        /// Number of rows
        #[arg(long, default_value_t = pstrain_data::synthetic::DEFAULT_ROWS)]
        rows: u64,
        /// The seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The file to write
        #[arg(long, short, value_name = "FILE")]
        out: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Shows the part of each worker under a partition
    Split {
        #[command(flatten)]
        job: JobArgs,
    },
}
