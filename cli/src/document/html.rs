//! Self-contained HTML pages: no script, no external font or image. Every text is escaped.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Document, Drawing, Part, Table, Tone};

/// Follows the light or dark scheme of the reader's system, keeps lines short, lets wide tables
/// scroll and avoids breaks within a part in print. Pictures are drawn in black on white; their
/// ink, paper and grid follow the scheme. Heat maps do not: the text in their cells is chosen for
/// contrast with the cell colours.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --quiet: #555; --rule: #ccc;
  --grid: #d9d9d9; --code: #f4f4f4; --good: #006b3f; --bad: #a8071a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e4; --paper: #17191c; --quiet: #a6a6a6;
  --rule: #4a4d52; --grid: #3a3d42; --code: #23262a; --good: #5fd39b; --bad: #ff8a80; } }
@media print { :root { color-scheme: light; --ink: #1a1a1a; --paper: #fff; --quiet: #555; --rule: \
#ccc;
  --grid: #d9d9d9; --code: #f4f4f4; --good: #006b3f; --bad: #a8071a; } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, 'DejaVu Sans', Verdana, sans-serif; }
h1, h2 { line-height: 1.2; margin: 2rem 0 .75rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin-top: 0; }
h2 { font-size: 1.25rem; border-bottom: 1px solid var(--rule); padding-bottom: .25rem; }
p { max-width: 44rem; overflow-wrap: anywhere; }
.standing { position: sticky; top: 0; z-index: 1; max-width: none; margin: 0 0 1rem;
  padding: .5rem 0; background: var(--paper); border-bottom: 1px solid var(--rule); }
.standing span { display: inline-block; margin-right: 1rem; font-weight: 600; }
.good { color: var(--good); }
.bad { color: var(--bad); }
summary { cursor: pointer; padding: .3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .75rem 0; }
caption { text-align: left; color: var(--quiet); padding-bottom: .35rem; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--ink); }
tbody td { border-bottom: 1px solid var(--rule); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
dl { display: grid; grid-template-columns: minmax(min-content, max-content) minmax(0, 1fr);
  gap: .2rem 1.2rem; font-size: .9rem; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--code); padding: .7rem 1rem; overflow-x: auto; font-size: .85rem; }
figure { display: inline-block; margin: .75rem 1rem .75rem 0; max-width: 100%; }
figure svg { max-width: 100%; height: auto; }
.drawn svg [fill='#000000'] { fill: var(--ink); }
.drawn svg [stroke='#000000'] { stroke: var(--ink); }
.drawn svg [fill='#FFFFFF'] { fill: var(--paper); }
.drawn svg [stroke='#FFFFFF'] { stroke: var(--paper); }
.drawn svg [stroke='#D9D9D9'] { stroke: var(--grid); }
@media (max-width: 40rem) {
  .stacked thead { display: none; }
  .stacked, .stacked tbody, .stacked tr, .stacked td, .stacked caption { display: block; }
  .stacked tbody tr { display: flex; flex-direction: column; padding: .5rem 0;
    border-bottom: 1px solid var(--rule); }
  .stacked td[data-name='verdict'] { order: -1; font-weight: 600; }
  .stacked td { border: 0; padding: .1rem 0; overflow-wrap: anywhere; }
  .stacked td:empty { display: none; }
  .stacked td::before { content: attr(data-name) ': '; color: var(--quiet); }
}
figcaption { font-size: .85rem; color: var(--quiet); max-width: 30rem; }
@media print { body { margin: 0; max-width: none; font-size: .8rem; } a { color: inherit; }
  figure, tr, pre { break-inside: avoid; } h1, h2 { break-after: avoid; }
  pre { white-space: pre-wrap; } .wide { overflow: visible; } .standing { position: static; }
  details::details-content { content-visibility: visible; } }
";

impl Document {
    /// Renders the page as an HTML document.
    pub(crate) fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    // Second defence after the escaping: the page can load nothing and run no
                    // script.
                    meta http-equiv="Content-Security-Policy"
                        content="default-src 'none'; style-src 'unsafe-inline'";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    @for it in &self.parts { (part(it)) "\n" }
                }
            }
        };
        page.into_string()
    }
}

fn part(it: &Part) -> Markup {
    match it {
        Part::Standing(results) => html! {
            p.standing { @for (tone, text) in results { span class=[class(*tone)] { (text) } } }
        },
        Part::Folded { name, parts } => html! {
            details { summary { (name) } @for it in parts { (part(it)) "\n" } }
        },
        Part::Heading(text) => html! { h2 { (text) } },
        Part::Paragraph(text) => html! { p { (text) } },
        Part::Facts(facts) => html! {
            dl { @for (name, value) in facts { dt { (name) } dd { (value) } } }
        },
        Part::Table(it) => table(it),
        Part::Code(text) => html! { pre { code { (text) } } },
        Part::Picture(Drawing { svg, is_map, caption, .. }) => html! {
            figure class=(if *is_map { "map" } else { "drawn" }) {
                (PreEscaped(svg))
                @if !caption.is_empty() { figcaption { (caption) } }
            }
        },
    }
}

const fn class(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Good => Some("good"),
        Tone::Bad => Some("bad"),
        Tone::Neutral => None,
    }
}

/// On a narrow screen, a table without number columns shows its cells one below the other.
fn table(Table { caption, header, text, rows }: &Table) -> Markup {
    let class = |column: usize| (column >= *text).then_some("number");
    let stacked = header.len() > 2 && *text >= header.len();
    let name = |column: usize| header.get(column).filter(|_| stacked);
    html! {
        div.wide { table class=[stacked.then_some("stacked")] {
            @if !caption.is_empty() { caption { (caption) } }
            thead { tr { @for (column, name) in header.iter().enumerate() {
                th scope="col" class=[class(column)] { (name) }
            } } }
            tbody { @for row in rows { tr { @for (column, cell) in row.iter().enumerate() {
                td class=[class(column)] data-name=[name(column)] { (cell) }
            } } } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Chart, Mark, Picture, Series};

    fn page() -> Document {
        let mut page = Document::new("a < b & \"c\"");
        page.heading("Claims");
        page.paragraph("<script>alert(1)</script>");
        page.facts(&[("seed", "1"), ("CPU", "a & b")]);
        let row = vec!["<b>bsp</b>".to_owned(), "10.0".to_owned()];
        page.table("Times", &["policy", "time (s)"], 1, &[row]);
        let row = ["it is faster", "2.0 times", "holds"].map(str::to_owned);
        page.table("", &["claim", "measured", "verdict"], 3, &[row.to_vec()]);
        page.standing(&[(Tone::Good, "3 hold <b>".into()), (Tone::Neutral, "1 run".into())]);
        page.folded("All <settings>", |page| page.paragraph("batch-size = 32"));
        page.code("pstrain run --workers 2 && echo \"<done>\"");
        let marks = vec![Mark::at(0.0, 1.0), Mark::at(1.0, 2.0)];
        let series = vec![Series { name: "a".into(), marks }];
        let chart = Chart { title: "x </svg> y".into(), series, ..Chart::default() };
        page.picture(&Picture::Chart(chart), "pictures/x.svg", "What <one> sees").unwrap();
        page
    }

    #[test]
    fn every_text_is_escaped() {
        let html = page().html();
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

    /// Returns the declarations of the style, such as `color: var(--ink)`, without definitions of
    /// variables.
    fn declarations() -> impl Iterator<Item = &'static str> {
        let inner = STYLE.split(['{', '}']).filter(|part| part.contains(':') && part.contains(';'));
        inner.flat_map(|rule| rule.split(';')).map(str::trim).filter(|it| !it.starts_with("--"))
    }

    #[test]
    fn no_part_of_a_page_is_wider_than_a_narrow_screen() {
        for declaration in declarations() {
            let Some((name, value)) = declaration.split_once(':') else { continue };
            // Widths may only be upper limits, so that a part can shrink.
            assert!(!["width", "min-width"].contains(&name.trim()), "{declaration}");
            if name.trim() == "max-width" {
                assert!(
                    ["rem", "100%", "none"].iter().any(|unit| value.ends_with(unit)),
                    "{value}"
                );
            }
        }
        let html = page().html();
        assert!(html.contains("width=device-width"));
        // Parts that may be too wide scroll in a box of their own or shrink.
        let tables = html.matches("<table").count();
        assert!(tables == 2 && tables == html.matches("<div class=\"wide\"><table").count());
        assert!(html.contains("<td data-name=\"verdict\">holds</td>"), "{html}");
        for rule in [".wide { overflow-x: auto; }", "figure svg { max-width: 100%; height: auto; }"]
        {
            assert!(STYLE.contains(rule), "{rule}");
        }
        let scrolls = STYLE.lines().find(|line| line.starts_with("pre {")).unwrap();
        assert!(scrolls.contains("overflow-x: auto"), "{scrolls}");
    }

    #[test]
    fn colours_are_variables_that_both_schemes_have() {
        let of = |from: &str| {
            let rule = STYLE.split_once(from).unwrap().1.split('}').next().unwrap();
            let names = rule.split(';').filter_map(|part| part.trim().split_once(": "));
            let names = names.filter(|(name, _)| name.starts_with("--"));
            names.map(|(name, _)| name.to_owned()).collect::<std::collections::BTreeSet<_>>()
        };
        let light = of(":root { color-scheme: light dark;");
        assert_eq!(light, of("(prefers-color-scheme: dark) { :root {"));
        assert_eq!(light, of("@media print { :root {"));
        for declaration in declarations() {
            assert!(!declaration.contains('#'), "{declaration}");
            if let Some((_, name)) = declaration.split_once("var(") {
                let name = name.split(')').next().unwrap();
                assert!(light.contains(name), "{declaration}");
            }
        }
        // Each colour that the style maps to the scheme occurs in a picture.
        let html = page().html();
        let (style, picture) = html.split_once("</style>").unwrap();
        let selectors = style.split(".drawn svg [").skip(1);
        let mut count = 0;
        for colour in selectors.filter_map(|rule| rule.split(']').next()) {
            let (name, value) = colour.split_once('=').unwrap();
            let attribute = format!("{name}=\"{}\"", value.trim_matches('\''));
            // The picture of this test has no bars, and only bars have white lines between them.
            assert!(picture.contains(&attribute) || colour == "stroke='#FFFFFF'", "{attribute}");
            count += 1;
        }
        assert_eq!(count, 5);
        assert!(picture.contains("<figure class=\"drawn\">"), "{picture}");
    }

    #[test]
    fn results_stay_in_sight_and_details_are_folded() {
        let html = page().html();
        let standing = "<p class=\"standing\"><span class=\"good\">3 hold &lt;b&gt;</span>\
                        <span>1 run</span></p>";
        assert!(html.contains(standing), "{html}");
        assert!(STYLE.contains(".standing { position: sticky; top: 0;"));
        let folded = "<details><summary>All &lt;settings&gt;</summary><p>batch-size = 32</p>";
        assert!(html.contains(folded), "{html}");
        let first = ".stacked td[data-name='verdict'] { order: -1;";
        assert!(STYLE.contains(first), "on a phone the verdict of a claim comes first");
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let html = page().html().replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
