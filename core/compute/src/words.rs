//! Settings that are one of a few words.

use alloc::string::String;
use core::fmt;

/// A word that is none of the ones a setting knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// The word given.
    pub word: String,
    /// The words that are known.
    pub known: &'static [&'static str],
}

impl UnknownWord {
    /// `word` is none of `known`.
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

/// Gives a setting its words: one spelling in job files, flags, reports and errors.
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
