//! Models of the program, in addition to those of this crate.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

use super::{MOST_PARAMETERS, ModelError, ModelSpec, Objective};
use crate::examples::Shape;
use crate::named::word_of;

/// Set once, before any node exists: nodes stay functions of their inputs.
static REGISTERED: OnceBox<Vec<ModelKind>> = OnceBox::new();

/// Makes an objective of a model's arguments, which are empty if there are none, for examples of a
/// shape. The error says what is wrong with them.
pub type Build = fn(&str, Shape) -> Result<Arc<dyn Objective>, String>;

/// A kind of model that a program adds.
#[derive(Clone, Copy, Debug)]
pub struct ModelKind {
    /// How users write it: its name, and its arguments after a colon (`svm[:MARGIN]`).
    pub form: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Builds a model.
    pub build: Build,
}

impl ModelKind {
    /// The name, before the colon.
    #[must_use]
    pub fn word(&self) -> &'static str {
        word_of(self.form)
    }
}

/// Adds models to the models of this crate, for the whole program. All nodes of a job need them:
/// they are the same program.
///
/// # Panics
/// If models were registered before, or two have the same name.
pub fn register(kinds: Vec<ModelKind>) {
    for (index, kind) in kinds.iter().enumerate() {
        let word = kind.word();
        let known = ModelSpec::WORDS.words.iter().map(|known| known.name);
        let mut others = known.chain(kinds[..index].iter().map(ModelKind::word));
        assert!(others.all(|other| other != word), "there are two models {word}");
    }
    assert!(REGISTERED.set(Box::new(kinds)).is_ok(), "models are registered once");
}

/// The models that the program has added.
pub fn registered() -> &'static [ModelKind] {
    REGISTERED.get().map_or(&[], Vec::as_slice)
}

/// Returns the kind that `text` names, and its arguments.
pub(super) fn kind_of(text: &str) -> Option<(&'static ModelKind, &str)> {
    let (word, arguments) = text.split_once(':').unwrap_or((text, ""));
    let kind = registered().iter().find(|kind| kind.word() == word)?;
    Some((kind, arguments))
}

/// Builds the model called `text`.
pub(super) fn build(text: &str, shape: Shape) -> Result<Arc<dyn Objective>, ModelError> {
    let refused = |problem| ModelError::Named { model: text.to_string(), problem };
    let Some((kind, arguments)) = kind_of(text) else {
        return Err(refused(
            "this program has no such model; run the program that added it".into(),
        ));
    };
    let objective = (kind.build)(arguments, shape).map_err(refused)?;
    let parameters = objective.layout().len() as u64;
    if objective.sparse().is_some() {
        return Err(refused("a model of sparse rows cannot be added".into()));
    }
    if parameters == 0 {
        return Err(refused("it has no parameters".into()));
    }
    if parameters > MOST_PARAMETERS {
        return Err(ModelError::TooManyParameters { layer: 0, parameters });
    }
    Ok(objective)
}
