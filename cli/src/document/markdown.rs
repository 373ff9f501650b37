//! Markdown, as GitHub and mdBook read it, with links to the pictures' files.

use std::fmt::Write as _;

use super::{Document, Part, Table};

impl Document {
    /// Renders the document as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n", plain(&self.title));
        write_parts(&mut text, &self.parts);
        text
    }
}

fn write_parts(text: &mut String, parts: &[Part]) {
    for part in parts {
        let block = match part {
            Part::Standing(results) => {
                let results: Vec<String> = results.iter().map(|(_, text)| plain(text)).collect();
                // A text that ends in a colon introduces the others.
                format!("**{}**", results.join(", ").replace(":, ", ": "))
            }
            Part::Folded { name, parts } => {
                let mut inner = String::new();
                write_parts(&mut inner, parts);
                // The empty lines make the inner parts Markdown again.
                format!("<details><summary>{}</summary>\n{inner}\n</details>", plain(name))
            }
            Part::Heading(text) => format!("## {}", plain(text)),
            Part::Paragraph(text) => paragraph(text),
            Part::Facts(facts) => {
                let line = |(name, value): &(String, String)| {
                    format!("- {}: {}", plain(name), plain(value))
                };
                facts.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Part::Table(it) => table(it),
            Part::Code(text) => fenced(text),
            Part::Picture(it) => format!("![{}]({})", plain(&it.caption), it.file),
        };
        let _infallible = write!(text, "\n{block}\n");
    }
}

/// Escapes a text for one line: nothing in it is markup or ends a table's cell.
fn plain(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match letter {
            // No backslash: HTML and its summaries know entities alone.
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// A paragraph, which does not begin a list or underline a heading.
fn paragraph(text: &str) -> String {
    let text = plain(text);
    let number = text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
    let (number, rest) = text.split_at(text.len() - number);
    let begins_a_list = if number.is_empty() {
        rest.starts_with(['-', '+', '='])
    } else {
        rest.starts_with(['.', ')'])
    };
    format!("{number}{}{rest}", if begins_a_list { "\\" } else { "" })
}

fn table(table: &Table) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    let column = |number: usize| if number < table.text { "---" } else { "---:" };
    let rule: Vec<&str> = (0..table.header.len()).map(column).collect();
    let rule = format!("| {} |", rule.join(" | "));
    let caption = match table.caption.as_str() {
        "" => String::new(),
        caption => format!("{}:\n\n", paragraph(caption)),
    };
    let lines = [row(&table.header), rule].into_iter().chain(table.rows.iter().map(|it| row(it)));
    caption + &lines.collect::<Vec<_>>().join("\n")
}

/// A block that is shown as it is, between fences longer than any in it.
fn fenced(text: &str) -> String {
    let mut fence = String::from("```");
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}text\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Tone;
    use crate::picture::{Chart, Picture};

    #[test]
    fn every_part_is_markdown_and_no_text_is_markup() {
        let mut document = Document::new("a_b & <c>");
        let standing = ["2 claims:", "1 hold", "1 do not hold"];
        document.standing(&standing.map(|text| (Tone::Neutral, text.to_owned())));
        document.heading("Claims");
        document.paragraph("- a [link](x) of *stars*\nand `code`");
        document.paragraph("3. no list, 3 of them");
        document.paragraph("324 runs: 12 cells");
        document.facts(&[("seed", "1"), ("CPU", "a | b")]);
        let rows = [vec!["bsp|asp".to_owned(), "1.0 (0.9 to 1.1)".to_owned()]];
        document.table("Times", &["policy", "time (s)"], 1, &rows);
        document.table("", &["policy", "verdict"], 2, &[]);
        document.folded("The 2 settings", |inner| inner.paragraph("epochs = 3"));
        document.code("pstrain run\n```");
        let chart = Picture::Chart(Chart::default());
        document.picture(&chart, "pictures/time.svg", "Time [s]").unwrap();
        let expected = "# a\\_b &amp; &lt;c&gt;

**2 claims: 1 hold, 1 do not hold**

## Claims

\\- a \\[link\\](x) of \\*stars\\* and \\`code\\`

3\\. no list, 3 of them

324 runs: 12 cells

- seed: 1
- CPU: a \\| b

Times:

| policy | time (s) |
| --- | ---: |
| bsp\\|asp | 1.0 (0.9 to 1.1) |

| policy | verdict |
| --- | --- |

<details><summary>The 2 settings</summary>

epochs = 3

</details>

````text
pstrain run
```
````

![Time \\[s\\]](pictures/time.svg)
";
        assert_eq!(document.markdown(), expected);
    }
}
