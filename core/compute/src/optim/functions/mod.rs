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
use crate::named::{self, Family, Given, Named, NamedError, Value, Values, Word};
use crate::saved::{Archive, SavedError};

/// All functions that a job can name.
const ALL: &[Registered] = &[hard_threshold::REGISTERED, trust_region::REGISTERED];

const WORDS: [Word; ALL.len()] = {
    let mut words = [ALL[0].word; ALL.len()];
    let mut place = 1;
    while place < ALL.len() {
        words[place] = ALL[place].word;
        place += 1;
    }
    words
};

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

/// The registration of a function: its word and its constructor.
#[derive(Debug)]
pub struct Registered {
    /// The word that a job uses, with the arguments.
    pub word: Word,
    /// Builds the function from its arguments, for the given number of keys.
    pub build: fn(&[f32], usize) -> Box<dyn ServerFunction>,
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
        ALL.get(self.place).unwrap_or(&hard_threshold::REGISTERED)
    }

    fn numbers(&self) -> &[f32] {
        self.numbers.get(..self.registered().word.numbers.len()).unwrap_or_default()
    }

    fn build(&self, keys: usize) -> Box<dyn ServerFunction> {
        (self.registered().build)(self.numbers(), keys)
    }
}

impl Named for FunctionSpec {
    const FAMILY: &'static Family =
        &Family { noun: "server function", separator: ',', words: &WORDS };

    fn read(given: &mut Given<'_>) -> Result<Self, NamedError> {
        let place = ALL.iter().position(|function| given.is(&function.word));
        let mut spec =
            Self { place: place.ok_or_else(|| given.unknown())?, numbers: [0.0; MOST_NUMBERS] };
        for place in 0..spec.numbers().len() {
            spec.numbers[place] = given.number()?;
        }
        Ok(spec)
    }

    fn parts(&self) -> (Word, Values) {
        (self.registered().word, self.numbers().iter().map(|it| Value::Single(*it)).collect())
    }
}

impl fmt::Display for FunctionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named::write(self, f)
    }
}

impl FromStr for FunctionSpec {
    type Err = NamedError;

    fn from_str(text: &str) -> Result<Self, NamedError> {
        named::parse(text)
    }
}

impl TryFrom<String> for FunctionSpec {
    type Error = NamedError;

    fn try_from(text: String) -> Result<Self, NamedError> {
        text.parse()
    }
}

impl From<FunctionSpec> for String {
    fn from(spec: FunctionSpec) -> Self {
        spec.to_string()
    }
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
        let read = |word: &str| word.parse().map_err(|error: NamedError| error.to_string());
        Self::new(&text.split_whitespace().map(read).collect::<Result<Vec<_>, _>>()?)
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
        self.iter().try_for_each(|it| named::check(*it, OptimError::Function))
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
            let refused = wrong.parse::<FunctionSpec>().unwrap_err().to_string();
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
            let Word { name, numbers, .. } = registered.word;
            assert!(numbers.len() <= MOST_NUMBERS, "{name}");
            let usual = numbers.iter().map(|number| number.default().unwrap_or("1"));
            let numbers: Vec<f32> = usual.map(|text| text.parse().unwrap()).collect();
            let mut function = (registered.build)(&numbers, 3);
            let mut values = [1.0, 2.0, 3.0];
            function.apply(
                &mut values,
                &Stepped { first: 0, before: &[0.0; 3], gradient: &[0.0; 3], rates: &[0.1; 3] },
            );
            assert!(values.iter().all(|value| value.is_finite()), "{name}");
        }
    }
}
