//! Tables in text: roles of columns, encoding, errors.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;

use pstrain_compute::examples::{Examples, Label, Target};
use pstrain_compute::id::PartId;
use pstrain_compute::rng::Stream;
use pstrain_data::{Csv, Dataset, Features, Prepared, Settings, open};

fn table(folder: &Path, text: &str) -> Csv {
    let path = folder.join("table.csv");
    fs::write(&path, text).unwrap();
    Csv::new(path)
}

/// Encodes all rows, not standardised.
fn encoded(data: &dyn Dataset) -> Examples {
    let schema = data.schema(&Features::default()).unwrap();
    let mut all = Examples::new(schema.shape);
    data.visit(&schema, &mut |row| Ok(all.push(row.dense, row.hot, row.label)?)).unwrap();
    all
}

#[test]
fn numbers_are_dense_texts_are_one_hot_and_the_last_column_has_the_classes() {
    let folder = tempfile::tempdir().unwrap();
    let text = "temperature, device, humidity, state\n20.5,b,1e2,on\n-3,a,?,off\nNA,\"b\",50,on\n";
    for text in
        [text.to_owned(), text.replace(',', ";"), text.replace(", ", "\t").replace(',', "\t")]
    {
        let data = table(folder.path(), &text);
        let schema = data.schema(&Features::default()).unwrap();
        assert_eq!(schema.classes, ["off", "on"]);
        let shape = schema.shape;
        assert_eq!((shape.inputs, shape.dense, shape.hot), (5, 2, 1));
        assert_eq!(shape.target, Target::Classes(2));
        let rows = encoded(&data);
        // Missing numbers are the mean of the column: 8.75 and 75. Columns 2 to 4 are a, b, others.
        assert_eq!((rows.row(0).dense, rows.row(0).hot), (&[20.5, 100.0][..], &[3][..]));
        assert_eq!((rows.row(1).dense, rows.row(1).hot), (&[-3.0, 75.0][..], &[2][..]));
        assert_eq!((rows.row(2).dense, rows.row(2).hot), (&[8.75, 50.0][..], &[3][..]));
        assert_eq!([0, 1, 2].map(|row| rows.label(row)), [1, 0, 1].map(Label::Class));
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_name() {
    let folder = tempfile::tempdir().unwrap();
    for text in ["x,y\n1,a\n2,b\n", "\"x\",y\n1,a\n2,b\n"] {
        let plain = table(folder.path(), text).schema(&Features::default()).unwrap();
        let marked = table(folder.path(), &format!("\u{feff}{text}"));
        assert_eq!(marked.schema(&Features::default()).unwrap(), plain);
    }
}

#[test]
fn a_workers_copy_is_encoded_by_the_schema_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let data = table(folder.path(), "x,city,y\n1,Rome,7\n2,Oslo,10\n3,Rome,9\n");
    let schema = data.schema(&Features::default()).unwrap();
    assert_eq!(schema.classes, ["7", "9", "10"], "classes that are numbers are in their order");
    // The columns are in another order, a city is unknown, and another has a text for a number.
    let other = table(folder.path(), "y,more,city,x\n10,0,Bern,5\n7,0,,6\n");
    let mut seen = Vec::new();
    let take = &mut |row: pstrain_compute::examples::Row<'_>| {
        seen.push((row.dense.to_vec(), row.hot.to_vec(), row.label));
        Ok(())
    };
    other.visit(&schema, take).unwrap();
    let [first, second] = [2, 0].map(Label::Class);
    assert_eq!(seen, [(vec![5.0], vec![3], first), (vec![6.0], vec![3], second)]);
    let refused = |text: &str| {
        let other = table(folder.path(), text);
        other.visit(&schema, &mut |_| Ok(())).unwrap_err().to_string()
    };
    for (text, words) in [
        ("y,x\n7,1\n", "it has no column \"city\"; its columns are y, x"),
        (
            "x,city,y\n1,Rome,7\nwarm,Rome,7\n",
            "table.csv:3: column x: \"warm\" is no finite number",
        ),
        ("x,city,y\n1,Rome,8\n", ":2: column y: \"8\" is no class of the job"),
        ("x,city,y\n1,Rome,\n", ":2: column y: \"\" is a missing class"),
        ("x,city,y\n1,Rome\n", "table.csv:2: the line has 2 values, and the first line 3 names"),
    ] {
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            let told = refused(&text);
            assert!(told.contains(words), "{told}");
        }
    }
}

#[test]
fn columns_are_chosen_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), "id,kind,x\nr1,a,1\nr2,b,2\nr3,a,3\n").path;
    let words = format!("csv:{},label=kind,drop=id", path.display());
    let data = open(&words, 1).unwrap();
    let rows = encoded(&*data);
    assert_eq!((rows.shape().inputs, rows.class_counts()), (1, vec![2, 1]));
    let schema = data.schema(&Features::default()).unwrap();
    assert_eq!(data.columns(&schema), ["x"]);
    let info = data.info().unwrap();
    assert_eq!((info.rows, info.columns[0].max, info.categories.len()), (3, 3.0, 0));
    let with_ids = open(&format!("csv:{},label=kind", path.display()), 1).unwrap().info().unwrap();
    assert_eq!(
        (with_ids.categories[0].name.as_str(), with_ids.categories[0].values.len()),
        ("id", 3)
    );

    let refused = |words: &str| open(words, 1).unwrap_err();
    assert!(refused("csv:").contains("a path is missing"));
    for (words, told) in [
        ("csv:a,more=b", "there is no option more; the options are label=COLUMN, target=COLUMN"),
        ("csv:a,b", r#""b" is no option (a comma of a path is written \,); write csv:PATH[,"#),
        ("csv:a,label=b,label=c", "label= is there twice"),
        ("csv:a,drop=", "drop= names no column"),
        ("csv:a,missing=0", "missing=0: write mean, skip or category"),
        ("csv:a,standardise=1", "standardise=1: write yes or no"),
        ("csv:a,delimiter=ab", "delimiter=ab: write comma, semicolon, tab, space"),
    ] {
        assert!(refused(words).contains(told), "{}", refused(words));
    }
    let missing = open(&format!("csv:{},label=y", path.display()), 1).unwrap();
    let told = missing.schema(&Features::default()).unwrap_err().to_string();
    assert!(told.contains("no column \"y\"; its columns are id, kind, x"), "{told}");
}

#[test]
fn tables_that_cannot_be_trained_on_are_named_with_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let many: String = (0..1002).map(|row| format!("{row},{}\n", f64::from(row) + 0.5)).collect();
    for (text, words) in [
        ("", "no table"),
        ("only\n1\n", "no table"),
        ("a,,c\n1,2,3\n", "column 2 has no name"),
        ("a,b\n", "it has no rows after its first line, which names the columns"),
        ("a,b,a\n1,2,3\n", "two columns are called \"a\""),
        ("a,b\n1,x\n2,x\n", "column b: all its values are \"x\""),
        (&format!("a,b\n{many}"), "column b: it has more than 1000 different values"),
        ("day,b\n20240101,x\n20240115,y\n", "column day: its values are between 20240100 and"),
        ("a,b\n20000000,x\n20000001,y\n", "column a: its values are between 20000000 and 20000000"),
        ("a,b\n100000.001,x\n100000.002,y\n", "subtract 100000 from each, or leave the column"),
        (
            &format!("b,a\n{many}high,1\n"),
            ":1004: column b: \"high\" is no finite number, but 1002 of",
        ),
    ] {
        let data = table(folder.path(), text);
        let told = Prepared::load(&data, &Settings::default()).unwrap_err().to_string();
        assert!(told.contains(words) && told.contains("table.csv"), "{told}");
    }
    let none = Csv::new(folder.path().join("none"));
    let told = none.schema(&Features::default()).unwrap_err().to_string();
    assert!(told.contains("none: cannot be read"), "{told}");
}

#[test]
fn a_first_line_that_is_perhaps_a_row_is_doubted() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        (
            "1,2,x\n3,4,y\n",
            "2 of 3 names are numbers, such as \"1\"; if it is a row, say header=no",
        ),
        ("a,2.5,-1e3,4\n1,2,3,4\n", "3 of 4 names are numbers, such as \"2.5\""),
        ("0,1,2,3,class\n1,2,3,4,x\n", ""),
        ("a,b,1\n3,4,y\n", ""),
        ("a,b\n3,4\n", ""),
    ] {
        let doubts = table(folder.path(), text).remarks(None);
        assert_eq!(doubts.len(), usize::from(!words.is_empty()), "{text}: {doubts:?}");
        assert!(doubts.concat().contains(words), "{text}");
    }
    let path = folder.path().join("table.csv");
    fs::write(&path, "1,2\n3,y\n4,z\n").unwrap();
    let named = open(&format!("csv:{},label=2", path.display()), 1).unwrap();
    assert_eq!(named.remarks(None), [] as [&str; 0]);
}

#[test]
fn large_numbers_that_stay_different_as_32_bit_numbers_are_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from("constant,time,cents,b\n");
    for row in 0..100 {
        let (time, cents) = (1_764_190_000 + 3600 * row, 33_000_000 + row);
        text += &format!("20000001,{time},{cents},c{}\n", row % 2);
    }
    let data = table(folder.path(), &text);
    assert!(Prepared::load(&data, &Settings::default()).is_ok());
}

#[test]
fn server_and_workers_prepare_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Stream::new(5).rng();
    let mut text = String::from("a,b,c,d,e,f,g,h,i,j,where,how,state\n");
    for row in 0..600 {
        let class = row % 3;
        for column in 0..10 {
            let shift = if column % 3 == class { 1.0 } else { 0.0 };
            text += &format!("{},", rng.unit() + shift);
        }
        let place = ["north", "south"][rng.below(2) as usize];
        text += &format!("{place},h{},s{class}\n", rng.below(4));
    }
    let data = table(folder.path(), &text);
    let settings = Settings { workers: 3, ..Settings::default() };
    let server = Prepared::load(&data, &settings).unwrap();
    assert_eq!((server.spec.shape().inputs, server.spec.shape().hot), (10 + 3 + 5, 2));
    let json = serde_json::to_string(&server.spec).unwrap();
    let spec: pstrain_data::DataSpec = serde_json::from_str(&json).unwrap();
    let (mine, fingerprint) = spec.prepare_parts(&data, &[PartId(1)]).unwrap();
    assert_eq!((mine, fingerprint), (vec![server.partition(PartId(1))], server.fingerprint));
}

/// Rows: dense columns (not standardised), one-hot columns, class.
type Rows = Vec<(Vec<f32>, Vec<u16>, u16)>;

/// The rows of a table with options.
fn with(path: &Path, options: &str) -> Result<Rows, String> {
    let data = open(&format!("csv:{}{options}", path.display()), 1)?;
    let schema = data.schema(&Features::default()).map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    let take = &mut |row: pstrain_compute::examples::Row<'_>| {
        rows.push((row.dense.to_vec(), row.hot.to_vec(), row.class() as u16));
        Ok(())
    };
    data.visit(&schema, take).map_err(|error| error.to_string())?;
    Ok(rows)
}

#[test]
fn missing_values_are_means_or_categories_or_rows_that_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = "x,z,place,y\n1,5,a,no\n3,6,?,yes\nNA,7,b,no\n";
    let path = table(folder.path(), text).path;
    // Columns: x, z, then a, b and all others.
    let mean = vec![
        (vec![1.0, 5.0], vec![2], 0),
        (vec![3.0, 6.0], vec![4], 1),
        (vec![2.0, 7.0], vec![3], 0),
    ];
    assert_eq!(with(&path, "").unwrap(), mean);
    assert_eq!(with(&path, ",missing=mean").unwrap(), mean);
    // Columns: x, z, then x is missing, x is there, a, b, place is missing, all other places.
    let category = [
        (vec![1.0, 5.0], vec![3, 4], 0),
        (vec![3.0, 6.0], vec![3, 6], 1),
        (vec![2.0, 7.0], vec![2, 5], 0),
    ];
    assert_eq!(with(&path, ",missing=category").unwrap(), category);
    let info = |options: &str| {
        open(&format!("csv:{}{options}", path.display()), 1).unwrap().info().unwrap()
    };
    let counted = info(",missing=category");
    let names: Vec<_> = counted.categories.iter().flat_map(|it| &it.values).collect();
    let names: Vec<_> = names.iter().map(|it| (it.name.as_str(), it.count)).collect();
    assert_eq!(names, [("a", 1), ("b", 1)], "a missing value is no value");
    let missing: Vec<_> = counted.roles.iter().map(|role| role.missing).collect();
    assert_eq!(missing, [1, 0, 1, 0]);
    let told: Vec<_> = info("").roles;
    let told: Vec<_> = told.iter().map(|it| (&*it.role, &*it.why, it.missing)).collect();
    let number = "3 of 3 values are numbers";
    assert_eq!(
        told,
        [
            ("number", "2 of 3 values are numbers", 1),
            ("number", number, 0),
            ("one-hot: 2", "line 2 has \"a\"", 1),
            ("classes: 2", "the last column", 0)
        ]
    );

    let text = text.replace("b,no", "b,?") + "4,8,c,yes\n";
    let path = table(folder.path(), &text).path;
    let kept = with(&path, ",missing=skip").unwrap();
    assert_eq!(kept, [(vec![1.0, 5.0], vec![2], 0), (vec![4.0, 8.0], vec![3], 1)]);
    let data = open(&format!("csv:{},missing=skip", path.display()), 1).unwrap();
    let info = data.info().unwrap();
    assert_eq!((info.rows, info.left_out), (2, 2));
    let settings = Settings { evaluation_share: 0.0, workers: 1, ..Settings::default() };
    let server = Prepared::load(&*data, &settings).unwrap();
    let (mine, fingerprint) = server.spec.prepare_parts(&*data, &[PartId(0)]).unwrap();
    assert_eq!((mine[0].len(), fingerprint), (2, server.fingerprint));
    let told = with(&table(folder.path(), "x,y\n?,a\n1,\n").path, ",missing=skip").unwrap_err();
    assert!(told.contains("each of its 2 rows has a missing value"), "{told}");
}

#[test]
fn roles_and_delimiters_are_as_users_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), "zip|x a|y\n10|1.5|no\n20|2.5|yes\n10|3.5|no\n").path;
    let rows = with(&path, ",delimiter=|,one-hot=zip").unwrap();
    assert_eq!(rows[1], (vec![2.5], vec![2], 1));
    let told = with(&path, "").unwrap_err();
    assert!(told.contains("no table") && told.contains("delimiter=CHARACTER"), "{told}");
    let told = with(&path, ",delimiter=space").unwrap_err();
    assert!(told.contains("names"), "{told}");
    for (options, words) in [
        (",delimiter=|,one-hot=zip,drop=zip", "one-hot=zip contradicts drop=zip"),
        (",delimiter=|,drop=y", "column y: it has drop=y and is the last"),
        (",delimiter=|,one-hot=none", "it has no column \"none\""),
    ] {
        let told = with(&path, options).unwrap_err();
        assert!(told.contains(words), "{told}");
    }
    let raw = open(&format!("csv:{},delimiter=|,standardise=no", path.display()), 1).unwrap();
    let server = Prepared::load(&*raw, &Settings { workers: 1, ..Settings::default() }).unwrap();
    let values: Vec<f32> = (0..2).map(|row| server.train.row(row).dense[1]).collect();
    assert!(values.iter().all(|value| [1.5, 2.5, 3.5].contains(value)), "{values:?}");
    for (name, byte) in [("tab", '\t'), ("semicolon", ';'), ("comma", ','), (";", ';')] {
        let text = "a,b,c\n1,2,no\n1,3,yes\n".replace(',', &byte.to_string());
        let rows = with(&table(folder.path(), &text).path, &format!(",delimiter={name}"));
        assert_eq!(rows.unwrap()[1], (vec![1.0, 3.0], vec![], 1));
    }
}

#[test]
fn options_that_contradict_the_job_are_refused_and_others_are_no_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let data = table(folder.path(), "a,b,kind,y\n1,2,x,0\n2,1,z,1\n3,5,x,1\n");
    let with = |options: &str| {
        open(&format!("csv:{},{options}", folder.path().join("table.csv").display()), 1).unwrap()
    };
    let schema = with("drop=b").schema(&Features::default()).unwrap();
    for options in ["drop=b", "drop=b,label=y", "missing=skip", "one-hot=kind"] {
        with(options).visit(&schema, &mut |_| Ok(())).unwrap();
    }
    data.visit(&schema, &mut |_| Ok(())).unwrap();
    for (options, told) in [
        ("drop=a", "table.csv: drop=a, but a model of the job reads the column"),
        ("drop=y", "drop=y, but a model of the job reads the column"),
        ("one-hot=a", "one-hot=a, but the column has numbers in the job"),
        ("target=a", "a is named, but the job predicts y; leave the option out"),
    ] {
        let refused = with(options).visit(&schema, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn a_path_may_have_a_comma() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x,y.csv"), "a,y\n1,0\n2,1\n").unwrap();
    let path = folder.path().display();
    for text in [format!(r"csv:{path}/x\,y.csv"), format!(r"{path}/x\,y.csv,label=y")] {
        assert_eq!(encoded(&*open(&text, 1).unwrap()).len(), 2, "{text}");
    }
    let told = open(&format!("csv:{path}/x,y.csv"), 1).unwrap_err();
    assert!(told.contains(r"a comma of a path is written \,"), "{told}");
}
