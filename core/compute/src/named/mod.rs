//! Settings that are a word with or without numbers: `asp`, `ssp:3`, `adam:0.9,0.999`.
//!
//! A [`Word`] is declared once: its name, its numbers with their limits and defaults, and a line of
//! description. A [`Family`] lists the words of one setting. Parsing, printing, range checks,
//! errors, help and the reference page derive from these tables. [`named!`](crate::named!) connects
//! a family with an enum.

mod number;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

pub use number::{Limits, Number, Presence, Value, Values};

/// The words of one setting.
#[derive(Debug, PartialEq)]
pub struct Family {
    /// The noun for one of the words, in errors.
    pub noun: &'static str,
    /// The character between two numbers.
    pub separator: char,
    /// All words, in the order of help and errors.
    pub words: &'static [Word],
}

/// A word with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Word {
    /// The name, before the colon.
    pub name: &'static str,
    /// The numbers after the colon, in order.
    pub numbers: &'static [Number],
    /// The description: a phrase without a full stop.
    pub about: &'static str,
}

impl Word {
    /// A word with these numbers.
    #[must_use]
    pub const fn new(name: &'static str, numbers: &'static [Number], about: &'static str) -> Self {
        Self { name, numbers, about }
    }

    /// Returns the form: the name and the names of its numbers, those with a default in brackets.
    #[must_use]
    pub fn form(&self, separator: char) -> String {
        let (mut form, mut open) = (self.name.to_owned(), 0);
        for (place, number) in self.numbers.iter().enumerate() {
            if matches!(number.presence, Presence::Usual(_) | Presence::Implied(_)) {
                form.push('[');
                open += 1;
            }
            form.push(if place == 0 { ':' } else { separator });
            form.push_str(number.name);
            if number.limits == Limits::WholeOrInf {
                form.push_str("|inf");
            }
            if number.presence == Presence::Repeated {
                form.push_str(&format!("[{separator}{}...]", number.name));
            }
        }
        form.push_str(&"]".repeat(open));
        form
    }

    /// True if a text with `given` numbers is complete and has none too many.
    fn takes(&self, given: usize) -> bool {
        match (self.numbers.get(given), self.numbers.last()) {
            (Some(next), _) if given == 0 => next.default().is_some(),
            (Some(next), _) => matches!(next.presence, Presence::Usual(_) | Presence::Implied(_)),
            (None, Some(last)) if last.presence == Presence::Repeated => true,
            (None, _) => given == self.numbers.len(),
        }
    }

    /// The declaration of the number at index `place`.
    fn number(&self, place: usize) -> Option<&Number> {
        self.numbers.get(place).or_else(|| self.numbers.last())
    }
}

impl Family {
    /// Returns the forms of all words, for errors.
    #[must_use]
    pub fn forms(&self) -> String {
        let mut forms: Vec<String> = self.words.iter().map(|it| it.form(self.separator)).collect();
        let last = forms.pop().unwrap_or_default();
        if forms.is_empty() { last } else { format!("{} or {last}", forms.join(", ")) }
    }
}

/// The word of a form such as `libsvm:PATH[,PATH...]` or `sparse[:ROWS]`.
#[must_use]
pub fn word_of(form: &'static str) -> &'static str {
    form.split(['[', ':']).next().unwrap_or(form)
}

/// A type of numbers.
pub trait Field: Sized {
    /// Reads a number; `None` if the text is none of this type.
    fn read(text: &str) -> Option<Self>;

    /// The number, for checks and printing.
    fn value(&self) -> Value;
}

macro_rules! fields {
    ($($field:ty: $value:ident),+) => {$(
        impl Field for $field {
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn value(&self) -> Value {
                Value::$value((*self).into())
            }
        }
    )+};
}

fields!(u8: Whole, u32: Whole, u64: Whole, f32: Single, f64: Double);

/// A whole number, or no limit.
impl Field for Option<u64> {
    fn read(text: &str) -> Option<Self> {
        if text == "inf" { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn value(&self) -> Value {
        self.map_or(Value::Inf, Value::Whole)
    }
}

/// A type whose values are the words of a family.
pub trait Named: Sized {
    /// The words.
    const FAMILY: &'static Family;

    /// Reads a value whose word is known.
    ///
    /// # Errors
    /// [`NamedError`] if a number is missing or out of range.
    fn read(given: &mut Given<'_>) -> Result<Self, NamedError>;

    /// The word and the values of its numbers.
    fn parts(&self) -> (Word, Values);
}

/// A text during parsing: its word, and the numbers that are not read yet.
#[derive(Debug)]
pub struct Given<'a> {
    text: &'a str,
    family: &'static Family,
    word: &'static Word,
    numbers: Vec<&'a str>,
    place: usize,
}

impl Given<'_> {
    /// True if the text names `word`.
    #[must_use]
    pub fn is(&self, word: &Word) -> bool {
        self.word.name == word.name
    }

    /// Reads the next number, or takes its default.
    ///
    /// # Errors
    /// [`NamedError`] if it is no number, or one that is out of its range.
    pub fn number<T: Field>(&mut self) -> Result<T, NamedError> {
        let Some(number) = self.word.number(self.place) else { return Err(self.unknown()) };
        let text = self.numbers.get(self.place).copied().or_else(|| number.default());
        let text = text.unwrap_or_default();
        self.place += 1;
        let is_whole = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        match T::read(text) {
            Some(read) if number.limits.contain(read.value()) => Ok(read),
            None if !is_whole => Err(self.unknown()),
            // A whole number that cannot be read exceeds its type, and so the range.
            _ => Err(NamedError { number: Some(*number), ..self.unknown() }),
        }
    }

    /// Reads all remaining numbers.
    ///
    /// # Errors
    /// As [`Given::number`].
    pub fn list<T: Field>(&mut self) -> Result<Vec<T>, NamedError> {
        (self.place..self.numbers.len()).map(|_| self.number()).collect()
    }

    /// The error that lists all forms.
    #[must_use]
    pub fn unknown(&self) -> NamedError {
        NamedError::unknown(self.text, self.family)
    }
}

/// Parses a text.
///
/// # Errors
/// [`NamedError`] if the text has none of the forms, or a number that is out of its range.
pub fn parse<T: Named>(text: &str) -> Result<T, NamedError> {
    let family = T::FAMILY;
    // A name may have a colon itself.
    let begins = |word: &&Word| {
        let rest = text.strip_prefix(word.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let word = family.words.iter().filter(begins).max_by_key(|word| word.name.len());
    let Some(word) = word else { return Err(NamedError::unknown(text, family)) };
    let numbers = match text[word.name.len()..].strip_prefix(':') {
        Some(rest) => rest.split(family.separator).map(str::trim).collect(),
        None => Vec::new(),
    };
    match word.takes(numbers.len()) {
        true => T::read(&mut Given { text, family, word, numbers, place: 0 }),
        false => Err(NamedError::unknown(text, family)),
    }
}

/// Writes a value as [`parse`] reads it.
///
/// # Errors
/// The error of `f`.
pub fn write<T: Named>(named: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (word, values) = named.parts();
    f.write_str(word.name)?;
    let is_implied = |(place, value): (usize, &Value)| {
        word.number(place).is_some_and(
            |it| matches!(it.presence, Presence::Implied(text) if value.to_string() == text),
        )
    };
    let implied = values.iter().enumerate().rev().take_while(|it| is_implied(*it)).count();
    for (place, value) in values.iter().take(values.len() - implied).enumerate() {
        write!(f, "{}{value}", if place == 0 { ':' } else { T::FAMILY.separator })?;
    }
    Ok(())
}

/// Returns the first number that is out of its range. The fields of a value are public, so that
/// only parsed values are known to be in range.
#[must_use]
pub fn out_of_range(named: &impl Named) -> Option<Number> {
    let (word, values) = named.parts();
    let declared = values.iter().enumerate().map(|(place, value)| (word.number(place), *value));
    let mut declared = declared.filter_map(|(number, value)| Some((*number?, value)));
    declared.find_map(|(number, value)| (!number.limits.contain(value)).then_some(number))
}

/// Checks that all numbers are in their ranges.
///
/// # Errors
/// `error` of the value and the first number that is not.
pub fn check<T: Named, E>(named: T, error: impl FnOnce(T, Number) -> E) -> Result<(), E> {
    match out_of_range(&named) {
        Some(number) => Err(error(named, number)),
        None => Ok(()),
    }
}

/// A text that is no word of a family, or one with a number that is out of its range.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedError {
    text: String,
    family: &'static Family,
    /// The number that is out of its range.
    number: Option<Number>,
}

impl NamedError {
    fn unknown(text: &str, family: &'static Family) -> Self {
        Self { text: text.to_owned(), family, number: None }
    }
}

impl fmt::Display for NamedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, family, number } = self;
        match number {
            Some(number) => write!(f, "{text}: {}", number.must()),
            None => write!(f, "{text:?} is no {}: use {}", family.noun, family.forms()),
        }
    }
}

impl core::error::Error for NamedError {}

/// Connects an enum with its words: implements [`Named`], `Display` and
/// `FromStr`. The fields of a variant are the numbers of its word, in order; a list in parentheses
/// is its repeated number.
#[macro_export]
macro_rules! named {
    ($name:ident: $noun:literal, $separator:literal {
        $($variant:ident $({ $($field:ident),+ })? $(($list:ident))? = $word:expr),+ $(,)?
    }) => {
        impl $crate::named::Named for $name {
            const FAMILY: &'static $crate::named::Family = &$crate::named::Family {
                noun: $noun,
                separator: $separator,
                words: &[$($word),+],
            };

            fn read(
                given: &mut $crate::named::Given<'_>,
            ) -> Result<Self, $crate::named::NamedError> {
                $({
                    const WORD: $crate::named::Word = $word;
                    if given.is(&WORD) {
                        $($(let $field = given.number()?;)+)?
                        $(let $list = given.list()?;)?
                        return Ok(Self::$variant $({ $($field),+ })? $(($list))?);
                    }
                })+
                Err(given.unknown())
            }

            fn parts(&self) -> ($crate::named::Word, $crate::named::Values) {
                match self {
                    $(Self::$variant $({ $($field),+ })? $(($list))? => {
                        const WORD: $crate::named::Word = $word;
                        let values = [$($($crate::named::Field::value($field)),+)?].into_iter();
                        $(let values =
                            values.chain($list.iter().map($crate::named::Field::value));)?
                        (WORD, values.collect())
                    })+
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::named::write(self, f)
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::named::NamedError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::named::parse(text)
            }
        }
    };
}

#[cfg(test)]
mod tests;
