//! Models in text form.

use alloc::borrow::ToOwned as _;
use alloc::vec::Vec;

use super::registered::kind_of;
use super::{Activation, Answers, ModelSpec};
use crate::named::{Family, Named as _, NamedError, Number, Presence, Word};

/// The models of this crate.
enum Known {
    Softmax,
    Mlp(Vec<u32>),
    Logistic,
    Linear,
    Timing(Vec<u32>),
    External,
}

/// Numbers that are repeated and at least 1.
const fn sizes(name: &'static str) -> Number {
    Number::whole(name, 1..=u32::MAX as u64).with(Presence::Repeated)
}

named!(Known: "model", ',' {
    Softmax = Word::new("softmax", &[], "softmax regression: one linear layer"),
    Mlp(hidden) = Word::new("mlp", &[sizes("WIDTH")],
        "a multi-layer perceptron with hidden layers of these widths"),
    Logistic = Word::new("logistic", &[],
        "a weight for each feature of sparse rows of two classes"),
    Linear = Word::new("linear", &[],
        "one linear layer, or a weight for each feature of sparse rows"),
    Timing(layers) = Word::new("timing", &[sizes("PARAMETERS")],
        "messages and times as with these layers, no arithmetic"),
    External = Word::new("external", &[], "the model of a compute process"),
});

impl ModelSpec {
    /// The words of the models of this crate.
    pub const WORDS: &'static Family = Known::FAMILY;

    /// Reads a model: its word and its numbers. `activation` is the one of a multi-layer
    /// perceptron.
    ///
    /// # Errors
    /// [`NamedError`] if the text is no model of this crate and none that the program added.
    pub fn read(text: &str, activation: Activation) -> Result<Self, NamedError> {
        if kind_of(text).is_some() {
            return Ok(Self::Registered(text.to_owned()));
        }
        Ok(match text.parse()? {
            Known::Softmax => Self::Softmax,
            Known::Mlp(hidden) => Self::Mlp { hidden, activation },
            Known::Logistic => Self::Logistic,
            Known::Linear => Self::Linear,
            Known::Timing(layers) => Self::Timing { layers },
            Known::External => Self::External { tensors: Vec::new(), answers: Answers::Gradient },
        })
    }
}
