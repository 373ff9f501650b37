//! The different texts of a column.

use std::collections::BTreeMap;

use crate::profile::code;

/// Most different texts of a column.
pub(super) const MOST: usize = 1000;

/// Different texts, each as it is spelled first: spellings of one whole number are one text.
#[derive(Default)]
pub(super) struct Different {
    /// The first spelling of each text, by its code.
    texts: BTreeMap<String, String>,
    /// True if there are more than [`MOST`].
    pub(super) is_full: bool,
}

impl Different {
    pub(super) fn add(&mut self, text: &str) {
        let code = code(text);
        if self.is_full || self.texts.contains_key(&*code) {
            return;
        }
        self.is_full = self.texts.len() == MOST;
        self.texts.insert(code.into_owned(), text.to_owned());
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The number of texts, in words.
    pub(super) fn count(&self) -> String {
        if self.is_full { format!("more than {MOST}") } else { self.len().to_string() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.values().map(String::as_str)
    }

    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts.into_values().collect()
    }
}
