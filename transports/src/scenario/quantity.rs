//! Times, rates, powers and shares in notation for people, as integers, so that they are written
//! back exactly.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Parses a decimal number and multiplies it by `unit`: `4.5` times 1,000 is 4,500. Returns `None`
/// if the text is not a decimal number, or the product is not an integer or too large.
fn decimal(text: &str, unit: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let part = part.trim_end_matches('0');
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let parts = number(part)?.checked_mul(u128::from(unit))?;
    if parts % scale != 0 {
        return None;
    }
    let all = number(whole)?.checked_mul(u128::from(unit))?.checked_add(parts / scale)?;
    u64::try_from(all).ok()
}

/// Splits a quantity into its number and its unit, in lower case.
fn split(text: &str) -> (&str, String) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].to_lowercase())
}

/// Parses a number with one of `units`.
fn read(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text);
    let &(_, size) = units.iter().find(|&&(name, _)| name.to_lowercase() == unit)?;
    decimal(number, size)
}

/// Writes a number in the largest of `units`, sorted in descending order, that does not exceed it.
fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = units.iter().find(|&&(_, size)| size <= value).or_else(|| units.first());
    let Some(&(name, size)) = fits else { return write!(f, "{value}") };
    write!(f, "{}", value / size)?;
    let rest = value % size;
    if rest > 0 {
        let width = size.ilog10() as usize;
        let part = format!("{rest:0width$}");
        write!(f, ".{}", part.trim_end_matches('0'))?;
    }
    f.write_str(name)
}

/// Units of time. Output uses the first four.
const TIMES: &[(&str, u64)] = &[
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("sec", 1_000_000_000),
    ("msec", 1_000_000),
    ("usec", 1_000),
    ("µs", 1_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a time such as `4.5ms`.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    read(text, TIMES)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text:?} is no time; write one such as 100ms, 4.5ms, 250us or 2s"))
}

/// Writes a time in the notation of [`span`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX), &TIMES[..4])
    }
}

/// Rate of a link in bits per second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// Units of rates, as in `tc`: `bps` are bytes per second. Output uses the first four.
const RATES: &[(&str, u64)] = &[
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
    ("tbit", 1_000_000_000_000),
    ("kibit", 1 << 10),
    ("mibit", 1 << 20),
    ("gibit", 1 << 30),
    ("bps", 8),
    ("kbps", 8_000),
    ("mbps", 8_000_000),
    ("gbps", 8_000_000_000),
];

impl Rate {
    /// Returns a rate in bits per second; `None` if it is 0.
    #[must_use]
    pub const fn new(bits_per_second: u64) -> Option<Self> {
        if bits_per_second == 0 { None } else { Some(Self(bits_per_second)) }
    }

    /// Returns the rate in bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text, RATES).and_then(Self::new).ok_or_else(|| {
            format!(
                "{text:?} is no rate; write one such as 500kbit, 10mbit or 1gbit (bits per \
                 second; kbps and mbps are bytes per second, as for tc)"
            )
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &RATES[..4])
    }
}

/// Share of segments that are lost: at least 0 and below 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loss {
    billionths: u32,
}

const BILLION: u32 = 1_000_000_000;

impl Loss {
    /// Returns a loss in billionths; `None` if it is 1 or more.
    #[must_use]
    pub const fn from_billionths(billionths: u32) -> Option<Self> {
        if billionths < BILLION { Some(Self { billionths }) } else { None }
    }

    /// Returns the probability that a segment is lost.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.billionths) / f64::from(BILLION)
    }
}

/// Power in watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watts {
    microwatts: u64,
}

/// Units of power. Output uses the first three.
const POWERS: &[(&str, u64)] =
    &[("W", 1_000_000), ("mW", 1_000), ("uW", 1), ("kW", 1_000_000_000), ("µW", 1)];

impl Watts {
    /// Returns a power in millionths of a watt.
    pub(super) const fn from_microwatts(microwatts: u64) -> Self {
        Self { microwatts }
    }

    /// Returns the power in watts.
    pub(super) fn watts(self) -> f64 {
        self.microwatts as f64 / 1e6
    }
}

impl FromStr for Watts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text, POWERS)
            .map(Self::from_microwatts)
            .ok_or_else(|| format!("{text:?} is no power; write one such as 2.7W, 500mW or 1kW"))
    }
}

impl fmt::Display for Watts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.microwatts, &POWERS[..3])
    }
}

/// Energy of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PerByte {
    picojoules: u64,
}

/// Units of energy. Output uses the first five.
const ENERGIES: &[(&str, u64)] = &[
    ("J", 1_000_000_000_000),
    ("mJ", 1_000_000_000),
    ("uJ", 1_000_000),
    ("nJ", 1_000),
    ("pJ", 1),
    ("µJ", 1_000_000),
];

impl PerByte {
    /// Returns the energy in joules.
    pub(super) fn joules(self) -> f64 {
        self.picojoules as f64 / 1e12
    }
}

impl FromStr for PerByte {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text, ENERGIES).map(|picojoules| Self { picojoules }).ok_or_else(|| {
            format!("{text:?} is no energy of a byte; write one such as 20nJ, 3.6uJ or 500pJ")
        })
    }
}

impl fmt::Display for PerByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.picojoules, &ENERGIES[..5])
    }
}

const PERCENT: &[(&str, u64)] = &[("%", BILLION as u64 / 100)];

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text, PERCENT)
            .and_then(|billionths| Self::from_billionths(u32::try_from(billionths).ok()?))
            .ok_or_else(|| {
                format!("{text:?} is no loss; write a percentage below 100 such as 1% or 0.5%")
            })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.billionths.into(), PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_as_tc_writes_them() {
        for (text, nanos) in
            [("4.5ms", 4_500_000), ("100ms", 100_000_000), ("2s", 2_000_000_000), (".5us", 500)]
        {
            assert_eq!(span(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for (text, bits) in [
            ("10mbit", 10_000_000),
            ("10Mbit", 10_000_000),
            ("1.5gbit", 1_500_000_000),
            ("1mbps", 8_000_000),
            ("7bit", 7),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_second(), bits, "{text}");
        }
        assert!((("1%".parse::<Loss>()).unwrap().share() - 0.01).abs() < 1e-12);
        assert_eq!(Span(Duration::from_micros(4_500)).to_string(), "4.5ms");
        assert_eq!(Span(Duration::ZERO).to_string(), "0s");
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "5", "ms", "1.5ns", "-1s", "1e3s", "1s2", "99999999999999999999s", "."] {
            assert!(span(text).is_err(), "{text}");
        }
        for text in ["0bit", "10", "1.5bit", "mbit", "10mb"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["100%", "1", "-1%", "0.00000001%"] {
            assert!(text.parse::<Loss>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn quantities_are_written_back(
            nanos: u64,
            bits in 1..u64::MAX,
            lost in 0..BILLION,
            microwatts: u64,
            picojoules: u64,
        ) {
            let power = Watts { microwatts };
            prop_assert_eq!(power.to_string().parse(), Ok(power));
            let byte = PerByte { picojoules };
            prop_assert_eq!(byte.to_string().parse(), Ok(byte));
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(span(&Span(time).to_string()), Ok(time));
            let rate = Rate(bits);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let loss = Loss { billionths: lost };
            prop_assert_eq!(loss.to_string().parse(), Ok(loss));
        }
    }
}
