//! Files of values for the keys of a range: `pull` writes them and `push` reads them.
//!
//! A line is `KEY VALUE`, keys ascending; a line that begins with `#` is a comment. A key without a
//! line has the value 0.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, bail};
use pstrain_compute::params::KeyRange;

use crate::keys::Keys;
use crate::record::{check_finite, read_model};

/// Most bytes of a line; the longest line that `pull` writes has about 50.
const MOST_LINE: usize = 4096;

/// Writes a comment and a line for each value, which is read back to the bit.
pub(super) fn write(path: &Path, about: &str, values: &[(u64, f32)]) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "# {about}; those that are not here are 0")?;
    for (key, value) in values {
        writeln!(file, "{key} {value}")?;
    }
    file.flush()
}

/// Keys of a file, ascending, and a finite value for each.
#[derive(Debug, Default)]
pub(super) struct Values {
    keys: Vec<u64>,
    values: Vec<f32>,
    origin: Origin,
}

/// Kind of file that the values come from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// Lines; `last` is the number of the last line with a value. Keys without a line are 0.
    Lines { last: usize },
    /// A model, which has a value for each of its keys.
    Model,
}

impl Default for Origin {
    fn default() -> Self {
        Self::Lines { last: 0 }
    }
}

impl Values {
    /// Reads the values in a file. A model (`.safetensors`) gives the values of the `allowed` keys;
    /// the keys of a file of lines must all be `allowed`.
    pub(super) fn of_file(path: &Path, allowed: Keys) -> anyhow::Result<Self> {
        if path.extension().is_none_or(|kind| kind != "safetensors") {
            return Self::read(path, allowed);
        }
        let (_, model, params) = read_model(path)?;
        check_finite(path, &model, &params)?;
        let (keys, values) = (0..).zip(params).filter(|(key, _)| allowed.has(*key)).unzip();
        Ok(Self { keys, values, origin: Origin::Model })
    }

    /// Reads the values in a file of lines, whose keys must all be `allowed`.
    fn read(path: &Path, allowed: Keys) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read the values in {}", path.display());
        let mut file = BufReader::new(File::open(path).with_context(cannot)?);
        let (mut read, mut bytes) = (Self::default(), Vec::new());
        for line in 1.. {
            bytes.clear();
            let most = MOST_LINE as u64 + 1;
            if file.by_ref().take(most).read_until(b'\n', &mut bytes).with_context(cannot)? == 0 {
                break;
            }
            if bytes.len() > MOST_LINE {
                bail!(
                    "{}:{line}: the line is longer than {MOST_LINE} bytes; give a key and its \
                     value on each, as pull writes them",
                    path.display()
                );
            }
            let text = str::from_utf8(&bytes).with_context(cannot)?.trim();
            if !text.is_empty() && !text.starts_with('#') {
                let place = || format!("{}:{line}", path.display());
                let pair = pair(text).map_err(|why| anyhow::anyhow!("{}: {why}", place()))?;
                read.take(pair, allowed).map_err(|why| anyhow::anyhow!("{}: {why}", place()))?;
                read.origin = Origin::Lines { last: line };
            }
        }
        Ok(read)
    }

    fn take(&mut self, (key, value): (u64, f32), allowed: Keys) -> Result<(), String> {
        if let Some(last) = self.keys.last().filter(|last| **last >= key) {
            return Err(format!(
                "key {key} comes after key {last}; sort the lines by key, and give each key once"
            ));
        }
        if !allowed.has(key) {
            return Err(format!(
                "key {key} is none of --keys {allowed}; leave it out, or choose --keys so that it \
                 is one of them"
            ));
        }
        self.keys.push(key);
        self.values.push(value);
        Ok(())
    }

    /// Number of keys with a value.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Checks that the model, which has `keys`, has all keys of the file. A model file must have a
    /// value for each of them.
    pub(super) fn check(&self, path: &Path, keys: KeyRange) -> anyhow::Result<()> {
        let place = || match self.origin {
            Origin::Lines { last } => format!("{}:{last}", path.display()),
            Origin::Model => path.display().to_string(),
        };
        if let Some(last) = self.keys.last().filter(|last| **last >= keys.end()) {
            bail!(
                "{}: there is no key {last}: the model has keys {keys}; give values for this model",
                place()
            );
        }
        let is_short = self.keys.last().is_none_or(|last| last + 1 < keys.end());
        if matches!(self.origin, Origin::Model) && is_short {
            bail!(
                "{}: it has no value for key {}: the model has keys {keys}; give one of the same \
                 form",
                place(),
                keys.end() - 1
            );
        }
        Ok(())
    }

    /// A value for each of `keys`, 0 where the file has none.
    pub(super) fn of(&self, keys: KeyRange) -> Vec<f32> {
        let place = |key: u64| self.keys.partition_point(|&other| other < key);
        let places: Range<usize> = place(keys.begin())..place(keys.end());
        let mut all = vec![0.0; keys.len() as usize];
        for (key, value) in self.keys[places.clone()].iter().zip(&self.values[places]) {
            all[(key - keys.begin()) as usize] = *value;
        }
        all
    }
}

/// Parses a key and its value.
fn pair(text: &str) -> Result<(u64, f32), String> {
    let wrong =
        || format!("{text:?} is not KEY VALUE; give a key and its value, as pull writes them");
    let (key, value) = text.split_once(char::is_whitespace).ok_or_else(wrong)?;
    let key = key.parse::<u64>().map_err(|_| wrong())?;
    let value = value.trim_start().parse::<f32>().map_err(|_| wrong())?;
    if !value.is_finite() {
        return Err(format!(
            "the value for key {key} is not finite as a 32-bit number; leave it out, or give a \
             number"
        ));
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, keys: &str) -> anyhow::Result<Values> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        std::fs::write(&path, text).unwrap();
        Values::read(&path, keys.parse().unwrap())
    }

    #[test]
    fn what_is_written_is_read_back_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        let values = [(3, 0.1 + 0.2), (5, -0.0), (6, f32::MIN_POSITIVE / 4.0), (9, -f32::MAX)];
        write(&path, "version 7", &values).unwrap();
        let keys = KeyRange::new(2, 10).unwrap();
        let back = Values::read(&path, "2..10".parse().unwrap()).unwrap();
        assert_eq!(back.count(), 4);
        let mut wanted = [0.0_f32; 8];
        values.iter().for_each(|&(key, value)| wanted[key as usize - 2] = value);
        let bits = |values: &[f32]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back.of(keys)), bits(&wanted));
        assert_eq!(bits(&back.of(KeyRange::new(4, 6).unwrap())), bits(&wanted[2..4]));
    }

    #[test]
    fn wrong_lines_are_named_with_what_is_wrong_and_what_to_do() {
        for (text, words) in [
            ("# a\n3 1\n\n3 2\n", &["values:4", "key 3 comes after key 3", "each key once"][..]),
            ("4 1\n3 2\n", &["values:2", "key 3 comes after key 4", "sort"]),
            ("9 1\n", &["values:1", "key 9 is none of --keys 2..9", "leave it out"]),
            ("3\n", &["values:1", "\"3\" is not KEY VALUE"]),
            ("3 1 2\n", &["values:1", "is not KEY VALUE"]),
            ("-3 1\n", &["values:1", "is not KEY VALUE"]),
            ("3 nan\n", &["values:1", "key 3 is not finite"]),
            (&format!("# {}\n3 1\n", "a".repeat(4094)), &["values:1", "longer than 4096 bytes"]),
            ("3 1\n4 1e39\n", &["values:2", "key 4 is not finite"]),
        ] {
            let error = format!("{:#}", read(text, "2..9").unwrap_err());
            for word in words {
                assert!(error.contains(word), "{text:?}: {error}");
            }
        }
        let read = read("3 1\n# more\n8 1\n", "..").unwrap();
        let error = read.check(Path::new("x"), KeyRange::new(0, 8).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("x:3: there is no key 8"), "{error}");
    }
}
