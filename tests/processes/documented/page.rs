//! Parser of a documentation page: extracts the commands of its blocks and prose.

use std::fs;
use std::path::{Path, PathBuf};

/// A page: its name and its text.
pub(super) struct Page {
    pub(super) name: String,
    text: String,
}

/// A fenced block: its language, its first line's number, and its lines.
struct Block<'a> {
    language: &'a str,
    line: usize,
    lines: Vec<&'a str>,
}

/// The commands of one block, in order.
pub(super) struct Commands {
    /// Place of the block, for messages.
    pub(super) place: String,
    pub(super) commands: Vec<String>,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

impl Page {
    pub(super) fn read(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name)).unwrap();
        Self { name: name.to_owned(), text }
    }

    /// Reads README.md.
    pub(super) fn readme() -> Self {
        Self::read("README.md")
    }

    /// Reads all other pages with commands for users.
    pub(super) fn others() -> Vec<Self> {
        let entries = fs::read_dir(root().join("docs")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
        names.sort();
        let mut pages: Vec<Self> =
            names.iter().map(|name| Self::read(&format!("docs/{name}"))).collect();
        pages.push(Self::read("deploy/README.md"));
        pages
    }

    /// Reads the generated page of each experiment, with the experiment's name.
    pub(super) fn of_experiments() -> Vec<(String, String)> {
        let entries = fs::read_dir(root().join("docs/experiments")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names = names.filter_map(|name| name.strip_suffix(".md").map(str::to_owned));
        let read = |name: String| {
            let text = Self::read(&format!("docs/experiments/{name}.md")).text;
            (name, text)
        };
        names.map(read).collect()
    }

    /// Reads README.md and all other pages.
    pub(super) fn all() -> Vec<Self> {
        let mut pages = Self::others();
        pages.push(Self::readme());
        pages
    }

    fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut open: Option<Block<'_>> = None;
        for (line, text) in (1..).zip(self.text.lines()) {
            match (text.strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    open = Some(Block { language: language.trim(), line, lines: Vec::new() });
                }
                (None, Some(block)) => block.lines.push(text),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block does not end", self.name);
        blocks
    }

    /// Returns the commands of its blocks; blocks in another language than a shell's have none.
    pub(super) fn commands(&self) -> Vec<Commands> {
        let of = |block: Block<'_>| {
            let place = format!("{}:{}", self.name, block.line);
            let commands = match block.language {
                "" | "sh" => typed(&block.lines),
                "console" => {
                    let lines = block.lines.iter().filter_map(|line| line.strip_prefix("$ "));
                    typed(&lines.collect::<Vec<_>>())
                }
                "python" | "rust" | "text" | "toml" => Vec::new(),
                other => panic!("{place}: a block in {other:?}, which is not known here"),
            };
            Commands { place, commands }
        };
        self.blocks().into_iter().map(of).filter(|block| !block.commands.is_empty()).collect()
    }

    /// Returns the lines of all blocks in a language.
    pub(super) fn lines_in(&self, language: &str) -> Vec<&str> {
        let blocks = self.blocks().into_iter().filter(|block| block.language == language);
        blocks.flat_map(|block| block.lines).collect()
    }

    /// Returns the first column of all tables, without its quotes.
    pub(super) fn described(&self) -> Vec<&str> {
        let rows = self.text.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| row.split('`').next()).collect()
    }

    /// Returns the first TOML block that begins with the line `first`.
    pub(super) fn toml(&self, first: &str) -> String {
        let blocks = self.blocks();
        let mut fitting =
            blocks.iter().filter(|it| it.language == "toml" && it.lines.first() == Some(&first));
        let block = fitting.next().unwrap_or_else(|| panic!("{}: no {first:?}", self.name));
        block.lines.join("\n")
    }

    /// Returns the `pstrain` commands that the prose names, each with its place.
    pub(super) fn named(&self) -> Vec<(String, String)> {
        let mut is_text = true;
        let mut paragraphs = vec![(1, String::new())];
        for (line, text) in (1..).zip(self.text.lines()) {
            if text.starts_with("```") {
                is_text = !is_text;
            }
            match paragraphs.last_mut() {
                Some((_, paragraph)) if is_text && !text.is_empty() => {
                    paragraph.push_str(text);
                    paragraph.push(' ');
                }
                _ => paragraphs.push((line + 1, String::new())),
            }
        }
        let mut named = Vec::new();
        for (line, paragraph) in paragraphs {
            let spans = paragraph.split('`').skip(1).step_by(2);
            let commands = spans.filter(|span| span.starts_with("pstrain "));
            let place = format!("{}:{line}", self.name);
            named.extend(commands.map(|command| (place.clone(), command.to_owned())));
        }
        named
    }
}

/// Returns commands as typed: comments removed, continued lines joined, a loop's body once.
fn typed(lines: &[&str]) -> Vec<String> {
    let (mut commands, mut whole) = (Vec::new(), String::new());
    for line in lines {
        let line = without_comment(line).trim();
        if whole.is_empty() && (line.starts_with("for ") || line == "done") {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(begin) => whole.push_str(begin),
            None => whole.push_str(line),
        }
        if line.ends_with('\\') || whole.matches('\'').count() % 2 == 1 {
            whole.push(' ');
        } else if !whole.is_empty() {
            commands.push(std::mem::take(&mut whole));
        }
    }
    assert!(whole.is_empty(), "{whole:?} does not end");
    commands
}

fn without_comment(line: &str) -> &str {
    match line.find(" # ") {
        _ if line.starts_with("# ") => "",
        Some(at) => &line[..at],
        None => line,
    }
}

/// Splits a command into words as a shell does.
pub(super) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(begin)) if letter == begin => quote = None,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
