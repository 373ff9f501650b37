//! Profiles of tables: written down, merged, and given to a job.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pstrain_compute::id::PartId;
use pstrain_compute::rng::Stream;
use pstrain_data::{Csv, Dataset, Features, Missing, Prepared, Profile, Settings, open};

fn csv(folder: &Path, name: &str, text: &str) -> Csv {
    fs::write(folder.join(name), text).unwrap();
    Csv::new(folder.join(name))
}

/// The same table, read by a profile.
fn by(data: &Csv, profile: &Profile) -> Arc<dyn Dataset> {
    let path = data.path.with_extension("toml");
    fs::write(&path, profile.to_string()).unwrap();
    open(&format!("csv:{},profile={}", data.path.display(), path.display()), 1).unwrap()
}

/// A table of two columns of numbers and one of texts; some values are missing.
fn rows(range: std::ops::Range<u64>) -> String {
    let mut text = String::from("x,z,place,y\n");
    for row in range {
        let mut rng = Stream::new(7).fork("row", row).rng();
        let x = if row % 9 == 4 { "?".into() } else { rng.unit().to_string() };
        let place = ["north", "south", "east", ""][(row % 4) as usize];
        text += &format!("{x},{},{place},{}\n", 100 + row, ["no", "yes"][(row % 2) as usize]);
    }
    text
}

#[test]
fn a_profile_has_the_roles_and_statistics_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let text = "x,c,place,y\n1,5,a,2\n3,5,?,10\nNA,5,b,2\n5,5,a,2\n";
    let profile = csv(folder.path(), "table.csv", text).profile().unwrap();
    let expected = "rows = 4\nlabel = \"y\"\nclasses = [\"2\", \"10\"]\nclass-rows = [3, 1]\n\
                    missing = \"mean\"\nstandardise = true\n\n\
                    [[number]]\nname = \"x\"\nmean = 3.0\ndeviation = 1.4142135\nmissing = 1\n\n\
                    [[number]]\nname = \"c\"\nmean = 5.0\ndeviation = 0.0\nmissing = 0\n\n\
                    [[text]]\nname = \"place\"\ntexts = [\"a\", \"b\"]\nrows = [2, 1]\nmissing = 1";
    assert_eq!(profile.to_string(), expected);
    assert_eq!(Profile::read(expected).unwrap(), profile);
    let told = open("synthetic:9", 1).unwrap().profile().unwrap_err().to_string();
    assert!(told.contains("no table"), "{told}");
}

#[test]
fn profiles_of_parts_merge_to_the_profile_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let of = |range| csv(folder.path(), "part.csv", &rows(range)).profile().unwrap();
    let all = of(0..300);
    let merged = of(0..50).merged(of(50..120)).unwrap().merged(of(120..300)).unwrap();
    for (one, other) in all.numbers.iter().zip(&merged.numbers) {
        let near = |one: f32, other: f32| (one - other).abs() <= 1e-6 * one.abs();
        assert!(near(one.mean, other.mean), "{one:?} {other:?}");
        assert!(near(one.deviation, other.deviation), "{one:?} {other:?}");
        assert_eq!((&one.name, one.missing), (&other.name, other.missing));
    }
    let plain = |profile: Profile| Profile { numbers: Vec::new(), ..profile };
    assert_eq!(plain(merged), plain(all.clone()));
    // A part may have rows of one class only.
    let one = csv(folder.path(), "one.csv", "x,z,place,y\n1,2,west,maybe\n").profile().unwrap();
    assert_eq!(one.classes, ["maybe"]);
    assert_eq!(all.clone().merged(one).unwrap().classes, ["maybe", "no", "yes"]);
    let odd = csv(folder.path(), "odd.csv", "x,z,place,y\nwarm,1,a,no\n").profile().unwrap();
    let told = all.merged(odd).unwrap_err();
    assert!(told.contains("column x has numbers in one profile and texts in another"), "{told}");
}

#[test]
fn rows_of_any_part_are_encoded_by_the_profile() {
    let folder = tempfile::tempdir().unwrap();
    for options in ["", ",missing=category", ",missing=skip", ",standardise=no"] {
        let words = format!("csv:{}{options}", folder.path().join("all.csv").display());
        csv(folder.path(), "all.csv", &rows(0..300));
        let profile = open(&words, 1).unwrap().profile().unwrap();
        // The server has a few rows, of one class and one place.
        let few = csv(folder.path(), "few.csv", "x,z,place,y\n0.5,150,north,no\n?,160,north,no\n");
        let (few, all) = (by(&few, &profile), open(&words, 1).unwrap());
        let schema = few.schema(&Features::default()).unwrap();
        assert_eq!(schema.classes, ["no", "yes"]);
        assert!(!schema.standardised, "the encoding standardises");
        // Standardised over all rows, these are as the profile encodes them.
        let settings = Settings { evaluation_share: 0.0, workers: 1, ..Settings::default() };
        let by_rows = Prepared::load(&*all, &settings).unwrap();
        let mut row = 0;
        all.visit(&schema, &mut |encoded| {
            let expected = by_rows.train.row(row);
            for (value, expected) in encoded.dense.iter().zip(expected.dense) {
                assert!((value - expected).abs() < 1e-5, "{options} {encoded:?} {expected:?}");
            }
            assert_eq!((encoded.hot, encoded.label), (expected.hot, expected.label), "{options}");
            row += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(row, by_rows.train.len(), "{options}");
        let server =
            Prepared::load(&*by(&Csv::new(folder.path().join("all.csv")), &profile), &settings);
        let server = server.unwrap();
        let (mine, fingerprint) = server.spec.prepare_parts(&*all, &[PartId(0)]).unwrap();
        assert_eq!((mine, fingerprint), (vec![server.train], server.fingerprint), "{options}");
    }
}

#[test]
fn what_the_profile_lacks_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let profile = csv(folder.path(), "all.csv", &rows(0..100)).profile().unwrap();
    let text = "y,place,x,z,more\nno,west,1,2,?\nno,north,1,2,3\nyes,west,?,2,3\nno,,1,2,3\n";
    let data = csv(folder.path(), "new.csv", text);
    let info = by(&data, &profile).info().unwrap();
    let values: Vec<_> =
        info.categories[0].values.iter().map(|it| (it.name.as_str(), it.count)).collect();
    assert_eq!(values, [("north", 1), ("(other)", 2)]);
    let roles: Vec<_> =
        info.roles.iter().map(|it| (&*it.column, &*it.role, &*it.why, it.missing)).collect();
    let profile_says = "the profile";
    assert_eq!(
        roles,
        [
            ("y", "classes: 2", profile_says, 0),
            ("place", "one-hot: 3", profile_says, 1),
            ("x", "number", profile_says, 1),
            ("z", "number", profile_says, 0),
            ("more", "dropped", "not in the profile", 1)
        ]
    );
    assert_eq!((info.columns[0].name.as_str(), info.columns[0].max), ("x", 1.0));
    let info = by(&data, &Profile { missing: Missing::Skip, ..profile }).info().unwrap();
    assert_eq!((info.rows, info.left_out, info.roles[1].missing), (2, 2, 0));
}

#[test]
fn wrong_profiles_are_named_with_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let data = csv(folder.path(), "all.csv", &rows(0..100));
    let good = data.profile().unwrap().to_string();
    let path = folder.path().join("profile.toml");
    let with = by(&data, &data.profile().unwrap());
    let words = format!("csv:{},profile={}", data.path.display(), path.display());
    let refused = |text: &str, told: &str| {
        fs::write(&path, text).unwrap();
        let data = open(&words, 1).unwrap();
        let error = data.schema(&Features::default()).unwrap_err().to_string();
        assert!(error.contains("profile.toml: ") && error.contains(told), "{error}");
    };
    refused("rows = ", "TOML parse error");
    refused(&good.replace("label", "lable"), "unknown field `lable`");
    refused(&good.replace("\"no\", ", ""), "two classes or more");
    refused(&good.replace("\"no\", ", "\"yes\", "), "class \"yes\" is there twice");
    refused(&good.replace("name = \"z\"", "name = \"x\""), "column \"x\" is there twice");
    refused(&good.replace("\"north\"", "\"east\""), "\"east\" is there twice");
    refused(&good.replace("deviation = ", "deviation = -"), "must be finite, and the deviation");
    fs::remove_file(&path).unwrap();
    let missing = open(&words, 1).unwrap().schema(&Features::default()).unwrap_err().to_string();
    assert!(missing.contains("profile.toml: cannot be read"), "{missing}");
    let schema = with.schema(&Features::default()).unwrap();
    let far = csv(folder.path(), "far.csv", "x,z,place,y\n3e38,1,north,no\n");
    let told = far.visit(&schema, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(told.contains("far.csv:2: column x: \"3e38\" is too far"), "{told}");
    for (words, told) in [
        ("csv:a,profile=b,label=c", "besides profile only options of the file are possible"),
        ("csv:a,profile=", "profile= names no file"),
    ] {
        let error = open(words, 1).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}
