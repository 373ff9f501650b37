//! `pstrain compute serve`: a model of pstrain as a compute process.

use std::io::{BufReader, BufWriter, stdin, stdout};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context, bail};
use pstrain_compute::source::Local;
use pstrain_data::Prepared;
use pstrain_policy::job::Job;
use pstrain_transports::Address;
use pstrain_transports::process::Served;
use pstrain_transports::process::protocol::{Description, TensorOf};

use crate::args::{Form, ServeArgs};
use crate::digest::hexadecimal;
use crate::exit::Ending;
use crate::job::Resolved;
use crate::messages;
use crate::start::gather;

/// Serves the model of a job on its training rows.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<Ending> {
    let Some(layers) = gather(&args.job, Form::default())? else { return Ok(Ending::Done) };
    if layers.process()?.is_some() {
        bail!("--process: this command is a compute process itself; leave it out");
    }
    let Resolved { job, data, .. } = layers.resolve()?;
    match &args.listen {
        None => {
            let mut from = BufReader::new(stdin().lock());
            served(&job, &data)?.serve(&mut from, &mut BufWriter::new(stdout().lock()))?;
            Ok(Ending::Done)
        }
        Some(Address::Unix(path)) => listen(path, &job, &data),
        Some(other) => bail!("--listen {other}: a compute process listens at unix:PATH"),
    }
}

/// Serves each connection on a thread of its own, until it is killed.
fn listen(path: &Path, job: &Job, data: &Prepared) -> anyhow::Result<Ending> {
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    messages::say(&format!("listening on unix:{}", path.display()));
    for stream in listener.incoming() {
        let stream = stream?;
        let mut served = served(job, data)?;
        std::thread::spawn(move || {
            let served = stream.try_clone().map_err(anyhow::Error::from).and_then(|from| {
                Ok(served.serve(&mut BufReader::new(from), &mut BufWriter::new(stream))?)
            });
            if let Err(error) = served {
                messages::warn(&format!("a connection ended: {error:#}"));
            }
        });
    }
    Ok(Ending::Done)
}

fn served(job: &Job, data: &Prepared) -> anyhow::Result<Served> {
    let model = job.build_model()?;
    if !model.computes() {
        bail!("this model has no arithmetic; choose another with --model");
    }
    let tensor = |tensor: &pstrain_compute::params::Tensor| TensorOf {
        name: tensor.name.clone(),
        shape: tensor.shape.iter().map(|&size| size as u32).collect(),
    };
    let description = Description {
        tensors: model.layout().tensors().iter().map(tensor).collect(),
        examples: u32::try_from(data.train.len()).context("too many rows")?,
        digest: Some(hexadecimal(&data.fingerprint.digest[..8])),
        ..Description::default()
    };
    Ok(Served {
        description,
        initial: job.initial(&model),
        gradients: Box::new(Local::new(model.clone(), [data.train.clone()])),
        evaluations: Box::new(Local::new(model, [data.evaluation.clone()])),
    })
}
