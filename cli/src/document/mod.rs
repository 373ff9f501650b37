//! Documents: described once, part by part, and rendered as one self-contained HTML page or as
//! Markdown with links to its pictures. Knows pictures, but not experiments.

mod html;
mod markdown;

use crate::picture::Picture;

/// How a result is for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Neutral,
}

/// A document, built from top to bottom.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    title: String,
    parts: Vec<Part>,
}

/// A part of a document. Texts are plain: each rendering escapes them.
#[derive(Clone, Debug)]
enum Part {
    Standing(Vec<(Tone, String)>),
    Folded { name: String, parts: Vec<Self> },
    Heading(String),
    Paragraph(String),
    Facts(Vec<(String, String)>),
    Table(Table),
    Code(String),
    Picture(Drawing),
}

/// A table; all columns but the first `text` ones are numbers.
#[derive(Clone, Debug)]
struct Table {
    caption: String,
    header: Vec<String>,
    text: usize,
    rows: Vec<Vec<String>>,
}

/// A rendered picture.
#[derive(Clone, Debug)]
struct Drawing {
    svg: String,
    /// True if its colours carry the numbers, so that they must not follow the reader's scheme.
    is_map: bool,
    /// The file that holds it, relative to the document.
    file: String,
    caption: String,
}

impl Document {
    /// Creates an empty document with a title.
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.into(), parts: Vec::new() }
    }

    /// Appends results that stay in sight while the reader scrolls.
    pub(crate) fn standing(&mut self, results: &[(Tone, String)]) {
        self.parts.push(Part::Standing(results.to_vec()));
    }

    /// Appends parts that the reader sees only after opening them by their name.
    pub(crate) fn folded(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::new("");
        fill(&mut inner);
        self.parts.push(Part::Folded { name: name.into(), parts: inner.parts });
    }

    /// Begins a section.
    pub(crate) fn heading(&mut self, text: &str) {
        self.parts.push(Part::Heading(text.into()));
    }

    /// Appends a paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.parts.push(Part::Paragraph(text.into()));
    }

    /// Appends names and values, one pair a line.
    pub(crate) fn facts<N: AsRef<str>, V: AsRef<str>>(&mut self, facts: &[(N, V)]) {
        let own = |(name, value): &(N, V)| (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.parts.push(Part::Facts(facts.iter().map(own).collect()));
    }

    /// Appends a table; all columns but the first `text` ones are numbers. An empty caption is
    /// omitted.
    pub(crate) fn table(
        &mut self,
        caption: &str,
        header: &[&str],
        text: usize,
        rows: &[Vec<String>],
    ) {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        let (caption, rows) = (caption.to_owned(), rows.to_vec());
        self.parts.push(Part::Table(Table { caption, header, text, rows }));
    }

    /// Appends commands or file contents verbatim.
    pub(crate) fn code(&mut self, text: &str) {
        self.parts.push(Part::Code(text.into()));
    }

    /// Appends a picture with a caption; an empty caption is omitted. `file` holds the same picture
    /// for renderings that link it.
    ///
    /// # Errors
    ///
    /// As [`Picture::svg`].
    pub(crate) fn picture(
        &mut self,
        picture: &Picture,
        file: &str,
        caption: &str,
    ) -> anyhow::Result<()> {
        let svg = picture.svg()?;
        let is_map = match picture {
            Picture::Chart(_) | Picture::Bars(_) => false,
            Picture::HeatMap(_) => true,
        };
        let (file, caption) = (file.to_owned(), caption.to_owned());
        self.parts.push(Part::Picture(Drawing { svg, is_map, file, caption }));
        Ok(())
    }
}
