//! `pstrain replay`: recomputes the exact parameters of a past run from its order of updates.

use std::path::Path;

use anyhow::{Context, bail};
use pstrain_compute::evaluation::Evaluation;
use pstrain_compute::id::Version;
use pstrain_compute::model::ModelSpec;
use pstrain_data::{Dataset, Prepared, Settings};
use pstrain_policy::architecture::Architecture;
use serde::Serialize;

use crate::args::ReplayArgs;
use crate::digest::sha256;
use crate::exit::{Ending, Failed};
use crate::figures::{count, counted};
use crate::job::{Layers, Resolved};
use crate::record::{
    Contribution, Header, JOB, MODEL, ModelFile, ORDER, OrderReader, Quality, Replay, SUMMARY,
    Step, Uses, VersionRange, file_of, read_model, write_model,
};
use crate::{messages, results, table};

#[derive(Serialize)]
struct Result {
    job: String,
    /// Number of updates that were recomputed.
    version: Version,
    gradients: u64,
    /// True if the record reaches the end of the run.
    complete: bool,
    params_sha256: String,
    /// The digest in summary.json, if it is for the same version.
    recorded_sha256: Option<String>,
    identical: Option<bool>,
    examples: u64,
    #[serde(flatten)]
    quality: Quality,
    /// Most versions of the parameters that were kept at once.
    versions_kept: usize,
    broke: Option<Break>,
}

/// The update before which the replay stopped.
#[derive(Serialize)]
struct Break {
    version: Version,
    norm: f64,
    gradients: Vec<Contribution>,
}

/// Result of the first pass over the record.
struct Survey {
    /// The last version that is complete in the record.
    last: Version,
    complete: bool,
    uses: Uses,
    /// The updates after `last` that the record lacks, if it continues after them.
    missing: Option<VersionRange>,
    /// True if the record ends there because it was full.
    full: bool,
}

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Ending> {
    let log = file_of(&args.log, ORDER);
    // The model of a run that keeps its best one is not of the last update.
    let kept = summary(&log)?.and_then(|summary| summary.model_update);
    let until = args.until.or_else(|| kept.filter(|_| args.break_norm.is_none()));
    let args = &ReplayArgs { log, until, ..args.clone() };
    let (header, _) = OrderReader::open(&args.log)?;
    let layers = recorded_job(args)?;
    let architecture: Architecture = layers.get("architecture")?;
    if !architecture.has_server() {
        bail!(
            "{}: a run of architecture = {architecture} has no server to replay: its workers hold \
             the parameters",
            args.log.display()
        );
    }
    let Survey { last, complete, uses, missing, full } = survey(args)?;
    if let Some(missing) = missing {
        tell_missing(args, missing)?;
    } else if full {
        tell_full(args, last)?;
    } else if !complete {
        messages::warn(&format!(
            "{} breaks off after version {last}: the run or its record was cut short",
            args.log.display()
        ));
    }
    if let Some(until) = args.until
        && until > last.0
    {
        bail!("--until {until}: {} has versions 0 to {last}", args.log.display());
    }
    let Resolved { job, data, arithmetic } = resolve(args, &header, layers)?;
    if matches!(job.model, ModelSpec::Timing { .. }) {
        bail!("{}: a job of messages and times has no parameters to compute", args.log.display());
    }
    check(args, &header, &Header::of(&job)?)?;
    let model = job.build_model()?;
    let mut replay = Replay::new(&job, &data, &arithmetic, &job.initial(&model), uses)?;
    let (gradients, broke) = play(args, &mut replay)?;
    let mut evaluation = arithmetic.evaluation(&job, &data.evaluation)?;
    let evaluation = evaluation.evaluate(0, replay.parameters()).unwrap_or_else(|why| {
        messages::warn(&format!("no evaluation: {why}"));
        Evaluation::absent(replay.parameters())
    });
    let params_sha256 = sha256(replay.parameters());
    let classes = data.spec.classes();
    let recorded_sha256 = recorded(&args.log, replay.version())?;
    let result = Result {
        job: job.name.clone(),
        version: replay.version(),
        gradients,
        complete,
        identical: recorded_sha256.as_ref().map(|recorded| *recorded == params_sha256),
        params_sha256,
        recorded_sha256,
        examples: evaluation.examples,
        quality: Quality::new(Some(&evaluation), &data.spec.schema, data.evaluation_rows.clone()),
        versions_kept: replay.most_kept(),
        broke,
    };
    if let Some(path) = &args.out {
        let about = ModelFile::new(&job, classes, &result)?;
        write_model(path, &about, replay.parameters())?;
    }
    args.form.print(&result, || show(&result, args.break_norm))?;
    check_model(&args.log, &result)?;
    if result.identical == Some(false) {
        let what = format!(
            "the parameters of version {} are not those that {SUMMARY} names",
            result.version
        );
        return Err(Failed(what).into());
    }
    Ok(Ending::Done)
}

/// Reads the record once, to find where it ends and how long each version is needed.
fn survey(args: &ReplayArgs) -> anyhow::Result<Survey> {
    let (_, mut reader) = OrderReader::open(&args.log)?;
    let (last, uses) = (Version(0), Uses::default());
    let mut survey = Survey { last, complete: false, uses, missing: None, full: false };
    let mut contributions = Vec::new();
    loop {
        match reader.next(&mut contributions)? {
            Step::Update(version, _) => {
                survey.last = version;
                if args.until.is_none_or(|until| version.0 <= until) {
                    survey.uses.count(&contributions)?;
                }
            }
            Step::Mode(_) | Step::Initial(_) => {}
            Step::Missing(first, last) => {
                survey.missing = Some(VersionRange { first, last });
                return Ok(survey);
            }
            Step::Restore(version, from) => {
                survey.last = version;
                if args.until.is_none_or(|until| version.0 <= until) {
                    survey.uses.count_one(from)?;
                }
            }
            ending => {
                survey.complete = ending == Step::End;
                survey.full = ending == Step::Full;
                return Ok(survey);
            }
        }
    }
}

/// Warns of updates that the record lacks. If it lacks the first of the run, nothing can be
/// computed.
fn tell_missing(args: &ReplayArgs, missing: VersionRange) -> anyhow::Result<()> {
    let log = args.log.display();
    let seen = "the server that wrote it did not see";
    let VersionRange { first, last } = missing;
    if first == Version(0).next() {
        bail!(
            "{log}: the record begins with update {}: {seen} updates {missing}; give the order.log \
             of the server that led then, which continues as far as that did",
            last.next()
        );
    }
    messages::warn(&format!(
        "{log}: {seen} updates {missing}: the parameters are computed as far as the one before"
    ));
    Ok(())
}

/// Warns of the updates that a record lacks because it was full before the run ended.
fn tell_full(args: &ReplayArgs, last: Version) -> anyhow::Result<()> {
    let first = last.next();
    let updates = summary(&args.log)?.map(|summary| Version(summary.updates));
    let lacks = match updates.filter(|end| *end > last) {
        Some(last) => format!("updates {} are", VersionRange { first, last }),
        None => format!("updates from {first} on are"),
    };
    messages::warn(&format!(
        "{}: {lacks} not in it, since it was as large as --out-limit lets it be, or its disk was \
         full: the parameters are computed as far as version {last}",
        args.log.display()
    ));
    Ok(())
}

/// The settings recorded next to the order of updates.
fn recorded_job(args: &ReplayArgs) -> anyhow::Result<Layers> {
    Layers::of_file(&args.log.with_file_name(JOB)).with_context(|| {
        format!("{} needs the {JOB} that was recorded beside it", args.log.display())
    })
}

/// The recorded job, with its data.
fn resolve(args: &ReplayArgs, header: &Header, mut layers: Layers) -> anyhow::Result<Resolved> {
    layers.give_process(args.process.as_ref())?;
    layers.give_data(args.data.as_deref(), args.evaluation_data.as_deref())?;
    let load = |source: &dyn Dataset, settings: &Settings| {
        let mut data = Prepared::load(source, settings)?;
        // The job names its data as the run did, wherever they are now.
        data.spec.rename(source, header.source.clone());
        Ok(data)
    };
    layers.resolve_with(load).with_context(|| {
        format!(
            "the data of the run, {}, cannot be had; --data PATH says where they are, and \
             --evaluation-data PATH where other rows are that it was evaluated on",
            header.source
        )
    })
}

/// Checks that job, data and initial parameters are those of the record.
fn check(args: &ReplayArgs, wanted: &Header, found: &Header) -> anyhow::Result<()> {
    let log = args.log.display();
    let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
    if wanted.data_sha256 != found.data_sha256 {
        bail!(
            "these are not the data of {log}: the training rows have digest {}, those of the run \
             had {}; give the run's own data with --data, and the {JOB} recorded with it",
            short(&found.data_sha256),
            short(&wanted.data_sha256)
        );
    }
    if wanted.job_sha256 != found.job_sha256 {
        bail!(
            "the {JOB} beside {log} is of another job: it has digest {}, that of the run was {}; \
             put the one beside it that was recorded with it",
            short(&found.job_sha256),
            short(&wanted.job_sha256)
        );
    }
    if wanted.parameters_sha256 != found.parameters_sha256 {
        bail!(
            "this build begins at other parameters (digest {}) than the run of {log} ({}); use \
             the release that recorded it",
            short(&found.parameters_sha256),
            short(&wanted.parameters_sha256)
        );
    }
    Ok(())
}

/// Recomputes the wanted updates. Returns the number of their gradients, and the update at which
/// `--break-norm` stopped it.
fn play(args: &ReplayArgs, replay: &mut Replay) -> anyhow::Result<(u64, Option<Break>)> {
    let (_, mut reader) = OrderReader::open(&args.log)?;
    let (mut contributions, mut gradients) = (Vec::new(), 0);
    while args.until.is_none_or(|until| replay.version().0 < until) {
        let (version, closing) = match reader.next(&mut contributions)? {
            Step::Update(version, closing) => (version, closing),
            Step::Mode(mode) => {
                replay.set_mode(&mode);
                continue;
            }
            Step::Restore(version, from) => {
                let place = || format!("cannot make version {version} of {}", args.log.display());
                replay.restore(from).with_context(place)?;
                continue;
            }
            Step::Initial(initial) => {
                let place = || format!("cannot make version 0 of {}", args.log.display());
                replay.begin_with(&initial).with_context(place)?;
                continue;
            }
            Step::Missing(..) | Step::Full | Step::End | Step::BrokeOff => break,
        };
        let place = || format!("cannot make version {version} of {}", args.log.display());
        replay.combine(&contributions, closing).with_context(place)?;
        if let Some(most) = args.break_norm {
            let norm = replay.norm();
            // NaN counts as larger than any norm.
            if norm.is_nan() || norm > most {
                return Ok((gradients, Some(Break { version, norm, gradients: contributions })));
            }
        }
        replay.apply();
        gradients += contributions.len() as u64;
    }
    Ok((gradients, None))
}

/// The end of the run, from the summary next to a record.
#[derive(serde::Deserialize)]
struct Summary {
    updates: u64,
    /// The update that made the parameters of the digest, if it is not the last.
    model_update: Option<u64>,
    params_sha256: Option<String>,
}

/// Reads the summary next to the record, if there is one.
fn summary(log: &Path) -> anyhow::Result<Option<Summary>> {
    let path = log.with_file_name(SUMMARY);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    let summary = serde_json::from_str(&text);
    Ok(Some(summary.with_context(|| format!("{} is no summary of a run", path.display()))?))
}

/// The digest in the summary next to the record, if it is for this version.
fn recorded(log: &Path, version: Version) -> anyhow::Result<Option<String>> {
    let is_of_these = |it: &Summary| it.model_update.unwrap_or(it.updates) == version.0;
    let summary = summary(log)?.filter(is_of_these);
    Ok(summary.and_then(|summary| summary.params_sha256))
}

/// Checks that the model file next to the record is whole and has the recomputed parameters, if
/// both are of one version.
fn check_model(log: &Path, result: &Result) -> anyhow::Result<()> {
    let path = log.with_file_name(MODEL);
    if result.identical != Some(true) || !path.exists() {
        return Ok(());
    }
    let (.., params) = read_model(&path).map_err(|error| Failed(format!("{error:#}")))?;
    if sha256(&params) != result.params_sha256 {
        let what =
            "is not the model of the run: its parameters are others than those computed again";
        return Err(Failed(format!("{} {what}", path.display())).into());
    }
    Ok(())
}

fn show(result: &Result, break_norm: Option<f64>) -> String {
    let compared = match (&result.recorded_sha256, result.identical) {
        (Some(_), Some(true)) => format!("identical to those of the run ({SUMMARY})"),
        (Some(recorded), _) => format!("NOT those of the run: {SUMMARY} has {recorded}"),
        (None, _) => format!("not compared: no {SUMMARY} of this version"),
    };
    let facts = [
        ("job", result.job.clone()),
        ("version", result.version.to_string()),
        ("gradients", count(result.gradients)),
        ("parameters", result.params_sha256.clone()),
        ("", compared),
    ];
    let kept = ("kept", format!("{} at most", counted(result.versions_kept as u64, "version")));
    let facts = facts.into_iter().chain(results::quality(&result.quality)).chain([kept]);
    let mut text = table::facts(&facts.collect::<Vec<_>>(), messages::width()) + "\n";
    if let Some(Break { version, norm, gradients }) = &result.broke {
        text += &format!("\nstopped before version {version}, whose gradient has norm {norm}:\n\n");
        let rows = gradients.iter().map(|gradient| {
            vec![
                gradient.worker.to_string(),
                gradient.sequence.to_string(),
                gradient.batch.to_string(),
                gradient.base.to_string(),
                gradient.samples.to_string(),
            ]
        });
        let header = ["worker", "push", "mini-batch", "computed on", "examples"];
        text += &table::table(&header, 0, rows.collect(), messages::width());
    } else if let Some(most) = break_norm {
        text += &format!("\nno update has a gradient whose norm is above {most:?}\n");
    }
    text
}
