//! The single list of all settings of a job. The name of a setting is its key in the job file, its
//! flag and, in capitals after `PSTRAIN_JOB_`, its environment variable.

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    /// Form of the value.
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
    pub(crate) default: &'static str,
    /// True if the value is a list of items: the flag may be repeated, and the key may be an array.
    pub(crate) many: bool,
}

const fn setting(
    key: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { key, value, help, default, many: false }
}

const fn items(key: &'static str, value: &'static str, help: &'static str) -> Setting {
    Setting { key, value, help, default: "none", many: true }
}

/// All settings, in the order in which they are printed.
pub(crate) const SETTINGS: &[Setting] = &[
    setting("name", "TEXT", "reference", "A name for the job"),
    setting("seed", "NUMBER", "1", "The seed of every random stream"),
    setting(
        "model",
        "MODEL",
        "mlp:21",
        "softmax, mlp:WIDTH[,WIDTH...] with the widths of the hidden layers, logistic (sparse rows \
         of two classes: a weight for each feature), or (messages and times, no arithmetic) \
         timing:PARAMETERS[,PARAMETERS...] with the sizes of the layers",
    ),
    setting("activation", "NAME", "relu", "relu or tanh, between the layers of an mlp"),
    setting(
        "optimizer",
        "NAME[:...]",
        "sgd",
        "sgd, momentum[:MU], nesterov[:MU], adagrad[:EPSILON], adam[:BETA1,BETA2[,EPSILON]], \
         ftrl[:BETA,L1,L2], whose alpha is the learning rate, or diagonal (model = logistic: steps \
         over a bound of each parameter's second derivative)",
    ),
    setting("learning-rate", "RATE", "0.1", "The learning rate"),
    setting(
        "schedule",
        "NAME[:...]",
        "constant",
        "constant, step:EVERY,FACTOR, cosine:UPDATES[,FLOOR] or inverse:DECAY, in updates",
    ),
    setting("weight-decay", "NUMBER", "0", "L2 penalty, added to the gradient"),
    setting("clip-norm", "NORM|none", "none", "The largest norm of an update's gradient"),
    setting(
        "clip-contribution",
        "NORM|none",
        "none",
        "The largest norm of one worker's gradient, before it counts; how many it sends is for \
         consistency and participation",
    ),
    setting(
        "proximal",
        "NAME[:...]",
        "none",
        "What is done to all parameters after each step: none, l1:LAMBDA (soft threshold), \
         l2:LAMBDA (shrinks them) or box:LOW,HIGH",
    ),
    items(
        "server-functions",
        "FUNCTIONS|none",
        "What is done to each parameter by itself after that, in this order: hard-threshold:LAMBDA \
         (a penalty for each that is not 0) or trust-region[:START,MOST] (limits the length of \
         steps)",
    ),
    setting(
        "aggregation",
        "NAME[:...]",
        "mean",
        "mean or sum of the gradients of a round (an update of one gradient is the same under \
         both), or, against workers that send anything: median, trimmed:B (without the B greatest \
         and least of each coordinate) or krum:F[,M] (the M nearest to the others, F may be wrong)",
    ),
    setting(
        "consistency",
        "NAME",
        "bsp",
        "bsp (all wait for all), ssp:SLACK (bounded lead), dssp:LOW,HIGH (lead bounded as it \
         pays), delay:D or delay:inf (whole iterations, D at a time), asp (nobody waits), \
         round-robin (nobody waits but for its turn); updates of the first gradients: k-sync:K \
         and backup:B (of K workers, of all but B), k-batch-sync:K or rennala:S (of anyone), \
         k-async:K and buffered:K (stale ones too); ringmaster:R (asp, but drops what is R \
         updates stale), malenia:S and ringleader (every worker's mean counts the same); auto \
         (chooses while training)",
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
        "Mini-batches of one worker that may be under way at once; auto: as the consistency says",
    ),
    setting(
        "staleness",
        "NAME[:...]",
        "plain",
        "What a gradient that is TAU updates old counts for: plain (in full), inverse \
         (1/max(1,TAU)), inverse-plus-one (1/(1+TAU)), polynomial[:P] ((1+TAU)^-P), hinge[:P,B] \
         (in full up to B, then 1/(P(TAU-B)+1)), dynsgd (averaged into its iteration); or \
         corrected by how far the parameters have moved: dc[:LAMBDA], dc-adaptive[:LAMBDA,M] or \
         gap-aware",
    ),
    setting(
        "max-staleness",
        "NUMBER|none",
        "none",
        "Updates since its parameters above which a gradient is dropped, and computed again",
    ),
    setting(
        "participation",
        "NAME",
        "plain",
        "Workers that contribute more often: plain (count more), share (all count by their share \
         of the data) or incremental (each update steps with the latest gradients of all)",
    ),
    setting("exchange", "NAME", "combined", "combined push-pull, or separate push and pull"),
    items(
        "filters",
        "FILTERS|none",
        "What of a gradient travels: first filters that choose keys, then at most one that \
         shortens values; zero-skip, significant:DELTA (magnitudes above DELTA), random-skip:Q and \
         random-k:SHARE (random ones), top-k:SHARE (the largest), kkt[:SHARE[:EVERY]] (what an l1 \
         penalty would keep at 0, but in every EVERY-th mini-batch), fp16, bf16, int8, one-bit, \
         terngrad, qsgd[:LEVELS] or, alone, powersgd[:RANK]; such as top-k:0.01,fp16",
    ),
    setting(
        "pull-filter",
        "NAME[:DELTA]",
        "none",
        "What of the parameters travels back: none (all do), or changed[:DELTA] (those that differ \
         by more than DELTA, 0, from what the worker has)",
    ),
    setting(
        "key-caching",
        "on|off",
        "on",
        "Whether the keys that a worker of a sparse model has values for travel once; off: with \
         each gradient",
    ),
    setting(
        "error-feedback",
        "NAME",
        "auto",
        "on: what the filters take from a gradient is added to the worker's next one; off: it is \
         gone; auto: on if they are biased",
    ),
    setting(
        "blocks",
        "COUNT[:ORDER]|none",
        "none",
        "Blocks of the keys of a sparse model: each update changes those of one, in random order, \
         another in each pass, or in sequence; only their values travel (delayed block proximal \
         gradient)",
    ),
    setting(
        "batch-size",
        "NUMBER|all",
        "64",
        "Examples in one mini-batch of one worker; all: all it has",
    ),
    setting(
        "redundancy",
        "NAME[:NUMBER]",
        "none",
        "none, fractional:S or cyclic:S (gradient coding: S workers may be missing from a round), \
         or partial:R (each computes up to R partitions of a round and sends them one by one)",
    ),
    setting(
        "work",
        "NAME[:COUNT]",
        "equal",
        "equal: each worker goes through its part in mini-batches of batch-size examples; speed: a \
         slow one has smaller ones and a fast one larger ones, batch-size on average, so that all \
         are ready at once; shards:COUNT: all have all data, and whoever is free takes the next of \
         COUNT shards",
    ),
    setting("epochs", "NUMBER", "10", "Passes over the training data"),
    setting(
        "budget",
        "NAME",
        "global",
        "global: the workers together make the passes; partition: each over its own part",
    ),
    setting("workers", "NUMBER", "2", "Workers, and parts of the data"),
    setting("servers", "NUMBER", "1", "Servers; each has a share of the parameters"),
    setting(
        "min-workers",
        "NUMBER|auto",
        "auto",
        "Start with this many and pause below it; auto: start with all, pause without any",
    ),
    setting(
        "on-worker-loss",
        "NAME",
        "continue",
        "continue with the others, wait for the lost one (12 leases at most), stop, or reassign \
         its data",
    ),
    setting(
        "lease",
        "DURATION",
        "5s",
        "How long a silent worker counts as alive; every other time limit derives from it",
    ),
    setting(
        "data",
        "PATH|synthetic[:ROWS]|libsvm:PATH[,PATH...]|sparse[:ROWS[,COLUMNS]]|server",
        "synthetic",
        "NSL-KDD file or folder, the shipped synthetic data, files of sparse rows in the format of \
         LIBSVM, synthetic sparse rows, or (server) those sent to the workers",
    ),
    setting(
        "data-from",
        "NAME",
        "worker",
        "worker: each has the data, or asks for them; server: it sends them; own: each has the \
         data, and the server keeps none",
    ),
    setting("recipe", "NAME", "nsl-kdd-93", "nsl-kdd-93 or nsl-kdd-122: what the model sees"),
    setting(
        "hash-features",
        "COLUMNS|none",
        "none",
        "Columns that the features of sparse rows are hashed to; none: each has its own",
    ),
    setting(
        "partition",
        "NAME[:...]",
        "iid",
        "iid, paper-non-iid, by-class, dirichlet:ALPHA, mix:Q or sizes:W1,W2,...",
    ),
    setting(
        "evaluation-data",
        "PATH|synthetic[:ROWS]|libsvm:PATH[,PATH...]|none",
        "none",
        "Other rows to evaluate on, all of them, such as KDDTest+.txt; none: the rows held out of \
         data",
    ),
    setting(
        "evaluation-share",
        "SHARE|auto",
        "auto",
        "Share of the rows of data held out for evaluation; auto: 0.25, or 0 with evaluation-data",
    ),
    setting("data-seed", "NUMBER|seed", "seed", "The seed of split and partition"),
    items(
        "link",
        "ITEMS|none",
        "Shape links: [WORKER.|all.|server.|standby.][up.|down.]KEY=VALUE with delay, jitter, \
         distribution, later, rate, loss, outage or slow-start, such as 1.delay=100ms; may be \
         repeated",
    ),
    items(
        "compute",
        "ITEMS|none",
        "What mini-batches take: 4.5ms, or [WORKER.|all.]KEY=VALUE with time, factor or slow, such \
         as 2.factor=4; may be repeated",
    ),
    items(
        "faults",
        "ITEMS|none",
        "What goes wrong, in virtual time: WHO.FAULT@TIME with a worker, server or standby and \
         crash, restart, cut, heal or duplicate, or random:COUNT[,SEED]@START+LENGTH; may be \
         repeated",
    ),
];

/// The setting called `key`.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// Names of settings in other programs, and their names here.
const ALSO_CALLED: &[(&str, &str)] = &[
    ("lr", "learning-rate"),
    ("rounds", "epochs"),
    ("nodes", "workers"),
    ("latency", "link"),
    ("delay", "link"),
    ("bandwidth", "link"),
    ("compression", "filters"),
];

/// The existing name most similar to `key`, if one is similar.
pub(crate) fn nearest(key: &str) -> Option<&'static str> {
    let key = key.replace('_', "-").to_lowercase();
    if let Some((_, name)) = ALSO_CALLED.iter().find(|(called, _)| *called == key) {
        return Some(name);
    }
    SETTINGS
        .iter()
        .map(|setting| (strsim::jaro_winkler(&key, setting.key), setting.key))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}
