//! Key ranges on the command line.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use pstrain_compute::params::KeyRange;

/// A key range on the command line: `A..B`, `A..`, `..B` or `..`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    begin: u64,
    /// None: up to the last key.
    end: Option<u64>,
}

impl Keys {
    /// Returns the range; None for all keys. Calls `total` for the number of keys of the model, a
    /// request to the server, only if the end is open.
    pub(crate) fn range(
        self,
        total: impl FnOnce() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Option<KeyRange>> {
        Ok(match self {
            Self { begin: 0, end: None } => None,
            Self { begin, end: Some(end) } => Some(KeyRange::new(begin, end)?),
            Self { begin, end: None } => {
                let total = total()?;
                let Ok(range) = KeyRange::new(begin, total) else {
                    bail!("--keys {self}: the model has keys 0 to {}", total.saturating_sub(1));
                };
                Some(range)
            }
        })
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.begin)?;
        self.end.map_or(Ok(()), |end| write!(f, "{end}"))
    }
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no key range: use A..B, with A below B (B is not in it)");
        let (begin, end) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let begin = if begin.is_empty() { 0 } else { number(begin)? };
        let end = if end.is_empty() { None } else { Some(number(end)?) };
        if end.is_some_and(|end| end <= begin) {
            return Err(wrong());
        }
        Ok(Self { begin, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!("3..9".parse(), Ok(Keys { begin: 3, end: Some(9) }));
        assert_eq!("3..".parse(), Ok(Keys { begin: 3, end: None }));
        assert_eq!("..".parse(), Ok(Keys { begin: 0, end: None }));
        for wrong in ["", "3", "9..3", "3..3", "a..b", "1...4"] {
            assert!(wrong.parse::<Keys>().unwrap_err().contains("A..B"), "{wrong}");
        }
    }
}
