//! The known word that a user most likely means by one that is not known.

use alloc::vec::Vec;

/// Smallest likeness of two words that may be mistaken for each other.
const ALIKE: f64 = 0.86;

/// The likeness of two words, from 0 to 1: their Jaro-Winkler similarity, which two neighbouring
/// letters that are swapped do not lessen. `cvs` is `csv`.
fn likeness(word: &str, known: &str) -> f64 {
    let is_swapped =
        strsim::osa_distance(word, known) == 1 && strsim::hamming(word, known) == Ok(2);
    if is_swapped { 1.0 } else { strsim::jaro_winkler(word, known) }
}

/// The meanings of the known words, in small letters, that resemble `word`: the most similar first.
pub fn alike<'a, T>(word: &str, known: impl IntoIterator<Item = (&'a str, T)>) -> Vec<T> {
    let word = word.to_lowercase();
    let all = known.into_iter().map(|(known, meaning)| (likeness(&word, known), meaning));
    let mut near: Vec<(f64, T)> = all.filter(|(likeness, _)| *likeness >= ALIKE).collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    near.into_iter().map(|(_, meaning)| meaning).collect()
}

/// The one of `known` that is most similar to `word`, if one resembles it.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    alike(word, known.into_iter().map(|known| (known, known))).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_leads_to_the_most_similar_known_one_however_it_is_mistyped() {
        let known = ["delay", "rate", "loss", "csv"];
        for (word, meant) in [("dela", "delay"), ("Rate", "rate"), ("cvs", "csv")] {
            assert_eq!(nearest(word, known), Some(meant), "{word}");
        }
        assert_eq!(nearest("epochs", known), None);
        assert_eq!(alike("rte", [("rate", 1), ("rates", 2), ("rte", 3)]), [3, 1, 2]);
    }
}
