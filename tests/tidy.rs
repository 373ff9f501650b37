//! The layout of the code and its words: what neither Cargo nor rustfmt nor clippy checks.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of each crate, the lowest floor first. A module imports from lower floors alone.
const FLOORS: [(&str, &[&[&str]]); 7] = [
    (
        "core/compute",
        &[
            &[
                "codec", "counted", "examples", "float16", "id", "likeness", "named", "rng",
                "simd", "sum", "time",
            ],
            &["pass"],
            &["coding", "fingerprint", "params", "reference", "saved", "task"],
            &["decided", "optim"],
            &["model"],
            &["evaluation", "filter"],
            &["source"],
            &["local_training"],
        ],
    ),
    (
        "core/policy",
        &[
            &["batches", "collective", "rules"],
            &["architecture", "consistency", "gossip", "in_network"],
            &["mode"],
            &["aggregate", "auto"],
            &["job"],
            &["combining", "trainer", "work"],
            &["lockstep"],
        ],
    ),
    (
        "core/wire",
        &[
            &[
                "buffer_pool",
                "checkpoint",
                "checksum",
                "client",
                "identity",
                "keys",
                "name",
                "peers",
                "reason",
                "table",
            ],
            &["received", "release", "replica", "spent"],
            &["holders", "payload", "refusal"],
            &["encoded_piece", "range", "status", "worker"],
            &["decision", "evaluation", "relayed"],
            &["group"],
            &["message"],
            &["limits"],
            &["frame"],
            &["decoder", "outgoing"],
        ],
    ),
    ("core/roles", &[&["store"], &["node"]]),
    (
        "transports",
        &[
            &[
                "address",
                "clock",
                "log_limit",
                "processors",
                "punctuality",
                "refusals",
                "scenario",
                "transport",
            ],
            &["driver", "gradient", "loaded", "memory", "process", "shaped", "socket", "threads"],
            &["evaluate", "journal", "paced"],
            &["compute"],
            &["services"],
            &["simulation"],
        ],
    ),
    (
        "data",
        &[
            &["decompress", "experiments", "grouped", "info", "memory", "partition"],
            &["profile", "split", "standardise"],
            &["error", "nsl_kdd", "sparse"],
            &["synthetic"],
            &["dataset"],
            &["evaluation", "formats", "local"],
            &["spec"],
            &["outline"],
            &["prepared"],
        ],
    ),
    (
        "cli",
        &[
            &["fold"],
            &[
                "digest", "figures", "keys", "links", "messages", "metrics", "picture", "rank",
                "served", "tensors",
            ],
            &["energy", "metric_text", "process", "statistics", "table", "troubles", "wait_text"],
            &["document", "exit", "job"],
            &["args", "calibration", "signals", "simulate"],
            &["durable", "parent", "security", "why"],
            &["pulse"],
            &["progress"],
            &["record"],
            &["experiment", "results"],
            &["bench", "start", "validate"],
            &["cmd"],
            &["top"],
        ],
    ),
];

/// Folders of product code that take events and values only, and the nodes they do not name: they
/// serve every kind of run, whichever nodes train it.
const WITHOUT_NODES: (&[&str], &[&str]) = (&["cli/src/record"], &["Replica", "Server", "Shard"]);

/// Columns of a comment.
const COMMENT_COLUMNS: usize = 100;
/// Columns of code: more than rustfmt's, for what it does not break.
const CODE_COLUMNS: usize = 120;
/// Lines of a file.
const FILE_LINES: usize = 620;
/// Lines of the README: what is longer belongs to the book.
const README_LINES: usize = 130;
/// Packages of the lock file, for all systems, features and tests. It may only fall: what another
/// crate costs in building is more than the lines that it saves. `tests/measure/build.sh` has the
/// limits of the default build.
const LOCKED_PACKAGES: usize = 319;

/// Words that make a reader look for their subject, and how often comments of product code may have
/// each. A number only ever falls: lower it to what is found.
const WORDS: [(&str, usize); 13] = [
    ("whoever", 0),
    ("somebody", 0),
    ("someone", 0),
    ("nobody", 0),
    ("anybody", 0),
    ("anyone", 0),
    ("everybody", 0),
    ("everyone", 0),
    ("those that", 2),
    ("those who", 0),
    ("that of", 1),
    ("anew", 0),
    ("beside", 0),
];

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files below a folder of the repository whose names end in `ending`.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry of the folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
            if path.is_dir() {
                // What is built may come and go meanwhile.
                if !name.starts_with('.') && !["book", "target"].contains(&name) {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a text file")
}

/// The sources of a crate, without files of tests, by module of its root.
fn modules(of: &str) -> BTreeMap<String, Vec<PathBuf>> {
    let source = root().join(of).join("src");
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files(&format!("{of}/src"), ".rs") {
        let inside = path.strip_prefix(&source).expect("it is inside").with_extension("");
        let parts: Vec<&str> =
            inside.components().filter_map(|part| part.as_os_str().to_str()).collect();
        if !parts.contains(&"tests") {
            modules.entry(parts[0].to_owned()).or_default().push(path);
        }
    }
    modules.remove("lib");
    modules.remove("main");
    modules
}

/// The source without comments and without its tests, which come last.
fn product(source: &str) -> String {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text: Vec<&str> = lines.collect();
    let tests = text.windows(2).position(|two| {
        two[0].trim() == "#[cfg(test)]" && two[1].starts_with("mod ") && two[1].ends_with('{')
    });
    text[..tests.unwrap_or(text.len())].join("\n")
}

/// The name at the beginning of a text.
fn name(text: &str) -> &str {
    let is_end = |it: char| !(it.is_alphanumeric() || it == '_');
    &text[..text.find(is_end).unwrap_or(text.len())]
}

/// The names of the root that a source imports, each once.
fn imports(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for text in source.split("crate::").skip(1) {
        let Some(group) = text.strip_prefix('{') else {
            names.push(name(text));
            continue;
        };
        let (mut depth, mut begins) = (0_usize, true);
        for (at, it) in group.char_indices() {
            match it {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' => begins = depth == 0,
                _ if begins && !it.is_whitespace() => {
                    names.push(name(&group[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn expect_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_run_downward() {
    let mut wrong = Vec::new();
    for (of, floors) in FLOORS {
        let floors: BTreeMap<&str, usize> = (0..)
            .zip(floors)
            .flat_map(|(floor, modules)| modules.iter().map(move |module| (*module, floor)))
            .collect();
        for (module, files) in modules(of) {
            let Some(floor) = floors.get(module.as_str()) else {
                wrong.push(format!("{of}: {module} has no floor: add it to FLOORS"));
                continue;
            };
            for file in files {
                let source = text(&file);
                for name in imports(&product(&source)) {
                    if name != module && floors.get(name).is_some_and(|other| other >= floor) {
                        wrong.push(format!(
                            "{} imports {name}, which is not below {module}: move the name that \
                             both need to a lower module",
                            file.display()
                        ));
                    }
                }
            }
        }
    }
    expect_none(&wrong);
}

#[test]
fn records_name_no_node() {
    let (folders, nodes) = WITHOUT_NODES;
    let mut wrong = Vec::new();
    for path in folders.iter().flat_map(|folder| files(folder, ".rs")) {
        let source = text(&path);
        let product = product(&source);
        let mut words = product.split(|it: char| !(it.is_alphanumeric() || it == '_'));
        if let Some(node) = words.find(|word| nodes.contains(word)) {
            wrong.push(format!(
                "{} names {node}: take the job, an event or `Trained` instead",
                path.display()
            ));
        }
    }
    expect_none(&wrong);
}

#[test]
fn comments_and_tests_import_nothing() {
    let source =
        "use crate::one::Name;\n// crate::two\n#[cfg(test)]\nmod tests {\n use crate::three;\n}";
    assert_eq!(imports(&product(source)), ["one"]);
    assert_eq!(imports("crate::b::X, crate::a, crate::b"), ["a", "b"]);
    assert_eq!(imports("use crate::{c, a::{x, y},\n b::z};"), ["a", "b", "c"]);
}

#[test]
fn lines_and_files_are_short() {
    let mut wrong = Vec::new();
    for path in files(".", ".rs") {
        let source = text(&path);
        if source.lines().count() > FILE_LINES {
            wrong.push(format!(
                "{}: more than {FILE_LINES} lines; move what is the second thing in it to a file \
                 of its own",
                path.display()
            ));
        }
        let mut is_drawing = false;
        for (number, line) in (1..).zip(source.lines()) {
            let comment = line.trim_start().strip_prefix("//").map(|it| it.trim_start_matches('/'));
            let comment = comment.map(|it| it.trim_start_matches('!').trim_start());
            if comment.is_some_and(|it| it.starts_with("```")) {
                is_drawing = !is_drawing;
            }
            let most = match comment {
                // Tables and drawings have no place to break.
                Some(it) if is_drawing || it.starts_with('|') => usize::MAX,
                Some(_) => COMMENT_COLUMNS,
                None => CODE_COLUMNS,
            };
            if line.chars().count() > most {
                wrong.push(format!("{}:{number}: more than {most} columns", path.display()));
            }
        }
    }
    expect_none(&wrong);
}

#[test]
fn the_readme_is_short() {
    let lines = text(&root().join("README.md")).lines().count();
    assert!(
        lines <= README_LINES,
        "README.md has {lines} lines, {README_LINES} at most: move text to docs/"
    );
}

#[test]
fn no_dependency_is_added_without_another_taken_away() {
    let locked = text(&root().join("Cargo.lock")).matches("\n[[package]]\n").count();
    assert!(
        locked == LOCKED_PACKAGES,
        "Cargo.lock has {locked} packages, not {LOCKED_PACKAGES}: if it is fewer, lower the \
         number; if it is more, do without, or take others away"
    );
}

#[test]
fn links_of_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for path in files(".", ".md") {
        let document = text(&path);
        let folder = path.parent().expect("a file is in a folder");
        for rest in document.split("](").skip(1) {
            let link = rest.split([')', ' ']).next().unwrap_or_default();
            if link.contains(':') {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { path.clone() } else { folder.join(file) };
            if !file.exists() {
                wrong.push(format!("{}: there is no {link}", path.display()));
            } else if !heading.is_empty() && !headings(&text(&file)).contains(&heading.to_owned()) {
                wrong.push(format!("{}: {link} has no such heading", path.display()));
            }
        }
    }
    expect_none(&wrong);
}

/// The headings of a document as links name them.
fn headings(document: &str) -> Vec<String> {
    let mut is_text = true;
    let lines = document.lines().filter(|line| {
        is_text ^= line.starts_with("```");
        is_text && line.starts_with('#')
    });
    let of = |line: &str| {
        let kept = |it: &char| it.is_alphanumeric() || " -_".contains(*it);
        let plain: String = line.trim_start_matches('#').trim().chars().filter(kept).collect();
        plain.to_lowercase().replace(' ', "-")
    };
    lines.map(of).collect()
}

#[test]
fn headings_are_those_of_links() {
    let document = "# One: `two` & three\n```\n# none\n```\n## A-b_c\n";
    assert_eq!(headings(document), ["one-two--three", "a-b_c"]);
}

#[test]
fn the_book_has_every_page_once() {
    let docs = root().join("docs");
    let summary = text(&docs.join("SUMMARY.md"));
    let mut wrong = Vec::new();
    for path in files("docs", ".md") {
        let name = path.strip_prefix(&docs).expect("it is inside").display().to_string();
        let times = summary.matches(&format!("]({name})")).count();
        if name != "SUMMARY.md" && times != 1 {
            wrong.push(format!("docs/SUMMARY.md has {name} {times} times"));
        }
    }
    expect_none(&wrong);
}

/// The words of the comments of product code, in lower case, with one space between two.
fn comments() -> String {
    let mut words = Vec::new();
    for (of, _) in FLOORS {
        for path in modules(of).into_values().flatten() {
            let source = text(&path);
            let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
            for line in lines {
                let plain = line.trim_start_matches(['/', '!', ' ']).to_lowercase();
                words.extend(plain.split_whitespace().map(str::to_owned));
            }
        }
    }
    words.join(" ")
}

#[test]
fn comments_name_their_subject() {
    let comments = format!(" {} ", comments().replace([',', '.', ':', ';', '(', ')'], " "));
    let comments = comments.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    for (word, most) in WORDS {
        let count = format!(" {comments} ").matches(&format!(" {word} ")).count();
        if count > most {
            wrong.push(format!(
                "comments say {word:?} {count} times, and {most} are left: name the thing instead"
            ));
        }
        if count < most {
            wrong.push(format!("comments say {word:?} {count} times: lower its number to that"));
        }
    }
    expect_none(&wrong);
}
