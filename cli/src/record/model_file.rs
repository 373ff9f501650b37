//! A trained model as a safetensors file that PyTorch can load.
//!
//! The tensors have PyTorch's names and shapes: `nn.Sequential(Linear, ReLU, Linear, LogSoftmax)`
//! takes the file as its state. The metadata has everything else that is needed to use the model
//! (its architecture, the encoding of inputs), and a checksum over the whole file.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use pstrain_compute::examples::Shape;
use pstrain_compute::model::{Loss, Model, ModelError, ModelSpec};
use pstrain_compute::params::Tensor;
use pstrain_policy::job::Job;
use pstrain_transports::journal::{UNSEALED, seal};
use safetensors::tensor::{SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::exit::Failed;
use crate::tensors::{Stored, check_whole};

/// The metadata key of pstrain's own entry.
const KEY: &str = "pstrain";

/// The contents of a model file besides its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelFile {
    pub(crate) model: ModelSpec,
    /// The loss, if it is not the default of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    pub(crate) shape: Shape,
    /// The names of the classes; none if the model predicts a number.
    pub(crate) classes: Vec<String>,
    /// The encoding of inputs: the recipe of the job.
    pub(crate) recipe: String,
    /// The report of the run that trained it, without the memory of the process.
    pub(crate) training: serde_json::Map<String, serde_json::Value>,
}

impl ModelFile {
    /// Builds the model.
    pub(crate) fn build(&self) -> Result<Model, ModelError> {
        let loss = self.loss.unwrap_or_else(|| Loss::of(self.shape.target));
        Model::with_loss(&self.model, loss, self.shape)
    }

    /// Describes the model of a job with the report of its run.
    pub(crate) fn new(
        job: &Job,
        classes: &[String],
        report: &impl Serialize,
    ) -> anyhow::Result<Self> {
        let mut training: serde_json::Map<_, _> =
            serde_json::from_value(serde_json::to_value(report)?)?;
        // They are of the process: equal runs write equal files.
        for name in ["peak_rss_mib", "processor_wait", "usage"] {
            training.remove(name);
        }
        Ok(Self {
            model: job.model.clone(),
            loss: Some(job.loss).filter(|loss| *loss != Loss::of(job.data.shape.target)),
            shape: job.data.shape,
            classes: classes.to_vec(),
            recipe: job.data.recipe.clone(),
            training,
        })
    }
}

/// The metadata entry. The checksum must precede any text that users choose, since that text could
/// look like it.
#[derive(Serialize)]
struct Sealed<'a> {
    checksum: &'static str,
    #[serde(flatten)]
    about: &'a ModelFile,
}

/// Writes a model; replaces an existing file atomically.
pub(crate) fn write_model(path: &Path, about: &ModelFile, params: &[f32]) -> anyhow::Result<()> {
    let model = about.build()?;
    let tensors: Vec<(&Tensor, Stored<'_>, Vec<u8>)> = model
        .layout()
        .tensors()
        .iter()
        .map(|tensor| {
            let stored = Stored::of(tensor, &about.model);
            let bytes = stored.bytes(&params[tensor.keys.indices()]);
            (tensor, stored, bytes)
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(tensor, stored, bytes)| {
            Ok((&tensor.name, TensorView::new(stored.dtype(), stored.shape(), bytes)?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .context("cannot lay out the model file")?;
    #[expect(clippy::disallowed_types, reason = "the library asks for this map; it has one entry")]
    let metadata = std::collections::HashMap::from([(
        KEY.to_owned(),
        serde_json::to_string(&Sealed { checksum: UNSEALED, about })?,
    )]);
    let mut bytes =
        safetensors::serialize(views, Some(metadata)).context("cannot write the model")?;
    seal(&mut bytes)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let write = || -> std::io::Result<()> {
        // The permissions of an ordinary new file; temporary files are private by default.
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
        file.write_all(&bytes)?;
        // On disk before the rename: a crash leaves the old file or the complete new one.
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a model that [`write_model`] wrote. Its parameters may include values that are not finite.
pub(crate) fn read_model(path: &Path) -> anyhow::Result<(ModelFile, Model, Vec<f32>)> {
    let place = path.display();
    let mut bytes =
        std::fs::read(path).with_context(|| format!("cannot read the model {place}"))?;
    let has_checksum = check_whole(path, &mut bytes)?;
    let (_, header) = SafeTensors::read_metadata(&bytes)
        .with_context(|| format!("{place} is no safetensors file"))?;
    let Some(about) = header.metadata().as_ref().and_then(|metadata| metadata.get(KEY)) else {
        bail!("{place} is a safetensors file, but no model of pstrain; use one that --out wrote");
    };
    if !has_checksum {
        bail!(
            "{place} has no checksum: an older release wrote it, or it is damaged; write the model \
             again, with `pstrain replay --out`"
        );
    }
    let about: ModelFile = serde_json::from_str(about)
        .with_context(|| format!("{place} has metadata of another release of pstrain"))?;
    let target = about.shape.target;
    if about.classes.len() != target.classes().unwrap_or(0) as usize {
        bail!("{place} names {} classes for a model of {target}", about.classes.len());
    }
    let model = about.build()?;
    let tensors = SafeTensors::deserialize(&bytes)
        .with_context(|| format!("{place} is no safetensors file"))?;
    let mut params = vec![0.0; model.parameters()];
    for tensor in model.layout().tensors() {
        let found = tensors
            .tensor(&tensor.name)
            .with_context(|| format!("{place} has no tensor {}", tensor.name))?;
        let values = &mut params[tensor.keys.indices()];
        let read = Stored::of(tensor, &about.model).read(&found, values);
        read.map_err(|problem| anyhow!("{place}: {problem}"))?;
    }
    Ok((about, model, params))
}

/// Checks that a model is usable: all of its parameters are finite.
pub(crate) fn check_finite(path: &Path, model: &Model, params: &[f32]) -> anyhow::Result<()> {
    let is_odd = |key: &usize| !params[*key].is_finite();
    let Some(first) = (0..params.len()).find(is_odd) else { return Ok(()) };
    let odd = (first..params.len()).filter(is_odd).count();
    let mut tensors = model.layout().tensors().iter();
    let tensor = tensors.find(|tensor| tensor.keys.indices().contains(&first));
    let tensor = tensor.map_or("", |tensor| tensor.name.as_str());
    let what = format!(
        "{}: {odd} of the model's {} parameters are not finite, the first in {tensor}: the run \
         that trained it diverged; `pstrain replay --until VERSION --out FILE` writes an earlier \
         model",
        path.display(),
        params.len()
    );
    Err(Failed(what).into())
}

#[cfg(test)]
mod tests {
    use pstrain_compute::model::Activation;
    use pstrain_compute::rng::Stream;

    use pstrain_compute::examples::Target;

    use super::*;

    fn about() -> ModelFile {
        ModelFile {
            model: ModelSpec::Mlp { hidden: vec![3], activation: Activation::Relu },
            loss: None,
            shape: Shape { inputs: 5, dense: 2, hot: 1, target: Target::Classes(2), picture: None },
            classes: vec!["a".into(), "b".into()],
            recipe: String::new(),
            training: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_model_comes_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let pixels = Shape { inputs: 90, dense: 90, hot: 0, ..about().shape };
        let network = ModelSpec::Network("net:5x6x3,conv4x3,bn,relu,mean".into());
        let network = ModelFile { model: network, shape: pixels, ..about() };
        for (about, shapes) in [
            (about(), [("0.weight", &[3, 5][..]), ("2.bias", &[2])]),
            (network, [("0.weight", &[4, 3, 3, 3]), ("4.weight", &[2, 4])]),
        ] {
            let model = about.build().unwrap();
            let params = model.initial(Stream::new(1));
            write_model(&path, &about, &params).unwrap();
            let (read, _, values) = read_model(&path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            for (name, shape) in shapes {
                assert_eq!(tensors.tensor(name).unwrap().shape(), shape);
            }
            // The last value of a weight is of the last input and the last output.
            let (first, weight) =
                (tensors.tensor("0.weight").unwrap(), &model.layout().tensors()[0]);
            let last = f32::from_le_bytes(*first.data().last_chunk().unwrap());
            assert_eq!(last, params[weight.keys.indices().end - 1]);
            assert_eq!((read, values), (about, params));
        }
    }

    #[test]
    fn whatever_bit_of_a_model_is_flipped_it_is_not_taken_for_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (path, damaged) = (folder.path().join("model"), folder.path().join("damaged"));
        let model = about().build().unwrap();
        // A user's name may look like the checksum.
        let named = serde_json::Map::from_iter([("job".to_owned(), UNSEALED.into())]);
        let about = ModelFile { training: named, ..about() };
        write_model(&path, &about, &model.initial(Stream::new(1))).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(read_model(&path).unwrap().0, about);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&damaged, bytes).unwrap();
            assert!(read_model(&damaged).is_err(), "byte {at}");
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for bytes in [&flipped, &whole[..whole.len() - 1]] {
            std::fs::write(&damaged, bytes).unwrap();
            let error = read_model(&damaged).unwrap_err().to_string();
            assert!(error.contains("is damaged: it is not what was written"), "{error}");
        }
    }

    #[test]
    fn parameters_that_are_no_numbers_are_counted_and_named() {
        let path = Path::new("model.safetensors");
        let model = about().build().unwrap();
        let mut params = model.initial(Stream::new(1));
        check_finite(path, &model, &params).unwrap();
        let last = params.len() - 1;
        (params[last - 1], params[last]) = (f32::NAN, f32::INFINITY);
        let error = check_finite(path, &model, &params).unwrap_err();
        assert!(error.is::<Failed>());
        let told = error.to_string();
        for words in
            ["2 of the model's 26 parameters are not finite", "first in 2.bias", "diverged"]
        {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn files_that_are_no_model_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        std::fs::write(&path, b"not a model").unwrap();
        let error = read_model(&path).unwrap_err().to_string();
        assert!(error.contains("is no safetensors file"), "{error}");
        let error = format!("{:#}", read_model(&folder.path().join("none")).unwrap_err());
        assert!(error.contains("cannot read the model"), "{error}");
    }
}
