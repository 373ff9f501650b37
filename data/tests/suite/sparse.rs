//! Rows in LIBSVM files: classes, sparse and dense rows.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pstrain_compute::id::PartId;
use pstrain_data::{Dataset, Features, Hashing, Prepared, Settings, open};

/// The rows of a file, with options.
fn rows(folder: &Path, text: &str, options: &str) -> Arc<dyn Dataset> {
    let path = folder.join("rows");
    fs::write(&path, text).unwrap();
    open(&format!("libsvm:{}{options}", path.display()), 1).unwrap()
}

/// The rows as `features` encode them: dense or sparse values, and labels.
fn encoded(data: &dyn Dataset, features: &Features) -> Vec<(Vec<f32>, Vec<u32>, u16)> {
    let schema = data.schema(features).unwrap();
    let mut rows = Vec::new();
    let take = &mut |row: pstrain_compute::examples::Row<'_>| {
        let values = if row.dense.is_empty() { row.values } else { row.dense };
        rows.push((values.to_vec(), row.columns.to_vec(), row.class() as u16));
        Ok(())
    };
    data.visit(&schema, take).unwrap();
    rows
}

#[test]
fn labels_of_two_classes_stay_sparse_and_other_labels_are_classes_of_dense_rows() {
    let folder = tempfile::tempdir().unwrap();
    let plain = Features::default();
    let two = "+1 2:0.5\n0 1:1 3:2\n0\n";
    let sparse = rows(folder.path(), two, "");
    assert_eq!(sparse.schema(&plain).unwrap().classes, ["-1", "+1"]);
    let expected = [(vec![0.5], vec![1], 1), (vec![1.0, 2.0], vec![0, 2], 0), (vec![], vec![], 0)];
    assert_eq!(encoded(&*sparse, &plain), expected);
    let dense = rows(folder.path(), two, ",rows=dense");
    assert_eq!(dense.schema(&plain).unwrap().classes, ["0", "1"]);
    let dense_row = |values: [f32; 3], label| (values.to_vec(), vec![], label);
    let expected =
        [dense_row([0.0, 0.5, 0.0], 1), dense_row([1.0, 0.0, 2.0], 0), dense_row([0.0; 3], 0)];
    assert_eq!(encoded(&*dense, &plain), expected);
    // Two classes of any names stay sparse, and three are three, whatever they are called.
    for (text, classes, is_sparse) in [
        ("2 1:1\n1 2:1\n", &["1", "2"][..], true),
        ("-1 1:1\n0 2:1\n", &["-1", "0"], true),
        ("-1 1:1\n0 2:1\n1 2:1\n", &["-1", "0", "1"], false),
    ] {
        let schema = rows(folder.path(), text, "").schema(&plain).unwrap();
        assert_eq!(
            (&schema.classes[..], schema.shape.is_sparse()),
            (&classes.iter().map(ToString::to_string).collect::<Vec<_>>()[..], is_sparse)
        );
    }

    let fractions = "10 1:1\n2 3:0.5 # two\n2.5 2:-1\n";
    let told = rows(folder.path(), fractions, "").schema(&plain).unwrap_err().to_string();
    assert!(told.contains("fractions, such as 2.5: say predict=numbers"), "{told}");
    let many = rows(folder.path(), fractions, ",predict=classes");
    let schema = many.schema(&plain).unwrap();
    assert_eq!(
        (&schema.classes[..], schema.standardised),
        (&["2", "2.5", "10"].map(String::from)[..], false)
    );
    assert!(!schema.shape.is_sparse());
    let expected = [
        dense_row([1.0, 0.0, 0.0], 2),
        dense_row([0.0, 0.0, 0.5], 0),
        dense_row([0.0, -1.0, 0.0], 1),
    ];
    assert_eq!(encoded(&*many, &plain), expected);
    let hashed = Features { hashing: Hashing::To(2), ..plain };
    let sums: Vec<f32> = encoded(&*many, &hashed).iter().map(|row| row.0.iter().sum()).collect();
    assert_eq!(sums, [1.0, 0.5, -1.0]);
    let info = many.info().unwrap();
    let features = info.features.unwrap();
    assert_eq!((features.columns, features.touched, features.entries), (3, 3, 3));
    let counts: Vec<u64> = info.classes.iter().map(|it| it.count).collect();
    assert_eq!((info.rows, counts), (3, vec![1, 1, 1]));
}

#[test]
fn server_and_workers_prepare_the_same_dense_rows() {
    let folder = tempfile::tempdir().unwrap();
    let text: String =
        (0..400).map(|row| format!("{} {}:1 50:{row}\n", row % 20 + 1, row % 20 + 3)).collect();
    let data = rows(folder.path(), &text, "");
    for hashing in [Hashing::None, Hashing::To(16)] {
        let features = Features { hashing, ..Features::default() };
        let settings = Settings { features, workers: 3, ..Settings::default() };
        let server = Prepared::load(&*data, &settings).unwrap();
        assert_eq!(server.spec.classes().len(), 20);
        let json = serde_json::to_string(&server.spec).unwrap();
        let spec: pstrain_data::DataSpec = serde_json::from_str(&json).unwrap();
        let (mine, fingerprint) = spec.prepare_parts(&*data, &[PartId(2)]).unwrap();
        assert_eq!((mine, fingerprint), (vec![server.partition(PartId(2))], server.fingerprint));
    }
}

#[test]
fn labels_and_features_that_the_job_lacks_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = rows(folder.path(), "1 1:1\n2 2:1\n3 1:1\n", "");
    let schema = data.schema(&Features::default()).unwrap();
    let refused = |text: &str| {
        let other = rows(folder.path(), text, "");
        other.visit(&schema, &mut |_| Ok(())).unwrap_err().to_string()
    };
    let told = refused("1 1:1\n4 1:1\n");
    assert!(told.contains("rows:2: label 4 is no class of the job"), "{told}");
    let told = refused("1 1:1\n2 3:1\n");
    let cure = "name its training rows by libsvm:PATH,columns=3, or with more columns";
    assert!(told.contains("rows:2: the row has 3 columns") && told.ends_with(cure), "{told}");
    // That cures it; fewer features than in training are no trouble.
    let wide = rows(folder.path(), "1 1:1\n2 2:1\n", ",columns=3");
    let wide = wide.schema(&Features::default()).unwrap();
    rows(folder.path(), "1 1:1\n2 3:1\n", "").visit(&wide, &mut |_| Ok(())).unwrap();
    rows(folder.path(), "1 1:1\n", "").visit(&wide, &mut |_| Ok(())).unwrap();
    let hashed = Features { hashing: Hashing::To(2), ..Features::default() };
    let hashed = rows(folder.path(), "1 1:1\n2 2:1\n", "").schema(&hashed).unwrap();
    rows(folder.path(), "1 9:1\n", "").visit(&hashed, &mut |_| Ok(())).unwrap();
    let schema = |text: &str, options: &str| {
        let data = rows(folder.path(), text, options);
        data.schema(&Features::default()).unwrap_err().to_string()
    };
    let told = schema("7 1:1\n7 2:1\n", "");
    assert!(told.contains("all labels are 7; two classes"), "{told}");
    let told = schema("1 1:1\n1 2:1\n", ",columns=1");
    assert!(told.contains("columns=1, but its rows have 2"), "{told}");
    let zero = "1 0:1\n2 1:1\n";
    assert!(schema(zero, "").contains("say base=0"), "{}", schema(zero, ""));
    let from_0 = rows(folder.path(), zero, ",base=0").schema(&Features::default()).unwrap();
    assert_eq!(from_0.shape.inputs, 2);
    let told = schema("1 1:1\n2 4000000000:1\n", ",rows=dense");
    assert!(told.contains("4000000000 columns") && told.contains("hash-features"), "{told}");
    let many: String = (0..1002).map(|row| format!("{row} 1:1\n")).collect();
    let told = schema(&many, "");
    assert!(told.contains("more than 1000 different labels"), "{told}");
    let told = schema(&many[..200], "");
    assert!(told.contains("different values: say predict=numbers if"), "{told}");
    for (options, told) in [
        ("rows=some", "write rows=dense"),
        ("base=2", "base=2: write 0 or 1"),
        ("columns=0", "columns=0: write a number of columns"),
        ("colums=3", "did you mean columns?"),
    ] {
        let error = open(&format!("libsvm:a,{options}"), 1).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}
