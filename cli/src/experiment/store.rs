//! The results folder: the specification, and every run as soon as it is completed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::record::Record;
use super::spec::Spec;
use crate::calibration::Calibration;

const SPEC: &str = "spec.toml";
const RUNS: &str = "runs";
const ABOUT: &str = "environment.json";

/// A results folder.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    path: PathBuf,
}

/// How the runs were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    VirtualTime,
    RealTime,
}

/// How the runs of a results folder were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) mode: Mode,
    pub(crate) environment: Environment,
    /// Speed of the machine, if times depend on it: measured by the last process that executed
    /// runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<Calibration>,
}

impl Store {
    /// Opens a folder for the runs of `spec`: a new one, or one that already holds some of them.
    pub(crate) fn create(
        path: &Path,
        spec: &Spec,
        about: &About,
        overwrite: bool,
    ) -> anyhow::Result<Self> {
        let store = Self { path: path.to_owned() };
        if overwrite {
            store.clear()?;
        } else {
            store.check_what_is_there(spec, about.mode)?;
        }
        let before = if store.has_runs()? { store.read_if_there(ABOUT)? } else { None };
        let runs = store.file(RUNS);
        fs::create_dir_all(&runs)
            .with_context(|| format!("cannot make the folder {}", runs.display()))?;
        store.write(SPEC, spec.to_toml()?.as_bytes())?;
        // Runs that are already in the folder keep the calibration under which they were made.
        let before = before.and_then(|text| serde_json::from_str(&text).ok());
        let calibration =
            about.calibration.or_else(|| before.and_then(|before: About| before.calibration));
        store.tell(&About { calibration, ..about.clone() })?;
        Ok(store)
    }

    /// Opens the folder of an experiment that has been run; returns its specification, too.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Self, Spec)> {
        let store = Self { path: path.to_owned() };
        let Some(text) = store.read_if_there(SPEC)? else {
            bail!("{} holds no experiment: it has no {SPEC}", path.display());
        };
        let spec = Spec::parse(&store.file(SPEC).display().to_string(), &text)?;
        Ok((store, spec))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn about(&self) -> anyhow::Result<About> {
        let path = self.file(ABOUT);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} does not read", path.display()))
    }

    /// Replaces the description of how the runs were made.
    pub(crate) fn tell(&self, about: &About) -> anyhow::Result<()> {
        self.write_json(ABOUT, about)
    }

    /// Reads the stored runs, of `cells` cells and `reps` repetitions.
    pub(crate) fn records(
        &self,
        cells: usize,
        reps: u32,
    ) -> anyhow::Result<BTreeMap<(usize, u32), Record>> {
        let mut records = BTreeMap::new();
        for cell in 0..cells {
            for rep in 0..reps {
                let Some(text) = self.read_if_there(&run_file(cell, rep))? else { continue };
                let place = || {
                    let path = self.file(&run_file(cell, rep));
                    format!("{} does not read; delete it and run again", path.display())
                };
                let record: Record = serde_json::from_str(&text).with_context(place)?;
                records.insert((cell, rep), record);
            }
        }
        Ok(records)
    }

    /// Stores a run.
    pub(crate) fn save(&self, record: &Record) -> anyhow::Result<()> {
        let text = serde_json::to_vec(record).context("cannot write a run as JSON")?;
        self.write(&run_file(record.cell, record.rep), &text)
    }

    /// Writes a file atomically.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let path = self.file(name);
        let place = || format!("cannot write {}", path.display());
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).with_context(place)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(place)?;
        file.write_all(content).with_context(place)?;
        // Temporary files are private; results must be readable.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let readable = fs::Permissions::from_mode(0o644);
            file.as_file().set_permissions(readable).with_context(place)?;
        }
        file.persist(&path).map_err(|error| error.error).with_context(place)?;
        Ok(())
    }

    pub(crate) fn write_json(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec_pretty(value).context("cannot write JSON")?;
        text.push(b'\n');
        self.write(name, &text)
    }

    /// Removes the files of an earlier report.
    pub(crate) fn remove_folder(&self, name: &str) -> anyhow::Result<()> {
        let path = self.file(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes the stored runs, if this is the folder of an experiment.
    fn clear(&self) -> anyhow::Result<()> {
        if self.file(SPEC).exists() {
            self.remove_folder(RUNS)?;
            let path = self.file(SPEC);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Refuses a folder with other contents, and one with the runs of another experiment.
    fn check_what_is_there(&self, spec: &Spec, mode: Mode) -> anyhow::Result<()> {
        let path = self.path.display();
        let before = self.read_if_there(SPEC)?;
        // A specification alone may have been written by the user.
        let Some(before) = before.filter(|_| self.file(ABOUT).exists()) else {
            if has_entries(&self.path)? {
                bail!(
                    "{path} is not empty and holds no experiment; choose another folder with \
                     --out, or --overwrite"
                );
            }
            return Ok(());
        };
        if !self.has_runs()? {
            return Ok(());
        }
        let same = Spec::parse(&self.file(SPEC).display().to_string(), &before)
            .is_ok_and(|before| has_the_same_runs(&before, spec));
        if !same || self.about().is_ok_and(|before| before.mode != mode) {
            bail!(
                "{path} holds the runs of another experiment; choose another folder with --out, \
                 or --overwrite"
            );
        }
        Ok(())
    }

    fn has_runs(&self) -> anyhow::Result<bool> {
        has_entries(&self.file(RUNS))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn read_if_there(&self, name: &str) -> anyhow::Result<Option<String>> {
        let path = self.file(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// True if a folder contains anything; a missing folder does not.
fn has_entries(folder: &Path) -> anyhow::Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("cannot read the folder {}", folder.display()))
        }
    }
}

fn run_file(cell: usize, rep: u32) -> String {
    format!("{RUNS}/{cell:05}-{rep:03}.json")
}

/// True if both specifications have the same runs: pictures, claims, texts and the number of
/// repetitions may differ.
fn has_the_same_runs(a: &Spec, b: &Spec) -> bool {
    let (a, b) = (super::grid::cells(a), super::grid::cells(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.job == b.job)
}
