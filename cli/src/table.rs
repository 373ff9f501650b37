//! Text tables that fit the width of the reader's terminal.
//!
//! A table that is too wide first shortens its names, then leaves out its spare columns in the
//! order that they state, and names them below. Only then do cells fold into several lines.

use comfy_table::{CellAlignment, Table};

use crate::fold::{GAP, bare, finish, prose, tied};
use crate::{figures, messages};

/// Fewest characters of the names of facts.
const NAMES: usize = 8;
/// Most characters of a name in a table that is too wide.
const NAME: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A name that may be shortened.
    Name,
    Text,
    Number,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    title: &'a str,
    kind: Kind,
    /// The column with the highest number is left out first; 0 is never left out.
    spare: u8,
}

impl<'a> Column<'a> {
    /// A column of names, which are shortened where space is short.
    pub(crate) const fn name(title: &'a str) -> Self {
        Self { title, kind: Kind::Name, spare: 0 }
    }

    /// A column of texts, aligned to the left.
    pub(crate) const fn text(title: &'a str) -> Self {
        Self { title, kind: Kind::Text, spare: 0 }
    }

    /// A column of numbers, aligned to the right.
    pub(crate) const fn number(title: &'a str) -> Self {
        Self { title, kind: Kind::Number, spare: 0 }
    }

    /// The same column, left out before all with a lower number where space is short.
    pub(crate) const fn spare(self, spare: u8) -> Self {
        Self { spare, ..self }
    }
}

/// Formats a table that is at most `width` wide.
pub(crate) fn fitting(columns: &[Column<'_>], mut rows: Vec<Vec<String>>, width: usize) -> String {
    if natural(columns, &rows) > width {
        let names = (0..columns.len()).filter(|number| columns[*number].kind == Kind::Name);
        for number in names.collect::<Vec<_>>() {
            let cells = rows.iter_mut().filter_map(|row| row.get_mut(number));
            cells.for_each(|cell| *cell = figures::shortened(cell, NAME));
        }
    }
    let spares: Vec<u8> = columns.iter().map(|column| column.spare).collect();
    let part = |kept: &[usize]| {
        let columns: Vec<Column<'_>> = kept.iter().map(|number| columns[*number]).collect();
        let cells = |row: &Vec<String>| {
            kept.iter().filter_map(|number| row.get(*number).cloned()).collect::<Vec<_>>()
        };
        (columns, rows.iter().map(cells).collect::<Vec<_>>())
    };
    let kept = kept(&spares, width, |kept| {
        let (columns, rows) = part(kept);
        natural(&columns, &rows)
    });
    let (shown, cells) = part(&kept);
    let mut text = drawn(&shown, &cells, width);
    let mut without: Vec<_> = (0..columns.len()).filter(|number| !kept.contains(number)).collect();
    if !without.is_empty() {
        // As they went.
        without.sort_by_key(|number| (u8::MAX - spares[*number], columns.len() - number));
        let titles: Vec<&str> = without.into_iter().map(|number| columns[number].title).collect();
        text += &format!("\nleft out at this width: {}", titles.join(", "));
    }
    text
}

/// Returns the positions of the columns that find space within `width`. Those with the highest
/// numbers in `spares` are left out first, the last of equal ones before the others; 0 is never
/// left out. `natural` returns the width of columns at these positions.
pub(crate) fn kept(spares: &[u8], width: usize, natural: impl Fn(&[usize]) -> usize) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..spares.len()).collect();
    while natural(&kept) > width {
        let spare = kept.iter().copied().max_by_key(|number| spares[*number]);
        let Some(number) = spare.filter(|number| spares[*number] > 0) else { break };
        kept.retain(|other| *other != number);
    }
    kept
}

/// Formats a table with a header as [`fitting`] does; all columns but the first `text` ones are
/// numbers.
pub(crate) fn table(header: &[&str], text: usize, rows: Vec<Vec<String>>, width: usize) -> String {
    fitting(&columns(header, text), rows, width)
}

/// Formats a table of many alike columns: columns that do not fit follow below, in a table that
/// begins with the first column again.
pub(crate) fn folded(header: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let pick = |row: &[String], from: usize, to: usize| -> Vec<String> {
        row.iter()
            .take(1)
            .chain(row.get(from..to.min(row.len())).unwrap_or_default())
            .cloned()
            .collect()
    };
    let (mut tables, mut from) = (Vec::new(), 1);
    loop {
        let part = |to: usize| {
            let header: Vec<&str> = header
                .iter()
                .take(1)
                .chain(header.get(from..to).unwrap_or_default())
                .copied()
                .collect();
            let rows: Vec<Vec<String>> = rows.iter().map(|row| pick(row, from, to)).collect();
            (header, rows)
        };
        let fits = |to: &usize| {
            let (header, rows) = part(*to);
            natural(&columns(&header, 1), &rows) <= width
        };
        let least = (from + 1).min(header.len());
        let to = (least..=header.len()).rev().find(fits).unwrap_or(least);
        let (part_header, part_rows) = part(to);
        tables.push(drawn(&columns(&part_header, 1), &part_rows, width));
        from = to;
        if from >= header.len() {
            return tables.join("\n\n");
        }
    }
}

/// Formats names with their values, one pair a line; a value that is too wide folds under itself.
pub(crate) fn facts<N: AsRef<str>>(facts: &[(N, String)], width: usize) -> String {
    let mut table = bare();
    let longest = facts.iter().map(|(name, _)| name.as_ref().chars().count()).max().unwrap_or(0);
    let names = longest.max(NAMES);
    for (name, value) in facts {
        table.add_row([format!("{:<names$}", name.as_ref()), tied(value)]);
    }
    finish(table, width)
}

/// Joins fields into one line of at most `width` characters. Fields with the lowest numbers find
/// space first; 0 is never left out.
pub(crate) fn line(fields: &[(u8, String)], between: &str, width: usize) -> String {
    let joined = |kept: &[usize]| {
        let fields = fields.iter().enumerate().filter(|(place, _)| kept.contains(place));
        fields.map(|(_, (_, text))| text.as_str()).collect::<Vec<_>>().join(between)
    };
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|place| fields[*place].0);
    let mut kept = Vec::new();
    for place in order {
        kept.push(place);
        if fields[place].0 > 0 && joined(&kept).chars().count() > width {
            kept.pop();
        }
    }
    joined(&kept)
}

/// Formats sentences for stdout: on a terminal they fold between words; a file or a pipe gets each
/// in one line, for programs that search it.
pub(crate) fn sentence(text: &str, indent: usize) -> String {
    let told = match messages::on_terminal() {
        true => prose(text, indent, messages::width()),
        false => text.to_owned(),
    };
    format!("{:indent$}{told}", "")
}

fn columns<'a>(header: &[&'a str], text: usize) -> Vec<Column<'a>> {
    let column = |(number, title): (usize, &&'a str)| match number {
        number if number < text => Column::text(title),
        _ => Column::number(title),
    };
    header.iter().enumerate().map(column).collect()
}

fn filled(columns: &[Column<'_>], rows: &[Vec<String>]) -> Table {
    let mut table = bare();
    table.set_header(columns.iter().map(|column| column.title));
    table.add_rows(rows);
    for (drawn, column) in table.column_iter_mut().zip(columns) {
        if column.kind == Kind::Number {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The width of a table whose cells do not fold.
fn natural(columns: &[Column<'_>], rows: &[Vec<String>]) -> usize {
    let widths = filled(columns, rows).column_max_content_widths();
    let cells: usize = widths.iter().map(|width| usize::from(*width)).sum();
    cells + GAP * widths.len().saturating_sub(1)
}

fn drawn(columns: &[Column<'_>], rows: &[Vec<String>], width: usize) -> String {
    finish(filled(columns, rows), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    const COLUMNS: [Column<'_>; 4] = [
        Column::name("name"),
        Column::number("updates"),
        Column::number("clock").spare(2),
        Column::number("again").spare(1),
    ];

    fn row() -> Vec<Vec<String>> {
        let row = ["greenhouse-north-17:4242", "10,000,000", "10,000,000", "3"];
        vec![row.map(String::from).to_vec()]
    }

    #[test]
    fn columns_go_in_their_order_and_are_named() {
        assert_eq!(
            fitting(&COLUMNS, row(), 80),
            "name                         updates       clock  again\n\
             greenhouse-north-17:4242  10,000,000  10,000,000      3"
        );
        let texts = [48, 40, 30, 12].map(|width| fitting(&COLUMNS, row(), width));
        assert!(
            texts[0].ends_with("greenho…7:4242  10,000,000  10,000,000      3"),
            "{}",
            texts[0]
        );
        assert!(texts[1].ends_with("\nleft out at this width: clock"), "{}", texts[1]);
        assert!(texts[2].ends_with("\nleft out at this width: clock, again"), "{}", texts[2]);
        assert!(texts[3].lines().count() > 3, "the name folds: {}", texts[3]);
    }

    #[test]
    fn alike_columns_follow_below() {
        let header = ["class", "DoS", "Normal", "Probe"];
        let rows = vec![["DoS", "123,456", "1", "22"].map(String::from).to_vec()];
        let text = folded(&header, &rows, 22);
        assert_eq!(
            text,
            "class      DoS  Normal\nDoS    123,456       1\n\nclass  Probe\nDoS       22"
        );
        assert_eq!(folded(&header, &rows, 80).lines().count(), 2);
        assert_eq!(folded(&header, &rows, 3).matches("\n\n").count(), 2, "it ends at any width");
        assert_eq!(folded(&["class"], &[vec!["DoS".into()]], 80), "class\nDoS");
    }

    #[test]
    fn a_line_keeps_the_fields_that_matter_most() {
        let fields = [(0, "epoch 1".into()), (2, "wait 9 %".into()), (1, "loss 0.5".into())];
        let lines = [40, 25, 17, 16, 3].map(|width| line(&fields, "  ", width));
        let wanted = [
            "epoch 1  wait 9 %  loss 0.5",
            "epoch 1  loss 0.5",
            "epoch 1  loss 0.5",
            "epoch 1",
            "epoch 1",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn values_fold_at_words() {
        let value = "10,000,000 assigned = 9,999,990 applied + 10 discarded".to_owned();
        let text = facts(&[("mini-batches", value)], 40);
        assert!(widest(&text) <= 40 && text.lines().count() == 3, "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("              ")), "{text}");
    }
}
