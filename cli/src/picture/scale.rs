//! Scales of axes: bounds, ticks and the formatting of tick labels.

/// Limit of values: the difference of two larger numbers could overflow.
const HUGE: f64 = 1e300;

/// An axis with linear or logarithmic positions: the numbers themselves, or their decimal
/// logarithms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    log: bool,
    /// The lowest position.
    pub(super) low: f64,
    /// The highest position.
    pub(super) high: f64,
    /// Positions of the ticks.
    pub(super) ticks: Vec<f64>,
    /// The distance between ticks of a linear axis.
    step: f64,
    /// Density of the ticks of a logarithmic axis: an index into [`DECADES`].
    decade: usize,
    /// True if the ticks stand at values of the data, with labels of as many digits as these have.
    at_data: bool,
    /// Labels of the ticks at 0, 1, 2 and so on, instead of numbers; may be empty.
    names: Vec<String>,
}

/// Most values of an axis that each have a tick.
const MOST_AT_DATA: usize = 12;
/// Digits of their labels.
const DATA_DIGITS: usize = 5;

/// Space to the left of the first name and to the right of the last.
const ROOM: f64 = 0.3;

/// Ticks within a decade, from dense to sparse.
const DECADES: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];

impl Scale {
    /// Creates an axis for all values that can be drawn, with a margin given as a share of its
    /// length.
    pub(super) fn new(values: impl IntoIterator<Item = f64>, log: bool, margin: f64) -> Self {
        let (low, high) = bounds(values, log);
        let room = margin * (high - low);
        Self::between(low - room, high + room, log)
    }

    /// Returns the same axis with a tick at each value, if these are few.
    pub(super) fn at(self, values: impl IntoIterator<Item = f64>) -> Self {
        let mut ticks: Vec<f64> = values.into_iter().filter_map(|it| self.place(it)).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        match ticks.len() {
            2..=MOST_AT_DATA => Self { ticks, at_data: true, ..self },
            _ => self,
        }
    }

    /// Creates an axis for heights: with a margin, and from zero if it would begin near zero.
    pub(super) fn heights(values: impl IntoIterator<Item = f64>, log: bool) -> Self {
        let (low, high) = bounds(values, log);
        let low = if !log && low >= 0.0 && low < 0.3 * high { 0.0 } else { low };
        let room = 0.04 * (high - low);
        Self::between(if low == 0.0 { low } else { low - room }, high + room, log)
    }

    /// Creates an axis with these names side by side.
    pub(super) fn named(names: &[String]) -> Self {
        let high = names.len() as f64 - 1.0 + ROOM;
        let ticks = (0..names.len()).map(|place| place as f64).collect();
        let names = names.to_vec();
        Self { log: false, low: -ROOM, high, ticks, step: 1.0, decade: 0, at_data: false, names }
    }

    fn between(low: f64, high: f64, log: bool) -> Self {
        let decade = if high - low > 3.0 { 2 } else { 0 };
        let (ticks, step) =
            if log { log_ticks(low, high, decade) } else { linear_ticks(low, high) };
        Self { log, low, high, ticks, step, decade, at_data: false, names: Vec::new() }
    }

    /// Returns the same axis with fewer ticks; None if it has the fewest already.
    pub(super) fn sparser(&self) -> Option<Self> {
        let decade = self.decade + 1;
        if !self.log || self.at_data || decade >= DECADES.len() {
            return None;
        }
        let (ticks, step) = log_ticks(self.low, self.high, decade);
        (ticks.len() < self.ticks.len()).then(|| Self { ticks, step, decade, ..self.clone() })
    }

    /// Returns the position of a value; None if it is not finite, or not positive on a logarithmic
    /// axis.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        place(value, self.log)
    }

    /// Returns the position of the end of an interval, clamped to the axis.
    pub(super) fn end(&self, value: f64) -> f64 {
        match self.place(value) {
            Some(place) => place.clamp(self.low, self.high),
            None if value > 0.0 => self.high,
            None => self.low,
        }
    }

    /// Returns the position of a value between the ends of the axis, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> Option<f64> {
        Some(((self.place(value)? - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// Formats the label of a tick.
    pub(super) fn label(&self, place: f64) -> String {
        if !self.names.is_empty() {
            return self.names.get(place.round() as usize).cloned().unwrap_or_default();
        }
        if self.at_data {
            // Ten to the power of a logarithm misses the value by rounding only.
            let value = if self.log { 10_f64.powf(place) } else { place };
            return significant(value, DATA_DIGITS);
        }
        if self.log {
            return significant(10_f64.powf(place), 3);
        }
        let largest = self.low.abs().max(self.high.abs());
        if place.abs() < 1e-9 * self.step.abs().max(f64::MIN_POSITIVE) {
            return "0".into();
        }
        if largest >= 1e6 || self.step < 1e-4 {
            let digits = (largest / self.step).log10().ceil().clamp(1.0, 6.0) as usize;
            return significant(place, digits + 1);
        }
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        sign(format!("{place:.decimals$}"))
    }
}

fn place(value: f64, log: bool) -> Option<f64> {
    let drawable = value.abs() < HUGE && (!log || value > 0.0);
    drawable.then(|| if log { value.log10() } else { value })
}

/// Returns the lowest and the highest position, always distinct.
fn bounds(values: impl IntoIterator<Item = f64>, log: bool) -> (f64, f64) {
    let places = values.into_iter().filter_map(|value| place(value, log));
    let bounds = places.fold(None, |bounds: Option<(f64, f64)>, place| {
        Some(bounds.map_or((place, place), |(low, high)| (low.min(place), high.max(place))))
    });
    let (low, high) = bounds.unwrap_or((0.0, 1.0));
    if high - low > 1e-9 * high.abs().max(low.abs()) {
        return (low, high);
    }
    let around = if log { 0.5 } else { (0.1 * high.abs()).max(1e-6) };
    (low - around, high + around)
}

/// Returns four to ten multiples of 1, 2 or 5 times a power of ten, and their distance: the largest
/// with that many ticks.
fn linear_ticks(low: f64, high: f64) -> (Vec<f64>, f64) {
    let power = 10_f64.powf((high - low).log10().floor());
    let ends = |step: f64| ((low / step - 1e-6).ceil(), (high / step + 1e-6).floor());
    let enough = |step: &f64| {
        let (first, last) = ends(*step);
        last - first >= 3.0
    };
    let steps = [5.0, 2.0, 1.0, 0.5, 0.2].map(|factor| factor * power);
    let step = steps.into_iter().find(enough).unwrap_or(0.1 * power);
    let (first, last) = ends(step);
    let count = (last - first).clamp(0.0, 20.0) as u32;
    ((0..=count).map(|tick| (first + f64::from(tick)) * step).collect(), step)
}

/// Returns powers of ten and the factors between them in [`DECADES`]; the ticks of a linear axis if
/// there would be fewer than two.
fn log_ticks(low: f64, high: f64, decade: usize) -> (Vec<f64>, f64) {
    let factors = DECADES[decade];
    let stride = ((high - low) / 7.0).ceil().max(1.0) as usize;
    let decades = (low.floor() as i32..=high.ceil() as i32).step_by(stride);
    let ticks: Vec<f64> = decades
        .flat_map(|decade| factors.iter().map(move |factor| f64::from(decade) + factor.log10()))
        .filter(|place| (low - 1e-9..=high + 1e-9).contains(place))
        .collect();
    if ticks.len() >= 2 {
        return (ticks, 1.0);
    }
    let (ticks, _) = linear_ticks(10_f64.powf(low), 10_f64.powf(high));
    (ticks.into_iter().filter(|tick| *tick > 0.0).map(f64::log10).collect(), 1.0)
}

/// Formats a number with that many significant digits, without trailing zeros.
pub(super) fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scientific = format!("{value:.*e}", digits.max(1) - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-3..5).contains(&power) {
        let decimals = (digits as i32 - 1 - power).max(0) as usize;
        return sign(trim(&format!("{value:.decimals$}")));
    }
    let raised: String = exponent.chars().map(superscript).collect();
    match trim(mantissa).as_str() {
        "1" => format!("10{raised}"),
        mantissa => sign(format!("{mantissa}×10{raised}")),
    }
}

/// Formats a number with that many decimals.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    sign(format!("{value:.decimals$}"))
}

fn trim(number: &str) -> String {
    match number.split_once('.') {
        Some(_) => number.trim_end_matches('0').trim_end_matches('.').into(),
        None => number.into(),
    }
}

/// Replaces the hyphen by a real minus sign.
fn sign(number: String) -> String {
    match number.strip_prefix('-') {
        Some(number) => format!("−{number}"),
        None => number,
    }
}

fn superscript(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' | '4'..='9' => {
            char::from_u32('⁰' as u32 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], log: bool) -> Vec<String> {
        let scale = Scale::new(values.iter().copied(), log, 0.0);
        scale.ticks.iter().map(|tick| scale.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&[0.0, 100.0], false), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&[0.91, 0.99], false), ["0.92", "0.94", "0.96", "0.98"]);
        assert_eq!(labels(&[-1.0, 1.0], false), ["−1.0", "−0.5", "0", "0.5", "1.0"]);
        assert_eq!(labels(&[0.0, 5e6], false), ["0", "10⁶", "2×10⁶", "3×10⁶", "4×10⁶", "5×10⁶"]);
    }

    #[test]
    fn few_values_have_their_own_ticks() {
        let values = [0.0, 0.25, 12.5, 1000.0];
        for log in [false, true] {
            let scale = Scale::new(values, log, 0.03).at(values.into_iter().chain(values));
            let labels: Vec<_> = scale.ticks.iter().map(|tick| scale.label(*tick)).collect();
            let wanted = ["0", "0.25", "12.5", "1000"];
            assert_eq!(labels, wanted[usize::from(log)..], "a logarithm of 0 is none");
        }
        let many = (0..50).map(f64::from);
        let scale = Scale::new(many.clone(), false, 0.0).at(many);
        let usual = ["0", "10", "20", "30", "40"].map(String::from).to_vec();
        let labels: Vec<_> = scale.ticks.iter().map(|tick| scale.label(*tick)).collect();
        assert_eq!(labels, usual);
        let one = Scale::new([3.0], false, 0.0);
        assert_eq!(one.clone().at([3.0]), one);
    }

    #[test]
    fn names_stand_side_by_side() {
        let names = ["q = 0", "q = 1"].map(String::from);
        let scale = Scale::named(&names);
        let labels: Vec<_> = scale.ticks.iter().map(|tick| scale.label(*tick)).collect();
        assert_eq!(labels, names);
        let shares = [0.0, 1.0].map(|place| scale.share(place).unwrap());
        assert!(0.1 < shares[0] && shares[0] < shares[1] && shares[1] < 0.9, "{shares:?}");
    }

    #[test]
    fn a_logarithmic_axis_counts_in_decades_and_needs_two_ticks() {
        assert_eq!(labels(&[0.001, 1e5], true).len(), 5);
        assert_eq!(labels(&[1.0, 100.0], true), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(labels(&[31.0, 34.0], true), ["31", "32", "33", "34"]);
        assert!(labels(&[0.0, -3.0, f64::NAN], true).len() >= 2);
    }

    #[test]
    fn fewer_ticks_still_reach_the_last_decade() {
        let many = Scale::new([3.9, 3861.0], true, 0.0);
        let few = many.sparser().unwrap();
        let labels: Vec<_> = few.ticks.iter().map(|tick| few.label(*tick)).collect();
        assert_eq!(labels, ["10", "30", "100", "300", "1000", "3000"]);
        assert_eq!(few.sparser().unwrap().ticks.len(), 3);
        assert_eq!(few.sparser().unwrap().sparser(), None);
        assert_eq!(Scale::new([0.0, 1.0], false, 0.0).sparser(), None);
    }

    #[test]
    fn a_linear_axis_has_four_ticks_or_more() {
        assert_eq!(labels(&[0.862, 0.973], false), ["0.88", "0.90", "0.92", "0.94", "0.96"]);
        for high in 1..500 {
            let count = labels(&[0.3, 0.3 + 0.01 * f64::from(high)], false).len();
            assert!((4..=10).contains(&count), "{high}: {count}");
        }
    }

    #[test]
    fn no_input_gives_an_axis_without_length() {
        for values in [&[][..], &[f64::NAN], &[3.0], &[0.0], &[1e15, 1e15 + 0.1], &[-1e299, 1e299]]
        {
            for log in [false, true] {
                let scale = Scale::new(values.iter().copied(), log, 0.05);
                assert!(scale.high > scale.low, "{values:?}");
                assert!(scale.high.is_finite() && scale.low.is_finite(), "{values:?}");
                assert!(!scale.ticks.is_empty() && scale.ticks.len() < 22, "{values:?}");
            }
        }
    }

    #[test]
    fn numbers_are_written_short() {
        assert_eq!(significant(0.000_012_34, 3), "1.23×10⁻⁵");
        assert_eq!(significant(1234.5, 3), "1234");
        assert_eq!(significant(-0.5, 3), "−0.5");
        assert_eq!(significant(1e40, 3), "10⁴⁰");
        assert_eq!(significant(9.999, 3), "10");
        assert_eq!(fixed(-2.0, 1), "−2.0");
    }
}
