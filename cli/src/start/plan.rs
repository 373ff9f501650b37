//! The plan of a `pstrain server`: its arguments and settings, checked before anything is opened.
//!
//! Conflicts that clap can express are attributes of [`ServerArgs`]; all others are found here.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pstrain_roles::node::Replicate;
use pstrain_transports::Address;
use pstrain_wire::group::Place;

use crate::args::{Durability, Every, Form, JobArgs, Output, SecurityArgs, ServerArgs, StateArgs};
use crate::durable::Resumed;
use crate::job::Layers;
use crate::messages::LogForm;

/// Default period of the progress messages, where no progress is shown on a terminal.
const SAYS_EVERY: Duration = Duration::from_secs(60);

/// The checked arguments and settings of a server.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    pub(crate) reached: Reached,
}

/// How others reach this server.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) listen: Address,
    pub(crate) security: SecurityArgs,
    /// Address that another server announces to workers; by default the address it listens at.
    pub(crate) advertise: Option<Address>,
}

/// The part of a server in its run.
#[derive(Debug)]
pub(crate) enum Role {
    /// Has the job: the coordinator, or a standby.
    Job(Box<JobPlan>),
    /// Holds a key range of the job that the coordinator sends.
    Shard { place: Place, coordinator: Address, begins: Begins<Keeps>, says: Says },
}

/// Messages of a server that does not coordinate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Says {
    /// The form of its end.
    pub(crate) form: Form,
    /// No messages about events.
    pub(crate) quiet: bool,
}

/// The plan of a server with the job.
#[derive(Debug)]
pub(crate) struct JobPlan {
    pub(crate) begins: Begins<NewServer>,
    /// Form in which gradients go to a standby.
    pub(crate) replicate: Option<Replicate>,
    /// Its records and its results on stdout.
    pub(crate) output: Output,
    /// Period of the progress messages, if there are any.
    pub(crate) says_every: Option<Duration>,
    /// Address of its metrics.
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Option<String>,
}

/// The state with which a server begins.
#[derive(Debug)]
pub(crate) enum Begins<N> {
    New(N),
    /// A state, which says what the server is.
    Resumed(Resumed),
}

/// A new server with the job.
#[derive(Debug)]
pub(crate) enum NewServer {
    Coordinator {
        job: Layers,
        keeps: Keeps,
    },
    /// Stands by for the coordinator or shard at `primary`. It may keep a log, but not checkpoints
    /// alone: what it has must not get lost.
    Standby {
        job: Layers,
        primary: Address,
        log: Option<NewState>,
    },
}

/// The state that survives a crash of the server.
#[derive(Debug)]
pub(crate) enum Keeps {
    Nothing,
    Checkpoints(NewState),
    Log(NewState),
}

/// A state folder to be made.
#[derive(Debug)]
pub(crate) struct NewState {
    pub(crate) folder: PathBuf,
    pub(crate) checkpoint_every: Duration,
}

/// The error of a server with checkpoints that is to replicate.
pub(super) const NO_STANDBY: &str =
    "a server that keeps checkpoints alone takes no standby; leave it out";

impl Plan {
    /// Makes the plan of a server; `None` if its settings were only to be printed.
    pub(crate) fn of(args: &ServerArgs) -> anyhow::Result<Option<Self>> {
        let joins = args.join.then_some(Place::Wanted);
        let role = match args.shard.map(Place::from).or(joins) {
            Some(place) => Role::shard(args, place)?,
            None => match begins(args)? {
                Some(begins) => Role::with_job(args, begins),
                None => return Ok(None),
            },
        };
        let (listen, security) = (args.listen.clone(), args.security.clone());
        let reached = Reached { listen, security, advertise: args.advertise.clone() };
        Ok(Some(Self { role, reached }))
    }
}

impl Role {
    fn with_job(args: &ServerArgs, begins: Begins<NewServer>) -> Self {
        let is_shown = std::io::stderr().is_terminal() && args.log.form == LogForm::Text;
        Self::Job(Box::new(JobPlan {
            begins,
            replicate: args.replicate.map(Replicate::from),
            output: args.output.clone(),
            says_every: match args.log_every {
                Some(Every(every)) => every,
                None => (!args.output.quiet && !is_shown).then_some(SAYS_EVERY),
            },
            #[cfg(feature = "metrics")]
            metrics: args.metrics.clone(),
        }))
    }

    fn shard(args: &ServerArgs, place: Place) -> anyhow::Result<Self> {
        if let Some(flag) = args.job.flags.first() {
            bail!("--{flag}: the job of --shard and --join comes from server 1; leave it out");
        }
        #[cfg(feature = "metrics")]
        if args.metrics.is_some() {
            bail!(
                "--metrics: the run's numbers are with server 1, which coordinates; give it \
                 --metrics there, and leave it out here"
            );
        }
        let begins = match (&args.state.resume, Keeps::of(&args.state)?) {
            (Some(folder), _) => Begins::Resumed(Resumed::as_it_was(folder.clone())),
            (None, Keeps::Checkpoints(_)) if place == Place::Wanted => bail!(
                "--durability checkpoint: no server can join a run whose servers take \
                 checkpoints; leave it out, or use log"
            ),
            (None, keeps) => Begins::New(keeps),
        };
        let coordinator = args.coordinator.clone();
        let says = Says { form: args.output.form, quiet: args.output.quiet };
        Ok(Self::Shard { place, coordinator, begins, says })
    }
}

/// How a server with the job begins; `None` if its settings were only to be printed.
fn begins(args: &ServerArgs) -> anyhow::Result<Option<Begins<NewServer>>> {
    let (job, keeps) = match begins_with(&args.job, &args.state, args.output.form)? {
        Some(Begins::New(new)) => new,
        Some(Begins::Resumed(resumed)) => return Ok(Some(Begins::Resumed(resumed))),
        None => return Ok(None),
    };
    if let (Keeps::Checkpoints(_), Some(_)) = (&keeps, args.replicate) {
        bail!("--replicate: {NO_STANDBY}");
    }
    Ok(Some(Begins::New(match (args.standby_of.clone(), keeps) {
        (None, keeps) => NewServer::Coordinator { job, keeps },
        (Some(primary), Keeps::Nothing) => NewServer::Standby { job, primary, log: None },
        (Some(primary), Keeps::Log(state)) => NewServer::Standby { job, primary, log: Some(state) },
        (Some(_), Keeps::Checkpoints(_)) => bail!(
            "--durability checkpoint: what a standby has may not get lost; use log, or none where \
             two servers are safe enough"
        ),
    })))
}

/// How the coordinator of a job begins, in a process of its own or with its workers; `None` if the
/// settings were only to be printed.
pub(crate) fn begins_with(
    job: &JobArgs,
    state: &StateArgs,
    form: Form,
) -> anyhow::Result<Option<Begins<(Layers, Keeps)>>> {
    if let Some(folder) = &state.resume {
        let (others, epochs) = job.flags.without("epochs");
        if let Some(flag) = others.first() {
            bail!(
                "--{flag}: a run that is resumed continues with the job it had, and only --epochs \
                 may be raised; leave it out"
            );
        }
        let number = |text: &str| {
            text.parse().with_context(|| {
                format!("--epochs {text}: must be a whole number, not negative, such as 10")
            })
        };
        let epochs = epochs.map(number).transpose()?;
        return Ok(Some(Begins::Resumed(Resumed { folder: folder.clone(), epochs })));
    }
    let keeps = Keeps::of(state)?;
    let Some(job) = gather(job, form)? else { return Ok(None) };
    // The run may be resumed in another working directory.
    let job = if state.state.is_some() { job.with_absolute_data()? } else { job };
    job.real_time()?;
    job.check()?;
    Ok(Some(Begins::New((job, keeps))))
}

impl Keeps {
    fn of(args: &StateArgs) -> anyhow::Result<Self> {
        // Clap sees to it that checkpoints and logs have a folder.
        let Some(folder) = args.state.clone() else { return Ok(Self::Nothing) };
        let state = NewState { folder, checkpoint_every: args.checkpoint_every.into() };
        match args.durability {
            Durability::None => {
                bail!("--state: nothing is kept there without --durability checkpoint or log")
            }
            Durability::Checkpoint => Ok(Self::Checkpoints(state)),
            Durability::Log => Ok(Self::Log(state)),
        }
    }

    /// The state folder and what it is for, unless nothing is kept.
    pub(super) const fn parts(&self) -> Option<(Durability, &NewState)> {
        match self {
            Self::Nothing => None,
            Self::Checkpoints(state) => Some((Durability::Checkpoint, state)),
            Self::Log(state) => Some((Durability::Log, state)),
        }
    }
}

/// Gathers the settings; `None` if they were only to be printed.
pub(crate) fn gather(args: &JobArgs, form: Form) -> anyhow::Result<Option<Layers>> {
    let layers = Layers::gather(args.job.as_deref(), &args.flags)?;
    if args.print_job {
        form.print(&layers.origins(), || layers.to_toml())?;
        return Ok(None);
    }
    Ok(Some(layers))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    const LOG: [&str; 4] = ["--durability", "log", "--state", "kept"];
    const CHECKPOINT: [&str; 4] = ["--durability", "checkpoint", "--state", "kept"];

    fn plan(words: &[&[&str]]) -> anyhow::Result<Role> {
        let words = [&["pstrain", "server"], words.concat().as_slice()].concat();
        let Command::Server(args) = Cli::try_parse_from(words)?.command else { unreachable!() };
        Ok(Plan::of(&args)?.unwrap().role)
    }

    fn begins(words: &[&[&str]]) -> Begins<NewServer> {
        match plan(words).unwrap() {
            Role::Job(plan) => plan.begins,
            Role::Shard { .. } => panic!("it has a job"),
        }
    }

    #[test]
    fn each_form_of_a_server_has_a_plan() {
        let coordinator = begins(&[]);
        let Begins::New(NewServer::Coordinator { keeps, .. }) = coordinator else { panic!() };
        assert!(matches!(keeps, Keeps::Nothing));
        let standby = begins(&[&["--standby-of", "gw:1"], &LOG]);
        let Begins::New(NewServer::Standby { primary, log, .. }) = standby else { panic!() };
        assert_eq!((primary.to_string().as_str(), log.is_some()), ("tcp://gw:1", true));
        let resumed = |words: &[&str]| match begins(&[&["--resume", "kept"], words]) {
            Begins::Resumed(resumed) => resumed.epochs,
            Begins::New(_) => panic!("it is resumed"),
        };
        assert_eq!((resumed(&[]), resumed(&["--epochs", "30"])), (None, Some(30)));
        let shard = plan(&[&["--shard", "2/3"], &CHECKPOINT]).unwrap();
        let Role::Shard { begins: Begins::New(keeps), .. } = shard else { panic!() };
        assert!(matches!(keeps, Keeps::Checkpoints(_)), "{keeps:?}");
        let joins = plan(&[&["--join"]]).unwrap();
        assert!(matches!(joins, Role::Shard { place: Place::Wanted, .. }), "{joins:?}");
    }

    #[test]
    fn conflicting_arguments_are_refused() {
        let refused: [(&[&[&str]], &str); 10] = [
            (&[&["--state", "kept"]], "nothing is kept there"),
            (&[&["--standby-of", "gw:1"], &CHECKPOINT], "may not get lost"),
            (&[&["--join"], &CHECKPOINT], "no server can join a run"),
            (&[&["--shard", "2/3", "--epochs", "3"]], "comes from server 1"),
            (&[&["--resume", "kept", "--workers", "3"]], "the job it had"),
            (&[&["--replicate", "pushes"], &CHECKPOINT], "takes no standby"),
            (&[&["--advertise", "gw:1"]], "--standby-of"),
            (&[&["--coordinator", "gw:1"]], "--join"),
            (&[&["--durability", "log"]], "--state"),
            (&[&["--shard", "2/3", "--log-every", "1s"]], "cannot be used with"),
        ];
        for (words, why) in refused {
            let error = plan(words).unwrap_err().to_string();
            assert!(error.contains(why), "{words:?}: {error}");
        }
    }
}
