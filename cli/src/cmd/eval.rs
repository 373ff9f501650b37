//! `pstrain eval`: how good is a trained model on a data file?

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use pstrain_core::evaluation::evaluate;
use pstrain_core::model::Workspace;
use pstrain_data::DataSpec;
use serde::Serialize;

use crate::args::EvalArgs;
use crate::exit::Ending;
use crate::job::source_of;
use crate::record::{MODEL, file_of, read_model, sha256};
use crate::{messages, table};

#[derive(Serialize)]
struct Result {
    params_sha256: String,
    examples: u64,
    accuracy: Option<f64>,
    loss: Option<f64>,
    recall: BTreeMap<String, Option<f64>>,
}

pub(crate) fn run(args: &EvalArgs) -> anyhow::Result<Ending> {
    let path = file_of(&args.model, MODEL);
    let (about, model, params) = read_model(&path)?;
    let spec: DataSpec = serde_json::from_str(&about.recipe)
        .with_context(|| format!("{} has no recipe for its inputs", path.display()))?;
    if spec.shape() != about.shape {
        bail!("{}: its recipe makes other inputs than its model takes", path.display());
    }
    let source =
        source_of(&args.data).map_err(|why| anyhow::anyhow!("--data {}: {why}", args.data))?;
    let examples = spec.encode_all(&source)?;
    let evaluation = evaluate(&model, &params, &examples, &mut Workspace::default());
    let result = Result {
        params_sha256: sha256(&params),
        examples: evaluation.examples,
        accuracy: Some(evaluation.accuracy()).filter(|value| value.is_finite()),
        loss: Some(evaluation.loss).filter(|value| value.is_finite()),
        recall: about.classes.into_iter().zip(evaluation.recall).collect(),
    };
    if args.json {
        // The run that made the model, with what was found now in place of what was found then.
        let serde_json::Value::Object(found) = serde_json::to_value(&result)? else {
            bail!("the result is no JSON object");
        };
        let mut all = about.training;
        all.extend(found);
        messages::result(&serde_json::to_string(&all)?)?;
    } else {
        messages::result(&show(&result))?;
    }
    Ok(Ending::Done)
}

fn show(result: &Result) -> String {
    let dash = || String::from("-");
    let rows = result
        .recall
        .iter()
        .map(|(class, recall)| vec![class.clone(), recall.map_or_else(dash, table::percent)]);
    format!(
        "examples  {}\naccuracy  {}\nloss      {}\n\n{}",
        result.examples,
        result.accuracy.map_or_else(dash, table::percent),
        result.loss.map_or_else(dash, |loss| format!("{loss:.4}")),
        table::table(&["class", "recall"], 1, rows.collect())
    )
}
