//! Text that folds between its words, in cells and in lines.

use comfy_table::{ContentArrangement, Table, presets};

/// Space between two columns.
pub(crate) const GAP: usize = 2;

/// Units that stay on the line of their number.
const UNITS: [&str; 5] = ["%", "s", "ms", "us", "min"];
/// A space at which no line ends, in text that is folded.
pub(crate) const TIE: &str = "\u{a0}";

/// Ties units to their numbers, for a cell that folds.
pub(crate) fn tied(text: &str) -> String {
    let mut tied = String::with_capacity(text.len());
    for (place, word) in text.split(' ').enumerate() {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', ':', '.', ')']));
        let is_tied = is_unit && tied.ends_with(|last: char| last.is_ascii_digit());
        if place > 0 {
            tied.push_str(if is_tied { TIE } else { " " });
        }
        tied.push_str(word);
    }
    tied
}

/// Folds sentences between their words; each further line begins with `indent` spaces.
pub(crate) fn prose(text: &str, indent: usize, width: usize) -> String {
    let mut table = bare();
    table.add_row([tied(text)]);
    let folded = finish(table, width.saturating_sub(indent).max(1));
    folded.replace('\n', &format!("\n{:indent$}", ""))
}

/// A table without lines.
pub(crate) fn bare() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Formats a table whose cells fold to `width`.
pub(crate) fn finish(mut table: Table, width: usize) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16));
    }
    // The gap after the last column is trimmed, and takes no width.
    let width = u16::try_from(width.saturating_add(GAP)).unwrap_or(u16::MAX);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.trim_fmt().replace(TIE, " ")
}

#[cfg(test)]
mod tests {
    use super::prose;

    #[test]
    fn sentences_fold_at_words() {
        let told = prose("worker 3 holds the others back, who wait for it", 2, 30);
        assert_eq!(told, "worker 3 holds the others\n  back, who wait for it");
        assert_eq!(prose("as it is", 2, 30), "as it is");
    }

    #[test]
    fn units_stay_with_their_numbers() {
        let told = prose("its lease is over in 413 ms; it had 1.8 % (99 %)", 0, 24);
        assert_eq!(told, "its lease is over in\n413 ms; it had 1.8 %\n(99 %)");
        assert_eq!(prose("edge 3 s", 0, 7), "edge\n3 s");
        assert_eq!(prose("worker 3 stops it", 0, 8), "worker 3\nstops it");
    }
}
