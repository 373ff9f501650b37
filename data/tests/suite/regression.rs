//! Rows with numbers to predict: tables, LIBSVM files and generated rows, and their partitions.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pstrain_compute::examples::{Label, Shape, Target};
use pstrain_compute::id::PartId;
use pstrain_data::{DataSpec, Dataset, Outline, Prepared, Profile, Settings, open};

/// A table of houses, whose prices are numbers that occur several times.
fn houses(folder: &Path) -> String {
    let path = folder.join("houses.csv");
    let row = |row: u32| format!("{},{},{}\n", row % 7, ["a", "b"][row as usize % 2], row % 20);
    fs::write(&path, format!("rooms,town,price\n{}", (0..100).map(row).collect::<String>()))
        .unwrap();
    path.display().to_string()
}

fn opened(text: &str) -> Arc<dyn Dataset> {
    open(text, 1).unwrap()
}

#[test]
fn a_column_of_numbers_has_classes_unless_it_is_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = houses(folder.path());
    let target = |options: &str| {
        let schema = opened(&format!("csv:{path}{options}")).schema(&Default::default()).unwrap();
        (schema.shape.target, schema.classes.len())
    };
    assert_eq!(target(""), (Target::Classes(20), 20));
    assert_eq!(target(",label=price"), (Target::Classes(20), 20));
    assert_eq!(target(",target=price"), (Target::Value, 0));
    assert_eq!(target(",target=rooms"), (Target::Value, 0));
    let both = open(&format!("csv:{path},target=price,label=town"), 1).unwrap_err();
    assert!(both.starts_with("classes or numbers are predicted, not both"), "{both}");

    let info = opened(&format!("csv:{path},target=price")).info().unwrap();
    let predicted = info.predicted.unwrap();
    assert_eq!((predicted.name.as_str(), predicted.min, predicted.max), ("price", 0.0, 19.0));
    assert!((predicted.mean - 9.5).abs() < 1e-9 && info.classes.is_empty());
}

#[test]
fn a_target_goes_with_the_other_options_of_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, "id,price,floor\n7,1.5,2\n8,NA,3\n9,2.5,2\n").unwrap();
    let with = |options: &str| opened(&format!("csv:{}{options}", path.display()));
    let data = with(",target=price,drop=id,one-hot=floor,missing=skip");
    let info = data.info().unwrap();
    assert_eq!((info.rows, info.left_out, info.predicted.unwrap().mean), (2, 1, 2.0));
    let roles: Vec<_> = info.roles.iter().map(|role| (&*role.role, &*role.why)).collect();
    let wanted = [
        ("dropped", "drop=id"),
        ("number to predict", "target=price"),
        ("one-hot: 1", "one-hot=floor"),
    ];
    assert_eq!(roles, wanted);
    let expected = "rows = 2\nmissing = \"skip\"\nstandardise = true\nnumber = []\n\n\
                    [target]\nname = \"price\"\nmean = 2.0\ndeviation = 0.5\nmissing = 0\n\n\
                    [[text]]\nname = \"floor\"\ntexts = [\"2\"]\nrows = [2]\nmissing = 0";
    assert_eq!(data.profile().unwrap().to_string(), expected);
    let drop = with(",target=price,drop=price").info().unwrap_err().to_string();
    assert!(drop.contains("column price: target=price contradicts drop=price"), "{drop}");
    for (options, told) in [
        (",target=price,target=id", "target= is there twice"),
        (",target=", "target= names no column"),
        (",target=price,profile=p", "a profile has the roles of all columns"),
    ] {
        let refused = open(&format!("csv:{}{options}", path.display()), 1).unwrap_err();
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn a_profile_standardises_numbers_to_predict_as_all_rows_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, rows: std::ops::Range<u32>| {
        let row = |row: u32| format!("{},{}\n", row * 7 % 30, row);
        fs::write(path(name), format!("x,price\n{}", rows.map(row).collect::<String>())).unwrap();
        opened(&format!("csv:{},target=price", path(name).display()))
    };
    let all = write("all.csv", 0..100);
    let parts = [write("one.csv", 0..30), write("other.csv", 30..100)];
    let [one, other] = parts.map(|part| part.profile().unwrap());
    let merged = one.clone().merged(other).unwrap();
    assert_eq!((merged.rows, merged.target.as_ref().unwrap().mean), (100, 49.5));
    fs::write(path("profile.toml"), merged.to_string()).unwrap();
    let profile = path("profile.toml");
    let by = |name: &str| format!("csv:{},profile={}", path(name).display(), profile.display());
    let settings = Settings { evaluation_share: 0.0, workers: 1, ..Settings::default() };
    let values = |data: &dyn Dataset| Prepared::load(data, &settings).unwrap().spec.values.unwrap();
    let (mine, wanted) = (values(&*opened(&by("one.csv"))), values(&*all));
    assert!((mine.mean - wanted.mean).abs() < 1e-4 && (mine.scale - wanted.scale).abs() < 1e-4);
    let outline = Outline::read(&*opened(&by("one.csv")), &settings).unwrap();
    assert_eq!(outline.spec.values, Some(mine));
    let info = opened(&by("one.csv")).info().unwrap();
    assert_eq!(info.roles[1].role, "number to predict");
    assert_eq!((info.predicted.unwrap().max, info.classes.len()), (29.0, 0));

    let classes = Profile { label: "price".into(), target: None, ..one.clone() };
    assert!(one.merged(classes.clone()).unwrap_err().contains("differ in label, target"));
    for (wrong, told) in [
        (classes.to_string(), "classes are missing"),
        ("rows = 1".into(), "either label or target must name"),
    ] {
        assert!(Profile::read(&wrong).unwrap_err().contains(told), "{told}");
    }
}

#[test]
fn a_number_to_predict_that_is_none_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    for (value, words) in [
        ("much", "is no finite number to predict"),
        ("1e99", "is no finite number to predict"),
        ("NA", "is a missing number to predict; remove the line, or say missing=skip"),
    ] {
        fs::write(&path, format!("x,y\n1,2\n2,{value}\n")).unwrap();
        let data = opened(&format!("csv:{},target=y", path.display()));
        let told = Prepared::load(&*data, &Settings::default()).unwrap_err().to_string();
        assert!(told.contains("rows.csv:3") && told.ends_with(words), "{told}");
    }
}

#[test]
fn numbers_that_are_too_far_apart_are_refused_by_server_and_outline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    fs::write(&path, format!("x,y\n{}2,-3e38\n", "1,3e38\n".repeat(17))).unwrap();
    let data = opened(&format!("csv:{},target=y", path.display()));
    let settings = Settings::default();
    let whole = Prepared::load(&*data, &settings).map(|_| ());
    let outline = Outline::read(&*data, &settings).map(|_| ());
    for refused in [whole, outline].map(|result| result.unwrap_err().to_string()) {
        assert!(refused.starts_with("column to predict: a value is too far from"), "{refused}");
    }
}

#[test]
fn workers_make_the_partitions_of_the_server_from_their_own_copies() {
    let folder = tempfile::tempdir().unwrap();
    let libsvm = folder.path().join("rows");
    let row = |row: u32| format!("{} 1:{row} 5:0.5\n", f64::from(row) / 3.0);
    fs::write(&libsvm, (1..90).map(row).collect::<String>()).unwrap();
    let table = format!("csv:{},target=price", houses(folder.path()));
    let sparse = format!("libsvm:{},predict=numbers", libsvm.display());
    for text in ["regression:200,4", &table, &sparse] {
        for partition in ["iid", "by-class", "dirichlet:0.5", "paper-non-iid", "mix:0.5"] {
            let data = opened(text);
            let settings =
                Settings { partition: partition.parse().unwrap(), ..Settings::default() };
            let server = Prepared::load(&*data, &settings).unwrap();
            let outline = Outline::read(&*data, &settings).unwrap();
            assert_eq!((&outline.spec, &outline.fingerprint), (&server.spec, &server.fingerprint));
            assert!(server.fingerprint.class_counts.is_empty());
            let spec: DataSpec =
                serde_json::from_str(&serde_json::to_string(&server.spec).unwrap()).unwrap();
            assert_eq!(spec, server.spec);
            let (parts, fingerprint) = spec.prepare_parts(&*data, &[PartId(0), PartId(1)]).unwrap();
            assert_eq!(parts, server.partitions(&[PartId(0), PartId(1)]), "{text} {partition}");
            assert_eq!(fingerprint, server.fingerprint);
        }
    }
}

#[test]
fn a_partition_by_class_goes_by_the_deciles_of_the_numbers() {
    let settings =
        Settings { partition: "by-class".parse().unwrap(), workers: 10, ..Settings::default() };
    let prepared = Prepared::load(&*opened("regression:2000,3"), &settings).unwrap();
    let values = |worker: u32| {
        let value = |label| if let Label::Value(value) = label { value } else { f32::NAN };
        prepared.partition(PartId(worker)).labels().map(value).collect::<Vec<f32>>()
    };
    for worker in 1..10 {
        let (below, above) = (values(worker - 1), values(worker));
        assert_eq!((below.len(), above.len()), (150, 150));
        let highest = below.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!(above.iter().all(|value| *value >= highest), "{worker}");
    }
    let skew = prepared.skew();
    assert_eq!(skew.workers[4].class_counts, [0, 0, 0, 0, 150, 0, 0, 0, 0, 0]);
    assert_eq!((prepared.groups().len(), prepared.groups()[9].as_str()), (10, "decile 10"));
}

#[test]
fn numbers_to_predict_get_mean_0_and_deviation_1_and_keep_their_unit() {
    let (data, settings) = (opened("regression:400,3"), Settings::default());
    let prepared = Prepared::load(&*data, &settings).unwrap();
    let value = |label| if let Label::Value(value) = label { f64::from(value) } else { f64::NAN };
    let values: Vec<f64> = prepared.train.labels().map(value).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
    assert!(mean.abs() < 1e-5 && (square - 1.0).abs() < 1e-4, "{mean} {square}");
    let scale = f64::from(prepared.spec.values.unwrap().scale);
    assert!(scale > 1.0 && prepared.evaluation.unit() == scale);
    assert_eq!(prepared.spec.encode_all(&*data).unwrap().unit(), scale);
    let outline = Outline::read(&*data, &settings).unwrap();
    assert_eq!(outline.evaluation, prepared.evaluation);
    let classes = Prepared::load(&*opened("synthetic:300"), &settings).unwrap();
    assert_eq!((classes.spec.values, classes.evaluation.unit()), (None, 1.0));
    assert!(!serde_json::to_string(&classes.spec).unwrap().contains("values"));
}

#[test]
fn a_shape_names_its_target_in_json() {
    let shape = Shape { inputs: 7, dense: 2, hot: 2, target: Target::Classes(3), picture: None };
    let json = r#"{"inputs":7,"dense":2,"hot":2,"classes":3,"picture":null}"#;
    assert_eq!(serde_json::to_string(&shape).unwrap(), json);
    let earlier = json.replace(r#","picture":null"#, "");
    assert_eq!(serde_json::from_str::<Shape>(&earlier).unwrap(), shape);
    let value = Shape { target: Target::Value, ..shape };
    let text = serde_json::to_string(&value).unwrap();
    assert!(text.contains(r#""classes":"value""#), "{text}");
    assert_eq!(serde_json::from_str::<Shape>(&text).unwrap(), value);
    for wrong in ["\"number\"", "-1", "4294967295", "null"] {
        let told = serde_json::from_str::<Shape>(&json.replace('3', wrong)).unwrap_err();
        assert!(told.to_string().contains("expected"), "{told}");
    }
}

#[test]
fn rows_of_classes_and_of_numbers_are_not_taken_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    fs::write(&path, "+1 1:1\n-1 2:1\n".repeat(9)).unwrap();
    let [classes, numbers] =
        ["", ",predict=numbers"].map(|it| opened(&format!("libsvm:{}{it}", path.display())));
    let settings = Settings::default();
    let server = Prepared::load(&*classes, &settings).unwrap();
    let refused = server.spec.prepare_parts(&*numbers, &[PartId(0)]).unwrap_err().to_string();
    assert!(refused.contains("rows: predict=numbers, but the job predicts classes"), "{refused}");
    // What the user does not say, the job does.
    let other = Settings { evaluation_data: Some(classes), ..settings };
    let prepared = Prepared::load(&*numbers, &other).unwrap();
    assert!(prepared.evaluation.labels().all(|label| matches!(label, Label::Value(_))));
}
