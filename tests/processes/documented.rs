//! Every command of README.md, docs/ and deploy/README.md works. Each is run here, on small data
//! and with all machines on this one, or listed with the reason why it is not run.

mod page;
mod stage;

use std::collections::{BTreeMap, BTreeSet};

use page::{Commands, Page, root, words};
use serde_json::Value;
use stage::Stage;

use crate::process::finish;

/// Prefixes of commands that are not run, and the reason.
const LISTED: &[(&str, &str)] = &[
    ("cargo ", "builds and tests the program itself"),
    ("rustup ", "installs a compiler"),
    ("apt-get ", "installs packages"),
    ("tests/edge/", "builds for other processors: .ci/edge runs it"),
    ("STATIC=1 tests/edge/", "builds for other processors: .ci/edge runs it"),
    ("FEATURES=", "builds for other processors: .ci/edge runs it"),
    ("tests/measure/", "measures for minutes"),
    ("docs/recordings/", "records for a minute: python/tests runs the recorder"),
    ("tests/netem/", "needs a virtual machine: .ci/netem runs it"),
    ("PYTHON=", "needs the other systems in a Python environment"),
    ("python3 tests/peers/", "needs the other systems in a Python environment"),
    ("sbatch ", "needs Slurm: .ci/deploy runs it"),
    ("srun ", "needs Slurm: .ci/deploy runs it"),
    ("deploy/release.sh", "builds a release: .ci/deploy runs it"),
    ("sha256sum ", "needs a release: .ci/deploy makes one"),
    ("tar ", "needs a release: .ci/deploy unpacks one"),
    ("dpkg ", "needs a release, and root: .ci/deploy installs one"),
    ("man ", "needs an installed manual: .ci/deploy reads one"),
    ("pip ", "builds the program itself: python/tests/wheel.sh"),
    ("deploy/", "needs MPI or torchrun: .ci/deploy runs it"),
    ("install ", "needs root and systemd: .ci/deploy runs the units"),
    ("cp ", "needs root and systemd: .ci/deploy runs the units"),
    ("systemctl ", "needs root and systemd: .ci/deploy runs the units"),
    ("echo ", "needs root and systemd: .ci/deploy runs the units"),
    ("podman ", "needs a container engine: .ci/deploy builds the image"),
    ("kubectl ", "needs a cluster: .ci/deploy checks the manifest"),
    ("pstrain cert psk key && kubectl ", "needs a cluster: .ci/deploy checks the manifest"),
    ("pstrain bench", "measures for minutes: tools.rs runs a part of it"),
    ("pstrain top ", "draws on a terminal: its picture has tests of its own"),
    ("pstrain validate validation", "takes minutes of real time"),
    ("pstrain run --data synthetic:1000 --model timing:100000000 ", "takes gigabytes of memory"),
];

fn is_listed(command: &str) -> bool {
    LISTED.iter().any(|(begin, _)| command.starts_with(begin))
}

/// Returns the commands of a page to run, by block, each block with its place.
fn played(page: &Page) -> Vec<(String, Vec<String>)> {
    let of = |block: Commands| {
        let Commands { place, mut commands } = block;
        commands.retain(|command| !is_listed(command));
        for command in &commands {
            assert!(
                command.starts_with("pstrain "),
                "{place}: {command:?} is neither pstrain's nor listed in documented.rs; say in the \
                 language of the block if it is no command (text)"
            );
        }
        (place, commands)
    };
    let blocks = page.commands().into_iter().map(of);
    blocks.filter(|(_, commands)| !commands.is_empty()).collect()
}

#[test]
fn every_command_of_the_readme_works() {
    let mut stage = Stage::new();
    for (place, commands) in played(&Page::readme()) {
        // Printed only if the test fails.
        println!("{place}: {commands:#?}");
        stage.play(&commands);
    }
}

#[test]
fn every_command_of_the_other_pages_works() {
    let mut stage = Stage::new();
    for (place, commands) in Page::others().iter().flat_map(played) {
        println!("{place}: {commands:#?}");
        stage.play(&commands);
    }
}

#[test]
fn every_command_that_is_not_run_is_still_documented() {
    let blocks = Page::all().into_iter().flat_map(|page| page.commands());
    let all: Vec<String> = blocks.flat_map(|block| block.commands).collect();
    for (begin, why) in LISTED {
        assert!(
            all.iter().any(|it| it.starts_with(begin)),
            "no command begins with {begin:?} ({why})"
        );
    }
}

#[test]
fn commands_named_in_prose_exist_and_have_the_named_flags() {
    let experiments = finish(&["experiment", "list"]).with_code(0).stdout;
    let experiments: BTreeSet<&str> =
        experiments.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut helps: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for (place, command) in Page::all().into_iter().flat_map(|page| page.named()) {
        let words = words(&command);
        let is_name = |word: &&String| word.bytes().all(|byte| byte.is_ascii_lowercase());
        let nested = ["experiment", "data", "cert", "control"].contains(&words[1].as_str());
        let chain = words[1..].iter().take_while(is_name).take(1 + usize::from(nested));
        let chain: Vec<String> = chain.cloned().collect();
        let help = helps.entry(chain.clone()).or_insert_with(|| {
            let mut args: Vec<&str> = chain.iter().map(String::as_str).collect();
            args.push("--help");
            finish(&args).with_code(0).stdout
        });
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag.as_str()), "{place}: `{command}`: there is no {flag}");
        }
        if let ["experiment", "run" | "show"] =
            chain.iter().map(String::as_str).collect::<Vec<_>>()[..]
            && let Some(name) = words.get(3).filter(|name| *name != "NAME")
        {
            assert!(
                experiments.contains(name.as_str()),
                "{place}: `{command}`: there is no {name}"
            );
        }
    }
}

#[test]
fn the_pages_of_experiments_are_of_the_shipped_specifications() {
    let pages = Page::of_experiments();
    assert!(!pages.is_empty());
    for (name, page) in pages {
        let shown = finish(&["experiment", "show", &name]).with_code(0).stdout;
        let title = shown.lines().find_map(|line| line.strip_prefix("title = \"")).unwrap();
        let claims = shown.lines().filter(|line| *line == "[[claim]]").count();
        let data = if name.starts_with("auto-") { " --data nsl-kdd" } else { "" };
        let mut expected = vec![
            format!("# {}\n", title.trim_end_matches('"')),
            format!("pstrain experiment run {name}{data} --out results/{name}\n"),
            " (commit ".to_owned(),
        ];
        if claims > 0 {
            expected.push(format!("**{claims} claims: "));
        }
        for part in &expected {
            assert!(
                page.contains(part.as_str()),
                "docs/experiments/{name}.md lacks {part:?}: make it again with generate.sh"
            );
        }
    }
}

#[test]
fn the_rust_of_the_readme_is_that_of_the_example() {
    let example = root().join("docs/examples/own-model/src/main.rs");
    let example = std::fs::read_to_string(example).unwrap();
    for line in Page::readme().lines_in("rust") {
        let is_there = example.lines().any(|it| it == line) || line.trim() == "// ...";
        assert!(is_there, "the example has no line {line:?}");
    }
}

/// Collects the paths of all values of a report.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            keys(value, &format!("{path}{dot}{name}"), found);
        }),
        Value::Array(items) => items.iter().for_each(|it| keys(it, &format!("{path}[]"), found)),
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// True if a path is a described one, in which `NAME` stands for any name.
fn is_described(path: &str, described: &str) -> bool {
    let (path, described) = (path.split('.'), described.split('.'));
    path.clone().count() == described.clone().count()
        && path.zip(described).all(|(name, known)| name == known || known == "NAME")
}

#[test]
fn every_key_and_column_of_results_is_in_the_reference() {
    let folder = tempfile::TempDir::new().unwrap();
    let out = folder.path().join("out");
    finish(&[
        "simulate",
        "--data=synthetic:2000",
        "--epochs=1",
        "--compute=5ms",
        "--link=all.delay=1ms standby.delay=1ms",
        "--link=server.rate=1gbit",
        "--faults=server.crash@30ms",
        "--lease=1s",
        "--out",
        out.to_str().unwrap(),
    ])
    .with_code(0);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let summary = serde_json::from_str(&read("summary.json")).unwrap();
    let mut found = BTreeSet::new();
    keys(&summary, "", &mut found);
    assert!(found.contains("failover.failures[].at_s") && found.contains("workers[].id"));
    for table in ["curve.csv", "timeline.csv", "staleness.csv"] {
        let text = read(table);
        found.extend(text.lines().next().unwrap().split(',').map(str::to_owned));
    }
    let page = Page::read("docs/reference/results.md");
    let described = page.described();
    for key in &found {
        let is_there = described.iter().any(|it| is_described(key, it));
        assert!(is_there, "docs/reference/results.md has no {key}");
    }
}
