//! Initial parameters in a safetensors file: a model of an earlier run, or of another program.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use pstrain_policy::job::Job;
use safetensors::tensor::SafeTensors;

use crate::tensors::{Stored, check_whole};

/// Reads the tensors of the job's model, by name; others in the file are ignored. Weights have
/// their outputs first, as PyTorch stores them.
pub(super) fn read(path: &Path, job: &Job) -> anyhow::Result<Vec<f32>> {
    let place = path.display();
    let model = job.build_model()?;
    let mut bytes =
        std::fs::read(path).with_context(|| format!("init = {place}: cannot be read"))?;
    check_whole(path, &mut bytes)?; // other programs write no checksum
    let stored = SafeTensors::deserialize(&bytes)
        .with_context(|| format!("init = {place}: it is no safetensors file"))?;
    let mut params = vec![0.0; model.parameters()];
    for tensor in model.layout().tensors() {
        let name = &tensor.name;
        let Ok(found) = stored.tensor(name) else {
            let names = stored.names().into_iter().take(8).collect::<Vec<_>>().join(", ");
            bail!("init = {place}: it has no tensor {name}, but {names}");
        };
        let values = &mut params[tensor.keys.indices()];
        let read = Stored::of(tensor, &job.model).read(&found, values);
        read.map_err(|problem| anyhow!("init = {place}: {problem}"))?;
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            bail!("init = {place}: tensor {name} has the value {value}");
        }
    }
    Ok(params)
}
