//! `pstrain eval`: the quality of a trained model on a data file.

use anyhow::{Context, bail};
use pstrain_compute::evaluation::evaluate;
use pstrain_compute::model::Workspace;
use pstrain_data::{DataSpec, EvaluationRows};
use serde::Serialize;

use crate::args::EvalArgs;
use crate::digest::sha256;
use crate::exit::{Ending, Failed};
use crate::job::{source_of, warn_of};
use crate::record::{MODEL, Quality, check_finite, file_of, read_model};
use crate::{messages, results, table};

#[derive(Serialize)]
struct Result {
    params_sha256: String,
    examples: u64,
    #[serde(flatten)]
    quality: Quality,
}

pub(crate) fn run(args: &EvalArgs) -> anyhow::Result<Ending> {
    let path = file_of(&args.model, MODEL);
    let (about, model, params) = read_model(&path)?;
    check_finite(&path, &model, &params)?;
    let spec: DataSpec = serde_json::from_str(&about.recipe)
        .with_context(|| format!("{} has no recipe for its inputs", path.display()))?;
    if spec.shape() != about.shape {
        bail!("{}: its recipe makes other inputs than its model takes", path.display());
    }
    let source =
        source_of(&args.data).map_err(|why| anyhow::anyhow!("--data {}: {why}", args.data))?;
    let examples = spec.encode_all(&*source);
    warn_of(&*source, Some(&spec));
    let examples = examples?;
    let evaluation = evaluate(&model, &params, &examples, &mut Workspace::default());
    let rows = EvaluationRows::all(&examples, source.describe());
    if evaluation.examples > 0 && !evaluation.loss.is_finite() {
        return Err(Failed(format!(
            "{}: its predictions are not finite ({rows}): the loss is {}; either the run that \
             trained it diverged, or the rows have values that are far from those of its training",
            path.display(),
            evaluation.loss
        ))
        .into());
    }
    let result = Result {
        params_sha256: sha256(&params),
        examples: evaluation.examples,
        quality: Quality::new(Some(&evaluation), &spec.schema, rows),
    };
    if args.form.json {
        // The report of the run that made the model, with the measurements of now in place of its
        // own.
        let serde_json::Value::Object(found) = serde_json::to_value(&result)? else {
            bail!("the result is no JSON object");
        };
        let mut all = about.training;
        all.extend(found);
        messages::result(&serde_json::to_string(&all)?)?;
    } else {
        messages::result(&show(&result.quality, messages::width()))?;
    }
    Ok(Ending::Done)
}

fn show(quality: &Quality, width: usize) -> String {
    let facts = table::facts(&results::quality(quality), width);
    let tables = [results::recall(quality, width), results::confusion(quality, width)];
    [facts].into_iter().chain(tables.into_iter().flatten()).collect::<Vec<_>>().join("\n\n")
}
