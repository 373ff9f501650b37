//! Cuts pools of records into regions that are as uniform as possible.
//!
//! Works as regression trees do, but without a target: the next cut is always the one, of any
//! region at any feature, that takes away most of the squared deviation of all features from
//! their means.

use pstrain_data::nsl_kdd::{FLAGS, NUMERIC, PROTOCOLS, Record, SERVICES, numeric_name};

/// Values that a cut may be made at, per feature and region.
const CUTS: usize = 24;
/// Weight of a symbolic column, in standard deviations of a numeric feature.
const SYMBOL: f64 = 1.5;
const SYMBOLS: usize = PROTOCOLS.len() + SERVICES.len() + FLAGS.len();
const WIDTH: usize = NUMERIC + SYMBOLS;

/// A record as the cuts see it: scaled numbers, and which symbolic columns are 1.
struct Point {
    numbers: [f32; NUMERIC],
    symbols: [u8; 3],
}

/// A region with the best cut through it.
struct Open {
    pool: usize,
    members: Vec<u32>,
    cut: Option<Cut>,
}

/// Where to cut: records at or below `value` in `feature` go left.
#[derive(Clone, Copy)]
struct Cut {
    gain: f64,
    feature: usize,
    value: f32,
}

/// Cuts the pools into `count` regions in all, each of at least `smallest` records.
pub(super) fn cut(
    records: &[Record],
    pools: Vec<Vec<u32>>,
    count: usize,
    smallest: usize,
) -> Vec<Vec<Vec<u32>>> {
    let points = points(records);
    let open = |pool, members: Vec<u32>| {
        let cut = best(&points, &members, smallest);
        Open { pool, members, cut }
    };
    let mut done: Vec<Vec<Vec<u32>>> = pools.iter().map(|_| Vec::new()).collect();
    let mut regions: Vec<Open> =
        pools.into_iter().enumerate().map(|(pool, members)| open(pool, members)).collect();
    while regions.len() < count {
        let gain = |region: &Open| region.cut.map_or(0.0, |cut| cut.gain);
        let Some(index) =
            (0..regions.len()).max_by(|&a, &b| gain(&regions[a]).total_cmp(&gain(&regions[b])))
        else {
            break;
        };
        let Some(cut) = regions[index].cut else { break };
        let Open { pool, members, .. } = regions.swap_remove(index);
        let (left, right) = members
            .into_iter()
            .partition(|&index| points[index as usize].value(cut.feature) <= cut.value);
        regions.push(open(pool, left));
        regions.push(open(pool, right));
    }
    for region in regions {
        done[region.pool].push(region.members);
    }
    for pool in &mut done {
        pool.sort_by_key(|members| (std::cmp::Reverse(members.len()), members.first().copied()));
    }
    done
}

impl Point {
    fn value(&self, feature: usize) -> f32 {
        match feature.checked_sub(NUMERIC) {
            None => self.numbers[feature],
            // Negative, so that the records with the symbol go left.
            Some(symbol) => -f32::from(self.symbols.contains(&(symbol as u8))),
        }
    }
}

/// Sums over some points.
#[derive(Clone)]
struct Sums {
    count: f64,
    sums: [f64; WIDTH],
}

impl Sums {
    const ZERO: Self = Self { count: 0.0, sums: [0.0; WIDTH] };

    fn add(&mut self, point: &Point) {
        self.count += 1.0;
        for (sum, &number) in self.sums.iter_mut().zip(&point.numbers) {
            *sum += f64::from(number);
        }
        for &symbol in &point.symbols {
            self.sums[NUMERIC + usize::from(symbol)] += SYMBOL;
        }
    }

    fn merge(&mut self, other: &Self, sign: f64) {
        self.count += sign * other.count;
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            *sum += sign * other;
        }
    }

    /// What the squared deviation loses by being around these points' own mean.
    fn explained(&self) -> f64 {
        self.sums.iter().map(|sum| sum * sum).sum::<f64>() / self.count
    }
}

fn best(points: &[Point], members: &[u32], smallest: usize) -> Option<Cut> {
    let mut all = Sums::ZERO;
    for &index in members {
        all.add(&points[index as usize]);
    }
    let base = all.explained();
    let mut best: Option<Cut> = None;
    for feature in 0..WIDTH {
        let mut values: Vec<f32> =
            members.iter().map(|&index| points[index as usize].value(feature)).collect();
        values.sort_unstable_by(f32::total_cmp);
        let mut cuts: Vec<f32> =
            (1..CUTS).map(|cut| values[(values.len() - 1) * cut / CUTS]).collect();
        cuts.push(values[0]);
        cuts.sort_unstable_by(f32::total_cmp);
        cuts.dedup();
        cuts.retain(|&cut| cut < values[values.len() - 1]);
        if cuts.is_empty() {
            continue;
        }
        let mut between = vec![Sums::ZERO; cuts.len() + 1];
        for &index in members {
            let point = &points[index as usize];
            let value = point.value(feature);
            between[cuts.partition_point(|&cut| cut < value)].add(point);
        }
        let mut left = Sums::ZERO;
        let mut right = all.clone();
        for (&value, part) in cuts.iter().zip(&between) {
            left.merge(part, 1.0);
            right.merge(part, -1.0);
            if left.count.min(right.count) < smallest as f64 {
                continue;
            }
            let gain = left.explained() + right.explained() - base;
            if gain > best.map_or(1e-6, |cut| cut.gain) {
                best = Some(Cut { gain, feature, value });
            }
        }
    }
    best
}

/// Numbers with variance 1 (of their logarithm where they span orders of magnitude).
fn points(records: &[Record]) -> Vec<Point> {
    let mut points: Vec<Point> = records
        .iter()
        .map(|record| Point {
            numbers: record.numbers,
            symbols: [
                record.protocol,
                PROTOCOLS.len() as u8 + record.service,
                (PROTOCOLS.len() + SERVICES.len()) as u8 + record.flag,
            ],
        })
        .collect();
    for feature in 0..NUMERIC {
        let name = numeric_name(feature);
        let logarithmic = !name.ends_with("_rate") && !name.ends_with("count");
        let mut column: Vec<f64> =
            points.iter().map(|point| f64::from(point.numbers[feature])).collect();
        if logarithmic {
            column.iter_mut().for_each(|value| *value = value.ln_1p());
        }
        let rows = column.len() as f64;
        let mean = column.iter().sum::<f64>() / rows;
        let variance = column.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / rows;
        let scale = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        for (point, value) in points.iter_mut().zip(column) {
            point.numbers[feature] = ((value - mean) / scale) as f32;
        }
    }
    points
}
