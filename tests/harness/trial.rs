//! A trial: a job, a network, machines and faults, all drawn from one seed, as settings that a user
//! could have written. So `pstrain simulate` can repeat what a test finds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pstrain_compute::examples::Examples;
use pstrain_compute::filter::Filters;
use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::{Version, WorkerId};
use pstrain_compute::local_training::LocalTraining;
use pstrain_compute::model::{Loss, ModelSpec};
use pstrain_compute::optim::{OptimizerSpec, UpdateSpec};
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use pstrain_data::{Encoded, Prepared, RecipeName, Settings, SyntheticNslKdd};
use pstrain_policy::architecture::Architecture;
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::gossip::Graph;
use pstrain_policy::job::{
    Budget, InitialFrom, Job, JobData, Membership, Redundancy, Stopping, WorkSpec,
};
use pstrain_policy::mode::{Mode, Switch, SwitchAt};
use pstrain_policy::rules::StalenessSpec;
use pstrain_transports::scenario::{Fault, Scenario};

use crate::policies::{draw_next, draw_policy};
use crate::simulated::VirtualRun;

/// The seed of the synthetic data, the same as in `pstrain`.
const DATA_SEED: u64 = 1;

/// A trial. Its `Display` is the command that repeats it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The run.
    pub run: VirtualRun,
    /// Every setting that is not the default, with its value.
    pub settings: Vec<(&'static str, String)>,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pstrain simulate")?;
        for (key, value) in &self.settings {
            if value.contains(' ') {
                write!(f, " --{key} '{value}'")?;
            } else {
                write!(f, " --{key} {value}")?;
            }
        }
        Ok(())
    }
}

/// Draws the trial of a seed.
///
/// # Panics
/// If the drawn settings are invalid.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
pub fn trial_of(seed: u64) -> Trial {
    let mut draw = Draw { random: Stream::new(seed).fork("trial", 0).rng() };
    let drawn = draw.everything(seed);
    let scenario = Scenario::parse(&drawn.link, &drawn.compute, &drawn.faults).unwrap();
    let settings = drawn.settings(&scenario);
    let Drawn { rows, job, timing, .. } = drawn;
    let workers = job.membership.workers;
    let data = prepared(rows, seed, workers);
    let job = Job {
        data: JobData {
            shape: data.train.shape(),
            train: data.fingerprint.clone(),
            from: job.data.from,
            recipe: serde_json::to_string(&data.spec).unwrap(),
        },
        ..job
    };
    let faults = scenario.faults.resolve(workers, Stream::new(seed).fork("scenario", 0));
    let last_fault = faults.last().map_or(Time::ZERO, |&(at, ..)| at);
    let run = VirtualRun {
        stream: Stream::new(seed).fork("scenario", 0),
        partitions: (0..workers).map(|worker| data.partition(WorkerId(worker))).collect(),
        evaluation: Arc::unwrap_or_clone(data.evaluation),
        measured: None,
        weight: timing.map(|parameters| parameters * size_of::<f32>() as u64),
        limit: last_fault + drawn.busy * 100 + job.membership.lease * 1000,
        scenario,
        job,
    };
    Trial { run, settings }
}

impl Trial {
    /// Returns the faults that come before the run ends.
    #[must_use]
    pub fn faults_until(&self, end: Time) -> Vec<Fault> {
        let VirtualRun { scenario, job, stream, .. } = &self.run;
        let faults = scenario.faults.resolve(job.membership.workers, *stream).into_iter();
        faults.filter(|&(at, ..)| at <= end).map(|(.., fault)| fault).collect()
    }
}

/// Returns the synthetic data, split and partitioned as `pstrain` does it.
#[expect(clippy::unwrap_used, reason = "a failure here fails the test")]
fn prepared(rows: u64, seed: u64, workers: u32) -> Prepared {
    static READ: Mutex<BTreeMap<u64, Arc<Encoded>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let encoded = read.entry(rows).or_insert_with(|| {
        let source = SyntheticNslKdd { rows, seed: DATA_SEED };
        Arc::new(Encoded::read(&source, &Settings::default()).unwrap())
    });
    let encoded = Arc::clone(encoded);
    drop(read);
    let settings = Settings { split_seed: seed, workers, ..Settings::default() };
    Prepared::of(&encoded, &settings).unwrap()
}

/// A trial as drawn.
struct Drawn {
    rows: u64,
    job: Job,
    /// Parameters of a model without arithmetic.
    timing: Option<u64>,
    link: String,
    compute: String,
    faults: String,
    /// Time of all mini-batches one after another.
    busy: Duration,
}

impl Drawn {
    /// Returns the settings in the form in which `pstrain` takes them.
    fn settings(&self, scenario: &Scenario) -> Vec<(&'static str, String)> {
        let Job { membership, budget, .. } = &self.job;
        let momentum = self.job.update.optimizer == OptimizerSpec::MOMENTUM;
        let model = self.timing.map_or_else(|| "softmax".into(), |size| format!("timing:{size}"));
        let mut settings = vec![
            ("seed", self.job.seed.to_string()),
            ("data", format!("synthetic:{}", self.rows)),
            ("model", model),
            ("optimizer", String::from(if momentum { "momentum" } else { "sgd" })),
            ("aggregation", self.job.aggregation.to_string()),
            ("consistency", self.job.mode.consistency.to_string()),
            ("staleness", self.job.mode.staleness.to_string()),
            ("participation", self.job.mode.participation.to_string()),
            ("exchange", self.job.exchange.to_string()),
            ("batch-size", self.job.batch_size.to_string()),
            ("epochs", budget.epochs.to_string()),
            ("budget", budget.kind.to_string()),
            ("workers", membership.workers.to_string()),
            ("on-worker-loss", membership.on_loss.to_string()),
            ("lease", format!("{}ms", membership.lease.as_millis())),
            ("data-from", self.job.data.from.to_string()),
            ("link", scenario.links.to_string()),
            ("compute", scenario.compute.to_string()),
            ("faults", scenario.faults.to_string()),
        ];
        let switch = |Switch { to, at }: &Switch| match at {
            SwitchAt::Version(at) => format!("{to}@{at}"),
            SwitchAt::Time(at) => format!("{to}@{}", text(*at)),
        };
        let switches: Vec<String> = self.job.switches.iter().map(switch).collect();
        if !switches.is_empty() {
            settings.push(("switch", switches.join(" ")));
        }
        settings.extend(membership.min_workers.map(|least| ("min-workers", least.to_string())));
        settings
    }
}

/// Generator of trials. Seeds differ in kind, not only in detail.
struct Draw {
    random: Random,
}

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn one_of<T: Clone>(&mut self, those: &[T]) -> T {
        those[self.below(those.len() as u64) as usize].clone()
    }

    /// Draws one of the words, as the setting that it stands for.
    #[expect(clippy::panic, reason = "a test's own words are right")]
    fn word<T: std::str::FromStr>(&mut self, words: &[&str]) -> T {
        let word = self.one_of(words);
        word.parse().unwrap_or_else(|_| panic!("{word} is no such word"))
    }

    /// Draws a share of `most`, in whole tenths so that events coincide now and then.
    fn span(&mut self, most: Duration) -> Duration {
        most / 10 * self.below(11) as u32
    }

    fn everything(&mut self, seed: u64) -> Drawn {
        let workers = 1 + self.below(5) as u32;
        let lease = Duration::from_millis(self.one_of(&[200, 1000, 5000]));
        let rows = self.one_of(&[16, 32, 64, 100]);
        let (batch_size, epochs) = (1 + self.below(8) as u32, 1 + self.below(3) as u32);
        let timing = (self.below(8) == 0).then(|| self.one_of(&[100, 20_000]));
        let model = timing.map_or(ModelSpec::Softmax, |_| ModelSpec::Timing { layers: vec![1] });
        let least = (self.below(2) == 0).then(|| 1 + self.below(workers.into()) as u32);
        let optimizer = self.one_of(&[OptimizerSpec::Sgd, OptimizerSpec::MOMENTUM]);
        let job = Job {
            name: "reference".into(),
            seed,
            model,
            loss: Loss::Nll,
            groups: Vec::new(),
            update: UpdateSpec { optimizer, ..UpdateSpec::sgd(0.1) },
            aggregation: self.word(&["mean", "sum"]),
            mode: Mode::of(draw_policy(&mut self.random, workers)),
            switches: Vec::new(),
            exchange: self.word(&["combined", "separate"]),
            local_training: LocalTraining::None,
            batch_size,
            redundancy: Redundancy::None,
            blocks: None,
            work: WorkSpec::Equal,
            budget: Budget { epochs, kind: self.word(&["global", "partition"]) },
            stopping: Stopping::default(),
            membership: Membership {
                workers,
                min_workers: least,
                on_loss: self.word(&["continue", "continue", "wait", "stop"]),
                lease,
                partial_after: None,
            },
            architecture: Architecture::Server,
            graph: Graph::Ring,
            edges: Vec::new(),
            servers: 1,
            data: JobData {
                shape: RecipeName::default().shape(),
                train: Fingerprint::of(&Examples::new(RecipeName::default().shape())),
                from: self.word(&["worker", "server"]),
                recipe: String::new(),
            },
            filters: Filters::default(),
            scenario: String::new(),
            initial: InitialFrom::Seed,
        };
        let delay = lease / self.one_of(&[5000, 500, 50, 8]);
        let compute = lease / self.one_of(&[1000, 200, 30, 3]);
        let batches = (rows * u64::from(epochs)).div_ceil(u64::from(batch_size)) as u32 + workers;
        let busy = (compute + delay * 2) * batches;
        let horizon = busy / workers + lease * self.below(4) as u32;
        // The slowest links take two leases for a message.
        let most_bytes = timing.unwrap_or_default() * 4 + 24_000;
        let kbit = most_bytes * 8 / (lease.as_millis() as u64 * 2);
        let mut drawn = Drawn {
            link: self.links(workers, delay, kbit, lease, horizon),
            compute: self.compute(workers, compute, horizon),
            faults: self.faults(workers, lease, horizon),
            rows,
            job,
            timing,
            busy,
        };
        // Drawn last, so that seeds keep their meaning.
        let staleness =
            ["plain", "inverse", "inverse-plus-one", "polynomial:0.5", "hinge:10,4", "dynsgd"];
        drawn.job.mode.staleness = self.word(&staleness);
        let together = drawn.job.mode.staleness != StalenessSpec::DynSgd;
        let participation = ["plain", "share", "incremental"];
        drawn.job.mode.participation =
            self.word(if together { &participation } else { &participation[..2] });
        if drawn.job.mode.validate().is_err() {
            drawn.job.mode = Mode::of(drawn.job.mode.consistency);
        }
        if self.below(8) == 0 {
            drawn.job.mode = Mode::of(ConsistencySpec::Auto);
        }
        if self.below(3) == 0 {
            drawn.job.switches = self.switches(workers, horizon);
        }
        drawn
    }

    /// Draws changes of consistency, in order.
    fn switches(&mut self, workers: u32, horizon: Duration) -> Vec<Switch> {
        let (mut version, mut time) = (0, Duration::ZERO);
        let count = 1 + self.below(3);
        let switches = (0..count).map(|_| {
            let at = if self.below(2) == 0 {
                version += 1 + self.below(20);
                SwitchAt::Version(Version(version))
            } else {
                time += self.span(horizon) + Duration::from_nanos(1);
                SwitchAt::Time(time)
            };
            Switch { to: draw_next(&mut self.random, workers), at }
        });
        switches.collect()
    }

    /// Draws links with ordinary delays of `delay` and rates of `kbit` and more.
    fn links(
        &mut self,
        workers: u32,
        delay: Duration,
        kbit: u64,
        lease: Duration,
        horizon: Duration,
    ) -> String {
        let mut items = vec![format!("delay={} down.delay={}", text(delay), text(delay))];
        for worker in 1..=workers {
            for way in ["up", "down"] {
                let which = self.below(16);
                let value = match which {
                    0 | 1 => format!("delay={}", text(self.span(delay * 3))),
                    2 => {
                        let how = self.one_of(&["uniform", "normal", "pareto"]);
                        format!("jitter={} {worker}.{way}.distribution={how}", text(delay / 2))
                    }
                    3 => format!("rate={}kbit", kbit * 10_u64.pow(self.below(4) as u32)),
                    4 => format!("loss={}%", 1 + self.below(5)),
                    5 => {
                        let begin = text(self.span(horizon));
                        let length = text(self.span(lease * 2) + Duration::from_micros(1));
                        format!("outage={begin}+{length}")
                    }
                    6 => "slow-start=on".into(),
                    _ => continue,
                };
                items.push(format!("{worker}.{way}.{value}"));
            }
        }
        if self.below(6) == 0 {
            let kbit = kbit * u64::from(workers) * 10_u64.pow(self.below(3) as u32);
            items.push(format!("server.rate={kbit}kbit"));
        }
        items.join(" ")
    }

    fn compute(&mut self, workers: u32, time: Duration, horizon: Duration) -> String {
        let mut items = vec![text(time)];
        for worker in 1..=workers {
            let value = match self.below(12) {
                0 => format!("time=normal:{},{}", text(time), text(time / 4)),
                1 => format!("time=lognormal:{},0.5", text(time)),
                2 => format!("time=exponential:{}", text(time)),
                3 => format!("time=pareto:{},2", text(time / 2)),
                4 => format!("time=straggler:{},{},0.1,0.3", text(time), text(time * 10)),
                5 => format!("factor={}", 1 + self.below(5)),
                6 => format!("slow=10x@{}+{}", text(self.span(horizon)), text(horizon / 4 + time)),
                _ => continue,
            };
            items.push(format!("{worker}.{value}"));
        }
        items.join(" ")
    }

    fn faults(&mut self, workers: u32, lease: Duration, horizon: Duration) -> String {
        let horizon = horizon.max(Duration::from_micros(10));
        if self.below(4) == 0 {
            let (count, length) = (1 + self.below(20), text(horizon));
            return format!("random:{count}@0s+{length}");
        }
        let mut items = Vec::new();
        for _ in 0..self.below(13) {
            let who = 1 + self.below(workers.into());
            let who = if self.below(12) == 0 { "all".into() } else { who.to_string() };
            let at = self.span(horizon) + Duration::from_nanos(self.below(3) * 1000);
            let most = self.one_of(&[lease / 20, lease / 2, lease * 3, lease * 15]);
            let mended = text(at + self.span(most));
            let at = text(at);
            let is_mended = self.below(8) > 0;
            let (fault, mend) = match self.below(5) {
                0 | 1 => ("crash", "restart"),
                2 | 3 => ("cut", "heal"),
                _ => ("duplicate", ""),
            };
            items.push(format!("{who}.{fault}@{at}"));
            if is_mended && !mend.is_empty() {
                items.push(format!("{who}.{mend}@{mended}"));
            }
        }
        if items.is_empty() { "none".into() } else { items.join(" ") }
    }
}

/// Formats a time as settings do.
fn text(time: Duration) -> String {
    format!("{}ns", time.as_nanos())
}
