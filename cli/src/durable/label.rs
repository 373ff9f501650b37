//! The label file of a state folder: its contents and the release that wrote it.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use pstrain_transports::journal::{Files, StateFolder, ordinary, replace};
use pstrain_wire::BUILD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Label<T> {
    /// The release that wrote it; another release may not read the state correctly.
    build: String,
    #[serde(flatten)]
    what: T,
}

/// Creates and locks a folder that has no label and no state yet.
pub(super) fn make_folder(path: &Path, labels: &[(&str, &str)]) -> anyhow::Result<StateFolder> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    let folder = StateFolder::lock(path)?;
    for (name, what) in labels {
        ensure!(
            !path.join(name).exists(),
            "{} holds {what} already: continue with it with --resume, or choose another folder",
            path.display()
        );
    }
    if let Some(file) = folder.any()? {
        bail!(
            "{} holds {}, but nothing that says of which run: a server was killed there as it \
             began, or the file that said it is gone; choose another folder",
            path.display(),
            file.file_name().unwrap_or_default().display()
        );
    }
    Ok(folder)
}

/// Writes a file atomically: it has either all of `text` or its old contents.
pub(super) fn write(place: &Path, text: &str) -> anyhow::Result<()> {
    replace(&Files, place, text.as_bytes())
        .with_context(|| format!("cannot write {}", place.display()))
}

/// Labels a folder. Callers do this last, since a labelled folder can be resumed.
pub(super) fn put<T: Serialize>(path: &Path, name: &str, what: &T) -> anyhow::Result<()> {
    let label = Label { build: BUILD.to_owned(), what };
    write(&path.join(name), &serde_json::to_string(&label)?)
}

/// Locks a folder that the commands `makers` make, and reads its label `name`.
pub(super) fn open<T: DeserializeOwned>(
    path: &Path,
    name: &str,
    makers: &str,
) -> anyhow::Result<(StateFolder, T)> {
    let place = path.join(name);
    ensure!(
        place.exists(),
        "{} holds no run: it must be a folder that {makers} has made with --durability \
         log|checkpoint --state",
        path.display()
    );
    let folder = StateFolder::lock(path)?;
    let text = ordinary(&place)
        .and_then(|()| fs::read_to_string(&place))
        .with_context(|| format!("cannot read {}", place.display()))?;
    let Label { build, what } = serde_json::from_str(&text)
        .with_context(|| format!("{} is not what a server wrote", place.display()))?;
    ensure!(
        build == BUILD,
        "{} is of release {build}, and this is {BUILD}: continue with that one",
        path.display()
    );
    Ok((folder, what))
}
