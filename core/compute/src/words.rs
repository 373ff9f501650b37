//! Settings with a fixed set of words as values.

use alloc::string::String;
use core::fmt;

/// A word that a setting does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// The unknown word.
    pub word: String,
    /// The known words.
    pub known: &'static [&'static str],
}

impl UnknownWord {
    /// Creates the error for `word`, which is not in `known`.
    #[must_use]
    pub fn new(word: &str, known: &'static [&'static str]) -> Self {
        Self { word: String::from(word), known }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is none of {}", self.word, self.known.join(", "))
    }
}

impl core::error::Error for UnknownWord {}

/// Implements `Display` and `FromStr` with one spelling for job files, flags, reports and errors.
#[macro_export]
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ }) => {
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::words::UnknownWord::new(word, &[$($word),+])),
                }
            }
        }
    };
}
