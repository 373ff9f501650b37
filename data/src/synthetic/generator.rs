//! Draws records from a profile: one weighted choice of a region, then table look-ups.

use pstrain_compute::rng::Stream;

use super::choice::Choice;
use super::profile::{LEVELS, Numeric, Profile, Region, unit};
use crate::nsl_kdd::{Attack, Columns, NUMERIC, Record};

/// A generator of synthetic records.
///
/// Each record has its own random stream, and makes the same draws whichever features are
/// requested.
#[derive(Clone, Debug)]
pub struct Generator {
    stream: Stream,
    region: Choice,
    tables: Vec<Table>,
}

/// The tables of one region, laid out for drawing.
#[derive(Clone, Debug)]
struct Table {
    attack: Choice,
    attacks: Vec<Attack>,
    combination: Choice,
    combinations: Vec<[u8; 3]>,
    constants: Vec<(u8, f32)>,
    varying: Vec<Varying>,
    /// Number of 64-bit draws; each serves four features.
    words: usize,
}

/// A feature that varies within its region.
#[derive(Clone, Debug)]
struct Varying {
    feature: u8,
    /// The index of the feature's 16 bits among the drawn bits.
    draw: u8,
    unit: f32,
    /// For each interval between two levels, its first value and its slope per unit of the 16-bit
    /// draw.
    pieces: [(f64, f64); LEVELS.len() - 1],
}

/// Maps the upper 8 bits of a draw to the interval between two levels that it falls into.
const PIECES: [u8; 256] = {
    let mut pieces = [0; 256];
    let mut piece = 0;
    let mut at = 0;
    while at < 256 {
        if LEVELS[piece + 1] as usize <= at {
            piece += 1;
        }
        pieces[at] = piece as u8;
        at += 1;
    }
    pieces
};

impl Generator {
    /// Makes a generator of records with the requested features; all others stay 0.
    #[must_use]
    pub fn new(profile: &Profile, seed: u64, columns: Columns) -> Self {
        let mut weights = Vec::new();
        let mut tables = Vec::new();
        for pool in &profile.pools {
            let attack = Choice::new(pool.attacks.iter().map(|&(_, count)| count));
            let attacks: Vec<_> = pool.attacks.iter().map(|&(attack, _)| attack).collect();
            for region in &pool.regions {
                weights.push(region.count);
                tables.push(Table::new(region, attack.clone(), attacks.clone(), columns));
            }
        }
        Self { stream: Stream::new(seed), region: Choice::new(weights), tables }
    }

    /// Generates record number `row`.
    #[must_use]
    pub fn record(&self, row: u64) -> Record {
        let mut rng = self.stream.fork("record", row).rng();
        let table = &self.tables[self.region.pick(rng.bits())];
        let attack = table.attacks[table.attack.pick(rng.bits())];
        let [protocol, service, flag] = table.combinations[table.combination.pick(rng.bits())];
        let mut words = [0_u64; NUMERIC.div_ceil(4)];
        for word in &mut words[..table.words] {
            *word = rng.bits();
        }
        let mut numbers = [0.0; NUMERIC];
        for &(feature, value) in &table.constants {
            numbers[usize::from(feature)] = value;
        }
        for varying in &table.varying {
            let word = words[usize::from(varying.draw / 4)];
            let bits = word >> (16 * (varying.draw % 4)) & 0xffff;
            numbers[usize::from(varying.feature)] = varying.value(bits);
        }
        Record { protocol, service, flag, attack, numbers }
    }
}

impl Table {
    fn new(region: &Region, attack: Choice, attacks: Vec<Attack>, columns: Columns) -> Self {
        let mut constants = Vec::new();
        let mut varying = Vec::new();
        let mut draw = 0;
        for &(feature, numeric) in &region.numerics {
            let wanted = columns.contains(usize::from(feature));
            let unit = unit(usize::from(feature));
            match numeric {
                Numeric::Constant(value) if wanted => {
                    constants.push((feature, value as f32 / unit));
                }
                Numeric::Constant(_) => {}
                Numeric::Quantiles(quantiles) => {
                    if wanted {
                        varying.push(Varying { feature, draw, unit, pieces: pieces(&quantiles) });
                    }
                    // Counts features that are not requested, too, so that requests do not shift
                    // the draws.
                    draw += 1;
                }
            }
        }
        Self {
            attack,
            attacks,
            combination: Choice::new(region.combinations.iter().map(|&(_, count)| count)),
            combinations: region.combinations.iter().map(|&(all, _)| all).collect(),
            constants,
            varying,
            words: usize::from(draw).div_ceil(4),
        }
    }
}

impl Varying {
    /// Returns the value for 16 random bits.
    fn value(&self, bits: u64) -> f32 {
        let piece = usize::from(PIECES[(bits >> 8) as usize]);
        let (begin, slope) = self.pieces[piece];
        let within = bits as f64 - f64::from(LEVELS[piece]) * 256.0;
        // Rounds to whole units first, so that the value equals its written form when it is read
        // back.
        let units = (begin + slope * within + 0.5) as u32;
        units as f32 / self.unit
    }
}

fn pieces(quantiles: &[u32; LEVELS.len()]) -> [(f64, f64); LEVELS.len() - 1] {
    std::array::from_fn(|piece| {
        let (begin, end) = (f64::from(quantiles[piece]), f64::from(quantiles[piece + 1]));
        let draws = f64::from(LEVELS[piece + 1] - LEVELS[piece]) * 256.0;
        (begin, (end - begin) / draws)
    })
}
