//! Fingerprints of training sets: they show a worker with other data how the data differ.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::counted::counted;
use crate::examples::{Examples, Row, Shape};

/// Identifies the whole encoded training split. A worker with a fingerprint other than the job's
/// has other data, another build, or another recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Training rows.
    pub rows: u64,
    /// Training rows of each class; empty if a number is predicted.
    pub class_counts: Vec<u64>,
    /// SHA-256 over the shape (four `u32`, the last from [`Target::number`]) and each row as
    /// [`Examples::pack`] writes it, all little-endian. It is equal for equal data on every
    /// machine. Text form: hexadecimal.
    ///
    /// [`Target::number`]: crate::examples::Target::number
    #[serde(with = "hexadecimal")]
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// Computes the fingerprint of `examples`.
    #[must_use]
    pub fn of(examples: &Examples) -> Self {
        let mut fingerprinter = Fingerprinter::new(examples.shape());
        for index in 0..examples.len() {
            fingerprinter.add(examples.row(index));
        }
        fingerprinter.finish()
    }

    /// Stands for a training split of which each worker has a part that no other node knows.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { rows: 0, class_counts: Vec::new(), digest: [0; 32] }
    }

    /// True for [`Self::unknown`]: the fingerprint of any rows counts them.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.rows == 0
    }

    /// Describes how these data differ from the job's; `None` if they are the same.
    #[must_use]
    pub fn difference(&self, job: &Self) -> Option<String> {
        if self == job {
            return None;
        }
        Some(if self.rows != job.rows {
            format!("{} training rows where the job has {}", self.rows, job.rows)
        } else if self.class_counts != job.class_counts {
            format!(
                "training rows per class {:?} where the job has {:?}",
                self.class_counts, job.class_counts
            )
        } else {
            format!(
                "same number of training rows in every class but other contents (digest {} where \
                 the job has {})",
                short(&self.digest),
                short(&job.digest)
            )
        })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, digest {}", counted(self.rows, "row"), short(&self.digest))
    }
}

/// Returns a prefix of a digest that suffices for people to compare.
fn short(digest: &[u8; 32]) -> String {
    hexadecimal::text(&digest[..6])
}

/// Builds a [`Fingerprint`] row by row, for data that do not fit into memory.
#[derive(Clone, Debug)]
pub struct Fingerprinter {
    rows: u64,
    class_counts: Vec<u64>,
    hash: Sha256,
    bytes: Vec<u8>,
}

impl Fingerprinter {
    /// Starts a fingerprint for rows of this shape.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let mut hash = Sha256::new();
        for number in [shape.inputs, shape.dense, shape.hot, shape.target.number()] {
            hash.update(number.to_le_bytes());
        }
        let class_counts = vec![0; shape.target.classes().unwrap_or(0) as usize];
        Self { rows: 0, class_counts, hash, bytes: Vec::new() }
    }

    /// Adds a row, which must have the shape.
    ///
    /// # Panics
    /// If the label is not below the number of classes.
    pub fn add(&mut self, row: Row<'_>) {
        self.rows += 1;
        if let Some(class) = row.label.class() {
            self.class_counts[usize::from(class)] += 1;
        }
        self.bytes.clear();
        row.pack(&mut self.bytes);
        self.hash.update(&self.bytes);
    }

    /// Returns the fingerprint of the added rows.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        let digest = self.hash.finalize().into();
        Fingerprint { rows: self.rows, class_counts: self.class_counts, digest }
    }
}

/// Serialisation of digests: hexadecimal in human-readable formats, bytes in others.
mod hexadecimal {
    use alloc::format;
    use alloc::string::String;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn serialize<S: Serializer>(digest: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.serialize_str(&text(digest)) } else { digest.serialize(to) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        if !from.is_human_readable() {
            return <[u8; 32]>::deserialize(from);
        }
        let text = String::deserialize(from)?;
        let wrong = || D::Error::custom("a digest has 64 hexadecimal digits");
        let mut digest = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::Target;

    fn some() -> Examples {
        let mut examples = Examples::new(Shape {
            inputs: 7,
            dense: 2,
            hot: 2,
            target: Target::Classes(3),
            picture: None,
        });
        examples.push(&[1.5, -2.0], &[2, 5], 0).unwrap();
        examples.push(&[0.0, 3.25], &[4, 6], 2).unwrap();
        examples
    }

    #[test]
    fn the_digest_is_of_the_shape_and_the_packed_rows() {
        let examples = some();
        let mut bytes = Vec::new();
        for number in [7_u32, 2, 2, 3] {
            bytes.extend(number.to_le_bytes());
        }
        examples.pack(0..examples.len(), &mut bytes);
        let whole: [u8; 32] = Sha256::digest(&bytes).into();
        assert_eq!(Fingerprint::of(&examples).digest, whole);
    }

    #[test]
    fn differences_are_spelled_out() {
        let job = Fingerprint::of(&some());
        assert_eq!(job.difference(&job), None);
        let told = |other: &Examples| Fingerprint::of(other).difference(&job).unwrap();
        assert_eq!(told(&some().select(&[0])), "1 training rows where the job has 2");
        assert_eq!(
            told(&some().select(&[0, 0])),
            "training rows per class [2, 0, 0] where the job has [1, 0, 1]"
        );
        assert!(told(&some().select(&[1, 0])).starts_with("same number of training rows in every"));
    }
}
