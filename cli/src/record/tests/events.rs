//! The reference page of events.jsonl: the kinds of events and their fields, with the doc comments
//! of both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use pstrain_compute::evaluation::{ClassFigures, Evaluation, Figures, ValueFigures};
use pstrain_compute::id::Version;
use pstrain_roles::node::{Event, Point};

use super::fields::{Field, Structs, Variant, between, variants};
use super::table;
use crate::tests::assert_page;

const EVENT: &str = include_str!("../../../../core/roles/src/node/event.rs");
const NODE: &str = include_str!("../../../../core/roles/src/node/mod.rs");
const EVALUATION: &str = include_str!("../../../../core/compute/src/evaluation.rs");
const FOLDER: &str = include_str!("../folder.rs");

/// Prints a variant as JSON has it.
type Form = fn(&Variant) -> String;

/// Enums whose variants are values of fields: name, source, and their form in JSON.
const WORDS: [(&str, &str, Form); 2] = [
    ("Departure", include_str!("../../../../core/wire/src/worker.rs"), Variant::snake_case),
    ("DropReason", include_str!("../../../../core/compute/src/decided.rs"), as_in_rust),
];

fn as_in_rust(variant: &Variant) -> String {
    variant.name.clone()
}

/// The names of the events that files with a line per gradient or update have.
fn told_elsewhere() -> Vec<&'static str> {
    let body = between(FOLDER, "fn is_told_elsewhere(", "\n}\n");
    body.split("Event::").skip(1).filter_map(|rest| rest.split(' ').next()).collect()
}

/// The fields of an evaluation, which are those of its figures, too.
fn of_evaluation(structs: &Structs) -> Vec<(String, String)> {
    let mut rows = structs.keys("Evaluation");
    rows.retain(|(name, _)| name != "figures");
    let of_classes = structs.keys("ClassFigures").into_iter();
    let of_classes = of_classes.filter(|(name, _)| name != "confusion[]");
    rows.extend(
        of_classes.map(|(name, about)| (name, format!("If classes are predicted: {about}"))),
    );
    let of_values = structs.keys("ValueFigures").into_iter();
    rows.extend(
        of_values.map(|(name, about)| (name, format!("If numbers are predicted: {about}"))),
    );
    rows.push(("NAME".into(), "The metrics that a compute process names".into()));
    rows
}

fn rows(structs: &Structs, fields: &[Field]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for Field { name, kind, about, is_flat } in fields {
        let words = WORDS.iter().find(|(of, ..)| of == kind);
        match (kind.as_str(), words) {
            ("Evaluation", _) => rows.extend(of_evaluation(structs)),
            _ if *is_flat => rows.extend(structs.keys(kind)),
            ("KeyRange", _) => {
                rows.push((name.clone(), format!("{about}: the first, and the one after the last")))
            }
            (_, Some((_, source, form))) => {
                let words = variants(source, kind);
                let words = words.iter().map(|it| format!("`{}` ({})", form(it), it.about));
                let words: Vec<String> = words.collect();
                rows.push((name.clone(), format!("{about}: {}", words.join(", "))));
            }
            _ => rows.push((name.clone(), about.clone())),
        }
    }
    rows
}

/// The kinds of events in the file, by name, with what they say and their fields.
fn events() -> BTreeMap<String, (String, Vec<(String, String)>)> {
    let structs = Structs::of(&[NODE, EVALUATION]);
    let elsewhere = told_elsewhere();
    variants(EVENT, "Event")
        .into_iter()
        .filter(|it| !elsewhere.contains(&it.name.as_str()))
        .filter(|it| !it.about.starts_with("Worker's side: "))
        .map(|it| (it.snake_case(), (it.about.clone(), rows(&structs, &it.fields))))
        .collect()
}

fn page() -> String {
    let structs = Structs::of(&[FOLDER]);
    let of_line = |name: &str| (name.to_owned(), structs.about("Line", name));
    let kind = ("event".to_owned(), "The kind: one of the headings below".to_owned());
    let of_all = [of_line("at_s"), kind, of_line("refused_before")];
    let mut page = format!(
        "# Events\n\n`events.jsonl` in a [results folder](../results.md) has one JSON object a line, \
         for each event of a server that is rare. What happens with every gradient is in \
         `timeline.csv` and in [`order.log`](order-log.md). This page is generated from the program.\n\n\
         Workers, servers and parts of the data are counted from 1. Names that end in `_s` are \
         seconds. Every object has\n{}",
        table(of_all)
    );
    for (name, (about, fields)) in events() {
        let _infallible = write!(page, "\n## {name}\n\n{about}.\n");
        if !fields.is_empty() {
            page.push_str(&table(fields));
        }
    }
    page
}

#[test]
fn the_page_of_events_has_every_kind_and_field() {
    assert_page("events", &page());
}

#[test]
fn an_evaluation_is_written_with_the_fields_of_the_page() {
    let (_, fields) = &events()["evaluated"];
    let fields = fields.iter().map(|(name, _)| name.trim_end_matches("[]"));
    let fields: Vec<&str> = fields.collect();
    let of_classes = ClassFigures { auc: Some(0.5), ..ClassFigures::default() };
    let point = Point { version: Version(0), samples: 0, epoch: 0.0, time: Duration::ZERO };
    let (mut left, named) = (fields.clone(), [("NAME".to_owned(), 1.0)]);
    for figures in [
        Figures::Classes(of_classes),
        Figures::Value(ValueFigures::default()),
        Figures::Named(named.into_iter().collect()),
    ] {
        let consensus_distance = Some(0.5);
        let evaluation = Evaluation { figures, consensus_distance, ..Evaluation::default() };
        let written = serde_json::to_value(Event::Evaluated { point, evaluation }).unwrap();
        for key in written.as_object().unwrap().keys().filter(|key| *key != "event") {
            assert!(fields.contains(&key.as_str()), "{key}");
            left.retain(|name| name != key);
        }
    }
    assert!(left.is_empty(), "{left:?} are never written");
}
