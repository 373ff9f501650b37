//! Server functions: per-parameter operations that a server applies after the optimiser's step.
//!
//! A function receives the value before and after the step, the gradient and the learning rate, may
//! keep state per key, and returns the new value. Functions run in the order in which the job names
//! them, after the proximal step, which is itself a function. The result must depend on these
//! inputs alone, so that several servers, standbys and replays compute the same bits. A function
//! does not see other keys, so that its result does not depend on the boundaries of the key ranges.
//!
//! To add a function, add a file to this directory and a line to [`ALL`].
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

/// All functions that a job can name.
const ALL: &[&Registered] = &[&hard_threshold::REGISTERED, &trust_region::REGISTERED];

/// The largest number of functions in a job.
pub const MOST_FUNCTIONS: usize = 4;
/// The largest number of arguments of a function.
const MOST_NUMBERS: usize = 3;

/// A function of each single parameter.
pub trait ServerFunction: fmt::Debug + Send {
    /// Replaces the `values` that one part of a step has produced.
    fn apply(&mut self, values: &mut [f32], stepped: &Stepped<'_>);

    /// Saves or restores the state, one value for each key of the server, if there is any.
    ///
    /// # Errors
    /// [`SavedError`] if the archive does not match the state.
    fn archive(&mut self, archive: &mut Archive<'_>) -> Result<(), SavedError> {
        let _without_memory = archive;
        Ok(())
    }
}

/// One part of a completed optimiser step. Each slice has one value per key.
#[derive(Clone, Copy, Debug)]
pub struct Stepped<'a> {
    /// The first key, relative to the server's first key.
    pub first: usize,
    /// The values before the step.
    pub before: &'a [f32],
    /// The gradient of the update: combined and clipped, without weight decay.
    pub gradient: &'a [f32],
    /// The learning rate of each key: the schedule's, or the optimiser's own rate for that key.
    pub rates: &'a [f32],
}

impl Stepped<'_> {
    /// Indices of these keys in an array over all keys of the server.
    #[must_use]
    pub const fn places(&self) -> Range<usize> {
        self.first..self.first + self.before.len()
    }
}

/// The registration of a function: its name, its arguments and its constructor.
#[derive(Debug)]
pub struct Registered {
    /// The name that a job uses.
    pub name: &'static str,
    /// The arguments, in the order in which a job gives them.
    pub numbers: &'static [Number],
    /// Builds the function from its arguments, for the given number of keys.
    pub build: fn(&[f32], usize) -> Box<dyn ServerFunction>,
}

/// The declaration of a numeric argument.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// The name in messages.
    pub name: &'static str,
    /// The default; `None` if the job must give a value.
    pub usual: Option<f32>,
    /// The allowed range, in words.
    pub allowed: &'static str,
    /// True if a number is in the allowed range. Called for finite numbers only.
    pub fits: fn(f32) -> bool,
}

/// A function with its arguments, as a job writes it: `NAME[:NUMBER,...]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FunctionSpec {
    /// Index in [`ALL`].
    place: usize,
    numbers: [f32; MOST_NUMBERS],
}

impl FunctionSpec {
    /// Returns the registration of this function.
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

/// Names of all functions with their arguments, for messages.
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

    /// Creates a list of these functions, in this order.
    ///
    /// # Errors
    /// A message if there are more than [`MOST_FUNCTIONS`].
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

    /// Parses a list of functions, separated by spaces; `none` is the empty list.
    ///
    /// # Errors
    /// A message about the first word that is not a function.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "none" {
            return Ok(Self::default());
        }
        let all = text.split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>()?;
        Self::new(&all)
    }

    /// Iterates over the functions in order.
    pub fn iter(&self) -> impl Iterator<Item = &FunctionSpec> {
        self.0.iter().flatten()
    }

    /// True if the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(super) fn validate(&self) -> Result<(), OptimError> {
        self.iter().try_for_each(FunctionSpec::validate)
    }

    /// Builds all functions, for the given number of keys.
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
