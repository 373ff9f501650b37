//! Values pushed by a client, as a line of order.log.

use std::io::{self, Write as _};

use pstrain_compute::id::Version;
use pstrain_compute::params::KeyRange;
use pstrain_wire::range::{PushRule, PushedRange};

use super::lines::{Lines, number};

/// A push of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pushed {
    keys: KeyRange,
    how: PushRule,
    /// The values that are not 0, in the order of their keys.
    values: Vec<(u64, f32)>,
}

impl Pushed {
    /// Applies the push to the parameters of all keys, as the servers did; false if they do not
    /// include all of its keys.
    pub(super) fn apply(&self, parameters: &mut [f32]) -> bool {
        let Some(those) = parameters.get_mut(self.keys.indices()) else { return false };
        let mut values = vec![0.0; those.len()];
        for (key, value) in &self.values {
            values[(key - self.keys.begin()) as usize] = *value;
        }
        let pairs = those.iter_mut().zip(values);
        pairs.for_each(|(parameter, value)| *parameter = self.how.of(*parameter, value));
        true
    }
}

/// Writes the line of a version that a client's push made.
pub(super) fn write(lines: &mut Lines, version: Version, pushed: &PushedRange) -> io::Result<()> {
    let PushedRange { keys, how, .. } = pushed;
    let line = lines.writer();
    write!(line, "push {version} {how} {} {}", keys.begin(), keys.end())?;
    for (key, value) in pushed.non_zeros() {
        write!(line, " {key},{value}")?;
    }
    lines.end()
}

/// Parses the words of a line of [`write()`] after the first.
pub(super) fn read(words: &str) -> Result<(Version, Pushed), String> {
    let wrong = || String::from("it is not push VERSION add|set BEGIN END [KEY,VALUE ...]");
    let mut words = words.split(' ');
    let mut next = || words.next().ok_or_else(wrong);
    let version = Version(number(next()?)?);
    let how = next()?.parse().map_err(|_no_such| wrong())?;
    let (begin, end) = (number(next()?)?, number(next()?)?);
    let keys = KeyRange::new(begin, end).map_err(|error| error.to_string())?;
    let mut values: Vec<(u64, f32)> = Vec::new();
    for word in words {
        let (key, value) = word.split_once(',').ok_or_else(wrong)?;
        let (key, value) = (number(key)?, number::<f32>(value)?);
        let is_next = values.last().is_none_or(|(last, _)| *last < key);
        if !is_next || !(begin..end).contains(&key) || !value.is_finite() {
            return Err(format!("{word:?} is no value for the next of keys {keys}"));
        }
        values.push((key, value));
    }
    Ok((version, Pushed { keys, how, values }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_comes_back_to_the_bit() {
        let tiny = f32::MIN_POSITIVE / 8.0;
        let values = [(3, 0.1 + 0.2), (4, -0.0), (6, tiny)];
        let words: Vec<String> =
            values.iter().map(|(key, value)| format!("{key},{value}")).collect();
        let (version, pushed) = read(&format!("7 set 3 8 {}", words.join(" "))).unwrap();
        assert_eq!(version, Version(7));
        let mut parameters = [1.0_f32; 8];
        assert!(pushed.apply(&mut parameters));
        let wanted = [1.0, 1.0, 1.0, 0.1 + 0.2, -0.0, 0.0, tiny, 0.0_f32];
        assert_eq!(parameters.map(f32::to_bits), wanted.map(f32::to_bits));
        let (_, pushed) = read("8 add 0 2 1,0.5").unwrap();
        assert!(pushed.apply(&mut parameters));
        assert_eq!(parameters[..3], [1.0, 1.5, 1.0]);
        assert!(!pushed.apply(&mut [0.0]), "of keys that there are not");
    }

    #[test]
    fn damaged_lines_are_no_values() {
        for words in [
            "",
            "7",
            "7 put 0 1",
            "7 add 1 1",
            "7 add 0",
            "7 add 0 9 1",
            "7 add 0 9 1,x",
            "7 add 0 9 9,1",
            "7 add 0 9 2,1 2,1",
            "7 add 0 9 1,nan",
            "x add 0 9",
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
