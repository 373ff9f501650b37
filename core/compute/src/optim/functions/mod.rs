//! Server functions: what a server does to each parameter by itself after the optimiser's step.
//!
//! A function sees the value before the step and after it, the gradient, the learning rate and what
//! it has itself remembered for that key, and says what the value shall be. Functions are applied
//! in the order in which the job names them, after the proximal step, which is one of them. A
//! function must depend on what it is given alone, so that several servers, standbys and replays
//! come to the same bits; it knows nothing of other keys, so that it is the same wherever keys are
//! cut.
//!
//! A function of one's own is a file beside this one, and a line in [`ALL`].
//!
//! Li et al., OSDI 2014, section 3.3 (user-defined functions on the server).

mod hard_threshold;
mod trust_region;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::OptimError;
use crate::saved::{Archive, SavedError};

/// All functions that a job may name.
const ALL: &[&Registered] = &[&hard_threshold::REGISTERED, &trust_region::REGISTERED];

/// The most functions of a job.
pub const MOST_FUNCTIONS: usize = 4;
/// The most numbers of a function.
const MOST_NUMBERS: usize = 3;

/// A function of each parameter by itself.
pub trait ServerFunction: fmt::Debug + Send {
    /// Says what the values that part of a step has come to shall be instead.
    fn apply(&mut self, values: &mut [f32], stepped: &Stepped<'_>);

    /// Saves or restores what it remembers, one value for each key of the server, if anything.
    ///
    /// # Errors
    /// [`SavedError`] if that is not what was saved.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let _without_memory = archive;
        Ok(())
    }
}

/// Part of a step that has been made. All slices have a value for each of its keys.
#[derive(Clone, Copy, Debug)]
pub struct Stepped<'a> {
    /// The first of its keys, counted from the server's first.
    pub first: usize,
    /// The values before the step.
    pub before: &'a [f32],
    /// The gradient of the update, combined and clipped, without weight decay.
    pub gradient: &'a [f32],
    /// The learning rate of each: the schedule's, or the optimiser's own for that key.
    pub rates: &'a [f32],
}

impl Stepped<'_> {
    /// Where the values of these keys are in an array of all the server's.
    #[must_use]
    pub const fn places(&self) -> Range<usize> {
        self.first..self.first + self.before.len()
    }
}

/// What a function is called, and how it is made.
#[derive(Debug)]
pub struct Registered {
    /// Its name in a job.
    pub name: &'static str,
    /// Its numbers, in the order in which a job gives them.
    pub numbers: &'static [Number],
    /// Makes it of its numbers, for so many keys.
    pub build: fn(&[f32], usize) -> Box<dyn ServerFunction>,
}

/// A number of a function.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// What it is called.
    pub name: &'static str,
    /// What it is if the job does not say; none if the job must.
    pub usual: Option<f32>,
    /// What it must be, in words.
    pub allowed: &'static str,
    /// Whether it is that. Only asked of finite numbers.
    pub fits: fn(f32) -> bool,
}

/// A function with its numbers, as a job names it: `NAME[:NUMBER,...]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FunctionSpec {
    /// Its place in [`ALL`].
    place: usize,
    numbers: [f32; MOST_NUMBERS],
}

impl FunctionSpec {
    /// What it is made by.
    #[must_use]
    pub fn registered(&self) -> &'static Registered {
        ALL.get(self.place).copied().unwrap_or(&hard_threshold::REGISTERED)
    }

    fn numbers(&self) -> &[f32] {
        self.numbers.get(..self.registered().numbers.len()).unwrap_or_default()
    }

    fn build(&self, keys: usize) -> Box<dyn ServerFunction> {
        (self.registered().build)(self.numbers(), keys)
    }

    fn validate(&self) -> Result<(), OptimError> {
        for (number, &value) in self.registered().numbers.iter().zip(self.numbers()) {
            if !value.is_finite() || !(number.fits)(value) {
                let (field, allowed) = (number.name, number.allowed);
                return Err(OptimError::Real { field, value, allowed });
            }
        }
        Ok(())
    }
}

impl fmt::Display for FunctionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.registered().name)?;
        for (place, number) in self.numbers().iter().enumerate() {
            write!(f, "{}{number}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for FunctionSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, given) = match text.split_once(':') {
            Some((name, given)) => (name, given.split(',').map(str::trim).collect::<Vec<_>>()),
            None => (text, Vec::new()),
        };
        let place = ALL.iter().position(|function| function.name == name);
        let unknown = || {
            let several = if text.contains(',') { "; several are parted by spaces" } else { "" };
            alloc::format!("{text:?} is no server function: use {}{several}", known())
        };
        let place = place.ok_or_else(unknown)?;
        let registered = ALL.get(place).copied().ok_or_else(unknown)?;
        if given.len() > registered.numbers.len() {
            return Err(unknown());
        }
        let mut numbers = [0.0; MOST_NUMBERS];
        for (which, (number, value)) in registered.numbers.iter().zip(&mut numbers).enumerate() {
            *value = match (given.get(which), number.usual) {
                (Some(text), _) => text.parse().map_err(|_no_number| unknown())?,
                (None, Some(usual)) => usual,
                (None, None) => return Err(unknown()),
            };
        }
        let spec = Self { place, numbers };
        spec.validate().map_err(|error| alloc::format!("{name}: {error}"))?;
        Ok(spec)
    }
}

impl TryFrom<String> for FunctionSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<FunctionSpec> for String {
    fn from(spec: FunctionSpec) -> Self {
        spec.to_string()
    }
}

/// The names of all functions, with their numbers.
fn known() -> String {
    let names = ALL.iter().map(|function| {
        let numbers = function.numbers.iter().enumerate().map(|(place, number)| {
            let before = if place == 0 { ":" } else { "," };
            match number.usual {
                None => alloc::format!("{before}{}", number.name),
                Some(usual) => alloc::format!("[{before}{} ({usual})]", number.name),
            }
        });
        alloc::format!("{}{}", function.name, numbers.collect::<String>())
    });
    names.collect::<Vec<_>>().join(" or ")
}

/// The functions of a job, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Functions([Option<FunctionSpec>; MOST_FUNCTIONS]);

impl Functions {
    /// No functions.
    pub const NONE: Self = Self([None; MOST_FUNCTIONS]);

    /// These, in this order.
    ///
    /// # Errors
    /// In words, if there are more than [`MOST_FUNCTIONS`].
    pub fn new(all: &[FunctionSpec]) -> Result<Self, String> {
        if all.len() > MOST_FUNCTIONS {
            return Err(alloc::format!("{} functions, but {MOST_FUNCTIONS} at most", all.len()));
        }
        let mut functions = Self::default();
        for (place, function) in functions.0.iter_mut().zip(all) {
            *place = Some(*function);
        }
        Ok(functions)
    }

    /// Reads a list of functions with spaces between them; `none` is no function.
    ///
    /// # Errors
    /// In words, at the first that is none.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let all = text.split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>()?;
        Self::new(&all)
    }

    /// They, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &FunctionSpec> {
        self.0.iter().flatten()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(super) fn validate(&self) -> Result<(), OptimError> {
        self.iter().try_for_each(FunctionSpec::validate)
    }

    /// All of them, for so many keys.
    pub(super) fn build(&self, keys: usize) -> Vec<Box<dyn ServerFunction>> {
        self.iter().map(|function| function.build(keys)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let all = Functions::read("trust-region hard-threshold:0.01").unwrap();
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["trust-region:1,5", "hard-threshold:0.01"]);
        assert_eq!(Functions::read(&words.join(" ")), Ok(all));
        assert!(Functions::read("none").unwrap().is_empty());
        for wrong in [
            "",
            "soft",
            "trust-region:0",
            "trust-region:5,1,1",
            "hard-threshold",
            "hard-threshold:x",
        ] {
            let refused = wrong.parse::<FunctionSpec>().unwrap_err();
            assert!(
                refused.contains("server function") || refused.contains("must be"),
                "{refused}"
            );
        }
        let five = ["hard-threshold:1"; 5].join(" ");
        assert!(Functions::read(&five).unwrap_err().contains("4 at most"));
    }

    #[test]
    fn every_function_can_be_built_of_its_usual_numbers() {
        for registered in ALL {
            assert!(registered.numbers.len() <= MOST_NUMBERS, "{}", registered.name);
            let numbers: Vec<f32> =
                registered.numbers.iter().map(|number| number.usual.unwrap_or(1.0)).collect();
            let mut function = (registered.build)(&numbers, 3);
            let mut values = [1.0, 2.0, 3.0];
            function.apply(
                &mut values,
                &Stepped { first: 0, before: &[0.0; 3], gradient: &[0.0; 3], rates: &[0.1; 3] },
            );
            assert!(values.iter().all(|value| value.is_finite()), "{}", registered.name);
        }
    }
}
