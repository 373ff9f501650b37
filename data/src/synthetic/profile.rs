//! The statistics that synthetic records are drawn from, and their text form.
//!
//! Records of one attack (of one class where attacks are rare) are a *pool*. Each pool is cut into
//! *regions*, boxes in which records resemble each other. A region knows how often each
//! combination of protocol, service and flag occurs in it, and eleven quantiles of every numeric
//! feature; within a region the features are taken to be independent.
//!
//! One line per statement, fields separated by spaces, `#` opens a comment:
//!
//! | line | meaning |
//! |---|---|
//! | `p NAME COUNT ...` | a pool: its attacks and how many records each has |
//! | `r COUNT` | a region of that pool and how many records lie in it |
//! | `s PROTOCOL SERVICE FLAG COUNT ...` | its combinations, by index |
//! | `c FEATURE VALUE ...` | its constant features; all others not named are 0 |
//! | `q FEATURE V0 ... V10` | the quantiles of one feature at [`LEVELS`] |
//!
//! Values are whole numbers: hundredths of a rate, everything else as it is.

use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};

use crate::nsl_kdd::{Attack, FLAGS, NUMERIC, PROTOCOLS, SERVICES, numeric_name};

/// The shares, in 256ths, of records below each quantile.
pub const LEVELS: [u16; 11] = [0, 2, 8, 24, 64, 128, 192, 232, 248, 254, 256];

const EMBEDDED: &str = include_str!("../../profile/nsl-kdd.txt");

/// How many whole units of the text form make 1: 100 for rates, 1 for everything else.
#[must_use]
pub fn unit(numeric: usize) -> f32 {
    if numeric_name(numeric).ends_with("_rate") { 100.0 } else { 1.0 }
}

/// Statistics of a training file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The pools; together they hold all records.
    pub pools: Vec<Pool>,
}

/// Records of one attack, or of several rare ones of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The attacks and how many records each has.
    pub attacks: Vec<(Attack, u64)>,
    /// The regions; together they hold all records of the pool.
    pub regions: Vec<Region>,
}

/// A box of records that resemble each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// The number of records.
    pub count: u64,
    /// Protocol, service and flag together, by index, and how often each combination occurs.
    pub combinations: Vec<([u8; 3], u64)>,
    /// The numeric features that are not 0 throughout, in order of their number.
    pub numerics: Vec<(u8, Numeric)>,
}

/// How one numeric feature is distributed in a region, in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numeric {
    /// Always the same.
    Constant(u32),
    /// The quantiles at [`LEVELS`]; between them values are spread evenly.
    Quantiles([u32; LEVELS.len()]),
}

/// A profile that does not follow its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The line, counted from 1; 0 for the profile as a whole.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile of synthetic data, line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// The profile of NSL-KDD's training file that ships with the crate.
    ///
    /// # Errors
    /// None in a tested build: [`ProfileError`] if the shipped file is broken.
    pub fn embedded() -> Result<Self, ProfileError> {
        EMBEDDED.parse()
    }

    /// All records of all pools.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.pools.iter().flat_map(|pool| &pool.regions).map(|region| region.count).sum()
    }

    fn statement(&mut self, line: &str) -> Result<(), &'static str> {
        let mut fields = line.split_ascii_whitespace();
        let Some(kind) = fields.next() else { return Ok(()) };
        if kind == "p" {
            self.pools.push(Pool { attacks: attacks(fields)?, regions: Vec::new() });
            return Ok(());
        }
        let regions = &mut self.pools.last_mut().ok_or("a region before any pool")?.regions;
        if kind == "r" {
            let count = only(&mut fields)?;
            regions.push(Region { count, ..Region::default() });
            return Ok(());
        }
        let region = regions.last_mut().ok_or("a statement before any region")?;
        match kind {
            "s" => region.combinations = combinations(fields)?,
            "c" => {
                let mut fields = fields.peekable();
                while fields.peek().is_some() {
                    region.add(feature(fields.next())?, Numeric::Constant(number(fields.next())?));
                }
            }
            "q" => {
                let feature = feature(fields.next())?;
                let mut quantiles = [0; LEVELS.len()];
                for quantile in &mut quantiles {
                    *quantile = number(fields.next())?;
                }
                if !quantiles.is_sorted() || fields.next().is_some() {
                    return Err("quantiles must rise, and be eleven");
                }
                region.add(feature, Numeric::Quantiles(quantiles));
            }
            _ => return Err("unknown statement"),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), &'static str> {
        for pool in &self.pools {
            if pool.attacks.iter().all(|&(_, count)| count == 0) {
                return Err("a pool without records");
            }
            for region in &pool.regions {
                let combined: u64 = region.combinations.iter().map(|&(_, count)| count).sum();
                if region.count == 0 || combined != region.count {
                    return Err("a region whose combinations do not add up");
                }
                if !region.numerics.is_sorted_by(|a, b| a.0 < b.0) {
                    return Err("a region that gives a feature twice");
                }
            }
        }
        if self.rows() == 0 { Err("no records") } else { Ok(()) }
    }
}

impl Region {
    fn add(&mut self, feature: u8, numeric: Numeric) {
        let at = self.numerics.partition_point(|&(other, _)| other < feature);
        self.numerics.insert(at, (feature, numeric));
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split_once('#').map_or(line, |(before, _)| before);
            profile.statement(line).map_err(|problem| ProfileError { line: index + 1, problem })?;
        }
        profile.check().map_err(|problem| ProfileError { line: 0, problem })?;
        Ok(profile)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pool in &self.pools {
            f.write_str("p")?;
            for (attack, count) in &pool.attacks {
                write!(f, " {attack} {count}")?;
            }
            writeln!(f)?;
            for region in &pool.regions {
                region.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r {}\ns", self.count)?;
        for ([protocol, service, flag], count) in &self.combinations {
            write!(f, " {protocol} {service} {flag} {count}")?;
        }
        writeln!(f)?;
        let mut open = false;
        for (feature, numeric) in &self.numerics {
            if let Numeric::Constant(value) = numeric {
                write!(f, "{} {feature} {value}", if open { "" } else { "c" })?;
                open = true;
            }
        }
        if open {
            writeln!(f)?;
        }
        for (feature, numeric) in &self.numerics {
            if let Numeric::Quantiles(quantiles) = numeric {
                write!(f, "q {feature}")?;
                for quantile in quantiles {
                    write!(f, " {quantile}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

fn number<N: FromStr>(field: Option<&str>) -> Result<N, &'static str> {
    field.ok_or("a number is missing")?.parse().map_err(|_| "not a whole number")
}

fn only(fields: &mut SplitAsciiWhitespace<'_>) -> Result<u64, &'static str> {
    let value = number(fields.next())?;
    if fields.next().is_some() { Err("too many fields") } else { Ok(value) }
}

fn feature(field: Option<&str>) -> Result<u8, &'static str> {
    let feature: u8 = number(field)?;
    if usize::from(feature) < NUMERIC { Ok(feature) } else { Err("no such feature") }
}

fn attacks(mut fields: SplitAsciiWhitespace<'_>) -> Result<Vec<(Attack, u64)>, &'static str> {
    let mut attacks = Vec::new();
    while let Some(name) = fields.next() {
        let attack = Attack::named(name.as_bytes()).ok_or("unknown attack")?;
        attacks.push((attack, number(fields.next())?));
    }
    Ok(attacks)
}

fn combinations(mut fields: SplitAsciiWhitespace<'_>) -> Result<Vec<([u8; 3], u64)>, &'static str> {
    let mut combinations = Vec::new();
    while let Some(protocol) = fields.next() {
        let combination: [u8; 3] =
            [number(Some(protocol))?, number(fields.next())?, number(fields.next())?];
        let sizes = [PROTOCOLS.len(), SERVICES.len(), FLAGS.len()];
        if combination.iter().zip(sizes).any(|(&index, size)| usize::from(index) >= size) {
            return Err("no such protocol, service or flag");
        }
        combinations.push((combination, number(fields.next())?));
    }
    Ok(combinations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_profile_is_read_and_written_back_unchanged() {
        let profile = Profile::embedded().unwrap();
        assert_eq!(profile.to_string().parse(), Ok(profile.clone()));
        assert_eq!(profile.rows(), super::super::DEFAULT_ROWS);
    }

    #[test]
    fn broken_profiles_are_refused_with_the_line() {
        for (text, line) in [
            ("", 0),
            ("p normal 1\nr 1\ns 0 0 0 2", 0),
            ("p normal 1\nr 1\ns 3 0 0 1", 3),
            ("r 1", 1),
            ("p nobody 1", 1),
            ("p normal 1\nr 1\ns 0 0 0 1\nq 3 1 2", 4),
            ("p normal 1\nr 1\ns 0 0 0 1\nc 38 1", 4),
            ("p normal 1\nr 1\ns 0 0 0 1\nx", 4),
        ] {
            assert_eq!(text.parse::<Profile>().map_err(|error| error.line), Err(line), "{text}");
        }
    }
}
