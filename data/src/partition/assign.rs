//! Assigns every training row to exactly one worker.

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::{Random, Stream};

use super::dirichlet;
use super::error::PartitionError;
use super::spec::PartitionSpec;

/// Maximum number of draws for a Dirichlet partition.
const TRIES: u32 = 1000;
/// The class that both sides of the paper's split share: Normal, in NSL-KDD.
const SHARED_CLASS: u16 = 0;

/// Returns the worker of each training row, given the rows' labels, which are below `classes`.
///
/// The same arguments give the same result on every machine. If a Dirichlet draw leaves a worker
/// with fewer than [`PartitionSpec::least_rows`], it is repeated. Every worker gets at least one
/// row.
///
/// # Errors
/// [`PartitionError`] if a parameter is out of range, or a worker would have no rows.
pub fn assign(
    spec: &PartitionSpec,
    (labels, classes): (&[u16], u32),
    workers: u32,
    minimum: u32,
    stream: Stream,
) -> Result<Vec<u32>, PartitionError> {
    spec.check()?;
    if workers == 0 || workers as usize > labels.len() {
        return Err(PartitionError::Workers { workers, rows: labels.len() });
    }
    let owners = match spec {
        PartitionSpec::Iid => iid(labels.len(), workers, stream),
        PartitionSpec::PaperNonIid => paper(labels, workers, stream),
        PartitionSpec::ByClass => by_class((labels, classes), workers, stream),
        PartitionSpec::Dirichlet { alpha } => {
            let least = spec.least_rows(minimum, labels.len(), workers);
            by_dirichlet((labels, classes), workers, *alpha, least, stream)?
        }
        PartitionSpec::Mix { q } => mix(labels, workers, *q, stream),
        PartitionSpec::Sizes(weights) if weights.len() == workers as usize => {
            by_size(labels.len(), weights, stream)
        }
        PartitionSpec::Local => return Err(PartitionError::Local),
        PartitionSpec::Sizes(weights) => {
            return Err(PartitionError::Sizes { sizes: weights.len(), workers });
        }
    };
    let mut busy = vec![false; workers as usize];
    for &owner in &owners {
        busy[owner as usize] = true;
    }
    match busy.iter().position(|busy| !busy) {
        None => Ok(owners),
        Some(worker) => Err(PartitionError::Idle {
            partition: spec.to_string(),
            worker: WorkerId(worker as u32),
            workers,
        }),
    }
}

fn iid(rows: usize, workers: u32, stream: Stream) -> Vec<u32> {
    let mut owners = vec![0; rows];
    let all: Vec<u32> = (0..workers).collect();
    deal((0..rows as u32).collect(), &all, &mut stream.fork("iid", 0).rng(), &mut owners);
    owners
}

fn paper(labels: &[u16], workers: u32, stream: Stream) -> Vec<u32> {
    let mut owners = vec![0; labels.len()];
    if workers == 1 {
        return owners;
    }
    let mut rng = stream.fork("paper-non-iid", 0).rng();
    let mut shared = rows_of(labels, |class| class == SHARED_CLASS);
    rng.shuffle(&mut shared);
    let other_half = shared.split_off(shared.len().div_ceil(2));
    for (side, half) in [shared, other_half].into_iter().enumerate() {
        let mut rows = rows_of(labels, |class| {
            // In NSL-KDD the first side has DoS (1) and R2L (3), the second Probe (2) and U2R (4).
            class != SHARED_CLASS && usize::from(class - 1) % 2 == side
        });
        rows.extend(half);
        let members: Vec<u32> = (side as u32..workers).step_by(2).collect();
        deal(rows, &members, &mut rng, &mut owners);
    }
    owners
}

fn by_class((labels, classes): (&[u16], u32), workers: u32, stream: Stream) -> Vec<u32> {
    let mut owners = vec![0; labels.len()];
    for class in 0..classes {
        let members: Vec<u32> = if workers <= classes {
            vec![class % workers]
        } else {
            (class..workers).step_by(classes as usize).collect()
        };
        let rows = rows_of(labels, |its| u32::from(its) == class);
        deal(rows, &members, &mut stream.fork("by-class", class.into()).rng(), &mut owners);
    }
    owners
}

fn by_dirichlet(
    (labels, classes): (&[u16], u32),
    workers: u32,
    alpha: f64,
    minimum: u32,
    stream: Stream,
) -> Result<Vec<u32>, PartitionError> {
    let mut rng = stream.fork("dirichlet", 0).rng();
    let mut classes: Vec<Vec<u32>> =
        (0..classes).map(|class| rows_of(labels, |its| u32::from(its) == class)).collect();
    for rows in &mut classes {
        rng.shuffle(rows);
    }
    let draw = |rng: &mut Random| -> Vec<Vec<usize>> {
        let parts = |rows: &Vec<u32>| {
            apportion(rows.len(), &dirichlet::shares(alpha, workers as usize, rng))
        };
        classes.iter().map(parts).collect()
    };
    for _ in 0..TRIES {
        let ends = draw(&mut rng);
        let mut sizes = vec![0_usize; workers as usize];
        for ends in &ends {
            let begins = std::iter::once(&0).chain(ends);
            for ((size, begin), end) in sizes.iter_mut().zip(begins).zip(ends) {
                *size += end - begin;
            }
        }
        if sizes.iter().any(|&size| size < minimum as usize) {
            continue;
        }
        let mut owners = vec![0; labels.len()];
        for (rows, ends) in classes.iter().zip(&ends) {
            hand_out(rows, ends, &mut owners);
        }
        return Ok(owners);
    }
    Err(PartitionError::Dirichlet { alpha, minimum, workers, tries: TRIES })
}

fn mix(labels: &[u16], workers: u32, q: f64, stream: Stream) -> Vec<u32> {
    let mut owners = paper(labels, workers, stream);
    let mut rng = stream.fork("mix", 0).rng();
    for owner in &mut owners {
        // Makes both draws for every row, so that a row that moves at a high Q moves to the same
        // worker at a lower Q.
        let (coin, anyone) = (rng.unit(), rng.below(workers.into()));
        if coin >= q {
            *owner = anyone as u32;
        }
    }
    owners
}

fn by_size(rows: usize, weights: &[f64], stream: Stream) -> Vec<u32> {
    let mut owners = vec![0; rows];
    let mut order: Vec<u32> = (0..rows as u32).collect();
    stream.fork("sizes", 0).rng().shuffle(&mut order);
    let total: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
    hand_out(&order, &apportion(rows, &shares), &mut owners);
    owners
}

/// Returns the rows of the classes that `wanted` selects, in order.
fn rows_of(labels: &[u16], wanted: impl Fn(u16) -> bool) -> Vec<u32> {
    let rows = labels.iter().enumerate().filter(|&(_, &class)| wanted(class));
    rows.map(|(row, _)| row as u32).collect()
}

/// Assigns `rows` in random order to `members` in turn: parts differ by at most one row.
fn deal(mut rows: Vec<u32>, members: &[u32], rng: &mut Random, owners: &mut [u32]) {
    rng.shuffle(&mut rows);
    for (row, &member) in rows.into_iter().zip(members.iter().cycle()) {
        owners[row as usize] = member;
    }
}

/// Returns the end of each worker's part of `rows` rows, in proportion to `shares`, which add up to
/// 1.
fn apportion(rows: usize, shares: &[f64]) -> Vec<usize> {
    let mut sum = 0.0;
    let mut ends: Vec<usize> = shares
        .iter()
        .map(|share| {
            sum += share;
            ((sum * rows as f64).round() as usize).min(rows)
        })
        .collect();
    // The sum of the shares may differ from 1 by rounding.
    if let Some(last) = ends.last_mut() {
        *last = rows;
    }
    ends
}

/// Assigns worker `i` the rows from the end of worker `i - 1`'s part to its own end.
fn hand_out(rows: &[u32], ends: &[usize], owners: &mut [u32]) {
    let mut begin = 0;
    for (worker, &end) in ends.iter().enumerate() {
        for &row in &rows[begin..end] {
            owners[row as usize] = worker as u32;
        }
        begin = end;
    }
}
