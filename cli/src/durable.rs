//! The folder in which a server keeps what it must not forget: the job, which run it is, and all
//! inputs in order.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use pstrain_core::protocol::BUILD;
use pstrain_transports::journal::Log;
use serde::{Deserialize, Serialize};

use crate::job::Layers;

/// A folder of a durable run.
#[derive(Debug)]
pub(crate) struct DurableFolder {
    path: PathBuf,
}

/// Which run it is.
#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    /// The release, whose inputs another may read otherwise.
    build: String,
    /// The number that tells the run from others.
    run: u64,
}

impl DurableFolder {
    /// Makes the folder of the run with this number, whose job is given as a job file, and the log
    /// in it.
    pub(crate) fn create(path: &Path, run: u64, job: &str) -> anyhow::Result<Log> {
        let folder = Self { path: path.to_owned() };
        if folder.log().exists() {
            bail!(
                "{} holds a run already: go on with it with --resume, or choose another folder",
                path.display()
            );
        }
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        let identity = Identity { build: BUILD.into(), run };
        folder.write("job.toml", job)?;
        folder.write("run.json", &serde_json::to_string(&identity)?)?;
        // Last of all: with it the folder is one that can be resumed.
        Ok(Log::create(&folder.log())?)
    }

    /// The folder of a run that is to go on, its number, and its job.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, u64, Layers)> {
        let folder = Self { path: path.to_owned() };
        ensure!(
            folder.log().exists(),
            "{} holds no run: it must be a folder that `pstrain server --durability log --state` has made",
            path.display()
        );
        let place = path.join("run.json");
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
        Ok((folder, identity.run, layers))
    }

    /// The file of the inputs.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("inputs.log")
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let place = self.path.join(name);
        let written = File::create(&place).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.with_context(|| format!("cannot write {}", place.display()))
    }
}
