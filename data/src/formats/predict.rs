//! The meaning of the labels of rows: classes, or numbers to predict.

use pstrain_compute::examples::Target;

use crate::dataset::{Dataset, Schema};
use crate::error::DataError;

/// The option that says it.
pub(super) const OPTION: &str = "predict";

/// Most classes that may be more than half as many as the rows.
const FEW_CLASSES: usize = 20;

/// The labels of rows, as a user names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predict {
    /// Each different label is a class.
    Classes,
    /// Labels are numbers to predict.
    Numbers,
}

impl Predict {
    /// Reads the value of [`OPTION`].
    ///
    /// # Errors
    /// The values that are allowed, if the text is none of them.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let known = [Self::Classes, Self::Numbers].into_iter().find(|it| it.word() == text);
        known.ok_or_else(|| "write classes or numbers".into())
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Numbers => "numbers",
        }
    }

    /// The labels of a job, whose rows `data` has.
    ///
    /// # Errors
    /// If the user says that they are others.
    pub(super) fn of(
        schema: &Schema,
        said: Option<Self>,
        data: &dyn Dataset,
    ) -> Result<Self, DataError> {
        let wanted = match schema.shape.target {
            Target::Classes(_) => Self::Classes,
            Target::Value => Self::Numbers,
        };
        match said.filter(|said| *said != wanted) {
            None => Ok(wanted),
            Some(said) => Err(DataError::format(format!(
                "{}: {OPTION}={}, but the job predicts {}; leave the option out",
                data.describe(),
                said.word(),
                wanted.word()
            ))),
        }
    }
}

/// The problem of a label with a fraction, unless users say what labels are.
pub(super) fn fraction(label: f64) -> String {
    format!(
        "its labels have fractions, such as {label:?}: say predict=numbers, and the labels are \
         numbers to predict"
    )
}

/// The problem of labels of which nearly each would be a class of its own, unless users say what
/// labels are.
pub(super) fn too_many(classes: usize, rows: usize) -> Option<String> {
    (classes > FEW_CLASSES && classes > rows / 2).then(|| {
        format!(
            "its {rows} labels have {classes} different values: say predict=numbers if they are \
             numbers to predict, or predict=classes if each is a class"
        )
    })
}
