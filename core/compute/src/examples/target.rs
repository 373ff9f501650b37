//! The prediction of a model: one of several classes, or a number.

use alloc::vec::Vec;
use core::fmt;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The kind of an example's label.
///
/// It is serialised as the number of classes. A value to predict is the text `value` in formats for
/// people, and 2^32 - 1 in others, which is more than the classes that labels can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One of so many classes.
    Classes(u32),
    /// A number.
    Value,
}

/// The label of one example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    /// A class, counted from 0.
    Class(u16),
    /// A number to predict.
    Value(f32),
}

/// The text form of [`Target::Value`].
const VALUE: &str = "value";
/// The binary form of [`Target::Value`].
const VALUE_NUMBER: u32 = u32::MAX;

impl Target {
    /// The number of classes; `None` if a number is predicted.
    #[must_use]
    pub const fn classes(self) -> Option<u32> {
        match self {
            Self::Classes(classes) => Some(classes),
            Self::Value => None,
        }
    }

    /// The numbers of a prediction: one for each class, or the value.
    #[must_use]
    pub const fn predictions(self) -> u32 {
        match self {
            Self::Classes(classes) => classes,
            Self::Value => 1,
        }
    }

    /// The number of bytes of a packed label: a class is a `u16`, a value an `f32`.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Classes(_) => size_of::<u16>(),
            Self::Value => size_of::<f32>(),
        }
    }

    /// Reads a packed label from the start of `bytes`, and returns it with the bytes after it.
    pub(super) fn label(self, bytes: &[u8]) -> Option<(Label, &[u8])> {
        Some(match self {
            Self::Classes(_) => {
                let (class, rest) = bytes.split_first_chunk()?;
                (Label::Class(u16::from_le_bytes(*class)), rest)
            }
            Self::Value => {
                let (value, rest) = bytes.split_first_chunk()?;
                (Label::Value(f32::from_le_bytes(*value)), rest)
            }
        })
    }

    /// The number by which this target is serialised and identified.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Classes(classes) => classes,
            Self::Value => VALUE_NUMBER,
        }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::Classes(0)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classes(classes) => write!(f, "{classes} classes"),
            Self::Value => f.write_str("a number to predict"),
        }
    }
}

impl Label {
    /// True if a label may be this one.
    #[must_use]
    pub const fn fits(self, target: Target) -> bool {
        match (self, target) {
            (Self::Class(class), Target::Classes(classes)) => (class as u32) < classes,
            (Self::Value(value), Target::Value) => value.is_finite(),
            _ => false,
        }
    }

    /// The class; `None` if the label is a number.
    #[must_use]
    pub const fn class(self) -> Option<u16> {
        match self {
            Self::Class(class) => Some(class),
            Self::Value(_) => None,
        }
    }

    /// The number of bytes of [`Self::pack`].
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Class(_) => size_of::<u16>(),
            Self::Value(_) => size_of::<f32>(),
        }
    }

    /// Appends the label to `bytes`, little-endian.
    pub(super) fn pack(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Class(class) => bytes.extend_from_slice(&class.to_le_bytes()),
            Self::Value(value) => bytes.extend_from_slice(&value.to_le_bytes()),
        }
    }
}

impl From<u16> for Label {
    fn from(class: u16) -> Self {
        Self::Class(class)
    }
}

impl From<f32> for Label {
    fn from(value: f32) -> Self {
        Self::Value(value)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => class.fmt(f),
            Self::Value(value) => value.fmt(f),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value if to.is_human_readable() => to.serialize_str(VALUE),
            _ => to.serialize_u32(self.number()),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Target;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number of classes, or {VALUE:?}")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Target, E> {
                match u32::try_from(number) {
                    Ok(classes) if classes != VALUE_NUMBER => Ok(Target::Classes(classes)),
                    _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Target, E> {
                match text {
                    VALUE => Ok(Target::Value),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }

        if from.is_human_readable() {
            return from.deserialize_any(Text);
        }
        Ok(match u32::deserialize(from)? {
            VALUE_NUMBER => Self::Value,
            classes => Self::Classes(classes),
        })
    }
}
