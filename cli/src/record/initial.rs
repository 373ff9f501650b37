//! Initial parameters that do not come from the seed, as a line of order.log.

use std::io::{self, Write as _};

use super::lines::{Lines, number};

/// The word that begins the line.
pub(super) const WORD: &str = "initial ";

/// Initial parameters: keys with a value other than 0, ascending.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Initial(Vec<(u64, f32)>);

impl Initial {
    /// Sets `parameters`, those of all keys; false if there are fewer.
    pub(super) fn set(&self, parameters: &mut [f32]) -> bool {
        parameters.fill(0.0);
        self.0.iter().all(|&(key, value)| {
            let parameter = parameters.get_mut(key as usize);
            parameter.map(|parameter| *parameter = value).is_some()
        })
    }
}

/// Writes the line. -0 is a value other than 0.
pub(super) fn write(lines: &mut Lines, values: &[f32]) -> io::Result<()> {
    let line = lines.writer();
    line.write_all(WORD.trim_end().as_bytes())?;
    for (key, value) in values.iter().enumerate().filter(|(_, value)| value.to_bits() != 0) {
        write!(line, " {key},{value}")?;
    }
    lines.end()
}

/// Parses the words of a line of [`write()`] after the first.
pub(super) fn read(words: &str) -> Result<Initial, String> {
    let mut values: Vec<(u64, f32)> = Vec::new();
    for word in words.split_ascii_whitespace() {
        let wrong = || format!("{word:?} is no KEY,VALUE of the next key with a finite value");
        let (key, value) = word.split_once(',').ok_or_else(wrong)?;
        let (key, value) = (number(key)?, number::<f32>(value)?);
        let is_next = values.last().is_none_or(|(last, _)| *last < key);
        if !is_next || !value.is_finite() {
            return Err(wrong());
        }
        values.push((key, value));
    }
    Ok(Initial(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_to_the_bit() {
        let values = [(3, 0.1 + 0.2), (4, -0.0), (6, f32::MIN_POSITIVE / 8.0)];
        let words: Vec<String> =
            values.iter().map(|(key, value)| format!("{key},{value}")).collect();
        let initial = read(&words.join(" ")).unwrap();
        let mut parameters = [1.0_f32; 8];
        assert!(initial.set(&mut parameters));
        let mut wanted = [0.0_f32; 8];
        values.iter().for_each(|&(key, value)| wanted[key] = value);
        assert_eq!(parameters.map(f32::to_bits), wanted.map(f32::to_bits));
        assert!(!initial.set(&mut [0.0; 6]), "a key that the model does not have");
        assert!(read("").unwrap().set(&mut [1.0]));
    }

    #[test]
    fn damaged_lines_are_no_values() {
        for words in ["1", "1,x", "x,1", "2,1 2,1", "2,1 1,1", "1,nan", "1,inf"] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
