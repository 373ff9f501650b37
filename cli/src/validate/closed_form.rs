//! Closed-form predictions for a job with constant times: its total time, the staleness of its
//! gradients and the shares of its workers. Works on numbers only, not on jobs or scenarios.
//!
//! A worker's *cycle* is the time at the server from sending parameters to receiving the gradient
//! computed on them: `t = down + compute + up`, where each way adds `bytes * 8 / rate` to its
//! delay. The server itself takes no time.
//!
//! - BSP: a round takes the longest cycle; staleness is 0.
//! - ASP: worker `i` pushes at `t, 2t, 3t, ...`; during its cycle, `t_i / t_j` updates of `j`
//!   arrive. The mean over all gradients is `N - 1`, whatever the speeds.
//! - SSP: worker `i` begins iteration `k` when it has finished its previous one and the slowest has
//!   finished `k - 1 - slack`. With constant times, workers wait only for the slowest (`t_max`), so
//!   iteration `k` ends at `max(k t_i, (k - 1 - slack) t_max + t_i)`. In the long run all advance
//!   at the pace of the slowest: slack absorbs jitter, not lasting slowness.
//! - K-sync: the `K` fastest begin at each update, which takes the longest of their cycles, and no
//!   other worker finishes before them; staleness is 0.
//! - K-batch-async: pushes arrive as under ASP, and every `K` of them are an update.

use std::time::Duration;

/// Which workers a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// For all.
    Bsp,
    /// For none.
    Asp,
    /// For those more than `slack` iterations behind. Slack 0 is BSP.
    Ssp {
        /// The slack in iterations.
        slack: u64,
    },
    /// For the first `workers` workers at each update.
    KSync {
        /// Their number, at least one.
        workers: usize,
    },
    /// For none; an update has several gradients.
    Buffered,
}

/// One direction of a worker's link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ConnectionFlags {
    /// The propagation delay of each byte.
    pub(crate) delay: Duration,
    /// In bits per second; None is unlimited.
    pub(crate) rate: Option<f64>,
    /// The size of the message sent this way in each cycle.
    pub(crate) bytes: u64,
}

/// A worker with constant times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Worker {
    /// The computing time of a mini-batch.
    pub(crate) compute: Duration,
    /// The way of the gradient to the server.
    pub(crate) up: ConnectionFlags,
    /// The way of the parameters from the server.
    pub(crate) down: ConnectionFlags,
}

/// A job with constant times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// Which workers a worker waits for.
    pub(crate) policy: Policy,
    /// The workers.
    pub(crate) workers: Vec<Worker>,
    /// The run ends when this many gradients are accepted from all workers together.
    pub(crate) gradients: u64,
    /// Descriptions of properties that are not constant or not covered here: jitter, loss, another
    /// policy. If there are any, there is no closed form.
    pub(crate) obstacles: Vec<String>,
}

/// Predicted quantities of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// The cycle of each worker.
    pub(crate) cycles: Vec<Duration>,
    /// Time from sending the first parameters to the last gradient's arrival.
    pub(crate) total: Duration,
    /// Gradients per second in the steady state.
    pub(crate) throughput: f64,
    /// Each worker's share of the gradients in the steady state.
    pub(crate) shares: Vec<f64>,
    /// The staleness of gradients; None if SSP's faster workers take more than a tenth of the run
    /// to use up their slack, since there is no steady state then.
    pub(crate) staleness: Option<Staleness>,
}

/// Mean staleness in updates, in the steady state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Staleness {
    /// Over all gradients.
    pub(crate) mean: f64,
    /// Of each worker. Under SSP, faster workers of equal speed each have the mean of their group,
    /// because their order is random.
    pub(crate) workers: Vec<f64>,
}

/// Predicts a job, or returns why there is no closed form.
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
        // Staleness depends on how pushes are grouped into updates.
        Policy::Buffered => Prediction { staleness: None, ..asp(&times, slowest, job.gradients) },
    })
}

/// Returns a worker's cycle in nanoseconds; None if it is infinite.
fn cycle(worker: &Worker) -> Option<u64> {
    let ways = [worker.up, worker.down].map(|way| {
        // The last bit leaves at a whole nanosecond.
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
        // Several workers may tie with the last one needed; their order is random.
        shares: shares.map(|share| share / contribute).collect(),
        staleness: Some(Staleness { mean: 0.0, workers: vec![0.0; times.len()] }),
    }
}

fn asp(times: &[u64], slowest: u64, gradients: u64) -> Prediction {
    let throughput: f64 = times.iter().map(|time| 1.0 / seconds(*time)).sum();
    let pushed = |until: u128| -> u128 { times.iter().map(|time| until / u128::from(*time)).sum() };
    // During a cycle of i, t_i / t_j updates of each j arrive, and none of i itself.
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
    // In each of its cycles, a faster worker gains (t_max - t) on the slowest.
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

/// Returns the staleness of a worker once the faster ones wait for the slowest at each iteration.
/// They are released together, when the last of the slowest has pushed. So each worker sees the
/// pushes of all faster workers and of half of its equals; the slowest see the pushes of all.
fn stale_behind(time: u64, times: &[u64], slowest: u64) -> f64 {
    if time == slowest {
        return times.len() as f64 - 1.0;
    }
    let faster = times.iter().filter(|other| **other < time).count();
    let equal = times.iter().filter(|other| **other == time).count() - 1;
    faster as f64 + equal as f64 / 2.0
}

/// Returns the first time by which `gradients` gradients have been pushed, according to `pushed`.
fn first(gradients: u64, slowest: u64, pushed: impl Fn(u128) -> u128) -> Duration {
    let wanted = u128::from(gradients);
    // The slowest worker alone would have pushed them by `late`.
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
