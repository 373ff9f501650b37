//! Initial parameters in a safetensors file: a model of an earlier run, or of another program.

use std::path::Path;

use anyhow::{Context, bail};
use pstrain_compute::model::ModelSpec;
use pstrain_policy::job::Job;
use safetensors::tensor::SafeTensors;

use crate::tensors::{check_whole, dtype_of, values_of};

/// Reads the tensors of the job's model, by name; others in the file are ignored. A matrix of a
/// linear layer has shape outputs x inputs, as PyTorch stores it.
pub(super) fn read(path: &Path, job: &Job) -> anyhow::Result<Vec<f32>> {
    let place = path.display();
    let model = job.build_model()?;
    let mut bytes =
        std::fs::read(path).with_context(|| format!("init = {place}: cannot be read"))?;
    check_whole(path, &mut bytes)?; // other programs write no checksum
    let stored = SafeTensors::deserialize(&bytes)
        .with_context(|| format!("init = {place}: it is no safetensors file"))?;
    let is_linear = !matches!(job.model, ModelSpec::External { .. });
    let mut params = vec![0.0; model.parameters()];
    for tensor in model.layout().tensors() {
        let name = &tensor.name;
        let Ok(found) = stored.tensor(name) else {
            let names = stored.names().into_iter().take(8).collect::<Vec<_>>().join(", ");
            bail!("init = {place}: it has no tensor {name}, but {names}");
        };
        let values = &mut params[tensor.keys.indices()];
        let wanted = match tensor.shape[..] {
            [inputs, outputs] if is_linear => vec![outputs, inputs],
            _ => tensor.shape.clone(),
        };
        let dtype = dtype_of(tensor);
        if found.dtype() != dtype || found.shape() != wanted {
            bail!(
                "init = {place}: tensor {name} is {:?} {:?}, but the model needs {dtype:?} \
                 {wanted:?}",
                found.dtype(),
                found.shape()
            );
        }
        for (index, value) in values_of(&found).enumerate() {
            let at = match tensor.shape[..] {
                [inputs, outputs] if is_linear => index % inputs * outputs + index / inputs,
                _ => index,
            };
            values[at] = value;
        }
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            bail!("init = {place}: tensor {name} has the value {value}");
        }
    }
    Ok(params)
}
