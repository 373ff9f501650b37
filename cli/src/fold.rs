//! Text that folds between its words, in cells and in lines.

use comfy_table::{ContentArrangement, Table, presets};

/// Space between two columns.
pub(crate) const GAP: usize = 2;

/// Folds sentences between their words; each further line begins with `indent` spaces.
pub(crate) fn prose(text: &str, indent: usize, width: usize) -> String {
    let mut table = bare();
    table.add_row([text]);
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
    table.trim_fmt()
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
}
