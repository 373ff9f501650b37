//! Makes `profile/nsl-kdd.txt` from NSL-KDD's training file.
//!
//! `cargo run --release -p pstrain-data --example make-profile -- KDDTrain+.txt > nsl-kdd.txt`
//!
//! Pools records by attack (rare attacks by class), cuts each pool into regions and writes the
//! statistics of each. Nothing is drawn at random: the same file gives the same profile.

mod regions;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use pstrain_data::nsl_kdd::{self, Attack, Columns, NUMERIC, ReadError, Record};
use pstrain_data::synthetic::{LEVELS, Numeric, Pool, Profile, Region, unit};

/// Attacks with fewer records than this share a pool with the others of their class.
const RARE: usize = 40;
/// Regions in all.
const REGIONS: usize = 240;
/// Fewest records of a region.
const SMALLEST: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: make-profile KDDTrain+.txt > nsl-kdd.txt")?;
    let count = arguments.next().map_or(Ok(REGIONS), |text| text.parse())?;
    let mut records = Vec::new();
    nsl_kdd::read_file(Path::new(&path), Columns::ALL, |record| {
        records.push(*record);
        Ok::<(), ReadError>(())
    })?;
    let pools = pools(&records);
    let members: Vec<Vec<u32>> = pools.iter().map(|pool| pool.1.clone()).collect();
    let mut profile = Profile::default();
    for ((attacks, _), regions) in
        pools.into_iter().zip(regions::cut(&records, members, count, SMALLEST))
    {
        let regions = regions.iter().map(|members| describe(&records, members)).collect();
        profile.pools.push(Pool { attacks, regions });
    }
    write!(
        std::io::stdout().lock(),
        "# Statistics of NSL-KDD's KDDTrain+.txt, made by the example make-profile. README.md\n\
         # beside this file says what may be done with it and what to cite.\n{profile}"
    )?;
    Ok(())
}

type Counted = (Vec<(Attack, u64)>, Vec<u32>);

/// Records by attack, rare attacks by class, with the attacks' counts.
fn pools(records: &[Record]) -> Vec<Counted> {
    let mut attacks: BTreeMap<Attack, Vec<u32>> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        attacks.entry(record.attack).or_default().push(index as u32);
    }
    let mut pools: BTreeMap<(u8, usize), Counted> = BTreeMap::new();
    for (attack, members) in attacks {
        let rare = members.len() < RARE;
        let key = (attack.class(), if rare { usize::MAX } else { attack.number() });
        let pool = pools.entry(key).or_default();
        pool.0.push((attack, members.len() as u64));
        pool.1.extend(members);
    }
    pools.into_values().collect()
}

/// The statistics of the records `members`.
fn describe(records: &[Record], members: &[u32]) -> Region {
    let members = || members.iter().map(|&index| &records[index as usize]);
    let mut combinations: BTreeMap<[u8; 3], u64> = BTreeMap::new();
    for record in members() {
        *combinations.entry([record.protocol, record.service, record.flag]).or_default() += 1;
    }
    let mut numerics = Vec::new();
    for numeric in 0..NUMERIC {
        let mut values: Vec<u32> = members()
            .map(|record| (record.numbers[numeric] * unit(numeric)).round() as u32)
            .collect();
        values.sort_unstable();
        let quantiles = LEVELS.map(|level| values[(values.len() - 1) * usize::from(level) / 256]);
        match (quantiles[0], quantiles[LEVELS.len() - 1]) {
            (0, 0) => {}
            (least, most) if least == most => {
                numerics.push((numeric as u8, Numeric::Constant(least)));
            }
            _ => numerics.push((numeric as u8, Numeric::Quantiles(quantiles))),
        }
    }
    Region {
        count: members().count() as u64,
        combinations: combinations.into_iter().collect(),
        numerics,
    }
}
