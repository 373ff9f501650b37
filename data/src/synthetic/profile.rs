//! The statistics for synthetic records, and their text form.
//!
//! Records of one attack (of one class where attacks are rare) form a *pool*. Each pool is divided
//! into *regions*, boxes in which records resemble each other. A region stores how often each
//! combination of protocol, service and flag occurs in it, and eleven quantiles of every numeric
//! feature. Within a region the features are assumed to be independent.
//!
//! One statement per line, fields separated by spaces; `#` starts a comment:
//!
//! | line | meaning |
//! |---|---|
//! | `p NAME COUNT ...` | a pool: its attacks and how many records each has |
//! | `r COUNT` | a region of that pool and how many records lie in it |
//! | `s PROTOCOL SERVICE FLAG COUNT ...` | its combinations, by index |
//! | `c FEATURE VALUE ...` | its constant features; all others not named are 0 |
//! | `q FEATURE V0 ... V10` | the quantiles of one feature at [`LEVELS`] |
//!
//! Values are whole numbers: hundredths for rates, the value itself for all other features.

use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};

use crate::nsl_kdd::{Attack, FLAGS, NUMERIC, PROTOCOLS, SERVICES, numeric_name};

/// The fractions, in 256ths, of records below each quantile.
pub const LEVELS: [u16; 11] = [0, 2, 8, 24, 64, 128, 192, 232, 248, 254, 256];

const EMBEDDED: &str = include_str!("../../profile/nsl-kdd.txt");

/// Returns the number of units of the text form that make 1: 100 for rates, 1 for other features.
#[must_use]
pub fn unit(numeric: usize) -> f32 {
    if numeric_name(numeric).ends_with("_rate") { 100.0 } else { 1.0 }
}

/// Statistics of a training file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The pools; together they have all records.
    pub pools: Vec<Pool>,
}

/// Records of one attack, or of several rare ones of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The attacks, each with its number of records.
    pub attacks: Vec<(Attack, u64)>,
    /// The regions; together they have all records of the pool.
    pub regions: Vec<Region>,
}

/// A box of records that resemble each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// The number of records.
    pub count: u64,
    /// Combinations of protocol, service and flag, by index, each with its number of records.
    pub combinations: Vec<([u8; 3], u64)>,
    /// The numeric features that are not always 0, in order of their number.
    pub numerics: Vec<(u8, Numeric)>,
}

/// Distribution of one numeric feature in a region, in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numeric {
    /// A constant value.
    Constant(u32),
    /// The quantiles at [`LEVELS`]; values between two of them are distributed evenly.
    Quantiles([u32; LEVELS.len()]),
}

/// Error of a profile that does not follow its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The line, counted from 1; 0 for the profile as a whole.
    pub line: usize,
    /// The problem.
    pub problem: &'static str,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile of synthetic data, line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// Parses the profile of NSL-KDD's training file that ships with the crate.
    ///
    /// # Errors
    /// [`ProfileError`] if the shipped file is malformed, which the tests exclude.
    pub fn embedded() -> Result<Self, ProfileError> {
        EMBEDDED.parse()
    }

    /// Returns the number of records in all pools.
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
