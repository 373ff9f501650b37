//! Experiments with made-up runs: what no run has to be made for.

mod folders;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::claims::{Finding, decide};
use super::execute::Execute;
use super::record::{CurvePoint, Record};
use super::*;
use crate::picture::{Mark, Picture};

const SWEEP: &str = "
name = 'made-up'
title = 'Made up'
reps = 3
[job]
epochs = 2
seed = 40
[[axis]]
name = 'consistency'
values = ['bsp', 'asp']
[[axis]]
name = 'delay'
unit = 'ms'
values = [1, 10, 100]
set = { link = '2.delay={}ms' }
[[picture]]
file = 'line'
title = 'Line'
kind = 'line'
x = 'delay'
y = 'time_s'
lines = ['consistency']
[[picture]]
file = 'curve'
title = 'Curve'
kind = 'curve'
x = 'epoch'
y = 'accuracy'
lines = ['consistency']
where = { delay = 100 }
[[picture]]
file = 'bar'
title = 'Bars'
kind = 'bar'
x = 'consistency'
y = 'accuracy'
lines = ['delay']
[[picture]]
file = 'map'
title = 'Map'
kind = 'heatmap'
x = 'delay'
y = 'consistency'
value = 'epoch to accuracy 0.9'
";

fn spec(more: &str) -> Spec {
    let mut spec = Spec::parse("made-up.toml", &format!("{SWEEP}{more}")).unwrap();
    resolve(&mut spec, &[]).unwrap();
    spec
}

/// A run that depends on nothing but its settings: async is faster and never gets beyond 0.8.
#[derive(Debug, Default)]
struct MadeUp {
    /// Raises the flag when so many runs have been asked for.
    stop_after: Option<usize>,
    asked: Mutex<Vec<(usize, u32)>>,
}

impl Execute for MadeUp {
    fn execute(&self, run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Record>> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((run.cell.index, run.rep));
        if self.stop_after.is_some_and(|after| asked.len() >= after) {
            stop.store(true, Ordering::Relaxed);
        }
        drop(asked);
        let layers = run.layers()?;
        let delay: f64 =
            layers.text("link").trim_start_matches("2.delay=").trim_end_matches("ms").parse()?;
        let sync = layers.text("consistency") == "bsp";
        let time = if sync { 100.0 + delay } else { 50.0 + delay / 3.0 } + run.seed as f64 * 1e-3;
        let best = if sync { 0.99 } else { 0.8 };
        let mut record = run.record();
        record.metrics = [("accuracy", best), ("time_s", time)]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        record.texts.insert("ended".into(), "the budget is used up".into());
        record.curve = (1..=10)
            .map(|epoch| CurvePoint {
                version: epoch,
                samples: epoch * 10,
                epoch: epoch as f64,
                time_s: time * epoch as f64 / 10.0,
                accuracy: Some(best * (1.0 - 0.5_f64.powi(epoch as i32))),
                loss: None,
            })
            .collect();
        record.staleness = BTreeMap::from([(0, 5), (1, run.seed)]);
        record.link_use.up = vec![(0.5, 1.0)];
        Ok(Some(record))
    }
}

fn about() -> About {
    let environment = Environment::here("pstrain".into());
    About { mode: Mode::VirtualTime, environment, calibration: None }
}

/// Makes the runs that `folder` lacks; says how many are missing still.
fn make(folder: &Path, spec: &Spec, jobs: usize, execute: &MadeUp) -> usize {
    let cells = cells(spec);
    let store = Store::create(folder, spec, &about(), false).unwrap();
    let there = store.records(cells.len(), spec.reps).unwrap();
    let mut runs = Vec::new();
    for rep in 0..spec.reps {
        runs.extend(cells.iter().map(|cell| Run::new(spec, cell, rep).unwrap()));
    }
    let all = runs.len();
    runs.retain(|run| !there.contains_key(&(run.cell.index, run.rep)));
    let stop = AtomicBool::new(false);
    let runner = Runner { spec, cells: &cells, store: &store, jobs, quiet: true, stop: &stop };
    let missing = runner.make(&runs, all, execute).unwrap();
    report(&store, spec).unwrap();
    missing
}

/// Every file of a results folder but those that say when and where it was made.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for below in ["", "runs", "pictures"] {
        for entry in std::fs::read_dir(folder.join(below)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if path.is_file() && !["environment.json", "report.html"].contains(&name.as_str()) {
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn findings(claims: &str) -> Vec<Finding> {
    let spec = spec(claims);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(make(folder.path(), &spec, 1, &MadeUp::default()), 0);
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let records = store.records(cells.len(), spec.reps).unwrap();
    decide(&Runs { spec: &spec, cells: &cells, records })
}

fn table(rows: &str, column: &str) -> String {
    format!("[[table]]\nfile = 'x'\ntitle = 'x'\n{rows}\n[[table.column]]\ntitle = 'x'\n{column}\n")
}

fn claim(measured: &str, holds: &str) -> String {
    format!("[[claim]]\ntext = 'x'\nmeasured = '{measured}'\nholds = '{holds}'\n")
}

#[test]
fn an_interrupted_experiment_goes_on_and_ends_as_if_it_had_not_been() {
    let spec = spec(&claim("{time_s; consistency=bsp, delay=1}", "measured > 0"));
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_eq!(make(whole.path(), &spec, 1, &MadeUp::default()), 0);

    let first = MadeUp { stop_after: Some(7), ..MadeUp::default() };
    assert_eq!(make(parts.path(), &spec, 1, &first), 18 - 7);
    assert!(files(whole.path()) != files(parts.path()));
    let second = MadeUp::default();
    assert_eq!(make(parts.path(), &spec, 1, &second), 0);
    assert_eq!(second.asked.into_inner().unwrap().len(), 18 - 7, "no run is made twice");
    let (whole, parts) = (files(whole.path()), files(parts.path()));
    assert!(whole.keys().eq(parts.keys()), "{:?} {:?}", whole.keys(), parts.keys());
    for (name, content) in &whole {
        assert!(parts[name] == *content, "{name} differs");
    }
    assert!(whole.contains_key("pictures/map.png") && whole.contains_key("staleness.csv"));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let spec = spec("");
    let (one, three) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(one.path(), &spec, 1, &MadeUp::default());
    make(three.path(), &spec, 3, &MadeUp::default());
    assert!(files(one.path()) == files(three.path()));
}

#[test]
fn the_resolved_specification_makes_the_same_runs() {
    let before = spec("");
    let again = Spec::parse("spec.toml", &before.to_toml().unwrap()).unwrap();
    let mut resolved = again.clone();
    resolve(&mut resolved, &[]).unwrap();
    assert_eq!(cells(&before), cells(&again));
    assert_eq!(cells(&before), cells(&resolved));
    let cells = cells(&before);
    assert_eq!(cells[5].job["name"], "made-up");
    assert_eq!(cells[5].job["batch-size"], "64");
    let run = Run::new(&before, &cells[5], 2).unwrap();
    assert_eq!(run.seed, 42);
    assert_eq!(run.layers().unwrap().text("seed"), "42");
}

#[test]
fn claims_are_decided_by_the_runs() {
    let claims = [
        // 101.04 / 50.37, 200.04 / 83.37
        claim(
            "{time_s; consistency=bsp, delay=1} / {time_s; consistency=asp, delay=1}",
            "measured > 2",
        ),
        claim(
            "{time_s; consistency=bsp, delay=1} / {time_s; consistency=asp, delay=1}",
            "measured > 3",
        ),
        claim("{range time_s over delay; consistency=bsp}", "abs(measured - 99) < 1e-6"),
        claim(
            "{argmax time_s over delay; consistency=bsp}",
            "measured > 99 && {rising time_s over delay; consistency=asp}",
        ),
        claim("{accuracy @ epoch=1; consistency=bsp, delay=1}", "abs(measured - 0.495) < 1e-9"),
        claim("{sd time_s; consistency=bsp, delay=1}", "abs(measured - 0.001) < 1e-9"),
        claim("{setting link.2.delay; consistency=bsp, delay=100}", "abs(measured - 0.1) < 1e-9"),
    ];
    let found = findings(&claims.concat());
    let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict).collect();
    let mut expected = [Verdict::Holds; 7];
    expected[1] = Verdict::DoesNotHold;
    assert_eq!(verdicts, expected, "{found:#?}");
    assert_eq!(found[0].measured, "2.006");
    assert!(found[1].why.is_empty());
}

#[test]
fn labels_say_what_the_runs_say() {
    let spec = spec("[define]\nslow = '{time_s; consistency=bsp, delay=100}'\n");
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &spec, 1, &MadeUp::default());
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let records = store.records(cells.len(), spec.reps).unwrap();
    let runs = Runs { spec: &spec, cells: &cells, records };
    let filled = |text| claims::filled(&runs, text);
    assert_eq!(filled("up to [slow] s, half of it [slow / 2] s"), "up to 200 s, half of it 100 s");
    assert_eq!(
        filled("[{loss; consistency=bsp, delay=1}] [, ] and none"),
        "unknown unknown and none"
    );
    assert_eq!(filled("a [ b"), "a [ b");
}

#[test]
fn a_claim_may_be_decided_at_every_place() {
    // bsp/asp: 101.04 / 50.37, 110.04 / 53.37, 200.04 / 83.37: 2.006, 2.062, 2.399.
    let ratio = "{time_s; consistency=bsp} / {time_s; consistency=asp}";
    let each = |share: &str, holds: &str| claim(ratio, holds) + "each = ['delay']\n" + share;
    let found = findings(
        &[
            each("", "measured > 2"),
            each("worst = 'least'\n", "measured > 2.03"),
            each("share = 0.6\n", "measured > 2.03"),
            each("share = 0.6\n", "measured > 2.3"),
        ]
        .concat(),
    );
    let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict).collect();
    let (yes, no) = (Verdict::Holds, Verdict::DoesNotHold);
    assert_eq!(verdicts, [yes, no, yes, no], "{found:#?}");
    assert_eq!(found[0].measured, "holds in 3 of 3; at worst 2.399 (delay 100 ms)");
    assert_eq!(found[1].measured, "holds in 2 of 3; at worst 2.006 (delay 1 ms)");
    assert_eq!(found[1].why, "not at delay 1 ms");
    // Of runs that never get there, what is certain is said.
    let to = |target: &str, holds: &str| {
        let measured = format!("{{time_s to accuracy {target}; consistency=asp}}");
        claim(&measured, holds) + "each = ['delay']\n"
    };
    let found = findings(&[to("0.9", "measured > 10"), to("0.9", "measured > 70")].concat());
    assert_eq!(found[0].verdict, yes, "{:?}", found[0]);
    assert_eq!(found[1].verdict, Verdict::CannotBeTold, "{:?}", found[1]);
}

#[test]
fn the_best_over_an_axis_is_found_among_those_that_get_there() {
    let best = "min reached time_s to accuracy 0.9 over consistency";
    let table = format!(
        "[[table]]\nfile = 'best'\ntitle = 'Best'\nrows = ['delay']\n\
         column = [{{ title = 'best', which = 'arg{best}' }}, \
         {{ title = 'time', unit = 's', value = '{{{best}}}' }}, \
         {{ title = 'but', which = 'argmax accuracy over consistency but bsp' }}]\n"
    );
    let spec = spec(&table);
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &spec, 1, &MadeUp::default());
    let csv = std::fs::read_to_string(folder.path().join("tables/best.csv")).unwrap();
    // Sync is at 0.9 on average of three after 5 epochs of 10; async never is.
    assert_eq!(
        csv,
        "delay (ms),best,time (s),but\n1,bsp,50.52,asp\n10,bsp,55.02,asp\n100,bsp,100,asp\n"
    );
    // Async ended before sync got there: it might have been the first, had it gone on.
    let all = "{min time_s to accuracy 0.9 over consistency; delay=1}";
    let none = "{min reached time_s to accuracy 0.9 over consistency but bsp; delay=1}";
    let found = findings(&[claim(all, "measured > 50"), claim(none, "measured > 0")].concat());
    assert_eq!(found[0].measured, "50.37 to 50.52");
    assert_eq!(found[1].why, "not every repetition reaches what is asked");
}

#[test]
fn pictures_show_what_is_asked_for_and_nothing_that_was_not_reached() {
    let spec = spec(
        "[[picture]]\nfile = 'use'\ntitle = 'Use'\nkind = 'usage'\nx = 'time_s'\ny = 'up'\nto = 2\n\
         lines = ['consistency']\nwhere = { delay = 10 }\n\
         [[picture]]\nfile = 'ratio'\ntitle = 'Ratio'\nkind = 'bar'\nx = 'delay'\n\
         y = '{time_s; consistency=asp} / {time_s; consistency=bsp}'\ny-label = 'Ratio'\n\
         among = { delay = [1, 100] }\n\
         [[picture]]\nfile = 'ratios'\ntitle = 'Ratios'\nkind = 'heatmap'\nx = 'delay'\n\
         y = 'consistency'\nvalue = '{time_s} / {min time_s over delay}'\nvalue-label = 'Ratio'\n\
         [[picture]]\nfile = 'to'\ntitle = 'To'\nkind = 'bar'\nx = 'consistency'\n\
         y = 'epoch to accuracy 0.9'\nwhere = { delay = 1 }\n",
    );
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), &spec, 1, &MadeUp::default());
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let records = store.records(cells.len(), spec.reps).unwrap();
    let runs = Runs { spec: &spec, cells: &cells, records };
    let drawn = draw::draw(&runs).unwrap();
    let found = |file: &str| &drawn.iter().find(|drawn| drawn.file == file).unwrap().picture;

    let Picture::Chart(usage) = found("use") else { panic!("no chart") };
    let of = |line: usize, at: f64| {
        let marks = &usage.series[line].marks;
        let near = |mark: &&Mark| (mark.x - at).abs() < 0.01;
        marks.iter().find(near).unwrap().y
    };
    // In use from 0.5 to 1 s.
    assert_eq!([of(0, 0.3), of(0, 1.2)], [0.0, 0.0]);
    assert!((of(0, 0.7) - 1.0).abs() < 1e-9, "{}", of(0, 0.7));
    let Picture::Bars(ratio) = found("ratio") else { panic!("no bars") };
    assert_eq!(ratio.x.names, ["1", "100"]);
    let heights: Vec<_> = ratio.series[0].bars.iter().map(|bar| bar.unwrap().value).collect();
    assert!((heights[0] - 50.37 / 101.04).abs() < 1e-3, "{heights:?}");
    assert!((heights[1] - 83.37 / 200.04).abs() < 1e-3, "{heights:?}");
    let Picture::HeatMap(ratios) = found("ratios") else { panic!("no map") };
    assert_eq!(ratios.values[0][0], Some(1.0));
    assert!((ratios.values[0][2].unwrap() - 200.04 / 101.04).abs() < 1e-3);
    // Async never gets there.
    let Picture::Bars(to) = found("to") else { panic!("no bars") };
    assert!(to.series[0].bars[0].is_some() && to.series[0].bars[1].is_none());
}

#[test]
fn what_was_cut_short_or_is_missing_is_not_guessed() {
    // Async ends after 10 epochs at 0.8; sync is at 0.9 on average of three after 5.
    let ratio = "{epoch to accuracy 0.9; consistency=asp, delay=1} / {epoch to accuracy 0.9; consistency=bsp, delay=1}";
    let claims = [
        claim(ratio, "measured >= 1.5"),
        claim(ratio, "measured >= 3"),
        claim("{recall.U2R; consistency=asp, delay=1}", "measured > 0"),
        claim("{tim_s; consistency=asp, delay=1}", "measured > 0"),
        claim("{accuracy @ epoch=50; consistency=asp, delay=1}", "measured > 0"),
        claim("{time_s; consistency=asp, delay=1} / 0", "measured > 0"),
    ];
    let found = findings(&claims.concat());
    assert_eq!(found[0].verdict, Verdict::Holds, "{:?}", found[0]);
    assert!(found[0].measured.starts_with("> 2"), "{:?}", found[0]);
    assert_eq!(found[0].value, None);
    for (number, why) in [
        (1, "ended before they reached"),
        (2, "there is no metric \"recall.U2R\""),
        (3, "did you mean \"time_s\""),
        (4, "the curve ends"),
        (5, "what is measured is no number"),
    ] {
        assert_eq!(found[number].verdict, Verdict::CannotBeTold, "{:?}", found[number]);
        assert!(found[number].why.contains(why), "{:?}", found[number]);
    }
}

#[test]
fn what_is_shipped_can_be_run() {
    for shipped in pstrain_data::experiments() {
        let mut spec = Spec::find(shipped.name).unwrap();
        assert_eq!(spec.name, shipped.name);
        resolve(&mut spec, &[]).unwrap();
        for cell in &cells(&spec) {
            check_settings(&Run::new(&spec, cell, 0).unwrap()).unwrap();
        }
    }
    for (name, count, runs) in
        [("paeleke-fig1", 4, 80), ("paeleke-fig2", 18, 360), ("paeleke-outlook", 462, 1386)]
    {
        let spec = Spec::find(name).unwrap();
        let count_made = cells(&spec).len();
        assert_eq!((count_made, count_made * spec.reps as usize), (count, runs), "{name}");
    }
}

#[test]
fn a_setting_of_every_run_may_be_given_but_not_one_that_is_swept() {
    let mut spec = Spec::parse("x", SWEEP).unwrap();
    let set = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    resolve(&mut spec, &set("link", "1.delay=3ms")).unwrap();
    assert_eq!(cells(&spec)[1].job["link"], "1.delay=3ms 2.delay=10ms");
    let refused = resolve(&mut spec, &set("consistency", "asp")).unwrap_err().to_string();
    assert!(refused.contains("axis consistency"), "{refused}");
    let refused = resolve(&mut spec, &set("epoch", "3")).unwrap_err().to_string();
    assert!(refused.contains("did you mean \"epochs\""), "{refused}");
    resolve(&mut spec, &set("data", "some/file.txt")).unwrap();
    assert!(Path::new(&spec.job["data"].0).is_absolute());
}

#[test]
fn a_bad_setting_is_found_before_anything_is_run() {
    let text = SWEEP.replace("'bsp', 'asp'", "'bsp', 'lockstep'");
    let mut spec = Spec::parse("x", &text).unwrap();
    resolve(&mut spec, &[]).unwrap();
    let cells = cells(&spec);
    let check = |cell: &Cell| check_settings(&Run::new(&spec, cell, 0).unwrap());
    check(&cells[0]).unwrap();
    let said = format!("{:#}", check(&cells[3]).unwrap_err());
    assert!(said.contains("consistency=lockstep delay=1") && said.contains("asp"), "{said}");
}

#[test]
fn what_is_wrong_with_a_specification_is_said() {
    for (from, to, said) in [
        ("title", "titel", "unknown field `titel`"),
        ("'made-up'", "'made up'", "letters, digits"),
        ("reps = 3", "reps = 0", "at least one"),
        ("epochs = 2", "epoch = 2", "did you mean \"epochs\""),
        ("epochs = 2", "epochs = [2]", "a number, a text or a list of texts"),
        ("epochs = 2", "consistency = 'bsp'", "and [job] too"),
        ("name = 'delay'", "name = 'consistency'", "two of this name"),
        ("[1, 10, 100]", "[1, 1]", "twice"),
        ("[1, 10, 100]", "[]", "no values"),
        ("{ link = '2.delay={}ms' }", "{ link = '2.delay=1ms' }", "has no {}"),
        (
            "{ link = '2.delay={}ms' }",
            "{ consistency = 'ssp:{}' }",
            "makes the setting consistency",
        ),
        ("set = { link = '2.delay={}ms' }", "labels = ['a']", "3 values have 1 labels"),
        ("set = { link = '2.delay={}ms' }", "", "no setting \"delay\""),
        ("file = 'curve'", "file = 'line'", "two pictures called \"line\""),
        ("where = { delay = 100 }", "", "what of the axis delay"),
        ("where = { delay = 100 }", "where = { delay = 7 }", "never is \"7\", but 1, 10, 100"),
        ("lines = ['consistency']", "lines = ['policy']", "no axis \"policy\""),
        ("kind = 'curve'", "kind = 'pie'", "unknown variant `pie`"),
        ("kind = 'heatmap'", "kind = 'heatmap'\nfrom = 1", "has no `from`"),
        ("kind = 'bar'", "kind = 'bar'\namong = { delay = [] }", "names some values"),
        ("value = 'epoch to accuracy 0.9'", "value = 'epoch to'", "no metric"),
        ("y = 'time_s'", "y = 'setting epoch'", "did you mean \"epochs\""),
        ("y = 'time_s'", "y = 'time_s'\nx-label = 'at [fast]'", "of consistency"),
        ("value = 'epoch to accuracy 0.9'", "value = '{time_s; delay=3}'", "never is \"3\""),
        ("kind = 'curve'", "kind = 'usage'", "usage shows up or down"),
        ("kind = 'line'", "kind = 'line'\nto = 3", "to is for usage"),
        ("unit = 'ms'", "unit = 'ms'\nsettings = { 7 = {} }", "settings: delay never is \"7\""),
        ("unit = 'ms'", "unit = 'ms'\nsettings = { 1 = {} }", "settings: it has none of \"10\""),
        (
            "unit = 'ms'",
            "unit = 'ms'\nsettings = { 1 = { epoch = 1 }, 10 = {}, 100 = {} }",
            "did you mean \"epochs\"",
        ),
    ] {
        let text = SWEEP.replacen(from, to, 1);
        assert!(text != SWEEP, "{from}");
        let error = Spec::parse("my.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("my.toml") && error.contains(said), "{to}: {error}");
    }
    for (claim, said) in [
        (claim("{time_s; consistency=bsp}", "measured > 1"), "names no value of delay"),
        (claim("{time_s; policy=bsp}", "measured > 1"), "no axis \"policy\""),
        (claim("{time_s; consistency=bsp, delay=2}", "measured > 1"), "never is \"2\""),
        (claim("{max time_s; consistency=bsp}", "measured > 1"), "max of what"),
        (claim("{time_s over delay; consistency=bsp}", "measured > 1"), "over an axis, begin with"),
        (claim("1 +", "measured > 1"), "no expression"),
        (claim("9e999", "measured > 1"), "no expression"),
        (claim(&"1+".repeat(6000), "measured > 1"), "measured has 12000 characters"),
        (claim("a", "measured > 1"), "names no value of consistency"),
        (claim("a", "measured > 1") + "[define]\na = 'b'\nb = '1 + a'\n", "defined by itself"),
        ("[[exclude]]\nconsistency = 'ssp'\n".into(), "never is \"ssp\""),
        (claim("1", "measured > 0") + "each = ['policy']\n", "no axis \"policy\""),
        (claim("1", "measured > 0") + "share = 0.5\n", "share is for claims with `each`"),
        (claim("1", "measured > 0") + "each = ['delay']\nshare = 2\n", "up to 1"),
        (claim("{time_s; delay=1}", "1 > 0") + "each = ['delay']\n", "no value of consistency"),
        (
            claim("{min time_s over delay but 1, 10, 100; consistency=bsp}", "1 > 0"),
            "leaves out all values",
        ),
        (claim("{min time_s over delay but 2; consistency=bsp}", "1 > 0"), "never is \"2\""),
        (claim("{time_s but 2; consistency=bsp}", "1 > 0"), "but belongs after over AXIS"),
        (table("rows = ['delay']", "value = '{time_s}'"), "names no value of consistency"),
        (table("rows = ['delay']", ""), "say `value` or `which`"),
        (
            table("rows = ['delay']", "which = 'max time_s over consistency'"),
            "must be an argmin or argmax",
        ),
    ] {
        let error = Spec::parse("my.toml", &format!("{SWEEP}{claim}")).unwrap_err().to_string();
        assert!(error.contains(said), "{claim}: {error}");
    }
}
