//! The layout of the code: imports inside a crate run one way, from higher floors to lower ones.

#![expect(clippy::expect_used, reason = "a failure here fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of `core`, the lowest floor first. A module imports from lower floors alone.
const CORE: [&[&str]; 11] = [
    &["id", "rng", "simd", "sum", "time", "codec"],
    &["task", "identity", "params", "reference", "rules", "saved", "coding"],
    &["decided", "examples", "optim"],
    &["consistency", "fingerprint", "filter", "model"],
    &["evaluation", "mode"],
    &["aggregate", "auto"],
    &["job"],
    &["trainer", "work"],
    &["protocol"],
    &["store"],
    &["node"],
];

/// The product code of a crate by module of its root: files of tests are left out.
fn modules(root: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut modules: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the source") {
            let path = entry.expect("an entry of the folder").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a plain name");
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(root).expect("it is inside").with_extension("");
            let first = inside.components().next().expect("a file has a name");
            let module = first.as_os_str().to_str().expect("a plain name").to_owned();
            modules.entry(module).or_default().push(path);
        }
    }
    modules.remove("lib");
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

/// The modules of the root that a source names, each once.
fn imports(source: &str) -> Vec<&str> {
    let rest = source.split("crate::").skip(1);
    let is_end = |it: char| !(it.is_alphanumeric() || it == '_');
    let mut names: Vec<&str> =
        rest.map(|text| &text[..text.find(is_end).unwrap_or(text.len())]).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn imports_of_core_run_downward() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src");
    let floors: BTreeMap<&str, usize> = (0..)
        .zip(CORE)
        .flat_map(|(floor, modules)| modules.iter().map(move |module| (*module, floor)))
        .collect();
    let mut wrong = Vec::new();
    for (module, files) in modules(&root) {
        let Some(floor) = floors.get(module.as_str()) else {
            wrong.push(format!("core/src/{module} has no floor: add it to CORE in tests/tidy.rs"));
            continue;
        };
        for file in files {
            let source = fs::read_to_string(&file).expect("a source");
            for name in imports(&product(&source)) {
                if name != module && floors.get(name).is_some_and(|other| other >= floor) {
                    wrong.push(format!(
                        "{} imports {name}, which is not below {module}: move the name that both \
                         need to a lower module",
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_and_tests_import_nothing() {
    let source =
        "use crate::one::Name;\n// crate::two\n#[cfg(test)]\nmod tests {\n use crate::three;\n}";
    assert_eq!(imports(&product(source)), ["one"]);
    assert_eq!(imports("crate::b::X, crate::a, crate::b"), ["a", "b"]);
}
