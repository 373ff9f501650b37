//! The folder in which a server keeps what it must not forget: the job, which run it is, and its
//! checkpoints and inputs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pstrain_core::protocol::BUILD;
use pstrain_core::protocol::group::Place;
use pstrain_core::time::Time;
use pstrain_transports::Begin;
use pstrain_transports::journal::{Files, Found, Log, StateFolder, replace};
use serde::{Deserialize, Serialize};

use crate::args::Durability;
use crate::cmd::shard::called;
use crate::job::Layers;
use crate::messages;

/// A folder of a durable run.
#[derive(Debug)]
pub(crate) struct DurableFolder {
    path: PathBuf,
    identity: Identity,
}

/// Which run it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The release, whose state another may read otherwise.
    build: String,
    /// The number that tells the run from others.
    pub(crate) run: u64,
    pub(crate) durability: Durability,
    pub(crate) checkpoint_every: Duration,
    /// Where its results are.
    pub(crate) out: Option<PathBuf>,
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
        durability: Durability,
        checkpoint_every: Duration,
        out: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let out = out.map(std::path::absolute).transpose().context("cannot tell where --out is")?;
        Ok(Self { build: BUILD.into(), run, durability, checkpoint_every, out })
    }
}

impl DurableFolder {
    /// Makes the folder of a run whose job is given as a job file.
    pub(crate) fn create(path: &Path, identity: Identity, job: &str) -> anyhow::Result<Keeping> {
        let folder = Self { path: path.to_owned(), identity };
        if folder.place().exists() {
            bail!(
                "{} holds a run already: go on with it with --resume, or choose another folder",
                path.display()
            );
        }
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        folder.write("job.toml", job)?;
        let state = folder.state();
        let has_log = folder.identity.durability == Durability::Log;
        let log = has_log.then(|| Log::create(&Files, &state.log(0))).transpose()?;
        // Last of all: with it the folder is one that can be resumed.
        folder.write(IDENTITY, &serde_json::to_string(&folder.identity)?)?;
        let found = Found { checkpoint: None, logs: Vec::new(), newest: 0, damaged: Vec::new() };
        let checkpoint_every = folder.identity.checkpoint_every;
        let (begin, now) = (Begin::start(), Time::ZERO);
        Ok(Keeping { folder: state, checkpoint_every, found, log, begin, now })
    }

    /// The folder of a run that is to go on, and its job.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, Layers)> {
        let place = path.join(IDENTITY);
        ensure!(
            place.exists(),
            "{} holds no run: it must be a folder that `pstrain server --durability log --state` \
             has made",
            path.display()
        );
        let text = fs::read_to_string(&place)
            .with_context(|| format!("cannot read {}", place.display()))?;
        let identity: Identity = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what a server wrote", place.display()))?;
        ensure!(
            identity.build == BUILD,
            "{} is of release {}, and this is {BUILD}: go on with that one",
            path.display(),
            identity.build
        );
        let layers = Layers::of_file(&path.join("job.toml"))?;
        Ok((Self { path: path.to_owned(), identity }, layers))
    }

    /// Which run it is.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where checkpoints and inputs are.
    pub(crate) fn state(&self) -> StateFolder {
        StateFolder::new(&self.path)
    }

    /// What the run can go on from; says what of it is damaged.
    pub(crate) fn find(&self) -> anyhow::Result<Found> {
        let has_log = self.identity.durability == Durability::Log;
        let found = self.state().find(has_log)?;
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

    /// Notes that the results are elsewhere now.
    pub(crate) fn set_out(&mut self, out: &Path) -> anyhow::Result<()> {
        let out = std::path::absolute(out).context("cannot tell where --out is")?;
        if self.identity.out.as_ref() != Some(&out) {
            self.identity.out = Some(out);
            self.write(IDENTITY, &serde_json::to_string(&self.identity)?)?;
        }
        Ok(())
    }

    fn place(&self) -> PathBuf {
        self.path.join(IDENTITY)
    }

    /// Makes a file that is there as a whole or not at all.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let place = self.path.join(name);
        replace(&Files, &place, text.as_bytes())
            .with_context(|| format!("cannot write {}", place.display()))
    }
}

/// The folder of a server that does not coordinate: which server it is, and its inputs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardFolder {
    build: String,
    place: Place,
}

impl ShardFolder {
    fn of(place: Place) -> Self {
        Self { build: BUILD.into(), place }
    }

    /// Makes the folder; gives the log in it.
    pub(crate) fn create(path: &Path, place: Place) -> anyhow::Result<PathBuf> {
        let (identity, log) = (path.join(SHARD), path.join(INPUTS));
        if identity.exists() {
            bail!(
                "{} holds a server already: go on with it with --resume, or choose another folder",
                path.display()
            );
        }
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        Log::create(&Files, &log)?;
        let text = serde_json::to_string(&Self::of(place))?;
        replace(&Files, &identity, text.as_bytes())
            .with_context(|| format!("cannot write {}", identity.display()))?;
        Ok(log)
    }

    /// The log of a server that is to go on.
    pub(crate) fn open(path: &Path, place: Place) -> anyhow::Result<PathBuf> {
        let identity = path.join(SHARD);
        let text = fs::read_to_string(&identity).with_context(|| {
            format!("{} holds no server of `pstrain server --shard`", path.display())
        })?;
        let was: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what a server wrote", identity.display()))?;
        ensure!(
            was == Self::of(place),
            "{} is of {}, release {}; this is {}, release {BUILD}",
            path.display(),
            called(was.place),
            was.build,
            called(place)
        );
        Ok(path.join(INPUTS))
    }
}

/// The file that says which server it is, and that of its inputs.
const SHARD: &str = "shard.json";
const INPUTS: &str = "inputs.log";

/// The file that says which run it is.
const IDENTITY: &str = "run.json";
