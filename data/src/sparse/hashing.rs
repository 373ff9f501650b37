//! Feature hashing: maps features to a smaller number of columns.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How features map to columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hashing {
    /// Each feature has its own column.
    #[default]
    None,
    /// A hash of the feature's number selects one of so many columns (Weinberger et al., ICML 2009,
    /// without their signs).
    To(u32),
}

impl fmt::Display for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::To(columns) => write!(f, "{columns}"),
        }
    }
}

impl FromStr for Hashing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(Self::None),
            (_, Ok(columns)) if columns > 0 => Ok(Self::To(columns)),
            _ => Err(format!("{text:?} is no number of columns: use 1 or more, or none")),
        }
    }
}

/// Returns the column of a feature, out of `columns`.
pub(super) fn column(feature: u32, columns: u32) -> u32 {
    // The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): each bit of the input flips
    // half of the output bits on average.
    let mut bits = u64::from(feature).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    ((u128::from(bits) * u128::from(columns)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_spread_over_all_columns() {
        let mut counts = [0_u32; 64];
        (0..64_000).for_each(|feature| counts[column(feature, 64) as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(column(7, 10_000_000), column(7, 10_000_000));
    }

    #[test]
    fn words_are_read() {
        assert_eq!("none".parse(), Ok(Hashing::None));
        assert_eq!("10000000".parse(), Ok(Hashing::To(10_000_000)));
        for wrong in ["0", "-1", "many", "5000000000"] {
            assert!(wrong.parse::<Hashing>().is_err(), "{wrong}");
        }
    }
}
