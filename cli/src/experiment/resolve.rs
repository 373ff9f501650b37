//! Completes a specification: afterwards it contains every setting.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use super::check::is_setting;
use super::grid::is_list;
use super::spec::{Spec, Text};
use crate::job::{DATA, JobFlags, Layers, OF_PROCESS, absolute_data, settings};

/// Fills `[job]`, weakest first: defaults, the specification, the environment, `--set`.
pub(crate) fn resolve(spec: &mut Spec, set: &[(String, String)]) -> anyhow::Result<()> {
    let environment = Layers::gather(None, &JobFlags::default())?.environment();
    let environment = environment.into_iter().map(|(key, value, variable)| {
        let place = format!("{variable}={value}");
        (key.to_owned(), value, place)
    });
    let mut given: Vec<(String, String, String)> = environment.collect();
    for (key, value) in set {
        let place = format!("--set {key}={value}");
        is_setting(key).map_err(|why| anyhow::anyhow!("{place}: {why}"))?;
        given.push((key.clone(), value.clone(), place));
    }
    // The last process alone takes the place of models.
    let last = given.iter().rposition(|(key, ..)| key == "process");
    for (index, (key, value, place)) in given.iter().enumerate() {
        if key != "process" || Some(index) == last {
            set_all(spec, key, value, place)?;
        }
    }
    let made = spec.axis.iter().flat_map(|axis| axis.made_by_all().into_iter().map(str::to_owned));
    let made: BTreeSet<String> = made.filter(|key| !is_list(key)).collect();
    let has_process = spec.job.get("process").is_some_and(|Text(process)| process != "none");
    for setting in settings() {
        let of_process = OF_PROCESS.into_iter().find(|(key, _)| *key == setting.key);
        let default = match (setting.key, of_process) {
            ("name", _) => &spec.name,
            // Each run has the default that goes with its process, or with none.
            (_, Some(_)) if made.contains("process") => continue,
            (_, Some((_, default))) if has_process => default,
            _ => setting.default,
        };
        if !made.contains(setting.key) {
            let default = Text(default.to_owned());
            spec.job.entry(setting.key.to_owned()).or_insert(default);
        }
    }
    for key in DATA {
        if let Some(Text(data)) = spec.job.get_mut(key) {
            *data = absolute_data(key, data)?;
        }
    }
    Ok(())
}

/// The settings that axes replace (settings that axes add to are not in it), with their axes.
fn replaced(spec: &Spec) -> BTreeMap<&str, &str> {
    let keys = spec
        .axis
        .iter()
        .flat_map(|axis| axis.keys().into_iter().map(|key| (key, axis.name.as_str())));
    keys.filter(|(key, _)| !is_list(key)).collect()
}

/// Changes a setting of all runs. A compute process takes the place of their models.
fn set_all(spec: &mut Spec, key: &str, value: &str, place: &str) -> anyhow::Result<()> {
    let is_model = key == "process" && value != "none" && !replaced(spec).contains_key("process");
    if is_model && give_process(spec, value) {
        return Ok(());
    }
    replace(spec, key, value, place)
}

/// Removes the models and the data of the job, which a compute process has. Where an axis has the
/// models, the process takes the place of each but those of times alone; then returns true.
fn give_process(spec: &mut Spec, process: &str) -> bool {
    let mut is_on_axis = false;
    for settings in spec.axis.iter_mut().flat_map(|axis| axis.settings.values_mut()) {
        let Some(Text(model)) = settings.get("model") else { continue };
        let takes = !model.starts_with("timing:");
        let own = OF_PROCESS.into_iter().filter(|_| takes);
        let process = ("process", if takes { process } else { "none" });
        settings
            .extend(own.chain([process]).map(|(key, it)| (key.to_owned(), Text(it.to_owned()))));
        is_on_axis = true;
    }
    if !is_on_axis {
        OF_PROCESS.iter().for_each(|(key, _)| drop(spec.job.remove(*key)));
    }
    is_on_axis
}

fn replace(spec: &mut Spec, key: &str, value: &str, place: &str) -> anyhow::Result<()> {
    if let Some(axis) = replaced(spec).get(key) {
        bail!("{place}: the experiment sweeps {key} on its axis {axis}; change it there");
    }
    spec.job.insert(key.to_owned(), Text(value.to_owned()));
    Ok(())
}
