//! Settings that are a word with or without numbers: `asp`, `ssp:3`, `adam:0.9,0.999`.
//!
//! A [`Word`] is declared once: its name, its numbers with their limits and defaults, and a line of
//! description. A [`Family`] lists the words of one setting. Parsing, printing, range checks,
//! errors, help and the reference page derive from these tables. [`named!`](crate::named!) connects
//! a family with an enum.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

/// The words of one setting.
#[derive(Debug)]
pub struct Family {
    /// The noun for one of the words, in errors.
    pub noun: &'static str,
    /// The character between two numbers.
    pub separator: char,
    /// All words, in the order of help and errors.
    pub words: &'static [Word],
}

/// A word with its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The name, before the colon.
    pub name: &'static str,
    /// The numbers after the colon, in order.
    pub numbers: &'static [Number],
    /// The description: a phrase without a full stop.
    pub about: &'static str,
}

/// A number of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The name in forms and errors, in capitals.
    pub name: &'static str,
    /// The allowed values.
    pub limits: Limits,
    /// Whether a text must contain the number.
    presence: Presence,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Presence {
    Required,
    /// May be omitted together with all that follow; the default is as a user would write it.
    Usual(&'static str),
    /// As `Usual`, and not printed if it has its default.
    Implied(&'static str),
    /// Has a default, but is omitted only together with the number before it.
    Joined(&'static str),
    /// One or more numbers; the last of its word.
    Repeated,
}

/// The allowed values of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limits {
    /// Whole numbers.
    Whole {
        /// The least.
        least: u64,
        /// The greatest.
        most: u64,
    },
    /// Whole numbers and the word `inf`.
    WholeOrInf,
    /// Finite numbers above `least` if `open.0`, else from it, and the same for `most`.
    Real {
        /// The lower limit.
        least: f64,
        /// The upper limit.
        most: f64,
        /// True for each limit that is not itself allowed.
        open: (bool, bool),
    },
}

impl Limits {
    /// All finite numbers.
    pub const FINITE: Self = Self::from_to(f64::NEG_INFINITY, f64::INFINITY);
    /// Numbers above 0.
    pub const POSITIVE: Self = Self::Real { least: 0.0, most: f64::INFINITY, open: (true, false) };
    /// Numbers from 0 up.
    pub const NOT_NEGATIVE: Self = Self::from_to(0.0, f64::INFINITY);
    /// A share that is not empty: above 0 and up to 1.
    pub const SHARE: Self = Self::Real { least: 0.0, most: 1.0, open: (true, false) };
    /// A share that is not everything: from 0 to below 1.
    pub const PART: Self = Self::Real { least: 0.0, most: 1.0, open: (false, true) };

    /// Finite numbers from `least` to `most`, either of which may be infinite.
    #[must_use]
    pub const fn from_to(least: f64, most: f64) -> Self {
        Self::Real { least, most, open: (false, false) }
    }

    /// True if `value` is allowed.
    #[must_use]
    pub fn contain(&self, value: Value) -> bool {
        let real = match (self, value) {
            (Self::Whole { least, most }, Value::Whole(it)) => {
                return (least..=most).contains(&&it);
            }
            (Self::WholeOrInf, Value::Whole(_) | Value::Inf) => return true,
            (_, Value::Single(it)) => f64::from(it),
            (_, Value::Double(it)) => it,
            _ => return false,
        };
        let Self::Real { least, most, open } = *self else { return false };
        let is_outside = real < least || real > most;
        let is_at_open = open.0 && real <= least || open.1 && real >= most;
        real.is_finite() && !is_outside && !is_at_open
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole { least, most: u64::MAX } => write!(f, "{least} to 2^64 - 1"),
            Self::Whole { least, most } => write!(f, "{least} to {most}"),
            Self::WholeOrInf => f.write_str("0 to 2^64 - 1, or inf"),
            Self::Real { least, most, open } => match (least.is_finite(), most.is_finite()) {
                (false, _) => f.write_str("finite"),
                (_, false) if open.0 => write!(f, "finite and above {least}"),
                (_, false) => write!(f, "finite and at least {least}"),
                _ if open.0 => write!(f, "above {least} and up to {most}"),
                _ if open.1 => write!(f, "at least {least} and below {most}"),
                _ => write!(f, "from {least} to {most}"),
            },
        }
    }
}

impl Number {
    /// A whole number that a text must contain.
    #[must_use]
    pub const fn whole(name: &'static str, limits: RangeInclusive<u64>) -> Self {
        let (least, most) = (*limits.start(), *limits.end());
        Self { name, limits: Limits::Whole { least, most }, presence: Presence::Required }
    }

    /// A whole number, or the word `inf`, that a text must contain.
    #[must_use]
    pub const fn whole_or_inf(name: &'static str) -> Self {
        Self { name, limits: Limits::WholeOrInf, presence: Presence::Required }
    }

    /// A number that a text must contain.
    #[must_use]
    pub const fn real(name: &'static str, limits: Limits) -> Self {
        Self { name, limits, presence: Presence::Required }
    }

    /// The same with a default.
    #[must_use]
    pub const fn usual(self, text: &'static str) -> Self {
        Self { presence: Presence::Usual(text), ..self }
    }

    /// The same with a default, which is not printed.
    #[must_use]
    pub const fn implied(self, text: &'static str) -> Self {
        Self { presence: Presence::Implied(text), ..self }
    }

    /// The same with a default that applies only if the number before it is omitted as well.
    #[must_use]
    pub const fn joined(self, text: &'static str) -> Self {
        Self { presence: Presence::Joined(text), ..self }
    }

    /// The same, once or more often.
    #[must_use]
    pub const fn repeated(self) -> Self {
        Self { presence: Presence::Repeated, ..self }
    }

    /// The default, as a user would write it.
    #[must_use]
    pub const fn default(&self) -> Option<&'static str> {
        match self.presence {
            Presence::Required | Presence::Repeated => None,
            Presence::Usual(text) | Presence::Implied(text) | Presence::Joined(text) => Some(text),
        }
    }

    /// Returns an error's last words: the name and the allowed values.
    #[must_use]
    pub fn must(&self) -> String {
        format!("{} must be {}", self.name, self.limits)
    }
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

    /// Returns the forms of all words with their descriptions, for help.
    #[must_use]
    pub fn help(&self) -> String {
        let lines =
            self.words.iter().map(|it| format!("{} ({})", it.form(self.separator), it.about));
        lines.collect::<Vec<_>>().join(", ")
    }
}

/// The values of a word's numbers.
pub type Values = Vec<Value>;

/// A value of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// A number of single precision.
    Single(f32),
    /// A number of double precision.
    Double(f64),
    /// No limit.
    Inf,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Single(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
            Self::Inf => f.write_str("inf"),
        }
    }
}

/// A field of a variant: a number of its word, or the repeated one.
pub trait Field {
    /// Reads the field from the next numbers of a text.
    ///
    /// # Errors
    /// [`NamedError`] if the text has no such number, or one that is out of its range.
    fn read(given: &mut Given<'_>) -> Result<Self, NamedError>
    where
        Self: Sized;

    /// Appends the values to `all`.
    fn append(&self, all: &mut Values);
}

macro_rules! fields {
    ($($field:ty: $value:ident),+) => {$(
        impl Field for $field {
            fn read(given: &mut Given<'_>) -> Result<Self, NamedError> {
                given.next(|text| text.parse().ok(), |&it: &Self| Value::$value(it.into()))
            }

            fn append(&self, all: &mut Values) {
                all.push(Value::$value((*self).into()));
            }
        }
    )+};
}

fields!(u8: Whole, u32: Whole, u64: Whole, f32: Single, f64: Double);

impl Field for Option<u64> {
    fn read(given: &mut Given<'_>) -> Result<Self, NamedError> {
        let read = |text: &str| match text {
            "inf" => Some(None),
            _ => text.parse().ok().map(Some),
        };
        given.next(read, |it| it.map_or(Value::Inf, Value::Whole))
    }

    fn append(&self, all: &mut Values) {
        all.push(self.map_or(Value::Inf, Value::Whole));
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(given: &mut Given<'_>) -> Result<Self, NamedError> {
        let count = given.numbers.len() - given.place;
        (0..count).map(|_| T::read(given)).collect()
    }

    fn append(&self, all: &mut Values) {
        self.iter().for_each(|it| it.append(all));
    }
}

/// Returns the values of a variant's fields.
#[must_use]
pub fn values(fields: &[&dyn Field]) -> Values {
    let mut all = Vec::new();
    fields.iter().for_each(|field| field.append(&mut all));
    all
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
    fn next<T>(
        &mut self,
        read: impl Fn(&str) -> Option<T>,
        value: impl Fn(&T) -> Value,
    ) -> Result<T, NamedError> {
        let Some(number) = self.word.number(self.place) else { return Err(self.unknown()) };
        let text =
            self.numbers.get(self.place).copied().or_else(|| number.default()).unwrap_or_default();
        self.place += 1;
        let is_whole = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        match read(text) {
            Some(read) if number.limits.contain(value(&read)) => Ok(read),
            None if !is_whole => Err(self.unknown()),
            // A whole number that cannot be read exceeds its type, and so the range.
            _ => Err(NamedError { number: Some(*number), ..self.unknown() }),
        }
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
    let (name, numbers) = match text.split_once(':') {
        Some((name, rest)) => (name, rest.split(family.separator).map(str::trim).collect()),
        None => (text, Vec::new()),
    };
    match family.words.iter().find(|word| word.name == name) {
        Some(word) if word.takes(numbers.len()) => {
            T::read(&mut Given { text, family, word, numbers, place: 0 })
        }
        _ => Err(NamedError::unknown(text, family)),
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
#[derive(Clone, Debug)]
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

impl PartialEq for NamedError {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.number) == (&other.text, &other.number)
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

/// Connects an enum with its words: implements [`Named`](crate::named::Named), `Display` and
/// `FromStr`. The fields of a variant are the numbers of its word, in order.
#[macro_export]
macro_rules! named {
    ($name:ident: $noun:literal, $separator:literal {
        $($variant:ident $({ $($field:ident),+ })? $(($inner:ident))? = $word:expr),+ $(,)?
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
                        $($(let $field = $crate::named::Field::read(given)?;)+)?
                        $(let $inner = $crate::named::Field::read(given)?;)?
                        return Ok(Self::$variant $({ $($field),+ })? $(($inner))?);
                    }
                })+
                Err(given.unknown())
            }

            fn parts(&self) -> ($crate::named::Word, $crate::named::Values) {
                match self {
                    $(Self::$variant $({ $($field),+ })? $(($inner))? => {
                        const WORD: $crate::named::Word = $word;
                        (WORD, $crate::named::values(&[$($($field),+)? $($inner)?]))
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
mod tests {
    use alloc::vec;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    enum Toy {
        Plain,
        Two { count: u8, rate: f32 },
        Bound(Option<u64>),
        Many { sizes: Vec<f64> },
        Pair { first: u32, second: u64, third: u64 },
    }

    named!(Toy: "toy", ',' {
        Plain = Word::new("plain", &[], "nothing"),
        Two { count, rate } = Word::new(
            "two",
            &[
                Number::whole("COUNT", 1..=200),
                Number::real("RATE", Limits::POSITIVE).implied("0.1"),
            ],
            "two numbers",
        ),
        Bound(bound) = Word::new("bound", &[Number::whole_or_inf("N")], "a bound"),
        Many { sizes } =
            Word::new("many", &[Number::real("SIZE", Limits::SHARE).repeated()], "several"),
        Pair { first, second, third } = Word::new(
            "pair",
            &[
                Number::whole("A", 0..=9).usual("1"),
                Number::whole("B", 0..=u64::MAX).joined("2"),
                Number::whole("C", 0..=u64::MAX).usual("3"),
            ],
            "defaults",
        ),
    });

    #[test]
    fn texts_are_read_with_defaults_and_written_back() {
        for (text, toy, written) in [
            ("plain", Toy::Plain, "plain"),
            ("two:7", Toy::Two { count: 7, rate: 0.1 }, "two:7"),
            ("two:7, 0.25", Toy::Two { count: 7, rate: 0.25 }, "two:7,0.25"),
            ("bound:inf", Toy::Bound(None), "bound:inf"),
            ("bound:4", Toy::Bound(Some(4)), "bound:4"),
            ("many:1,0.5", Toy::Many { sizes: vec![1.0, 0.5] }, "many:1,0.5"),
            ("pair", Toy::Pair { first: 1, second: 2, third: 3 }, "pair:1,2,3"),
            ("pair:4,5", Toy::Pair { first: 4, second: 5, third: 3 }, "pair:4,5,3"),
        ] {
            assert_eq!(text.parse(), Ok(toy.clone()), "{text}");
            assert_eq!(toy.to_string(), written);
            assert_eq!(out_of_range(&toy), None);
        }
    }

    #[test]
    fn other_texts_are_told_all_forms() {
        let forms = "is no toy: use plain, two:COUNT[,RATE], bound:N|inf, many:SIZE[,SIZE...] or \
                     pair[:A,B[,C]]";
        for text in [
            "",
            "Plain",
            "plain:1",
            "two",
            "two:",
            "two:x",
            "two:-1",
            "two:1,2,3",
            "bound:infinite",
        ]
        .into_iter()
        .chain(["many", "many:", "many:1,", "pair:1", "pair:1,2,3,4", "two:1.5"])
        {
            let error = text.parse::<Toy>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} {forms}"));
        }
    }

    #[test]
    fn a_number_out_of_range_is_named_with_the_range() {
        for (text, says) in [
            ("two:0", "COUNT must be 1 to 200"),
            ("two:201", "COUNT must be 1 to 200"),
            ("two:256", "COUNT must be 1 to 200"),
            ("two:1,0", "RATE must be finite and above 0"),
            ("two:1,NaN", "RATE must be finite and above 0"),
            ("two:1,inf", "RATE must be finite and above 0"),
            ("bound:18446744073709551616", "N must be 0 to 2^64 - 1, or inf"),
            ("many:1,2", "SIZE must be above 0 and up to 1"),
            ("pair:1,99999999999999999999", "B must be 0 to 2^64 - 1"),
        ] {
            let error = text.parse::<Toy>().unwrap_err().to_string();
            assert_eq!(error, format!("{text}: {says}"));
        }
        let toy = Toy::Two { count: 0, rate: 1.0 };
        assert_eq!(out_of_range(&toy).unwrap().must(), "COUNT must be 1 to 200");
    }

    #[test]
    fn limits_are_checked_as_they_are_written() {
        for (limits, words, inside, outside) in [
            (Limits::FINITE, "finite", [-1e300, 1e300], [f64::NAN, f64::INFINITY]),
            (Limits::NOT_NEGATIVE, "finite and at least 0", [0.0, 9.0], [-1e-9, f64::INFINITY]),
            (Limits::PART, "at least 0 and below 1", [0.0, 0.9], [-0.1, 1.0]),
            (Limits::SHARE, "above 0 and up to 1", [1e-9, 1.0], [0.0, 1.1]),
            (Limits::from_to(0.0, 8.0), "from 0 to 8", [0.0, 8.0], [-0.1, 8.1]),
        ] {
            assert_eq!(limits.to_string(), words);
            assert!(inside.into_iter().all(|it| limits.contain(Value::Double(it))), "{words}");
            assert!(!outside.into_iter().any(|it| limits.contain(Value::Double(it))), "{words}");
        }
    }
}
