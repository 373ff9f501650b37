//! Rows of workers that each have their own: `partition = local`.
//!
//! No node assigns rows, so columns, classes and statistics come from a profile, or from the rows
//! that the server evaluates on.

use std::path::PathBuf;
use std::sync::Arc;

use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;
use crate::standardise::Standard;

/// The rows of all workers together, for nodes that have the files of all of them; other nodes use
/// only the schema.
#[derive(Clone, Debug)]
pub struct Local {
    parts: Vec<Arc<dyn Dataset>>,
    /// The rows, or the profile, that decide the schema.
    reference: Arc<dyn Dataset>,
}

impl Local {
    /// Puts together the rows of each worker. `evaluation` decides their schema, unless the rows
    /// have a profile.
    ///
    /// # Errors
    /// [`DataError::Schemaless`] if there is neither.
    pub fn new(
        parts: Vec<Arc<dyn Dataset>>,
        evaluation: Option<&Arc<dyn Dataset>>,
    ) -> Result<Self, DataError> {
        let profiled = parts.first().filter(|part| part.has_profile());
        let reference = profiled.or(evaluation).map(Arc::clone).ok_or(DataError::Schemaless)?;
        Ok(Self { parts, reference })
    }
}

impl Dataset for Local {
    fn describe(&self) -> String {
        "the workers' own rows".into()
    }

    fn kind(&self) -> &'static str {
        self.reference.kind()
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        self.reference.schema(features)
    }

    fn visit(&self, schema: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        self.parts.iter().try_for_each(|part| part.visit(schema, visit))
    }

    fn files(&self) -> Vec<PathBuf> {
        self.parts.iter().flat_map(|part| part.files()).collect()
    }

    fn columns(&self, schema: &Schema) -> Vec<String> {
        self.reference.columns(schema)
    }

    fn local(&self) -> &[Arc<dyn Dataset>] {
        &self.parts
    }

    fn values(&self) -> Result<Option<Standard>, DataError> {
        self.reference.values()
    }

    fn has_profile(&self) -> bool {
        self.reference.has_profile()
    }

    fn remarks(&self, job: Option<&Schema>) -> Vec<String> {
        match job {
            None => self.reference.remarks(None),
            Some(_) => self.parts.iter().flat_map(|part| part.remarks(job)).collect(),
        }
    }
}
