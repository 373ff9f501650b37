//! The data that settings name.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use pstrain_compute::id::WorkerId;
use pstrain_data::{DataSpec, Dataset, Local, PartitionSpec, Settings, formats};
use pstrain_transports::process::protocol::Description;

use super::graph_file::FILE;
use super::layers::Layers;
use crate::{messages, process};

/// Seed of synthetic data. It does not depend on the seed of the run, so that the data stay the
/// same, as a file would.
const SYNTHETIC_SEED: u64 = 1;

/// Seed of synthetic evaluation data: its rows differ from the training data.
const SYNTHETIC_EVALUATION_SEED: u64 = 2;

/// Stands for the worker's number in data whose rows each worker has of its own.
pub(super) const WORKER: &str = "{worker}";

/// Settings that may name files.
pub(crate) const DATA: [&str; 4] = ["data", "evaluation-data", "init", "graph"];

/// The data called `text`: a format with its arguments, or a path.
pub(crate) fn source_of(text: &str) -> Result<Arc<dyn Dataset>, String> {
    formats::open(text, SYNTHETIC_SEED)
}

/// Remarks on rows as they were read, and on texts in them that the `job` does not know, if other
/// rows decide its columns.
fn remarks(source: &dyn Dataset, job: Option<&DataSpec>) -> Vec<String> {
    let unknown = job.map(|job| source.remarks(Some(&job.schema))).unwrap_or_default();
    source.remarks(None).into_iter().chain(unknown).collect()
}

/// Warns of what is odd about rows, after they were read.
pub(crate) fn warn_of(source: &dyn Dataset, job: Option<&DataSpec>) {
    remarks(source, job).iter().for_each(|remark| messages::warn(remark));
}

/// Warns of training rows and evaluation rows as [`warn_of`], of each once. `job` is none if they
/// cannot be read.
pub(super) fn warn_of_job(source: &dyn Dataset, settings: &Settings, job: Option<&DataSpec>) {
    let is_foreign = source.has_profile() || settings.partition == PartitionSpec::Local;
    let mut told = remarks(source, job.filter(|_| is_foreign));
    for remark in settings.evaluation_data.iter().flat_map(|given| remarks(&**given, job)) {
        // The same file may have decided the columns.
        if !told.contains(&remark) {
            told.push(remark);
        }
    }
    told.iter().for_each(|remark| messages::warn(remark));
}

/// The evaluation data called `text`; `None` if `text` is `none`.
pub(crate) fn evaluation_source_of(text: &str) -> Result<Option<Arc<dyn Dataset>>, String> {
    match text {
        "none" => Ok(None),
        _ => formats::open(text, SYNTHETIC_EVALUATION_SEED).map(Some),
    }
}

/// The value `text` of setting `key` with absolute paths, so that it means the same in every
/// folder.
pub(crate) fn absolute_data(key: &str, text: &str) -> anyhow::Result<String> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path)
            .with_context(|| format!("{key} = {text:?}: it has no absolute path"))?;
        let path = path.to_str().with_context(|| format!("{key}: use a path in plain UTF-8"))?;
        Ok(path.to_owned())
    };
    if key == "graph" {
        return match text.strip_prefix(FILE) {
            Some(path) => Ok(format!("{FILE}{}", absolute(Path::new(path))?)),
            None => Ok(text.to_owned()),
        };
    }
    match key {
        _ if is_word(key, text) => Ok(text.to_owned()),
        "init" => absolute(Path::new(text)),
        _ => formats::with_paths(text, absolute),
    }
}

/// True if `text` is a keyword of the setting `key` instead of a path.
fn is_word(key: &str, text: &str) -> bool {
    [("data", "server"), ("data", "process"), ("evaluation-data", "none"), ("init", "none")]
        .contains(&(key, text))
}

impl Layers {
    /// The same settings, with absolute paths of the data.
    pub(crate) fn with_absolute_data(mut self) -> anyhow::Result<Self> {
        for key in DATA {
            let data = absolute_data(key, self.text(key))?;
            self.set(key, data);
        }
        Ok(self)
    }

    /// Source of the data. `server` says which node sends the data, not where they come from.
    pub(crate) fn source(&self) -> anyhow::Result<Arc<dyn Dataset>> {
        if self.is_local()? {
            return self.local_source();
        }
        self.parse("data", |text| source_of(if text == "server" { "synthetic" } else { text }))
    }

    /// True if each worker has rows of its own.
    pub(super) fn is_local(&self) -> anyhow::Result<bool> {
        Ok(self.get::<PartitionSpec>("partition")? == PartitionSpec::Local)
    }

    /// Source of the data of workers that each have rows of their own.
    fn local_source(&self) -> anyhow::Result<Arc<dyn Dataset>> {
        let workers = if self.text("data").contains(WORKER) { self.workers()? } else { 1 };
        let part = |worker: u32| {
            let worker = WorkerId(worker).to_string();
            self.parse("data", |text| source_of(&text.replace(WORKER, &worker)))
        };
        let parts = (0..workers).map(part).collect::<anyhow::Result<_>>()?;
        let evaluation = self.parse("evaluation-data", evaluation_source_of)?;
        Ok(Arc::new(Local::new(parts, evaluation.as_ref())?))
    }

    /// Replaces data and evaluation data of a recorded job by the values of flags.
    pub(crate) fn give_data(
        &mut self,
        data: Option<&str>,
        evaluation: Option<&str>,
    ) -> anyhow::Result<()> {
        let wrong = |flag, text: &str, why| anyhow::anyhow!("{flag} {text}: {why}");
        if let Some(text) = data {
            source_of(text).map_err(|why| wrong("--data", text, why))?;
            if self.text("data") == "server" {
                self.set("data-from", "server".into());
            }
            self.set("data", text.into());
        }
        if let Some(text) = evaluation {
            evaluation_source_of(text).map_err(|why| wrong("--evaluation-data", text, why))?;
            self.set("evaluation-data", text.into());
        }
        Ok(())
    }

    /// Source of the data of a job whose compute process describes itself so, if it has one.
    pub(super) fn source_by(
        &self,
        described: Option<&Description>,
    ) -> anyhow::Result<Arc<dyn Dataset>> {
        match (self.text("data"), described) {
            ("process", Some(described)) if described.examples == 0 => {
                bail!("the compute process has no examples: its \"examples\" is 0")
            }
            ("process", Some(described)) => {
                source_of(&process::rows_format(described)).map_err(anyhow::Error::msg)
            }
            ("process", None) => {
                bail!("data = process: there is no process; give it with --process")
            }
            _ => self.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_such_that_they_mean_the_same_in_every_folder() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        assert!(source_of("NSL-KDD").unwrap_err().contains("path to your copy"));
        assert_eq!(absolute_data("graph", "ring").unwrap(), "ring");
        assert_eq!(absolute_data("graph", "file:a/b").unwrap(), format!("file:{here}/a/b"));
        assert_eq!(absolute_data("init", "a/b.csv").unwrap(), format!("{here}/a/b.csv"));
        for key in ["data", "evaluation-data"] {
            assert_eq!(absolute_data(key, "a/b").unwrap(), format!("{here}/a/b"));
            assert_eq!(absolute_data(key, "a/b.csv").unwrap(), format!("csv:{here}/a/b.csv"));
            let both = format!("libsvm:{here}/a,/b/c");
            assert_eq!(absolute_data(key, "libsvm:a,/b/c").unwrap(), both);
            for other in ["synthetic", "synthetic:9", "sparse:9,9", "/a/b", "libsvm:a,"] {
                assert_eq!(absolute_data(key, other).unwrap(), other);
            }
        }
        assert_eq!(absolute_data("data", "server").unwrap(), "server");
        assert_eq!(absolute_data("evaluation-data", "none").unwrap(), "none");
    }

    #[test]
    fn rows_to_evaluate_on_are_none_of_those_that_are_trained_on() {
        assert!(evaluation_source_of("none").unwrap().is_none());
        for synthetic in ["synthetic:9", "sparse:9,3"] {
            let other = evaluation_source_of(synthetic).unwrap().unwrap();
            let train = source_of(synthetic).unwrap();
            assert_ne!(other.words(), train.words(), "{synthetic}");
            assert_eq!(other.kind(), train.kind());
        }
        let file = evaluation_source_of("test.txt").unwrap().unwrap();
        assert_eq!(file.files(), [Path::new("test.txt")]);
    }

    #[test]
    fn an_empty_path_is_called_so() {
        for (empty, words) in
            [("", "name a file"), ("libsvm:", "is empty"), ("libsvm:a,", "is empty")]
        {
            assert!(source_of(empty).unwrap_err().contains(words));
        }
    }
}
