//! Rules for workers that contribute more often than others: their names.

use serde::{Deserialize, Serialize};

use pstrain_compute::named;
use pstrain_compute::named::Word;

/// Rule for workers that contribute more often than others, as the job names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParticipationSpec {
    /// No rule: a worker that contributes more often counts more.
    #[default]
    Plain,
    /// A gradient counts for its worker's share of the data over its share of the gradients, at
    /// most 20 (importance weights; Leconte et al. 2024).
    Share,
    /// Each update steps with the latest gradients of all workers, by their shares of the data
    /// (incremental aggregated gradient: Blatt, Hero and Gauchman 2007; for learning from
    /// intermittently present workers, Gu et al. 2021). Keeps one gradient per worker and their
    /// sum in memory.
    Incremental,
}

named!(ParticipationSpec: "participation", ',' {
    Plain = Word::new("plain", &[], "they count more"),
    Share = Word::new("share", &[], "all count by their share of the data"),
    Incremental = Word::new("incremental", &[],
        "each update steps with the latest gradients of all"),
});

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn rules_are_named_by_a_word_and_others_are_refused() {
        for text in ["plain", "share", "incremental"] {
            assert_eq!(text.parse::<ParticipationSpec>().unwrap().to_string(), text);
        }
        let error = "shares".parse::<ParticipationSpec>().unwrap_err().to_string();
        assert_eq!(error, r#""shares" is no participation: use plain, share or incremental"#);
    }
}
