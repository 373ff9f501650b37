//! The folder in which a server keeps what it must not forget: the job, which run it is, and its
//! checkpoints and inputs.

mod label;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::time::Time;
use pstrain_data::Outline;
use pstrain_policy::job::Job;
use pstrain_transports::Begin;
use pstrain_transports::journal::{Files, Found, Log, StateFolder, ordinary};
use pstrain_wire::group::Place;
use pstrain_wire::job_digest;
use serde::{Deserialize, Serialize};

use crate::args::Durability;
use crate::digest::hexadecimal;
use crate::job::Layers;
use crate::messages;
use crate::served::Served;

/// A folder of a durable run.
#[derive(Debug)]
pub(crate) struct DurableFolder {
    state: StateFolder,
    identity: Identity,
}

/// Which run it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The number that tells the run from others.
    pub(crate) run: u64,
    /// The job, and the rows that it trains on and is evaluated with.
    job: JobLabel,
    pub(crate) durability: Durability,
    pub(crate) checkpoint_every: Duration,
    /// Where its results are.
    pub(crate) out: Option<PathBuf>,
    /// For whom it stands by, if it began so.
    pub(crate) standby: Option<StandbyOf>,
}

/// What tells a job with its data from another.
#[derive(Debug, Serialize, Deserialize)]
struct JobLabel {
    sha256: String,
    train: Fingerprint,
    /// Of no account for the job, but of all for what its record says.
    evaluation: Fingerprint,
}

impl JobLabel {
    fn of(job: &Job, data: &Served) -> Self {
        Self {
            sha256: hexadecimal(&job_digest(job)),
            train: job.data.train.clone(),
            evaluation: Fingerprint::of(&data.outline.evaluation),
        }
    }
}

/// What a standby knows from when it begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StandbyOf {
    /// Where the server is that it stands by for.
    pub(crate) primary: String,
    /// Where workers reach it itself.
    pub(crate) address: String,
}

/// A run that is kept, about to begin or to go on.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) folder: StateFolder,
    pub(crate) checkpoint_every: Duration,
    pub(crate) found: Found,
    /// Where inputs are kept, if they are.
    pub(crate) log: Option<Log>,
    pub(crate) begin: Begin,
    /// The time at which it begins.
    pub(crate) now: Time,
}

impl Identity {
    /// That of a new run.
    pub(crate) fn new(
        run: u64,
        (job, data): (&Job, &Served),
        durability: Durability,
        checkpoint_every: Duration,
        out: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let out = out.map(std::path::absolute).transpose().context("cannot tell where --out is")?;
        let job = JobLabel::of(job, data);
        Ok(Self { run, job, durability, checkpoint_every, out, standby: None })
    }
}

impl DurableFolder {
    /// Makes the folder of a run, and locks it, if no run is in it.
    pub(crate) fn claim(path: &Path) -> anyhow::Result<StateFolder> {
        label::make_folder(path, &LABELS)
    }

    /// Makes one that was claimed that of a run whose job is given as a job file.
    pub(crate) fn create(
        claimed: StateFolder,
        identity: Identity,
        job: &str,
    ) -> anyhow::Result<Keeping> {
        let state = claimed.of_run(identity.run);
        label::write(&state.path().join("job.toml"), job)?;
        let has_log = identity.durability == Durability::Log;
        let log = has_log.then(|| state.begin_log(&Files, 0)).transpose()?;
        label::put(state.path(), IDENTITY, &identity)?;
        let found = Found { checkpoint: None, logs: Vec::new(), newest: 0, damaged: Vec::new() };
        let checkpoint_every = identity.checkpoint_every;
        let (begin, now) = (Begin::start(), Time::ZERO);
        Ok(Keeping { folder: state, checkpoint_every, found, log, begin, now })
    }

    /// The folder of a run that is to go on, and its job.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, Layers)> {
        ensure!(
            !path.join(SHARD).exists() || path.join(IDENTITY).exists(),
            "{} is of a server that does not coordinate: say which with --shard K/M",
            path.display()
        );
        let (state, identity): (_, Identity) =
            label::open(path, IDENTITY, "--durability log|checkpoint --state")?;
        let job = path.join("job.toml");
        ordinary(&job).with_context(|| format!("cannot read {}", job.display()))?;
        let layers = Layers::of_file(&job)?;
        Ok((Self { state: state.of_run(identity.run), identity }, layers))
    }

    /// Which run it is.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where checkpoints and inputs are.
    pub(crate) const fn state(&self) -> &StateFolder {
        &self.state
    }

    /// Whether the run can go on with a job and data.
    ///
    /// # Errors
    ///
    /// If they, which are what the folder's job file comes to as everything is now, are not those
    /// that the run began with.
    pub(crate) fn check(&self, job: &Job, data: &Served) -> anyhow::Result<()> {
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

    /// What the run can go on from; says what of it is damaged.
    pub(crate) fn find(&self) -> anyhow::Result<Found> {
        find(&self.state, self.identity.durability == Durability::Log)
    }

    /// Notes that the results are elsewhere now.
    pub(crate) fn set_out(&mut self, out: &Path) -> anyhow::Result<()> {
        let out = std::path::absolute(out).context("cannot tell where --out is")?;
        if self.identity.out.as_ref() != Some(&out) {
            self.identity.out = Some(out);
            label::put(self.state.path(), IDENTITY, &self.identity)?;
        }
        Ok(())
    }
}

/// The folder of a server that does not coordinate: which server it is, and its checkpoints and
/// inputs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShardFolder {
    place: Place,
    /// A number that no other process has.
    pub(crate) number: u64,
    pub(crate) durability: Durability,
    pub(crate) checkpoint_every: Duration,
}

impl ShardFolder {
    /// Makes the folder, and a log in it if it is to have one.
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
        label::put(path, SHARD, &folder)?;
        Ok((state, folder))
    }

    /// That of a server that is to go on.
    pub(crate) fn open(path: &Path, place: Place) -> anyhow::Result<(StateFolder, Self)> {
        ensure!(
            !path.join(IDENTITY).exists() || path.join(SHARD).exists(),
            "{} is of a server that coordinates, or of a standby: leave --shard out",
            path.display()
        );
        let (state, was): (_, Self) =
            label::open(path, SHARD, "--shard --durability log|checkpoint --state")?;
        ensure!(was.place == place, "{} is of {}; this is {}", path.display(), was.place, place);
        Ok((state.of_run(was.number), was))
    }
}

/// What can be gone on from in a folder; says what of it is damaged.
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

/// The file that says which server it is.
const SHARD: &str = "shard.json";

/// The file that says which run it is.
const IDENTITY: &str = "run.json";

/// What a folder holds that has one of these.
const LABELS: [(&str, &str); 2] = [(IDENTITY, "a run"), (SHARD, "a server")];
