//! `pstrain data`: describes data, writes their profile, makes synthetic data, shows the parts of a
//! partition.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use pstrain_compute::id::WorkerId;
use pstrain_compute::model::{Activation, LayerInfo, Model, ModelSpec};
use pstrain_data::info::{Column, Occurrence};
use pstrain_data::write_csv;
use pstrain_data::{Dataset, Features, Info, Prepared, Profile, Skew};
use serde::Serialize;

use crate::args::{DataArgs, DataCommand, Form};
use crate::exit::Ending;
use crate::figures::{count, counted, percent};
use crate::job::{source_of, warn_of};
use crate::start::gather;
use crate::{messages, table};

/// Most numeric columns in the table: rows of images have thousands.
const SHOWN_COLUMNS: usize = 64;

pub(crate) fn run(args: &DataArgs) -> anyhow::Result<Ending> {
    let form = args.form;
    match &args.command {
        DataCommand::Info { source, model } => describe(source, model.as_deref(), form)?,
        DataCommand::Profile { sources } => {
            let profile = profile(sources)?;
            form.print(&profile, || profile.to_string())?;
        }
        DataCommand::Synth { rows, seed, out, overwrite } => {
            synth(*rows, *seed, out, *overwrite)?;
            let written = Written { rows: *rows, seed: *seed, out };
            form.report(&written, || {
                format!("wrote {} to {}", counted(*rows, "row"), out.display())
            })?;
        }
        DataCommand::Split { job } => {
            if let Some(layers) = gather(job, form)? {
                let prepared = Prepared::load(&*layers.source()?, &layers.data_settings()?)?;
                let skew = prepared.skew();
                form.print(&skew, || show_skew(&prepared, &skew))?;
            }
        }
    }
    Ok(Ending::Done)
}

/// Output of `data synth --json`.
#[derive(Serialize)]
struct Written<'a> {
    rows: u64,
    seed: u64,
    out: &'a Path,
}

/// Returns the profile of all sources together.
fn profile(sources: &[String]) -> anyhow::Result<Profile> {
    let read = |source: &String| -> anyhow::Result<Profile> {
        let wrong = |why| anyhow::anyhow!("{source}: {why}");
        if Path::new(source).extension().is_some_and(|ending| ending == "toml") {
            let text = std::fs::read_to_string(source)
                .with_context(|| format!("{source}: cannot be read"))?;
            return Profile::read(&text).map_err(wrong);
        }
        let source = source_of(source).map_err(wrong)?;
        let profile = source.profile();
        warn_of(&*source, None);
        Ok(profile?)
    };
    let Some((first, others)) = sources.split_first() else { bail!("name a table") };
    let mut profile = read(first)?;
    for source in others {
        let merged = profile.merged(read(source)?);
        profile = merged.map_err(|why| anyhow::anyhow!("{source}: {why}"))?;
    }
    Ok(profile)
}

/// Output of `data info --json`.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    info: Info,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layers: Vec<LayerInfo>,
}

/// The layers of a model of the data.
fn layers_of(model: &str, source: &dyn Dataset) -> anyhow::Result<Vec<LayerInfo>> {
    let spec = ModelSpec::read(model, Activation::Relu)?;
    let shape = source.schema(&Features::default())?.shape;
    let layers = Model::new(&spec, shape)?.layers();
    if layers.is_empty() {
        bail!("model = {model} has no layers; name a network, such as mlp:32 or lenet");
    }
    Ok(layers)
}

fn show_layers(layers: &[LayerInfo]) -> String {
    let row = |names: [String; 3], parameters: usize, products: u64| {
        Vec::from(names).into_iter().chain([count(parameters as u64), count(products)]).collect()
    };
    let layer = |it: &LayerInfo| {
        let names = [it.number.to_string(), it.kind.clone(), it.output.to_string()];
        row(names, it.parameters, it.products)
    };
    let mut rows: Vec<Vec<String>> = layers.iter().map(layer).collect();
    let parameters = layers.iter().map(|it| it.parameters).sum();
    let products = layers.iter().map(|it| it.products).sum();
    rows.push(row([String::new(), "all".into(), String::new()], parameters, products));
    let header = &["layer", "kind", "output", "parameters", "products"];
    table::table(header, 3, rows, messages::width())
}

fn describe(source: &str, model: Option<&str>, form: Form) -> anyhow::Result<()> {
    // `nsl-kdd` names the shipped synthetic data, unless a file of that name exists.
    let source =
        if source == "nsl-kdd" && !Path::new(source).exists() { "synthetic" } else { source };
    let source = source_of(source).map_err(|why| anyhow::anyhow!("{source}: {why}"))?;
    let layers = model.map_or_else(|| Ok(Vec::new()), |model| layers_of(model, &*source))?;
    let info = source.info();
    warn_of(&*source, None);
    let described = Described { info: info?, layers };
    form.print(&described, || match &described.layers[..] {
        [] => show_info(&described.info),
        layers => show_layers(layers),
    })
}

fn show_info(info: &Info) -> String {
    let occurrences = |found: &[Occurrence]| -> Vec<Vec<String>> {
        let row = |one: &Occurrence| vec![one.name.clone(), count(one.count), percent(one.share)];
        found.iter().map(row).collect()
    };
    let range = |column: &Column| {
        vec![
            column.name.clone(),
            format!("{}", column.min),
            format!("{:.4}", column.mean),
            format!("{}", column.max),
        ]
    };
    let columns = info.columns.iter().map(range);
    let predicted = info.predicted.iter().map(range);
    let categories = info.categories.iter().map(|category| {
        let most = category.values.iter().max_by_key(|value| value.count);
        vec![
            category.name.clone(),
            most.map_or_else(String::new, |most| format!("{} ({})", most.name, count(most.count))),
            category.values.len().to_string(),
        ]
    });
    let digest: String = info.fingerprint.digest.iter().map(|b| format!("{b:02x}")).collect();
    let mut head = format!(
        "source       {}\nrows         {}\nfingerprint  {digest}",
        info.source,
        count(info.rows)
    );
    if info.left_out > 0 {
        head += &format!("\nleft out     {} with a missing value", counted(info.left_out, "row"));
    }
    if let Some(features) = &info.features {
        head += &format!(
            "\ncolumns      {}, of which rows have {}\nentries      {} ({:.1} a row)",
            count(features.columns.into()),
            count(features.touched),
            count(features.entries),
            features.entries as f64 / info.rows.max(1) as f64,
        );
    }
    let roles = info.roles.iter().map(|role| {
        let missing = role.missing.to_string();
        vec![role.column.clone(), role.role.clone(), role.why.clone(), missing]
    });
    let more = info.columns.len().saturating_sub(SHOWN_COLUMNS);
    let tables = [
        (&["column", "role", "why", "missing"][..], 3, roles.collect()),
        (&["class", "rows", "share"], 1, occurrences(&info.classes)),
        (&["number to predict", "min", "mean", "max"], 1, predicted.collect()),
        (&["attack", "rows", "share"], 1, occurrences(&info.attacks)),
        (&["symbolic column", "most frequent", "values"], 2, categories.collect()),
        (&["numeric column", "min", "mean", "max"], 1, columns.take(SHOWN_COLUMNS).collect()),
    ];
    let tables = tables.into_iter().filter(|(_, _, rows)| !rows.is_empty());
    let mut parts = vec![head];
    parts.extend(
        tables.map(|(header, words, rows)| table::table(header, words, rows, messages::width())),
    );
    if more > 0 {
        parts.push(format!("and {more} more numeric columns (--json has all)"));
    }
    parts.join("\n\n")
}

fn synth(rows: u64, seed: u64, out: &Path, overwrite: bool) -> anyhow::Result<()> {
    if out.exists() && !overwrite {
        bail!("{} is there already; choose another name or --overwrite", out.display());
    }
    let place = || format!("cannot write {}", out.display());
    let mut file = BufWriter::new(File::create(out).with_context(place)?);
    write_csv(rows, seed, &mut file).with_context(place)?;
    file.flush().with_context(place)
}

fn show_skew(prepared: &Prepared, skew: &Skew) -> String {
    let rows = (0..).map(WorkerId).zip(&skew.workers).map(|(id, worker)| {
        let mut row = vec![id.to_string(), count(worker.rows), percent(worker.share)];
        row.extend(worker.class_counts.iter().map(|rows| count(*rows)));
        row.extend(
            [worker.l1, worker.hellinger, worker.jensen_shannon].map(|value| format!("{value:.4}")),
        );
        row
    });
    let (spec, all) = (&prepared.spec, prepared.train.len());
    let least = match spec.partition.least_rows(spec.minimum_rows, all, spec.workers) {
        1 => String::new(),
        least => format!(", drawn so that each worker has {} rows or more", count(least.into())),
    };
    let mut header = vec!["worker", "rows", "share"];
    let groups = prepared.groups();
    header.extend(groups.iter().map(String::as_str));
    header.extend(["L1", "Hellinger", "JS (bits)"]);
    let told = format!(
        "{}, {} for evaluation, partition {}{least}",
        counted(all as u64, "training row"),
        count(prepared.evaluation.len() as u64),
        spec.partition,
    );
    format!(
        "{}\n\n{}\n\nmean L1 {:.4}, max L1 {:.4}, Gini of the sizes {:.4}",
        table::sentence(&told, 0),
        table::folded(&header, &rows.collect::<Vec<_>>(), messages::width()),
        skew.mean_l1,
        skew.max_l1,
        skew.gini,
    )
}
