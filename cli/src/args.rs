//! The command line: commands and their arguments.

mod bench;
#[cfg(feature = "cert")]
mod cert;
mod compute;
#[cfg(feature = "pictures")]
mod experiment;
mod output;
mod size;
mod time;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_roles::node::Replicate;
use pstrain_transports::Address;
use pstrain_transports::process::ProcessAddress;
use pstrain_wire::group::Place;
use serde::{Deserialize, Serialize};

use crate::exit;
use crate::job::JobFlags;
use crate::keys::Keys;
use crate::rank::RankOf;

pub(crate) use bench::{BenchArgs, BenchPart, CrowdArgs, CrowdSize};
#[cfg(feature = "cert")]
pub(crate) use cert::{CertArgs, CertCommand, NodeArgs};
pub(crate) use compute::{CheckArgs, ComputeArgs, ComputeCommand, ProcessArgs, ServeArgs};
#[cfg(feature = "pictures")]
pub(crate) use experiment::{ExperimentArgs, ExperimentCommand, ExperimentRunArgs, ValidateArgs};
pub(crate) use output::{LogArgs, Output};
pub(crate) use time::Every;
use time::{nonzero_time, time_or_never};

const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (protocol 20, ",
    env!("PSTRAIN_TARGET"),
    ", ",
    env!("PSTRAIN_BUILD"),
    ")"
);

/// Parameter-server training across slow, uneven networks.
#[derive(Debug, Parser)]
#[command(name = "pstrain", version = VERSION, after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trains with a whole cluster in this process: one server and its workers
    Run(RunArgs),
    /// Trains with a whole cluster in virtual time, over modelled links
    Simulate(SimulateArgs),
    /// Serves the parameters of a job to the workers that connect
    Server(Box<ServerArgs>),
    /// Computes gradients for a server
    Worker(WorkerArgs),
    /// Prints the state of a running job: which workers it waits for, and since when
    Status(StatusArgs),
    /// Prints statistics of the parameters of a running job, or writes the parameters to a file
    Pull(PullArgs),
    /// Adds values to the parameters of a running job, or puts them in their place
    Push(PushArgs),
    /// Explains the speed of a running job: which workers wait for which, and where the time goes
    Why(StatusArgs),
    /// Shows a running job live: its curve, its workers, and which workers hold up the others
    #[cfg(feature = "top")]
    Top(TopArgs),
    /// Changes how a running job waits for its workers, removes a server, or ends the run
    Control(ControlArgs),
    /// Evaluates a trained model on a data file
    Eval(EvalArgs),
    /// Recomputes the parameters of a past run from its order of updates
    Replay(ReplayArgs),
    /// Checks and serves compute processes, which have a model and data of your own
    Compute(ComputeArgs),
    /// Describes data, makes synthetic data, shows the parts of a partition
    Data(DataArgs),
    /// Measures this machine, so that training times of different machines can be compared
    Calibrate(CalibrateArgs),
    /// Measures the speed of this machine: steps, push-pulls, a server of many workers, simulated
    /// runs
    Bench(BenchArgs),
    /// Plays the workers of `bench server`, which starts this command
    #[command(hide = true)]
    Crowd(CrowdArgs),
    /// Makes keys and certificates: a CA, certificates for its nodes, or a pre-shared key
    #[cfg(feature = "cert")]
    Cert(CertArgs),
    /// Runs published experiments and your own sweeps: grids, repetitions, pictures, claims
    #[cfg(feature = "pictures")]
    Experiment(ExperimentArgs),
    /// Compares virtual time with shaped links and, where possible, with tc netem
    #[cfg(feature = "pictures")]
    Validate(ValidateArgs),
    /// Prints a completion script for a shell
    #[cfg(feature = "shell")]
    Completions(CompletionsArgs),
    /// Writes the manual pages
    #[cfg(feature = "shell")]
    Man(ManArgs),
}

/// The job: settings from a file, overruled by the environment, overruled by flags.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// Job file (TOML) with the settings below, without their dashes
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,
    /// Print the resolved job, where each setting comes from, and stop
    #[arg(long)]
    pub(crate) print_job: bool,
    #[command(flatten)]
    pub(crate) flags: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) output: Output,
    /// Transport between the workers of this process and its server
    #[arg(long, value_enum, default_value_t = Transport::Memory)]
    pub(crate) transport: Transport,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Messages handed over in memory
    Memory,
    /// A Unix socket
    Unix,
    /// TCP over the loopback address
    Tcp,
}

/// Security of connections. Without any of these flags, only this machine can connect, in plain
/// text.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SecurityArgs {
    /// Use TLS 1.3 with certificates on both sides: a folder that `pstrain cert` makes, with
    /// ca.pem, node.pem, node.key and, if there is one, revoked.pem
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with_all = ["psk", "insecure"])]
    pub(crate) tls: Option<PathBuf>,
    /// Encrypt with a pre-shared key: a file that `pstrain cert psk` makes
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) psk: Option<PathBuf>,
    /// Accept a key file (node.key, or the file of --psk) that root owns and its group can read, as
    /// Kubernetes (fsGroup) and systemd provide secrets: all members of that group can read it
    #[arg(long, global = true)]
    pub(crate) group_readable_key: bool,
    /// Allow plain text with other machines: anyone who reaches them can read and change the
    /// traffic and take part in the run
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
}

/// Form in which gradients are replicated to a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Replicated {
    /// Each push, as it arrives.
    Pushes,
    /// The combined gradient of a round, once the round closes.
    Updates,
}

impl From<Replicated> for Replicate {
    fn from(replicated: Replicated) -> Self {
        match replicated {
            Replicated::Pushes => Self::Pushes,
            Replicated::Updates => Self::Updates,
        }
    }
}

/// State that survives a crash of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// Nothing.
    None,
    /// The state at the last checkpoint.
    Checkpoint,
    /// Everything that was acknowledged.
    Log,
}

/// Position of a server in its group; never the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupPosition {
    pub(crate) server: ServerId,
    pub(crate) servers: u32,
}

impl From<GroupPosition> for Place {
    fn from(GroupPosition { server, servers }: GroupPosition) -> Self {
        Self::First { server, servers }
    }
}

impl FromStr for GroupPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(server, servers)| {
            Some((server.parse::<u32>().ok()?, servers.parse::<u32>().ok()?))
        });
        match numbers {
            Some((server, servers)) if (2..=servers).contains(&server) => {
                Ok(Self { server: ServerId(server - 1), servers })
            }
            Some((1, _)) => {
                Err("server 1 coordinates: start it with the job, and servers = M".into())
            }
            _ => Err("use K/M, such as 2/4 for the second of four servers".into()),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Where to listen: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub(crate) listen: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Be server K of the M servers of a job; server 1 coordinates and sends the job
    #[arg(
        long,
        value_name = "K/M",
        groups = ["follows", "announced"],
        conflicts_with_all = ["job", "print_job", "out", "json"]
    )]
    pub(crate) shard: Option<GroupPosition>,
    /// Join a running job as an additional server: the longest key range of the other servers is
    /// cut in half, and this server takes the upper half
    #[arg(
        long,
        groups = ["follows", "announced"],
        conflicts_with_all = ["job", "print_job", "out", "json"]
    )]
    pub(crate) join: bool,
    /// Address of server 1 of the job, for --shard and --join
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070", requires = "follows")]
    pub(crate) coordinator: Address,
    /// Be the standby of the server at this address, which has the same job: replicate its state,
    /// and lead in its place once it is gone and half of the workers have lost it, too. From then
    /// on the server acknowledges only what both have. The standby refers workers and clients to
    /// this address, so give one that workers can reach
    #[arg(
        long,
        value_name = "ADDRESS",
        group = "announced",
        conflicts_with_all = ["shard", "join", "resume"]
    )]
    pub(crate) standby_of: Option<Address>,
    /// Address at which workers reach this server, for --shard, --join and --standby-of [default:
    /// the address of --listen]
    #[arg(long, value_name = "ADDRESS", requires = "announced")]
    pub(crate) advertise: Option<Address>,
    /// Form in which gradients go to a standby. updates: the combined gradient of each round, once
    /// the round closes, so that k pushes cost the traffic of one. pushes: each push, as it arrives
    /// [default: updates]
    #[arg(long, value_name = "pushes|updates", conflicts_with_all = ["shard", "join"])]
    pub(crate) replicate: Option<Replicated>,
    /// What survives a crash of the server or its machine. none: nothing. checkpoint: what was
    /// there at the last checkpoint; all that came since is lost, as a whole, and workers join
    /// anew; several servers take theirs together, when the first says so, and must all have this.
    /// It costs next to nothing. log: all that was acknowledged, since every input is on the disk
    /// before anybody sees an answer to it; each answer waits for the disk
    #[arg(
        long,
        value_name = "none|checkpoint|log",
        default_value = "none",
        requires_ifs = [("log", "state"), ("checkpoint", "state")]
    )]
    pub(crate) durability: Durability,
    /// New folder for the state; needed by --durability checkpoint and log
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// How often the whole state is written to --state, while training continues. A crash loses
    /// all work since then under --durability checkpoint; under log a resumed server reads it
    /// again, and the log becomes that long (a log of 64 MiB that is 8 times the state does not
    /// wait so long)
    #[arg(
        long, value_name = "TIME", default_value = "30s", requires = "state", value_parser = nonzero_time
    )]
    pub(crate) checkpoint_every: humantime::Duration,
    /// Continue the run that is kept in this folder, and keep it there; the job, the durability and
    /// the results folder stay those of the run
    #[arg(
        long,
        value_name = "DIR",
        group = "recorded",
        conflicts_with_all = ["durability", "state", "checkpoint_every", "job", "print_job"]
    )]
    pub(crate) resume: Option<PathBuf>,
    /// Serve the run's numbers to Prometheus at http://HOST:PORT/metrics
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// How often to say how the run is doing: updates, loss, accuracy, who is there and who is
    /// awaited; 0s or never turns it off [default: 1m, but never on a terminal that shows the
    /// progress]
    #[arg(
        long,
        value_name = "TIME|never",
        value_parser = time_or_never,
        conflicts_with_all = ["shard", "join", "quiet"]
    )]
    pub(crate) log_every: Option<Every>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Address of the server: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) server: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// This worker's data: a file or folder, `synthetic` if the job's data are synthetic, or
    /// `server` to receive them from the server. Without it: the job's data, if they need no file
    #[arg(long, value_name = "PATH|FORMAT|server")]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    /// Worker id to ask for (1, 2, ...); without it the server chooses one
    #[arg(long)]
    pub(crate) id: Option<WorkerId>,
    /// Take the rank that the launching engine gave this process (rank 0 is worker 1), and refuse a
    /// job whose number of workers is not the number that the engine started
    #[arg(long, value_enum, value_name = "auto|ENGINE", conflicts_with = "id")]
    pub(crate) rank: Option<RankOf>,
    /// A name for tables and messages [default: host name and process id]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long the server may be silent, until the worker knows the lease of the job
    #[arg(long, default_value = "5s", value_parser = nonzero_time)]
    pub(crate) lease: humantime::Duration,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Print errors only
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Address of the server: HOST:PORT or unix:PATH
    pub(crate) address: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for the answer
    #[arg(long, default_value = "5s", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Address of the server (of several: server 1): HOST:PORT or unix:PATH
    pub(crate) address: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Range of keys: A..B (without B), A.., ..B; without it all keys
    #[arg(long, value_name = "A..B")]
    pub(crate) keys: Option<Keys>,
    /// Write the values that are not 0 to this file, one line `KEY VALUE` each
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for the answer
    #[arg(long, default_value = "30s", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Address of the server (of several: server 1): HOST:PORT or unix:PATH
    pub(crate) address: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Range of keys: A..B (without B), A.., ..B; without it all keys
    #[arg(long, value_name = "A..B")]
    pub(crate) keys: Option<Keys>,
    /// The values, as pull writes them: lines `KEY VALUE`, keys ascending; 0 for missing keys. Or a
    /// model of the same form, a file that ends in .safetensors
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// Replace the parameters by the values instead of adding them
    #[arg(long)]
    pub(crate) set: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait until the values are in the parameters; after a timeout they may still get
    /// there
    #[arg(long, default_value = "1m", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[cfg(feature = "top")]
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Address of the server: HOST:PORT or unix:PATH
    pub(crate) address: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    /// Time between two requests
    #[arg(long, default_value = "1s", value_parser = nonzero_time)]
    pub(crate) interval: humantime::Duration,
    /// How long to wait for an answer
    #[arg(long, default_value = "5s", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Address of the server: HOST:PORT or unix:PATH
    pub(crate) address: Address,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(subcommand)]
    pub(crate) command: ControlCommand,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long to wait until the command has taken effect; after a timeout it may still take
    /// effect
    #[arg(long, global = true, default_value = "1m", value_parser = nonzero_time)]
    pub(crate) timeout: humantime::Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Changes a setting, once the gradients under way have been applied under the old one
    Set {
        /// consistency, in-flight, staleness, max-staleness or participation
        key: String,
        /// The value, as in a job file
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Ends the run in order, as Ctrl-C at the server does: what is under way comes back and
    /// counts, and all processes of the run end with code 3. Waits until the server has written its
    /// results
    Stop,
    /// Removes one of several servers, once the others have taken over its keys
    LeaveServer {
        /// Number of the server; not 1, which coordinates
        server: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The model: model.safetensors, or the results folder that contains it
    #[arg(long, value_name = "PATH")]
    pub(crate) model: PathBuf,
    /// The data, as the job setting `data`
    #[arg(long, value_name = "PATH|FORMAT")]
    pub(crate) data: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a norm.
fn norm(text: &str) -> Result<f64, String> {
    let norm = text.parse().ok().filter(|norm: &f64| *norm >= 0.0);
    norm.ok_or_else(|| "must be a number from 0 up".to_owned())
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The results folder of a run, or its order.log, with job.toml in the same folder
    #[arg(value_name = "PATH")]
    pub(crate) log: PathBuf,
    /// Stop at this version of the parameters
    #[arg(long, value_name = "VERSION")]
    pub(crate) until: Option<u64>,
    /// Stop before the first update whose gradient has a larger L2 norm, before clipping, and print
    /// the mini-batches behind it
    #[arg(long, value_name = "NORM", value_parser = norm)]
    pub(crate) break_norm: Option<f64>,
    /// The run's data at their present place, as the job setting `data` [default: where its job
    /// file says]
    #[arg(long, value_name = "PATH|FORMAT")]
    pub(crate) data: Option<String>,
    /// The run's evaluation rows at their present place, or other rows to evaluate on; none: the
    /// rows held out of its data [default: where its job file says]
    #[arg(long, value_name = "PATH|FORMAT|none")]
    pub(crate) evaluation_data: Option<String>,
    /// The compute process of the run, if it had one: a shell command, or unix:PATH. A job file
    /// never starts a process by itself here, since records may come from elsewhere
    #[arg(long, value_name = "COMMAND|unix:PATH")]
    pub(crate) process: Option<ProcessAddress>,
    /// Write the model to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Describes data: rows, classes, columns
    Info {
        /// The data, as the job setting `data`, or `nsl-kdd` for the shipped synthetic default
        source: String,
        /// Print one JSON object instead of tables
        #[arg(long)]
        json: bool,
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
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        overwrite: bool,
    },
    /// Shows the part of each worker under a partition
    Split {
        #[command(flatten)]
        job: JobArgs,
        /// Print one JSON object instead of tables
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "shell")]
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(feature = "shell")]
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder to write the pages to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
