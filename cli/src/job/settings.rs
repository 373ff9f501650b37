//! The single list of all settings of a job. The name of a setting is its key in the job file, its
//! flag and, in capitals after `PSTRAIN_JOB_`, its environment variable.

use pstrain_compute::filter::{ErrorFeedback, FilterSpec, KeyCaching, PullFilter};
use pstrain_compute::likeness;
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Activation, Loss};
use pstrain_compute::named::Named;
use pstrain_compute::optim::{FunctionSpec, OptimizerSpec, Proximal, Schedule};
use pstrain_data::PartitionSpec;
use pstrain_policy::architecture::Architecture;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{BudgetKind, DataFrom, Exchange, OnLoss, Redundancy, WorkSpec};
use pstrain_policy::rules::{Aggregation, ParticipationSpec, StalenessSpec};
use pstrain_transports::scenario::Device;

use super::setting::{Group, Setting, Words, items, named, setting};

/// All settings by group, in the order in which they are printed.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "Run", settings: RUN },
    Group { name: "Model", settings: MODEL },
    Group { name: "Optimisation", settings: OPTIMISATION },
    Group { name: "Consistency", settings: CONSISTENCY },
    Group { name: "Network", settings: NETWORK },
    Group { name: "Data", settings: DATA },
    Group { name: "Stragglers and faults", settings: FAULTS },
    Group { name: "Energy", settings: ENERGY },
];

const RUN: &[Setting] = &[
    setting("name", "TEXT", "reference", "A name for the job"),
    setting("seed", "NUMBER", "1", "The seed of every random stream"),
    setting("epochs", "NUMBER", "10", "Passes over the training data"),
    named::<BudgetKind>("budget", "global", "Who makes the passes"),
    setting(
        "evaluate-every",
        "EPOCHS",
        "1",
        "Passes between evaluations, over the training data, such as 0.25",
    ),
    setting(
        "target",
        "METRIC=VALUE|none",
        "none",
        "Goal that ends the run: an evaluation that reaches accuracy=0.95, loss=0.1, rmse=0.5; or, \
         with a metric of a compute process, bleu>=30 or perplexity<=20",
    ),
    setting(
        "patience",
        "EVALUATIONS|none",
        "none",
        "Evaluations without a gain: after so many without a better one the run ends, by the \
         metric of target, else by the loss",
    ),
    setting(
        "keep",
        "last|best|auto",
        "auto",
        "Parameters of the result: the last, or the best that were evaluated, by the metric of \
         target, else by the loss; auto: the best with patience, else the last",
    ),
    setting("workers", "NUMBER", "2", "Workers, and parts of the data"),
    setting("servers", "NUMBER", "1", "Servers; each has a share of the parameters"),
];

const MODEL: &[Setting] = &[
    Setting { words: Words::Models, ..setting("model", "NAME", "mlp:21", "The model") },
    named::<Activation>("activation", "relu", "The activation function of an mlp"),
    Setting {
        words: Words::Of(Loss::FAMILY),
        ..setting(
            "loss",
            "NAME|auto",
            "auto",
            "What the model minimises; auto is nll for classes, and squared for a number",
        )
    },
    setting(
        "init",
        "FILE|none",
        "none",
        "A file with the initial parameters: safetensors, such as model.safetensors of an earlier \
         run; none: those of the model, drawn from the seed",
    ),
    setting(
        "process",
        "COMMAND|unix:PATH|description:FILE|worker|none",
        "none",
        "A compute process with model and data: a shell command that each worker runs, the Unix \
         socket where it listens, or for a server alone a description that `pstrain compute \
         describe` printed, or worker: the first worker describes its own; the model is external \
         then. The processes of `pstrain run` have an equal share of the cores each, as \
         OMP_NUM_THREADS, unless that is set",
    ),
    setting(
        "process-restarts",
        "NUMBER",
        "3",
        "Restarts of a compute process that fails, until it has answered; one that ends before its \
         first answer is not started again",
    ),
    setting(
        "process-timeout",
        "DURATION|none",
        "none",
        "Time limit of the process's answers: a compute process that takes longer is started again",
    ),
];

const OPTIMISATION: &[Setting] = &[
    named::<OptimizerSpec>("optimizer", "sgd", "The optimiser: how a gradient becomes a step")
        .or(&["opt"]),
    setting(
        "learning-rate",
        "RATE|auto",
        "auto",
        "The learning rate; auto: 0.1, or 1 for sgd, momentum and nesterov if workers send \
         differences, by local-training or of a compute process",
    )
    .or(&["lr"]),
    named::<Schedule>(
        "schedule",
        "constant",
        "The rate over the updates: how the learning rate changes",
    ),
    setting(
        "batch-size",
        "NUMBER|all",
        "64",
        "Mini-batch size: most examples of a worker; in a pass they differ by one at most; all: all \
         it has",
    )
    .or(&["batch"]),
    named::<LocalTraining>(
        "local-training",
        "none",
        "Local steps before a worker sends: it sends their difference, in place of a gradient",
    ),
    setting(
        "weight-decay",
        "NUMBER",
        "0",
        "L2 penalty, added to the gradient; with adamw apart from it",
    )
    .or(&["wd"]),
    items(
        "groups",
        "PATTERN:KEY=VALUE|none",
        "Tensors with rates of their own: by name, the first that fits, rate (a factor of the \
         learning rate) or weight-decay, such as *.bias:weight-decay=0 or head.*:rate=10; may be \
         repeated",
    ),
    setting("clip-norm", "NORM|none", "none", "Norm limit of an update, for its gradient"),
    setting(
        "clip-contribution",
        "NORM|none",
        "none",
        "Norm limit of a contribution: of a worker's gradient, before it counts; how many it sends is for consistency \
         and participation",
    ),
    named::<Proximal>("proximal", "none", "Proximal step, done to all parameters after each step"),
    Setting {
        words: Words::Of(FunctionSpec::FAMILY),
        ..items(
            "server-functions",
            "FUNCTIONS|none",
            "Functions of each parameter, applied after the proximal step, in this order",
        )
    },
    named::<Aggregation>(
        "aggregation",
        "mean",
        "How a round's gradients combine; all but mean and sum are against workers that send \
         anything",
    ),
];

const CONSISTENCY: &[Setting] = &[
    named::<ConsistencySpec>(
        "consistency",
        "bsp",
        "When workers wait for others, and gradients apply",
    ),
    items(
        "switch",
        "CONSISTENCY@WHEN|none",
        "Changes of consistency, in their order: after so many updates (asp@1000) or so much \
         training time (ssp:2@30s); may be repeated",
    ),
    setting(
        "in-flight",
        "NUMBER|auto",
        "auto",
        "Mini-batches under way at once, of one worker; auto: as the consistency says",
    ),
    named::<StalenessSpec>("staleness", "plain", "Weight of a stale gradient, TAU updates old"),
    setting(
        "max-staleness",
        "NUMBER|none",
        "none",
        "Largest staleness of a gradient: with more updates since its parameters it is dropped, \
         and computed again",
    ),
    named::<ParticipationSpec>(
        "participation",
        "plain",
        "Weight of frequent workers: what workers that contribute more often count for",
    ),
];

const NETWORK: &[Setting] = &[
    named::<Architecture>("architecture", "server", "Where the parameters are"),
    Setting {
        value: "NAME|file:PATH",
        ..named::<Graph>(
            "graph",
            "ring",
            "Which workers are neighbors, if each has a model of its own",
        )
    },
    named::<Exchange>("exchange", "combined", "How gradients and parameters travel"),
    Setting {
        words: Words::Of(FilterSpec::FAMILY),
        ..items(
            "filters",
            "FILTERS|none",
            "What of a gradient travels, such as top-k:0.01,fp16: first filters that choose keys, \
             then at most one that shortens values",
        )
    },
    named::<PullFilter>("pull-filter", "none", "What of the parameters travels back"),
    named::<KeyCaching>(
        "key-caching",
        "on",
        "How often the keys of a sparse model travel, of which a worker has values",
    ),
    named::<ErrorFeedback>(
        "error-feedback",
        "auto",
        "Residuals of filters: what becomes of what they take from a gradient",
    ),
    setting(
        "blocks",
        "COUNT[:ORDER]|none",
        "none",
        "Blocks of the keys of a sparse model: each update changes those of one, in random order, \
         another in each pass, or in sequence; only their values travel (delayed block proximal \
         gradient)",
    ),
    items(
        "link",
        "ITEMS|none",
        "Shape links: [WORKER.|all.|server.|standby.][up.|down.]KEY=VALUE with delay, jitter, \
         distribution, later, rate, loss, outage or slow-start, such as 1.delay=100ms; may be \
         repeated",
    ),
];

const DATA: &[Setting] = &[
    Setting {
        words: Words::Formats,
        ..setting(
            "data",
            "PATH|FORMAT|server|process",
            "synthetic",
            "The rows: a file or folder of NSL-KDD records, server (rows that the server sends), \
             process (rows of the compute process), or a format",
        )
    },
    named::<DataFrom>("data-from", "worker", "Where workers have the data from"),
    setting("recipe", "NAME", "nsl-kdd-93", "What the model sees: nsl-kdd-93 or nsl-kdd-122"),
    setting(
        "hash-features",
        "COLUMNS|none",
        "none",
        "Columns to hash sparse features to; none: each feature has its own",
    ),
    named::<PartitionSpec>("partition", "iid", "Which worker has which training rows"),
    setting(
        "evaluation-data",
        "PATH|FORMAT|none",
        "none",
        "Other rows to evaluate on, all of them, such as KDDTest+.txt, as for data; none: the rows \
         held out of data",
    ),
    setting(
        "evaluation-share",
        "SHARE|auto",
        "auto",
        "Share of data held out for evaluation; auto: 0.25, or 0 with evaluation-data",
    ),
    setting("data-seed", "NUMBER|seed", "seed", "The seed of split and partition"),
];

const FAULTS: &[Setting] = &[
    named::<Redundancy>(
        "redundancy",
        "none",
        "Computing more than once, so as not to wait for all",
    ),
    named::<WorkSpec>("work", "equal", "How the work is divided"),
    items(
        "compute",
        "ITEMS|none",
        "What mini-batches take: 4.5ms, or [WORKER.|all.]KEY=VALUE with time, factor or slow, such \
         as 2.factor=4; may be repeated",
    ),
    setting(
        "min-workers",
        "NUMBER|auto",
        "auto",
        "Start with this many and pause below it; auto: start with all, pause without any",
    ),
    named::<OnLoss>("on-worker-loss", "continue", "What happens if a worker is lost"),
    setting(
        "lease",
        "DURATION",
        "5s",
        "How long a silent worker counts as alive; every other time limit derives from it",
    ),
    setting(
        "partial-after",
        "DURATION|none",
        "none",
        "Leave late gradients out: how long an all-reduce waits for gradients once the first is \
         there; a late one becomes part of a later update",
    ),
    items(
        "faults",
        "ITEMS|none",
        "What goes wrong, in virtual time: WHO.FAULT@TIME with a worker, server or standby and \
         crash, restart, cut, heal or duplicate, or random:COUNT[,SEED]@START+LENGTH; may be \
         repeated",
    ),
];

const ENERGY: &[Setting] = &[
    Setting {
        words: Words::Of(Device::FAMILY),
        ..items(
            "power",
            "ITEMS|none",
            "Model energy: what machines draw, a device for all or [WORKER.|all.|server.|standby.]\
             KEY=VALUE with device, idle, busy or byte, such as idle=2.7W busy=6.4W byte=20nJ; may \
             be repeated",
        )
    },
    setting(
        "carbon-intensity",
        "GRAMS|none",
        "none",
        "Carbon of a kWh: grams of CO2 equivalents, such as 380, for the carbon of the run's \
         energy",
    ),
    setting(
        "pue",
        "RATIO|none",
        "none",
        "Power usage effectiveness: a factor of the carbon, the energy of the building divided by \
         the energy of its computers, such as 1.5",
    ),
];

/// All settings, in the order in which they are printed.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

/// The setting called `key`.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.key == key)
}

/// Names of settings in other programs, and their names here.
const ALSO_CALLED: &[(&str, &str)] = &[
    ("rounds", "epochs"),
    ("num-epochs", "epochs"),
    ("nodes", "workers"),
    ("num-workers", "workers"),
    ("world-size", "workers"),
    ("sync", "consistency"),
    ("latency", "link"),
    ("delay", "link"),
    ("bandwidth", "link"),
    ("compression", "filters"),
];

/// The setting that `key` most likely stands for: by another name of its flag, by a name in other
/// programs, or the one with the most similar name, if one is similar.
pub(crate) fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('_', "-").to_lowercase();
    let alias = settings().find(|setting| setting.aliases.contains(&key.as_str()));
    if let Some(setting) = alias {
        return Some(setting.key);
    }
    if let Some((_, name)) = ALSO_CALLED.iter().find(|(called, _)| *called == key) {
        return Some(name);
    }
    likeness::nearest(&key, settings().map(|setting| setting.key))
}

/// Why there is no setting `key` in a job file or a variable, and what to write instead.
pub(crate) fn unknown(key: &str) -> String {
    match nearest(key) {
        Some(near) => format!("there is no setting {key:?}; did you mean {near:?}?"),
        None => format!("there is no setting {key:?}; `pstrain run --help` lists them"),
    }
}

#[cfg(test)]
mod tests;
