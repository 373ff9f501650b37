//! Claims and tables, decided by made-up runs.

use super::super::claims::{Finding, decide};
use super::*;

fn findings(claims: &str) -> Vec<Finding> {
    findings_of(claims, &MadeUp::default())
}

fn findings_of(claims: &str, execute: &dyn Execute) -> Vec<Finding> {
    let spec = spec(claims);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(make(folder.path(), &spec, 1, execute), 0);
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let records = store.records(cells.len(), spec.reps).unwrap();
    decide(&Runs::new(&spec, &cells, records))
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
    // Runs that never reach the target still decide what is certain.
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
        "delay (ms),best,time (s),time (s) low,time (s) high,but\n\
         1,bsp,50.52,50.52,50.52,asp\n10,bsp,55.02,55.02,55.02,asp\n\
         100,bsp,100,100,100,asp\n"
    );
    // Async ended before sync reached 0.9: a longer run of async might have been first.
    let all = "{min time_s to accuracy 0.9 over consistency; delay=1}";
    let none = "{min reached time_s to accuracy 0.9 over consistency but bsp; delay=1}";
    let found = findings(&[claim(all, "measured > 50"), claim(none, "measured > 0")].concat());
    assert_eq!(found[0].measured, "50.37 to 50.52");
    assert_eq!(found[1].why, "not every repetition reaches what is asked");
}

#[test]
fn what_was_cut_short_or_is_missing_is_not_guessed() {
    // Async ends after 10 epochs at 0.8; sync is at 0.9 on average of three after 5.
    let ratio = "{epoch to accuracy 0.9; consistency=asp, delay=1} / {epoch to accuracy 0.9; \
        consistency=bsp, delay=1}";
    let claims = [
        claim(ratio, "measured >= 1.5"),
        claim(ratio, "measured >= 3"),
        claim("{recall.U2R; consistency=asp, delay=1}", "measured > 0"),
        claim("{tim_s; consistency=asp, delay=1}", "measured > 0"),
        claim("{accuracy @ epoch=50; consistency=asp, delay=1}", "measured > 0"),
        claim("{time_s; consistency=asp, delay=1} / 0", "measured > 0"),
        claim("{accuracy @ time_s=500; consistency=asp, delay=1}", "measured > 0"),
        claim("{loss @ epoch=5; consistency=asp, delay=1}", "measured > 0"),
        claim("{macro_f1 @ epoch=5; consistency=asp, delay=1}", "measured > 0"),
    ];
    let found = findings(&claims.concat());
    assert_eq!(found[0].verdict, Verdict::Holds, "{:?}", found[0]);
    assert!(found[0].measured.starts_with("> 2"), "{:?}", found[0]);
    assert_eq!(found[0].value, None);
    for (number, why) in [
        (1, "ended before they reached"),
        (2, "there is no metric \"recall.U2R\""),
        (3, "did you mean \"time_s\""),
        (4, "the curve ends at epoch = 10, before 50"),
        (5, "what is measured is no number"),
        (6, "the curve ends at time_s = 50.37, before 500"),
        (7, "loss was no number there"),
        (8, "macro_f1 was no number there"),
    ] {
        assert_eq!(found[number].verdict, Verdict::CannotBeTold, "{:?}", found[number]);
        assert!(found[number].why.contains(why), "{:?}", found[number]);
    }
}

/// Runs whose accuracy is best at a delay of 10, but by less than the repetitions differ. Apart
/// from noise, a seed has the same effect at every delay.
#[derive(Debug)]
struct Noisy;

impl Execute for Noisy {
    fn execute(&self, run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Record>> {
        let mut record = MadeUp::default().execute(run, stop)?.unwrap();
        let seed = (run.seed - 40) as usize;
        let of_all = [0.0, 0.3, -0.2][seed];
        let own = match record.metrics["time_s"] as u32 {
            50 | 101 => [0.02, 0.04, 0.03],
            53 | 110 => [0.05, 0.03, 0.04],
            _ => [-0.4; 3],
        };
        record.metrics.insert("accuracy".into(), 0.5 + of_all + own[seed]);
        Ok(Some(record))
    }
}

#[test]
fn a_difference_within_the_noise_cannot_be_told() {
    let between = |one: u32, other: u32| {
        format!(
            "{{accuracy; consistency=asp, delay={one}}} - {{accuracy; consistency=asp, \
             delay={other}}}"
        )
    };
    let claims = [
        claim(&between(10, 1), "measured > 0"),
        claim("{argmax accuracy over delay; consistency=asp}", "measured > 1"),
        claim("{argmin accuracy over delay; consistency=asp}", "measured > 10"),
        // The effect of the seeds, up to 0.5, is the same at all delays and cancels in the
        // difference.
        claim(&between(10, 100), "measured > 0.4"),
        claim(&between(10, 100), "measured < 0.4"),
        claim(&between(10, 100), "measured > 0.43"),
        claim("{accuracy; consistency=asp, delay=10}", "measured > 0.5"),
        claim("{least accuracy; consistency=asp, delay=10}", "measured > 0.3"),
    ];
    let found = findings_of(&claims.concat(), &Noisy);
    let verdicts: Vec<_> = found.iter().map(|finding| finding.verdict).collect();
    let (yes, no, unknown) = (Verdict::Holds, Verdict::DoesNotHold, Verdict::CannotBeTold);
    assert_eq!(verdicts, [unknown, unknown, yes, yes, no, unknown, unknown, yes], "{found:#?}");
    assert!(found[0].why.contains("repetitions differ too much"), "{:?}", found[0]);
    // mean +- t(0.975, 2) sd / sqrt(3).
    for (number, mean, sd) in [(0, 0.01, 0.02), (3, 0.44, 0.01)] {
        let interval = found[number].interval.unwrap();
        let value = found[number].value.unwrap();
        assert!((value - mean).abs() < 1e-9, "{:?}", found[number]);
        let half = 4.302_653 * sd / 3_f64.sqrt();
        let ends = [interval.low - (mean - half), interval.high - (mean + half)];
        assert!(ends.iter().all(|end| end.abs() < 1e-6 * half), "{number}: {ends:?}");
    }
    assert_eq!(found[2].interval, None, "it is the same in every draw");
}

#[test]
fn a_picture_has_the_intervals_of_the_tables() {
    let spec = spec(
        "[[picture]]\nfile = 'bars'\ntitle = 'Bars'\nkind = 'bar'\nx = 'delay'\n\
         y = '2 * {time_s}'\nlines = ['consistency']\n",
    );
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(make(folder.path(), &spec, 1, &MadeUp::default()), 0);
    let cells = cells(&spec);
    let (store, _) = Store::open(folder.path()).unwrap();
    let runs = Runs::new(&spec, &cells, store.records(cells.len(), spec.reps).unwrap());
    let drawn = draw::draw(&runs).unwrap();
    let found = |file: &str| &drawn.iter().find(|drawn| drawn.file == file).unwrap().picture;
    let (Picture::Chart(line), Picture::Bars(bars)) = (found("line"), found("bars")) else {
        panic!("a line and bars")
    };
    for (consistency, (line, bars)) in
        ["bsp", "asp"].iter().zip(line.series.iter().zip(&bars.series))
    {
        for (delay, (mark, bar)) in ["1", "10", "100"].iter().zip(line.marks.iter().zip(&bars.bars))
        {
            let value = format!("{{time_s; consistency={consistency}, delay={delay}}}");
            let value = claims::evaluate(&runs, &value, &[], &runs::Place::new()).unwrap();
            let (interval, bar) = (value.interval().unwrap(), bar.unwrap());
            let near = |one: f64, other: f64| (one - other).abs() < 1e-12 * other.abs();
            assert!(near(mark.low, interval.low) && near(mark.high, interval.high), "{mark:?}");
            assert!(near(bar.low, 2.0 * interval.low) && near(bar.high, 2.0 * interval.high));
        }
    }
}

/// Runs of which those with delays of 1 and 100 are the same.
#[derive(Debug)]
struct Alike;

impl Execute for Alike {
    fn execute(&self, run: &Run<'_>, stop: &AtomicBool) -> anyhow::Result<Option<Record>> {
        let mut record = MadeUp::default().execute(run, stop)?.unwrap();
        let is_between = [53, 110].contains(&(record.metrics["time_s"] as u32));
        let own = if is_between { 0.5 } else { 0.7 };
        record.metrics.insert("accuracy".into(), own);
        record.metrics.insert("loss".into(), own + run.seed as f64 * 1e-3);
        Ok(Some(record))
    }
}

#[test]
fn the_best_values_are_all_named_if_they_are_the_same() {
    let which = |what: &str| {
        format!("{{ title = '{what}', which = '{what} over delay; consistency=asp' }}")
    };
    let columns = ["argmax accuracy", "argmin accuracy", "argmax loss"].map(which).join(", ");
    let table = format!(
        "[[table]]\nfile = 'best'\ntitle = 'Best'\nrows = ['consistency']\ncolumn = [{columns}]\n"
    );
    let most = "{argmax accuracy over delay; consistency=asp}";
    let claims = [claim(most, "measured > 0.5"), claim(most, "measured > 1")].concat();
    let spec = spec(&format!("{claims}{table}"));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(make(folder.path(), &spec, 1, &Alike), 0);
    let csv = std::fs::read_to_string(folder.path().join("tables/best.csv")).unwrap();
    assert_eq!(csv.lines().nth(1), Some("bsp,1 or 100,10,1 or 100"));
    let found = findings_of(&claims, &Alike);
    assert_eq!((&found[0].measured[..], found[0].verdict), ("1 to 100", Verdict::Holds));
    assert_eq!(found[1].verdict, Verdict::CannotBeTold);
    assert!(found[1].why.contains("equally good"), "{:?}", found[1]);
}

#[test]
fn self_checks_intervals_and_builds_are_in_the_page_and_the_tables() {
    let table = "[[table]]\nfile = 'x'\ntitle = 'x'\nrows = ['consistency']\n\
                 column = [{ title = 'best', which = 'argmax accuracy over delay' }, \
                 { title = 'accuracy', value = '{accuracy; delay=10}' }]\n";
    let claims = claim("{time_s; consistency=bsp, delay=1}", "measured > 1")
        + "self-check = true\n"
        + &claim("{range accuracy over delay; consistency=bsp}", "measured > 0.4")
        + table;
    let spec = spec(&claims);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(make(folder.path(), &spec, 1, &Noisy), 0);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["claims"][0]["self_check"], true);
    assert_eq!(summary["claims"][1]["self_check"], false);
    assert!(summary["claims"][1]["interval"]["low"].as_f64().unwrap() > 0.4, "{summary}");
    let page = read("report.html");
    let (claims, checks) = page.split_once("Self-checks: they follow from the times").unwrap();
    assert!(claims.contains("95 %: 0.4") && checks.contains("101"), "{page}");
    assert!(page.contains("development build") || page.contains("commit"), "{page}");
    let table = read("tables/x.csv");
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("consistency,best,accuracy,accuracy low,accuracy high"));
    let line = lines.next().unwrap();
    assert!(line.starts_with("bsp,10 or 1,0.5733,"), "{line}");
    assert_eq!(line.split(',').count(), 5, "{line}");
}
