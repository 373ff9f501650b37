//! The state folder of a durable server: job, identity of the run, checkpoints and journal.

mod label;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::time::Time;
use pstrain_data::Outline;
use pstrain_policy::job::Job;
use pstrain_transports::journal::{Files, Found, StateFolder, ordinary};
use pstrain_wire::group::Place;
use pstrain_wire::job_digest;
use serde::{Deserialize, Serialize};

use crate::args::Durability;
use crate::digest::hexadecimal;
use crate::job::Layers;
use crate::messages;
use crate::served::ServerData;

/// A state to go on from.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    pub(crate) folder: PathBuf,
    /// The passes over the data that the run is to make, if they are raised.
    pub(crate) epochs: Option<u32>,
}

impl Resumed {
    /// The state in `folder`, with the budget that it has.
    pub(crate) const fn as_it_was(folder: PathBuf) -> Self {
        Self { folder, epochs: None }
    }
}

/// The state folder of a durable run.
#[derive(Debug)]
pub(crate) struct DurableFolder {
    state: StateFolder,
    identity: Identity,
    /// Nothing is kept in it yet.
    is_new: bool,
    /// The passes over the data that the run is to make, if they are raised.
    epochs: Option<u32>,
}

/// The identity of a run, as `run.json` stores it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The random number of the run.
    pub(crate) run: u64,
    /// Digests of the job and of its training and evaluation rows.
    job: JobLabel,
    pub(crate) durability: Durability,
    pub(crate) checkpoint_every: Duration,
    /// The folder of its results.
    pub(crate) out: Option<PathBuf>,
    /// The primary that this server stands by for, if it began as a standby.
    pub(crate) standby: Option<StandbyOf>,
}

/// Identifies a job together with its data.
#[derive(Debug, Serialize, Deserialize)]
struct JobLabel {
    sha256: String,
    train: Fingerprint,
    /// Does not change the training, but changes the results in the record.
    evaluation: Fingerprint,
}

impl JobLabel {
    fn of(job: &Job, data: &ServerData) -> Self {
        Self {
            sha256: hexadecimal(&job_digest(job)),
            train: job.data.train.clone(),
            evaluation: Fingerprint::of(&data.outline.evaluation),
        }
    }
}

/// Addresses that a standby knows from its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StandbyOf {
    /// The address of the primary.
    pub(crate) primary: String,
    /// The address at which workers reach the standby.
    pub(crate) address: String,
}

/// The locked state folder of a server, and what its journal continues from.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) folder: StateFolder,
    pub(crate) checkpoint_every: Duration,
    pub(crate) found: Found,
    /// Time of the last input that is kept.
    pub(crate) now: Time,
}

impl Identity {
    /// The identity of a new run.
    pub(crate) fn new(
        run: u64,
        (job, data): (&Job, &ServerData),
        (durability, checkpoint_every): (Durability, Duration),
        out: Option<&Path>,
        standby: Option<StandbyOf>,
    ) -> anyhow::Result<Self> {
        let out = out.map(std::path::absolute).transpose().context("cannot tell where --out is")?;
        let job = JobLabel::of(job, data);
        Ok(Self { run, job, durability, checkpoint_every, out, standby })
    }
}

impl DurableFolder {
    /// Creates and locks the folder of a new run.
    ///
    /// # Errors
    ///
    /// If the folder is locked, or holds a run or other files of a server's state.
    pub(crate) fn claim(path: &Path, identity: Identity) -> anyhow::Result<Self> {
        let state = label::make_folder(path, &LABELS)?.of_run(identity.run);
        Ok(Self { state, identity, is_new: true, epochs: None })
    }

    /// Makes a claimed folder one that can be resumed, with a log if the run keeps one; `job` is
    /// the text of its job file.
    pub(crate) fn begin(&self, job: &str) -> anyhow::Result<()> {
        label::write(&self.state.path().join("job.toml"), job)?;
        if self.identity.durability == Durability::Log {
            self.state.begin_log(&Files, 0)?;
        }
        // Last: a labelled folder can be resumed, so it must be complete.
        label::put(self.state.path(), IDENTITY, &self.identity)
    }

    /// Opens and locks the folder of a run to resume; returns it with its job.
    pub(crate) fn open(Resumed { folder, epochs }: &Resumed) -> anyhow::Result<(Self, Layers)> {
        let path = folder.as_path();
        ensure!(
            !path.join(SHARD).exists() || path.join(IDENTITY).exists(),
            "{} is of a server that does not coordinate: say which with --shard K/M",
            path.display()
        );
        let (state, identity): (_, Identity) =
            label::open(path, IDENTITY, "`pstrain run` or `pstrain server`")?;
        let job = path.join("job.toml");
        ordinary(&job).with_context(|| format!("cannot read {}", job.display()))?;
        let layers = Layers::of_file(&job)?;
        let state = state.of_run(identity.run);
        Ok((Self { state, identity, is_new: false, epochs: *epochs }, layers))
    }

    /// True if nothing is kept in the folder yet.
    pub(crate) const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the passes over the data that the run is to make, if they are raised.
    pub(crate) const fn epochs(&self) -> Option<u32> {
        self.epochs
    }

    /// Returns the identity of the run.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the folder of checkpoints and journal.
    pub(crate) const fn state(&self) -> &StateFolder {
        &self.state
    }

    /// Checks that the run can resume with a job and data, which the caller resolved from the
    /// folder's job file.
    ///
    /// # Errors
    ///
    /// If the job or the data differ from the run's first job or data.
    pub(crate) fn check(&self, job: &Job, data: &ServerData) -> anyhow::Result<()> {
        let (was, is) = (&self.identity.job, JobLabel::of(job, data));
        let (folder, Outline { spec, evaluation_rows, .. }) =
            (self.state.path().display(), &data.outline);
        let train = is.train.difference(&was.train).map(|why| (&spec.source, why));
        let other = train.or_else(|| {
            let why = || (&evaluation_rows.source, String::from("other evaluation rows"));
            (is.evaluation != was.evaluation).then(why)
        });
        if let Some((file, difference)) = other {
            bail!(
                "the data ({file}) are not those of the run in {folder} any more: {difference}; \
                 put them, and its job.toml, back as they were, or begin a new run in another \
                 folder"
            );
        }
        ensure!(
            is.sha256 == was.sha256,
            "the job of {folder}/job.toml is not the one that the run began with: put it back as \
             it was, or begin a new run in another folder"
        );
        Ok(())
    }

    /// Finds the checkpoints and logs to resume from; warns of damaged ones.
    pub(crate) fn find(&self) -> anyhow::Result<Found> {
        find(&self.state, self.identity.durability == Durability::Log)
    }

    /// Returns what the journal of the resumed run continues from, and whom it stands by for.
    pub(crate) fn into_parts(self, found: Found, now: Time) -> (State, Option<StandbyOf>) {
        let Self { state: folder, identity, .. } = self;
        let checkpoint_every = identity.checkpoint_every;
        (State { folder, checkpoint_every, found, now }, identity.standby)
    }

    /// Stores a changed folder of results.
    pub(crate) fn set_out(&mut self, out: &Path) -> anyhow::Result<()> {
        let out = std::path::absolute(out).context("cannot tell where --out is")?;
        if self.identity.out.as_ref() != Some(&out) {
            self.identity.out = Some(out);
            label::put(self.state.path(), IDENTITY, &self.identity)?;
        }
        Ok(())
    }
}

/// The state folder of a server of a shard that is not the coordinator: its position in the group,
/// checkpoints and journal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShardFolder {
    place: Place,
    /// A random number that identifies this server.
    pub(crate) number: u64,
    pub(crate) durability: Durability,
    pub(crate) checkpoint_every: Duration,
}

impl ShardFolder {
    /// Creates and locks the folder, and a journal in it with `--durability log`.
    pub(crate) fn create(
        path: &Path,
        place: Place,
        number: u64,
        (durability, checkpoint_every): (Durability, Duration),
    ) -> anyhow::Result<(StateFolder, Self)> {
        let state = label::make_folder(path, &LABELS)?.of_run(number);
        if durability == Durability::Log {
            state.begin_log(&Files, 0)?;
        }
        let folder = Self { place, number, durability, checkpoint_every };
        // Last, after the log: a labelled folder can be resumed.
        label::put(path, SHARD, &folder)?;
        Ok((state, folder))
    }

    /// Opens and locks the folder of a server to resume.
    pub(crate) fn open(path: &Path, place: Place) -> anyhow::Result<(StateFolder, Self)> {
        ensure!(
            !path.join(IDENTITY).exists() || path.join(SHARD).exists(),
            "{} is of a server that coordinates, or of a standby: leave --shard out",
            path.display()
        );
        let (state, was): (_, Self) = label::open(path, SHARD, "`pstrain server --shard`")?;
        ensure!(was.place == place, "{} is of {}; this is {}", path.display(), was.place, place);
        Ok((state.of_run(was.number), was))
    }
}

/// A folder of whose checkpoints none is restored; `newest` is the greatest number in it.
pub(crate) const fn nothing_but(newest: u64) -> Found {
    Found { checkpoint: None, logs: Vec::new(), newest, damaged: Vec::new() }
}

/// Finds the checkpoints and logs in a folder; warns of damaged ones.
pub(crate) fn find(folder: &StateFolder, has_log: bool) -> anyhow::Result<Found> {
    let found = folder.find(has_log)?;
    for damaged in &found.damaged {
        let loses = if has_log {
            "the one before it and the inputs since are all that is needed"
        } else {
            "what came after the one before it is lost"
        };
        messages::warn(&format!("{damaged}; {loses}"));
    }
    Ok(found)
}

/// The file with the identity of a shard's server.
const SHARD: &str = "shard.json";

/// The file with the identity of the run.
const IDENTITY: &str = "run.json";

/// The label files, and for each the noun for what such a folder holds.
const LABELS: [(&str, &str); 2] = [(IDENTITY, "a run"), (SHARD, "a server")];
