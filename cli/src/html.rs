//! Pages that need nothing but themselves: no script, no font, no picture from elsewhere. Knows
//! pictures, and nothing of experiments. Every text is escaped.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::picture::Picture;

/// Dark on light, narrow enough to read, wide tables scroll, nothing breaks apart when printed.
const STYLE: &str = "
:root { color-scheme: light; }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1a1a1a; background: #fff;
  font: 1rem/1.5 system-ui, 'DejaVu Sans', Verdana, sans-serif; }
h1, h2, h3 { line-height: 1.2; margin: 2rem 0 .75rem; }
h1 { font-size: 1.6rem; margin-top: 0; }
h2 { font-size: 1.25rem; border-bottom: 1px solid #ccc; padding-bottom: .25rem; }
h3 { font-size: 1.05rem; }
p { max-width: 44rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .75rem 0; }
caption { text-align: left; color: #555; padding-bottom: .35rem; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid #1a1a1a; }
tbody td { border-bottom: 1px solid #ddd; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; font-size: .9rem; }
dt { color: #555; }
dd { margin: 0; overflow-wrap: anywhere; }
pre { background: #f4f4f4; padding: .7rem 1rem; overflow-x: auto; font-size: .85rem; }
figure { display: inline-block; margin: .75rem 1rem .75rem 0; max-width: 100%; }
figure svg { max-width: 100%; height: auto; }
figcaption { font-size: .85rem; color: #555; max-width: 30rem; }
@media print { body { margin: 0; max-width: none; font-size: .8rem; } a { color: inherit; }
  figure, tr, pre { break-inside: avoid; } h1, h2, h3 { break-after: avoid; }
  pre { white-space: pre-wrap; } .wide { overflow: visible; } }
";

/// A page, written from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    title: String,
    body: Vec<Markup>,
}

impl Page {
    /// An empty page with a title.
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.into(), body: Vec::new() }
    }

    /// Begins a part of the page.
    pub(crate) fn heading(&mut self, text: &str) {
        self.body.push(html! { h2 { (text) } });
    }

    /// Begins a part of a part.
    pub(crate) fn subheading(&mut self, text: &str) {
        self.body.push(html! { h3 { (text) } });
    }

    /// A paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.body.push(html! { p { (text) } });
    }

    /// Names and their values, one a line.
    pub(crate) fn facts<N: AsRef<str>, V: AsRef<str>>(&mut self, facts: &[(N, V)]) {
        self.body.push(html! {
            dl { @for (name, value) in facts { dt { (name.as_ref()) } dd { (value.as_ref()) } } }
        });
    }

    /// A table; all columns but the first `text` ones are numbers. An empty caption is left out.
    pub(crate) fn table(
        &mut self,
        caption: &str,
        header: &[&str],
        text: usize,
        rows: &[Vec<String>],
    ) {
        let class = |column: usize| (column >= text).then_some("number");
        self.body.push(html! {
            div.wide { table {
                @if !caption.is_empty() { caption { (caption) } }
                thead { tr { @for (column, name) in header.iter().enumerate() {
                    th scope="col" class=[class(column)] { (name) }
                } } }
                tbody { @for row in rows { tr { @for (column, cell) in row.iter().enumerate() {
                    td class=[class(column)] { (cell) }
                } } } }
            } }
        });
    }

    /// Commands or files, as they are.
    pub(crate) fn code(&mut self, text: &str) {
        self.body.push(html! { pre { code { (text) } } });
    }

    /// A picture with a line under it; an empty caption is left out.
    ///
    /// # Errors
    ///
    /// As [`Picture::svg`].
    pub(crate) fn picture(&mut self, picture: &Picture, caption: &str) -> anyhow::Result<()> {
        let svg = picture.svg()?;
        self.body.push(html! {
            figure {
                (PreEscaped(svg))
                @if !caption.is_empty() { figcaption { (caption) } }
            }
        });
        Ok(())
    }

    /// The page as an HTML document.
    pub(crate) fn render(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    // Whatever the page holds, it fetches nothing and runs nothing.
                    meta http-equiv="Content-Security-Policy"
                        content="default-src 'none'; style-src 'unsafe-inline'";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    @for part in &self.body { (part) "\n" }
                }
            }
        };
        page.into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Chart, Mark, Series};

    fn page() -> Page {
        let mut page = Page::new("a < b & \"c\"");
        page.heading("Claims");
        page.subheading("Of the source");
        page.paragraph("<script>alert(1)</script>");
        page.facts(&[("seed", "1"), ("CPU", "a & b")]);
        let row = vec!["<b>bsp</b>".to_owned(), "10.0".to_owned()];
        page.table("Times", &["policy", "time (s)"], 1, &[row]);
        page.code("pstrain run --workers 2 && echo \"<done>\"");
        let marks = vec![Mark::at(0.0, 1.0), Mark::at(1.0, 2.0)];
        let series = vec![Series { name: "a".into(), marks }];
        let chart = Chart { title: "x </svg> y".into(), series, ..Chart::default() };
        page.picture(&Picture::Chart(chart), "What <one> sees").unwrap();
        page
    }

    #[test]
    fn every_text_is_escaped() {
        let html = page().render();
        assert!(html.contains("<title>a &lt; b &amp; &quot;c&quot;</title>"));
        assert!(html.contains("<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"));
        assert!(html.contains("<td>&lt;b&gt;bsp&lt;/b&gt;</td><td class=\"number\">10.0</td>"));
        assert!(html.contains("<dt>CPU</dt><dd>a &amp; b</dd>"));
        assert!(html.contains("What &lt;one&gt; sees"));
        for tag in ["<script", "<b>", "<done>", "<one>"] {
            assert!(!html.contains(tag), "{tag}");
        }
        assert_eq!((html.matches("<svg").count(), html.matches("</svg>").count()), (1, 1));
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let html = page().render().replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
