//! docs/troubleshooting.md quotes messages that the program prints, word for word, each with a
//! cause, a cure and an exit code.

use std::fs;
use std::path::{Path, PathBuf};

/// Placeholder for the variable parts of a message.
const HOLE: char = '\u{0}';

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// Returns the string literals of a source text, with lines joined and `{...}` as holes.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Comments and character literals with a quote in them would break the pairing of quotes.
    let code: Vec<&str> =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n").replace("'\"'", "").replace("b'\"'", "");
    let mut chars = code.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some(char) = chars.next() {
            match char {
                '"' => break,
                '\\' => match chars.next() {
                    Some('\n') => while chars.next_if(|char| char.is_whitespace()).is_some() {},
                    Some('n') => text.push('\n'),
                    Some(other) => text.push(other),
                    None => break,
                },
                '{' if chars.next_if_eq(&'{').is_none() => {
                    while chars.next_if(|&char| char != '}').is_some() {}
                    chars.next();
                    text.push(HOLE);
                }
                other => text.push(other),
            }
        }
        found.push(text);
    }
    found
}

/// Returns the page's messages, each with the lines that follow it.
fn entries(page: &str) -> Vec<(String, String)> {
    let mut parts = page.split("\n#### `");
    parts.next();
    let entry = |part: &str| {
        let (message, rest) = part.split_once("`\n").unwrap();
        (message.to_owned(), rest.split("\n## ").next().unwrap().to_owned())
    };
    parts.map(entry).collect()
}

/// Returns the fixed parts of a message.
fn fixed(message: &str) -> Vec<String> {
    let mut text = String::new();
    let mut depth = 0;
    for char in message.chars() {
        match char {
            '⟨' => depth += 1,
            '⟩' => {
                depth -= 1;
                text.push(HOLE);
            }
            _ if depth > 0 => {}
            other => text.push(other),
        }
    }
    let parts = text.split(HOLE).map(str::trim).filter(|part| part.len() > 3);
    parts.map(str::to_owned).collect()
}

#[test]
fn every_quoted_message_exists_in_the_source_and_has_a_cure() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    let core = ["compute", "policy", "wire", "roles"].map(|part| root.join("core").join(part));
    let others = ["transports", "data", "cli"].map(|part| root.join(part));
    for part in core.iter().chain(&others) {
        sources(&part.join("src"), &mut files);
    }
    let read = |path: &PathBuf| literals(&fs::read_to_string(path).unwrap());
    let known: Vec<String> = files
        .iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .flat_map(read)
        .flat_map(|literal| literal.split(HOLE).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let page = fs::read_to_string(root.join("docs/troubleshooting.md")).unwrap();
    let entries = entries(&page);
    assert!(entries.len() > 40, "{}", entries.len());
    for (message, rest) in entries {
        let parts = fixed(&message);
        assert!(!parts.is_empty(), "{message:?} says nothing");
        for part in parts {
            let exists = known.iter().any(|literal| literal.contains(&part));
            assert!(exists, "nothing prints {part:?} of {message:?}");
        }
        for word in ["- Cause: ", "- Cure: ", "- Exit code: "] {
            assert!(rest.contains(word), "{message:?} has no {word:?}");
        }
        let (_, code) = rest.split_once("- Exit code: ").unwrap();
        assert!(["0", "1", "2", "none"].contains(&code.trim()), "{message:?}: {code:?}");
    }
}

#[test]
fn help_explains_the_exit_codes_that_the_page_uses() {
    let help = crate::process::finish(&["--help"]).with_code(0).stdout;
    for line in ["0    done", "1    the run ended without reaching its goal", "2    usage or env"] {
        assert!(help.contains(line), "{help}");
    }
}
