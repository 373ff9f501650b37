//! The fields of structs and enums that serde writes, read from their sources with their doc
//! comments.

use std::collections::BTreeMap;

use pstrain_compute::evaluation::METRICS;

#[derive(Debug)]
pub(super) struct Field {
    /// Its key.
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) about: String,
    /// True if its own fields are in its place.
    pub(super) is_flat: bool,
}

/// A variant of an enum.
#[derive(Debug)]
pub(super) struct Variant {
    /// As in Rust.
    pub(super) name: String,
    pub(super) about: String,
    pub(super) fields: Vec<Field>,
}

impl Variant {
    /// Its name in snake case.
    pub(super) fn snake_case(&self) -> String {
        let mut name = String::new();
        for letter in self.name.chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(letter.to_lowercase());
        }
        name
    }
}

/// The text between two marks of a source.
pub(super) fn between<'a>(source: &'a str, begin: &str, end: &str) -> &'a str {
    let after = source.split_once(begin).map(|(_, after)| after);
    let text = after.and_then(|after| after.split_once(end)).map(|(text, _)| text);
    text.unwrap_or_else(|| panic!("the source has no {begin:?} and {end:?}"))
}

/// The variants of a public enum.
pub(super) fn variants(source: &str, name: &str) -> Vec<Variant> {
    let body = between(source, &format!("\npub enum {name} {{\n"), "\n}\n");
    let mut lines = body.lines().map(str::trim);
    let (mut variants, mut comment) = (Vec::new(), Vec::new());
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line.starts_with(char::is_uppercase) {
            let end = line.find(|it: char| !it.is_alphanumeric()).unwrap_or(line.len());
            let fields = match line.ends_with('{') {
                true => fields(lines.by_ref().take_while(|line| *line != "},")),
                false => Vec::new(),
            };
            let about = plain(&comment.join(" "));
            variants.push(Variant { name: line[..end].to_owned(), about, fields });
            comment.clear();
        }
    }
    variants
}

/// The structs by name.
pub(super) struct Structs(BTreeMap<String, Vec<Field>>);

/// The type inside of `Option`, of references, and of lists; for lists and maps also the part of
/// the path that stands for an item.
fn inner(kind: &str) -> (&str, &'static str) {
    let kind = kind.trim_start_matches('&').trim_start_matches("'a ");
    for (begin, path) in [("Option<", ""), ("Vec<", "[]"), ("BTreeMap<", ".NAME"), ("[", "[]")] {
        if let Some(rest) = kind.strip_prefix(begin) {
            let rest = &rest[..rest.len() - 1];
            let rest = if path == ".NAME" {
                rest.split_once(", ").map_or("", |(_, value)| value)
            } else {
                rest
            };
            let (kind, deeper) = inner(rest);
            assert!(path.is_empty() || deeper.is_empty() || deeper == path, "{kind}");
            let path = match (path, deeper) {
                (".NAME", ".NAME") => ".NAME.NAME",
                ("", deeper) => deeper,
                (path, _) => path,
            };
            return (kind, path);
        }
    }
    (kind.trim_end_matches("<'a>"), "")
}

/// A doc comment as text: without links to code, with the words of JSON, and without its last stop.
fn plain(comment: &str) -> String {
    let text = comment.replace("[`", "`").replace("`]", "`");
    text.replace("`None`", "null").replace("None if", "null if").trim_end_matches('.').to_owned()
}

impl Structs {
    pub(super) fn of(sources: &[&str]) -> Self {
        let mut structs = BTreeMap::new();
        for source in sources {
            let mut lines = source.lines();
            while let Some(line) = lines.next() {
                let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
                let name = line.strip_prefix("struct ").and_then(|it| it.strip_suffix(" {"));
                let Some(name) = name else { continue };
                let name = name.trim_end_matches("<'a>").to_owned();
                let body = lines.by_ref().take_while(|line| *line != "}");
                structs.entry(name).or_insert_with(|| fields(body));
            }
        }
        Self(structs)
    }

    /// The doc comment of a field.
    pub(super) fn about(&self, name: &str, field: &str) -> String {
        let field = self.0[name].iter().find(|it| it.name == field);
        field.unwrap_or_else(|| panic!("{name} has no such field")).about.clone()
    }

    /// The keys of a struct with their doc comments, those of its parts by their path.
    pub(super) fn keys(&self, name: &str) -> Vec<(String, String)> {
        let mut keys = Vec::new();
        self.collect(name, "", &mut keys);
        let silent: Vec<_> = keys.iter().filter(|(_, about)| about.is_empty()).collect();
        assert!(silent.is_empty(), "fields without a doc comment: {silent:?}");
        keys
    }

    fn collect(&self, name: &str, prefix: &str, keys: &mut Vec<(String, String)>) {
        for field in &self.0[name] {
            let (kind, item) = inner(&field.kind);
            if field.is_flat && field.name == "metrics" {
                let about = |title| format!("{title} on the evaluation rows, if the task has it");
                keys.extend(METRICS.iter().map(|it| (it.name.to_owned(), about(it.title))));
            } else if field.is_flat {
                self.collect(kind, prefix, keys);
            } else {
                let path = format!("{prefix}{}{item}", field.name);
                keys.push((path.clone(), field.about.clone()));
                if self.0.contains_key(kind) {
                    self.collect(kind, &format!("{path}."), keys);
                }
            }
        }
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Field> {
    let (mut fields, mut comment, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for line in lines.map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line.starts_with("#[") {
            attributes.push_str(line);
        } else if let Some((name, kind)) = line.split_once(": ") {
            if !attributes.contains("serde(skip)") {
                let renamed = attributes.split_once("rename = \"").map(|(_, name)| name);
                let renamed = renamed.and_then(|name| name.split('"').next());
                let name = name.rsplit(' ').next().unwrap_or_default();
                fields.push(Field {
                    name: renamed.unwrap_or(name).to_owned(),
                    kind: kind.trim_end_matches(',').to_owned(),
                    about: plain(&comment.join(" ")),
                    is_flat: attributes.contains("flatten"),
                });
            }
            comment.clear();
            attributes.clear();
        }
    }
    fields
}
