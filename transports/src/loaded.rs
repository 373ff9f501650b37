//! The data of a worker, and the trainer that is built from them.

use std::fmt;
use std::sync::Arc;

use pstrain_compute::examples::Examples;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::source::GradientSource;
use pstrain_policy::job::{InitialFrom, Job};
use pstrain_policy::trainer::Trainer;
use pstrain_roles::node::{Prepare, Prepared};

/// Loads the data of [`Prepare::parts`].
pub(crate) type Loader<'a> = Box<dyn Fn(&Prepare) -> Result<Loaded, String> + Send + 'a>;

/// The loaded data of a worker.
#[derive(Debug)]
pub struct Loaded {
    /// The parts of [`Prepare::parts`], in that order.
    pub parts: Parts,
    /// The fingerprint of the split that the parts come from; none if the server sent them.
    pub train: Option<Fingerprint>,
}

/// The parts of the data that a worker has.
pub enum Parts {
    /// Examples in memory, for a model of this program.
    Examples(Vec<Examples>),
    /// A source with the examples and the arithmetic.
    Source(Box<dyn GradientSource>),
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Examples(parts) => f.debug_tuple("Examples").field(&parts.len()).finish(),
            Self::Source(source) => f.debug_tuple("Source").field(source).finish(),
        }
    }
}

impl From<(Vec<Examples>, Fingerprint)> for Loaded {
    fn from((parts, train): (Vec<Examples>, Fingerprint)) -> Self {
        Self { parts: Parts::Examples(parts), train: Some(train) }
    }
}

/// Builds a worker's trainer from the examples that the server sent, or else from the data of
/// `loader`.
///
/// # Errors
/// In words for the user.
pub(crate) fn prepare_trainer(
    loader: &Loader<'_>,
    order: &mut Prepare,
) -> Result<(Trainer, Prepared), String> {
    let Loaded { parts, train } = match order.examples.take() {
        Some(parts) => Loaded { parts: Parts::Examples(parts), train: None },
        None => loader(order)?,
    };
    let (job, worker) = (&order.job, order.worker);
    let (rows, trainer) = match parts {
        Parts::Examples(parts) => {
            let rows: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
            let model = job.build_model().map_err(|error| error.to_string())?;
            (rows, Trainer::of_job(job, model, worker, parts))
        }
        Parts::Source(source) => {
            let rows = (0..source.parts()).map(|part| source.examples(part) as u64).collect();
            (rows, Trainer::of_job_source(job, source, worker))
        }
    };
    let mut trainer = trainer.map_err(|error| error.to_string())?;
    let initial = match job.initial {
        InitialFrom::Seed | InitialFrom::Server => None,
        InitialFrom::Worker => Some(Arc::new(initial_of(job, &mut trainer)?)),
    };
    let keys = trainer.keys().cloned();
    Ok((trainer, Prepared { rows, train, keys, initial }))
}

fn initial_of(job: &Job, trainer: &mut Trainer) -> Result<Vec<f32>, String> {
    let initial = trainer.initial().map_err(|error| error.to_string())?;
    let Some(initial) = initial else {
        return Err("the job begins with the parameters of a worker, and this worker has none: \
                    give its compute process with --process"
            .into());
    };
    // A server would refuse the worker, and each that comes after it.
    let Some(key) = initial.iter().position(|value| !value.is_finite()) else {
        return Ok(initial);
    };
    let model = job.build_model().map_err(|error| error.to_string())?;
    let tensor = model.layout().tensors().iter().find(|it| it.keys.indices().contains(&key));
    let name = tensor.map_or("", |tensor| tensor.name.as_str());
    Err(format!(
        "the compute process begins with the value {} in tensor {name}: begin with finite numbers, \
         or keep such state local",
        initial[key]
    ))
}
