//! What arithmetic alone says of a job with constant times: how long it takes, how stale its
//! gradients are, who contributes how much. Knows numbers only, neither jobs nor scenarios.
//!
//! A worker's *cycle* is what passes at the server between handing out parameters and the gradient
//! computed on them: `t = down + compute + up`, each way with `bytes * 8 / rate` on top of its
//! delay. The server itself takes no time.
//!
//! - BSP: a round takes the longest cycle; nothing is stale.
//! - ASP: worker `i` pushes at `t, 2t, 3t, ...`; during its cycle, `t_i / t_j` updates of `j` come.
//!   Over all gradients the mean is `N - 1`, whatever the speeds.
//! - SSP: worker `i` begins iteration `k` when it has finished the one before and the slowest has
//!   finished `k - 1 - slack`. With constant times nobody but the slowest (`t_max`) is ever waited
//!   for, so iteration `k` ends at `max(k t_i, (k - 1 - slack) t_max + t_i)`. In the long run all
//!   go at the pace of the slowest: slack absorbs jitter, not lasting slowness.
//! - K-sync: the `K` fastest begin at each update, which takes the longest of their cycles, and no
//!   other is there before them; nothing is stale.
//! - K-batch-async: pushes come as under ASP, `K` of them are an update.

use std::time::Duration;

/// How workers wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// For all.
    Bsp,
    /// For nobody.
    Asp,
    /// For whoever is more than `slack` iterations behind. Slack 0 is BSP.
    Ssp {
        /// In iterations.
        slack: u64,
    },
    /// For the first so many workers at each update.
    KSync {
        /// How many; at least one.
        workers: usize,
    },
    /// For none; an update has several gradients.
    Buffered,
}

/// One direction of a worker's link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Way {
    /// How long each byte travels.
    pub(crate) delay: Duration,
    /// In bits per second; none is without limit.
    pub(crate) rate: Option<f64>,
    /// The size of the message that goes this way in each cycle.
    pub(crate) bytes: u64,
}

/// One worker, all of whose times are constant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Worker {
    /// The time of a mini-batch.
    pub(crate) compute: Duration,
    /// To the server: the gradient.
    pub(crate) up: Way,
    /// From the server: the parameters.
    pub(crate) down: Way,
}

/// A job with constant times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// How workers wait for each other.
    pub(crate) policy: Policy,
    /// The workers.
    pub(crate) workers: Vec<Worker>,
    /// The run is over when so many gradients are accepted, whoever's they are.
    pub(crate) gradients: u64,
    /// What is not constant or not covered here, in words: jitter, loss, another policy, ... If
    /// there is any, there is no closed form.
    pub(crate) obstacles: Vec<String>,
}

/// What is known beforehand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// The cycle of each worker.
    pub(crate) cycles: Vec<Duration>,
    /// From the first parameters handed out to the last gradient's arrival.
    pub(crate) total: Duration,
    /// Gradients in a second, once the run is under way.
    pub(crate) throughput: f64,
    /// Each worker's share of the gradients, once the run is under way.
    pub(crate) shares: Vec<f64>,
    /// How stale gradients are; none while SSP's faster workers use up their slack for more than a
    /// tenth of the run, since nothing is steady then.
    pub(crate) staleness: Option<Staleness>,
}

/// Mean staleness in updates, once the run is under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Staleness {
    /// Over all gradients.
    pub(crate) mean: f64,
    /// Of each worker. Under SSP, faster workers of equal speed share what theirs is together:
    /// who of them comes first is chance.
    pub(crate) workers: Vec<f64>,
}

/// Predicts a job, or says why it cannot be predicted.
///
/// # Errors
///
/// The reason, in words.
pub(crate) fn predict(job: &Constant) -> Result<Prediction, String> {
    if !job.obstacles.is_empty() {
        return Err(format!("no closed form: {}", job.obstacles.join(", ")));
    }
    if job.workers.is_empty() {
        return Err("no closed form: there are no workers".into());
    }
    let mut times = Vec::with_capacity(job.workers.len());
    for (number, worker) in job.workers.iter().enumerate() {
        let cycle = cycle(worker).filter(|time| *time > 0).ok_or_else(|| {
            let number = number + 1;
            format!("no closed form: the cycle of worker {number} takes no time, or for ever")
        })?;
        times.push(cycle);
    }
    let slowest = times.iter().copied().max().unwrap_or(1);
    Ok(match job.policy {
        Policy::Bsp | Policy::Ssp { slack: 0 } => bsp(&times, slowest, job.gradients),
        Policy::Asp => asp(&times, slowest, job.gradients),
        Policy::Ssp { slack } => ssp(&times, slowest, slack, job.gradients),
        Policy::KSync { workers } => k_sync(&times, workers, job.gradients),
        // How stale gradients are depends on how pushes fall into updates.
        Policy::Buffered => Prediction { staleness: None, ..asp(&times, slowest, job.gradients) },
    })
}

/// A worker's cycle in nanoseconds; none if it has no end.
fn cycle(worker: &Worker) -> Option<u64> {
    let ways = [worker.up, worker.down].map(|way| {
        // The last bit is out by a whole nanosecond.
        let nanos = way.rate.map_or(0.0, |rate| (way.bytes as f64 * 8e9 / rate).ceil());
        Duration::try_from_secs_f64(nanos / 1e9).ok()?.checked_add(way.delay)
    });
    let time = worker.compute.checked_add(ways[0]?)?.checked_add(ways[1]?)?;
    u64::try_from(time.as_nanos()).ok()
}

fn bsp(times: &[u64], slowest: u64, gradients: u64) -> Prediction {
    let workers = times.len();
    let rounds = gradients.div_ceil(workers as u64);
    Prediction {
        cycles: durations(times),
        total: nanoseconds(u128::from(rounds) * u128::from(slowest)),
        throughput: workers as f64 / seconds(slowest),
        shares: vec![1.0 / workers as f64; workers],
        staleness: Some(Staleness { mean: 0.0, workers: vec![0.0; workers] }),
    }
}

fn k_sync(times: &[u64], workers: usize, gradients: u64) -> Prediction {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let workers = workers.clamp(1, sorted.len());
    let round = sorted[workers - 1];
    let shares = times.iter().map(|&time| if time <= round { 1.0 } else { 0.0 });
    let contribute = shares.clone().sum::<f64>();
    Prediction {
        cycles: durations(times),
        total: nanoseconds(u128::from(gradients.div_ceil(workers as u64)) * u128::from(round)),
        throughput: workers as f64 / seconds(round),
        // Of several that take as long as the last one needed, who comes first is chance.
        shares: shares.map(|share| share / contribute).collect(),
        staleness: Some(Staleness { mean: 0.0, workers: vec![0.0; times.len()] }),
    }
}

fn asp(times: &[u64], slowest: u64, gradients: u64) -> Prediction {
    let throughput: f64 = times.iter().map(|time| 1.0 / seconds(*time)).sum();
    let pushed = |until: u128| -> u128 { times.iter().map(|time| until / u128::from(*time)).sum() };
    // During a cycle, t_i / t_j updates of each j, and of i itself none.
    let staleness = |time: u64| seconds(time) * throughput - 1.0;
    Prediction {
        cycles: durations(times),
        total: first(gradients, slowest, pushed),
        throughput,
        shares: times.iter().map(|time| 1.0 / seconds(*time) / throughput).collect(),
        staleness: Some(Staleness {
            mean: times.len() as f64 - 1.0,
            workers: times.iter().map(|time| staleness(*time)).collect(),
        }),
    }
}

fn ssp(times: &[u64], slowest: u64, slack: u64, gradients: u64) -> Prediction {
    let workers = times.len();
    let pushed = |until: u128| -> u128 {
        let by = |time: u64| {
            let time = u128::from(time);
            let unhindered = until / time;
            let behind_the_slowest = until.saturating_sub(time) / u128::from(slowest);
            unhindered.min(u128::from(slack) + 1 + behind_the_slowest)
        };
        times.iter().map(|time| by(*time)).sum()
    };
    let total = first(gradients, slowest, pushed);
    // The fastest of the others gains (t_max - t) on the slowest in each of its cycles.
    let others = times.iter().filter(|time| **time < slowest);
    let until_steady = others
        .map(|time| {
            (slack as f64 + 1.0) * seconds(*time) * seconds(slowest) / seconds(slowest - time)
        })
        .fold(0.0, f64::max);
    let steady = 10.0 * until_steady <= total.as_secs_f64();
    let stale: Vec<f64> = times.iter().map(|time| stale_behind(*time, times, slowest)).collect();
    Prediction {
        cycles: durations(times),
        total,
        throughput: workers as f64 / seconds(slowest),
        shares: vec![1.0 / workers as f64; workers],
        staleness: steady.then(|| Staleness {
            mean: stale.iter().sum::<f64>() / workers as f64,
            workers: stale,
        }),
    }
}

/// The staleness of a worker once the faster ones wait for the slowest at each iteration. They are
/// let go together, when the last of the slowest has pushed; so each sees the pushes of those
/// faster than itself, of its equals half, and the slowest see everybody's.
fn stale_behind(time: u64, times: &[u64], slowest: u64) -> f64 {
    if time == slowest {
        return times.len() as f64 - 1.0;
    }
    let faster = times.iter().filter(|other| **other < time).count();
    let equal = times.iter().filter(|other| **other == time).count() - 1;
    faster as f64 + equal as f64 / 2.0
}

/// The first moment by which that many gradients have been pushed, in the count `pushed`.
fn first(gradients: u64, slowest: u64, pushed: impl Fn(u128) -> u128) -> Duration {
    let wanted = u128::from(gradients);
    // The slowest alone would have done it by `late`.
    let (mut early, mut late) = (0, wanted * u128::from(slowest));
    while early < late {
        let middle = early + (late - early) / 2;
        if pushed(middle) >= wanted {
            late = middle;
        } else {
            early = middle + 1;
        }
    }
    nanoseconds(late)
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn nanoseconds(time: u128) -> Duration {
    let second = 1_000_000_000;
    Duration::new(u64::try_from(time / second).unwrap_or(u64::MAX), (time % second) as u32)
}

fn durations(times: &[u64]) -> Vec<Duration> {
    times.iter().map(|time| Duration::from_nanos(*time)).collect()
}

#[cfg(test)]
mod tests;
