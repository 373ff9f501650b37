//! Models in text form.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::registered::kind_of;
use super::{Activation, Answers, ModelError, ModelSpec, presets};
use crate::named::{Family, Named as _, NamedError, Number, Presence, Word};

/// The models of this crate.
enum Known {
    Softmax,
    Mlp(Vec<u32>),
    Logistic,
    Linear,
    Timing(Vec<u32>),
    External,
    Net,
    Lenet,
    Resnet { depth: u32, width: u32 },
    Inception { width: u32 },
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
    Net = Word::new("net", &[],
        "a network of layers, which follow: net:28x28x1,conv6x5,relu,pool2,linear84,relu"),
    Lenet = Word::new("lenet", &[], "LeNet: two convolutions and three linear layers"),
    Resnet { depth, width } = Word::new("resnet",
        &[Number::whole("LAYERS", 8..=1000), Number::whole("WIDTH", 1..=4096).usual("16")],
        "a residual network of 18, 34 or 6 n + 2 layers whose first block has WIDTH channels"),
    Inception { width } = Word::new("inception-bn-small",
        &[Number::whole("WIDTH", 1..=4096).usual("96")],
        "a small Inception network whose first convolution has WIDTH channels"),
});

const MISSING: &str = "its layers are missing, as in net:linear64,relu";

/// The word before the layers of a network.
const LAYERS: &str = "net:";

/// The layers before the last of a network, as text: its own, or those of a known one; none of a
/// model that is no network.
pub(super) fn layers_of(spec: &ModelSpec) -> Result<String, ModelError> {
    let text = match spec {
        ModelSpec::Network(text) => text,
        ModelSpec::Mlp { hidden, activation } => {
            let layer = |width: &u32| format!("linear{width},{activation}");
            return Ok(hidden.iter().map(layer).collect::<Vec<_>>().join(","));
        }
        _ => return Ok(String::new()),
    };
    let refused = |problem: &str| ModelError::Named { model: text.into(), problem: problem.into() };
    let known = |known| match known {
        Known::Lenet => Some(Ok(presets::LENET.into())),
        Known::Resnet { depth, width } => Some(presets::resnet(depth, width).ok_or_else(|| {
            refused("a residual network has 18, 34 or 6 n + 2 layers: 8, 14, 20, ...")
        })),
        Known::Inception { width } => Some(Ok(presets::inception(width))),
        _ => None,
    };
    let Some(layers) = text.strip_prefix(LAYERS) else {
        return match text.parse() {
            Ok(word) => known(word).unwrap_or_else(|| Err(refused(MISSING))),
            Err(error) => Err(refused(&error.to_string())),
        };
    };
    if layers.is_empty() {
        return Err(refused(MISSING));
    }
    // A known network may follow, as in net:crop4,flip,resnet:20.
    let begins = layers.match_indices(',').map(|(comma, _)| comma + 1);
    let mut ends = begins.filter_map(|begin| Some((begin, known(layers[begin..].parse().ok()?)?)));
    match ends.next() {
        Some((begin, end)) => Ok(format!("{}{}", &layers[..begin], end?)),
        None => Ok(layers.into()),
    }
}

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
        if text.starts_with(LAYERS) {
            return Ok(Self::Network(text.to_owned()));
        }
        Ok(match text.parse()? {
            Known::Net | Known::Lenet | Known::Resnet { .. } | Known::Inception { .. } => {
                Self::Network(text.to_owned())
            }
            Known::Softmax => Self::Softmax,
            Known::Mlp(hidden) => Self::Mlp { hidden, activation },
            Known::Logistic => Self::Logistic,
            Known::Linear => Self::Linear,
            Known::Timing(layers) => Self::Timing { layers },
            Known::External => Self::External { tensors: Vec::new(), answers: Answers::Gradient },
        })
    }
}
