//! Rows in NumPy's files, and raw records.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;

use pstrain_compute::examples::{Label, Target};
use pstrain_compute::id::PartId;
use pstrain_data::{Dataset, Features, Npy, Predict, Prepared, Raw, Settings, open};

/// The bytes of an array, as `numpy.save` writes them, in a version of the format.
pub(crate) fn array(version: u8, descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let order = "'fortran_order': False";
    with_header(version, &format!("{{'descr': {descr}, {order}, 'shape': {shape}, }}"), values)
}

fn with_header(version: u8, header: &str, values: &[u8]) -> Vec<u8> {
    let length = if version == 1 { 2 } else { 4 };
    let size = (header.len() as u32 + 1).to_le_bytes();
    [b"\x93NUMPY", &[version, 0][..], &size[..length], header.as_bytes(), b"\n", values].concat()
}

/// Writes arrays into a folder; returns the data.
fn written(folder: &Path, features: &[u8], labels: &[u8]) -> Npy {
    let [x, y] = ["x.npy", "y.npy"].map(|name| folder.join(name));
    fs::write(&x, features).unwrap();
    fs::write(&y, labels).unwrap();
    Npy { features: x, labels: y, predict: None, standardised: true }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The rows, not standardised, with their labels.
fn rows(data: &dyn Dataset) -> Vec<(Vec<f32>, u16)> {
    let schema = data.schema(&Features::default()).unwrap();
    let mut rows = Vec::new();
    let take = &mut |row: pstrain_compute::examples::Row<'_>| {
        rows.push((row.dense.to_vec(), row.class() as u16));
        Ok(())
    };
    data.visit(&schema, take).unwrap();
    rows
}

#[test]
fn every_type_and_version_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let labels = array(1, "'<i8'", "(3,)", &[7_i64, -2, 7].map(i64::to_le_bytes).concat());
    let (mut values, wanted) = (Vec::new(), [1.0, 0.0, 3.0, 200.0, 1.0, 0.0]);
    let whole = [1_u8, 0, 3, 200, 1, 0];
    let wide = |size: usize| {
        let wide = |&value: &u8| [vec![value], vec![0; size - 1]].concat();
        whole.iter().flat_map(wide).collect::<Vec<u8>>()
    };
    values.push(("'<f4'", floats(&wanted)));
    values.push(("'<f8'", wanted.map(|value| f64::from(value).to_le_bytes()).concat()));
    for (descr, size) in
        [("'|u1'", 1), ("'<u2'", 2), ("'<i2'", 2), ("'<i4'", 4), ("'<u4'", 4), ("'<i8'", 8)]
    {
        values.push((descr, wide(size)));
    }
    for (descr, values) in values {
        for (version, shape) in [(1, "(3, 2)"), (2, "(3, 1, 2)"), (3, "(3, 2)")] {
            let data = written(folder.path(), &array(version, descr, shape, &values), &labels);
            let labelled = |row: usize, label| (wanted[2 * row..][..2].to_vec(), label);
            assert_eq!(rows(&data), [labelled(0, 1), labelled(1, 0), labelled(2, 1)], "{descr}");
        }
    }
    let data = written(
        folder.path(),
        &array(1, "'|i1'", "(2, 1)", &[255, 128]),
        &array(1, "'|b1'", "(2,)", &[1, 0]),
    );
    assert_eq!(rows(&data), [(vec![-1.0], 1), (vec![-128.0], 0)]);
    assert_eq!(data.schema(&Features::default()).unwrap().classes, ["0", "1"]);
}

#[test]
fn server_and_workers_prepare_the_same_rows_of_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..600).map(|value| (value % 37) as f32 / 7.0).collect();
    let labels: Vec<u8> = (0..200).map(|row| row % 5).collect();
    let x = array(1, "'<f4'", "(200, 3)", &floats(&values));
    let data = written(folder.path(), &x, &array(1, "'|u1'", "(200,)", &labels));
    for partition in ["iid", "by-class", "dirichlet:0.5", "mix:0.5", "sizes:3,2,1"] {
        let settings =
            Settings { workers: 3, partition: partition.parse().unwrap(), ..Settings::default() };
        let server = Prepared::load(&data, &settings).unwrap();
        assert!(server.spec.schema.standardised);
        let (mine, fingerprint) = server.spec.prepare_parts(&data, &[PartId(1)]).unwrap();
        assert_eq!((mine, fingerprint), (vec![server.partition(PartId(1))], server.fingerprint));
    }
    let (x, y) = (data.features.display(), data.labels.display());
    let plain = open(&format!("npy:{x},{y},standardise=no"), 1).unwrap();
    assert!(!plain.schema(&Features::default()).unwrap().standardised);
    for (words, told) in [
        ("npy:x", "two files are needed"),
        ("npy:,y", "a path is empty"),
        ("npy:x,y,standardize=no", "there is no option standardize; did you mean standardise?"),
        ("npy:x,y,predict=values", "predict=values: write classes or numbers"),
        ("npy:x,y,standardise=maybe", "standardise=maybe: write yes or no"),
    ] {
        let error = open(words, 1).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn damaged_arrays_are_named_with_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let x = array(1, "'<f4'", "(3, 2)", &floats(&[0.0; 6]));
    let y = array(1, "'<i4'", "(3,)", &[1_i32, 2, 2].map(i32::to_le_bytes).concat());
    let refused = |x: &[u8], y: &[u8], words: &str| {
        let data = written(folder.path(), x, y);
        let told = Prepared::load(&data, &Settings::default()).unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
    };
    let header = |header: &str| with_header(1, header, &[0; 24]);
    for (x, words) in [
        (&b"P5"[..], "x.npy: it ends early"),
        (b"no array", "x.npy: no .npy file"),
        (&with_header(4, "", &[]), "version 4 of the format"),
        (&x[..x.len() - 1], "x.npy: it ends early"),
        (&x[..x.len() - 8], "x.npy: it ends after 2 of 3 rows"),
        (&array(1, "'|O'", "(3, 2)", &[0; 24]), "pandas.DataFrame(array).to_csv("),
        (&array(1, "'<c8'", "(3, 2)", &[0; 48]), "numpy.hstack([array.real, array.imag])"),
        (&array(1, "'<f16'", "(3, 2)", &[0; 96]), "save numpy.float64(array) instead"),
        (&array(1, "'<M8[s]'", "(3, 2)", &[0; 48]), "save array.view('int64') instead"),
        (&array(1, "'<U3'", "(3, 2)", &[0; 72]), "numpy.unique(labels, return_inverse=True)[1]"),
        (&[&x[..], b"more"].concat(), "x.npy: it has more bytes than the 3 rows of its header"),
        (&array(1, "'<f4'", "(3, 9000000)", &[0; 80]), "x.npy: it ends early; fetch it again"),
        (&array(1, "[('a', '<f4')]", "(3, 2)", &[0; 24]), "structured_to_unstructured(array)"),
        (&header("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }"), "Fortran order"),
        (
            &header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, x), }"),
            "header is damaged",
        ),
        (&header("{'descr': '<f4'}"), "header is damaged"),
        (&array(1, "'<f4'", "(3,)", &[0; 12]), "save array.reshape(-1, 1) if each value is a row"),
        (&array(1, "'<f4'", "(3, 0)", &[]), "shape (3, 0) has no rows of values"),
        (&array(1, "'<f4'", "(2, 2)", &[0; 16]), "it has 2 rows, but the other file has 3 labels"),
        (
            &array(1, "'<f4'", "(3, 2)", &floats(&[0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0])),
            "x.npy: row 1, column 1: NaN is no finite number",
        ),
        (
            &array(1, "'<f8'", "(3, 1)", &[0.0, 0.0, 1e300].map(f64::to_le_bytes).concat()),
            "row 2, column 0: 1e300 is no finite number (f32)",
        ),
    ] {
        refused(x, &y, words);
    }
    for (y, words) in [
        (array(1, "'<i4'", "(3, 2)", &[0; 24]), "y.npy: shape (3, 2) is none of labels"),
        (array(1, "'<i4'", "(3, 2)", &[0; 24]), "labels.argmax(axis=1) instead if they are one-"),
        (array(1, "'<i4'", "()", &[0; 4]), "y.npy: shape () is none of labels"),
        (
            array(1, "'<f4'", "(3,)", &floats(&[1.0, 0.5, 2.0])),
            "its labels have fractions, such as 0.5: say predict=numbers",
        ),
        (array(1, "'<f4'", "(3,)", &floats(&[1.0, 1e30, 2.0])), "row 1: 1.0000000150474662e30 is"),
        (array(1, "'<u8'", "(3,)", &[255; 24]), "row 0: 1.8446744073709552e19 is no whole number"),
        (array(1, "'<i4'", "(3,)", &[0; 12]), "its labels are all 0"),
        (array(1, "'<i4'", "(0,)", &[]), "y.npy: it has no rows"),
        (array(1, "'<i4'", "(3,)", &[0; 8]), "y.npy: it ends after 2 of 3 rows"),
    ] {
        refused(&x, &y, words);
    }
    assert_eq!(
        rows(&written(folder.path(), &x, &array(1, "'<i4'", "(3, 1)", &y[y.len() - 12..]))).len(),
        3
    );
    // Another copy has a class and a shape that the job lacks.
    let data = written(folder.path(), &x, &y);
    let schema = data.schema(&Features::default()).unwrap();
    let other = |x: &[u8], y: &[u8]| {
        let data = written(folder.path(), x, y);
        data.visit(&schema, &mut |_| Ok(())).unwrap_err().to_string()
    };
    let told = other(&x, &array(1, "'|u1'", "(3,)", &[1, 2, 3]));
    assert!(told.contains("y.npy: row 2: 3 is no class of the job"), "{told}");
    let told = other(&array(1, "'<f4'", "(3, 1)", &[0; 12]), &y);
    assert!(told.contains("its rows have 1 value, and the rows of the job 2"), "{told}");
}

#[test]
fn values_that_32_bits_do_not_tell_apart_are_refused_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let y = array(1, "'|u1'", "(40,)", &[0, 1].repeat(20));
    let seconds = |row: i64| 1_700_000_000 + row;
    let bytes = (0..40).map(seconds).flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
    let whole = array(1, "'<i8'", "(40, 1)", &bytes);
    let bytes = (0..40).flat_map(|row| (seconds(row) as f64).to_le_bytes()).collect::<Vec<u8>>();
    let double = array(1, "'<f8'", "(40, 1)", &bytes);
    // All are one `f64`, too.
    let bytes = (0..40).flat_map(|row| ((1_i64 << 60) + row).to_le_bytes()).collect::<Vec<u8>>();
    let hashes = array(1, "'<i8'", "(40, 1)", &bytes);
    for x in [whole, double, hashes] {
        let told = written(folder.path(), &x, &y).schema(&Features::default()).unwrap_err();
        let told = told.to_string();
        assert!(told.contains("x.npy: column 0: its values are between 1"), "{told}");
        assert!(told.contains("subtract 1"), "{told}");
    }
    let rows: Vec<f32> =
        (0..40).flat_map(|row| [1.7e9 + 9.0 * row as f32, (row % 2) as f32]).collect();
    let data = raw(folder.path(), r#"{"columns": 1, "classes": ["no", "yes"]}"#, &rows);
    let told = data.schema(&Features::default()).unwrap_err().to_string();
    assert!(told.contains("records: column 0: its values are between 1"), "{told}");
    let row = |row: i64| format!("{} 1:{} 2:1\n", row % 2, seconds(9 * row));
    let text: String = (0..40).map(row).collect();
    fs::write(folder.path().join("rows"), &text).unwrap();
    let data = open(&format!("libsvm:{}", folder.path().join("rows").display()), 1).unwrap();
    let told = data.schema(&Features::default()).unwrap_err().to_string();
    assert!(told.contains("rows: feature 1: its values are between 1"), "{told}");
    // With a row that lacks the feature there is a zero.
    fs::write(folder.path().join("rows"), text + "1 2:1\n").unwrap();
    data.schema(&Features::default()).unwrap();
}

/// The rows as a job encodes them, with their labels.
fn labels(data: &dyn Dataset) -> (Target, Vec<Label>) {
    let schema = data.schema(&Features::default()).unwrap();
    let mut labels = Vec::new();
    data.visit_labels(&schema, &mut |label| labels.push(label)).unwrap();
    (schema.shape.target, labels)
}

#[test]
fn arrays_and_records_have_numbers_to_predict() {
    let folder = tempfile::tempdir().unwrap();
    let x = array(1, "'<f4'", "(3, 1)", &floats(&[1.0, 2.0, 3.0]));
    let values = [1.5_f32, -2.0, 0.0];
    let expected = (Target::Value, values.map(Label::Value).to_vec());
    let data = written(folder.path(), &x, &array(1, "'<f4'", "(3,)", &floats(&values)));
    let numbers = Npy { predict: Some(Predict::Numbers), ..data.clone() };
    assert_eq!(labels(&numbers), expected);
    // A copy is read as the job says, and not otherwise.
    let schema = numbers.schema(&Features::default()).unwrap();
    data.visit(&schema, &mut |_| Ok(())).unwrap();
    let classes = Npy { predict: Some(Predict::Classes), ..data };
    let told = classes.visit(&schema, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(told.contains("predict=classes, but the job predicts numbers"), "{told}");
    let rows = [1.0, 1.5, 2.0, -2.0, 3.0, 0.0];
    assert_eq!(labels(&raw(folder.path(), r#"{"columns": 1}"#, &rows)), expected);
    let many = (0..40_i32).flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
    let x = array(1, "'<i4'", "(40, 1)", &many);
    let data = written(folder.path(), &x, &array(1, "'<i4'", "(40,)", &many));
    let told = data.schema(&Features::default()).unwrap_err().to_string();
    assert!(told.contains("its 40 labels have 40 different values: say predict=numbers"), "{told}");
    let classes = Npy { predict: Some(Predict::Classes), ..data };
    assert_eq!(labels(&classes).0, Target::Classes(40));
}

/// Writes raw records: a header, and rows whose last value is the class.
fn raw(folder: &Path, header: &str, rows: &[f32]) -> Raw {
    let path = folder.join("records");
    fs::write(&path, [header.as_bytes(), b"\n", &floats(rows)].concat()).unwrap();
    Raw { path }
}

#[test]
fn raw_records_are_read_after_their_header() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"columns": 2, "classes": ["no", "yes"], "names": ["a", "b"], "rows": 3}"#;
    let values = [1.0, 2.0, 1.0, -3.0, 4.0, 0.0, 5.0, 6.0, 1.0];
    let data = raw(folder.path(), header, &values);
    let expected = [(vec![1.0, 2.0], 1), (vec![-3.0, 4.0], 0), (vec![5.0, 6.0], 1)];
    assert_eq!(rows(&data), expected);
    let info = data.info().unwrap();
    assert_eq!((info.rows, &*info.columns[1].name, info.columns[1].max), (3, "b", 6.0));
    let settings = Settings { workers: 1, ..Settings::default() };
    let server = Prepared::load(&data, &settings).unwrap();
    let (mine, fingerprint) = server.spec.prepare_parts(&data, &[PartId(0)]).unwrap();
    assert_eq!((mine, fingerprint), (vec![server.train], server.fingerprint));
    let plain = r#"{"columns": 2, "classes": ["no", "yes"], "standardise": false}"#;
    let data = raw(folder.path(), plain, &values);
    assert!(!data.schema(&Features::default()).unwrap().standardised);
    assert_eq!(data.columns(&server.spec.schema), ["1", "2"]);
}

#[test]
fn damaged_raw_records_are_named_with_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let good = r#"{"columns": 1, "classes": ["no", "yes"]}"#;
    let counted = r#"{"columns": 1, "classes": ["no", "yes"], "rows": 3}"#;
    for (header, values, words) in [
        ("", &[1.0, 0.0][..], "its first line is no header such as {\"columns\": 3"),
        (r#"{"classes": ["no", "yes"]}"#, &[1.0, 0.0], "missing field `columns`"),
        (r#"{"columns": 1}"#, &[1.0, f32::NAN], "row 0: its number to predict is NaN"),
        (r#"{"columns": 16777216}"#, &[1.0, 0.0], "it ends early"),
        (r#"{"columns": 0, "classes": ["no", "yes"]}"#, &[0.0], "0 columns; 1 to"),
        (r#"{"columns": 1, "classes": ["no"]}"#, &[1.0, 0.0], "1 classes; 2 to"),
        (
            r#"{"columns": 1, "classes": ["a", "b"], "names": []}"#,
            &[1.0, 0.0],
            "0 names of 1 column",
        ),
        (good, &[1.0, 0.0, 2.0, 2.0], "row 1: its class is 2, and not 0 to 1"),
        (good, &[1.0, 0.5], "row 0: its class is 0.5"),
        (good, &[1.0, f32::NAN], "row 0: its class is NaN"),
        (good, &[1.0, 0.0, f32::INFINITY, 1.0], "row 1, column 0: inf is no finite number"),
        (good, &[1.0, 0.0, 1.0], "it ends early"),
        (counted, &[1.0, 0.0, 1.0, 1.0], "it ends after 2 of 3 rows"),
        (counted, &[1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0], "it has more bytes than the 3 rows"),
        (
            r#"{"columns": 1, "classes": ["no", "no"]}"#,
            &[1.0, 0.0],
            "two classes are called \"no\"",
        ),
    ] {
        let data = raw(folder.path(), header, values);
        let told = Prepared::load(&data, &Settings::default()).unwrap_err().to_string();
        assert!(told.contains("records: ") && told.contains(words), "{told}");
    }
    let data = raw(folder.path(), good, &[1.0, 0.0]);
    let schema = data.schema(&Features::default()).unwrap();
    let other = raw(folder.path(), r#"{"columns": 2, "classes": ["no", "yes"]}"#, &[]);
    let told = other.visit(&schema, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(told.contains("not those of the job"), "{told}");
    for words in ["raw:", "raw:a,b"] {
        assert!(open(words, 1).unwrap_err().contains("write raw:PATH"), "{words}");
    }
}

#[cfg(feature = "npz")]
#[test]
fn an_archive_has_the_rows_of_its_arrays() {
    use std::io::Write as _;

    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f32> = (0..600).map(|value| (value % 37) as f32 / 7.0).collect();
    let classes: Vec<u8> = (0..200).map(|row| row % 5).collect();
    let x = array(1, "'<f4'", "(200, 3)", &floats(&values));
    let y = array(1, "'|u1'", "(200,)", &classes);
    let plain = written(folder.path(), &x, &y);
    let settings = Settings::default();
    let expected = Prepared::load(&plain, &settings).unwrap();
    let path = folder.path().join("rows.npz");
    for (method, names, options) in [
        (CompressionMethod::Stored, ["x", "y"], ""),
        (CompressionMethod::Deflated, ["a", "b"], ",features=a,labels=b"),
    ] {
        let mut archive = ZipWriter::new(fs::File::create(&path).unwrap());
        let method = SimpleFileOptions::default().compression_method(method);
        for (name, array) in names.into_iter().zip([&x, &y]) {
            archive.start_file(format!("{name}.npy"), method).unwrap();
            archive.write_all(array).unwrap();
        }
        archive.finish().unwrap();
        let data = open(&format!("npz:{}{options}", path.display()), 1).unwrap();
        let server = Prepared::load(&*data, &settings).unwrap();
        assert_eq!(
            (&server.train, server.fingerprint),
            (&expected.train, expected.fingerprint.clone())
        );
        // A worker may have the same rows in other files.
        let (mine, _) = server.spec.prepare_parts(&plain, &[PartId(1)]).unwrap();
        assert_eq!(mine, [expected.partition(PartId(1))]);
    }
    let refused = |words: &str, told: &str| {
        let data = open(&format!("npz:{}{words}", path.display()), 1);
        let error = match data {
            Ok(data) => data.schema(&Features::default()).unwrap_err().to_string(),
            Err(error) => error,
        };
        assert!(error.contains(told), "{error}");
    };
    refused("", "rows.npz: it has no array x; its arrays are ");
    refused(",features=a,labels=c", "it has no array c");
    refused(",more=c", "there is no option more; write npz:PATH");
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    fs::write(&path, damaged).unwrap();
    let data = open(&format!("npz:{},features=a,labels=b", path.display()), 1).unwrap();
    let told = Prepared::load(&*data, &settings).unwrap_err().to_string();
    assert!(told.contains("a.npy: "), "{told}");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused(",features=a,labels=b", "rows.npz: no archive that can be read");
    fs::remove_file(&path).unwrap();
    refused("", "rows.npz: cannot be read");
}

#[test]
fn compressed_arrays_and_records_have_the_same_rows() {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    let packed = |path: &Path| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&fs::read(path).unwrap()).unwrap();
        fs::write(path, encoder.finish().unwrap()).unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let x = array(1, "'<f4'", "(3, 2)", &floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let y = array(1, "'<i4'", "(3,)", &[1_i32, 2, 2].map(i32::to_le_bytes).concat());
    let data = written(folder.path(), &x, &y);
    let plain = rows(&data);
    packed(&data.features);
    packed(&data.labels);
    assert_eq!(rows(&data), plain);
    let header = r#"{"columns": 1, "classes": ["no", "yes"]}"#;
    let data = raw(folder.path(), header, &[1.0, 0.0, 2.0, 1.0]);
    let plain = rows(&data);
    packed(&data.path);
    assert_eq!(rows(&data), plain);
    let schema = data.schema(&Features::default()).unwrap();
    let whole = fs::read(&data.path).unwrap();
    fs::write(&data.path, &whole[..whole.len() - 9]).unwrap();
    assert!(data.schema(&Features::default()).is_err());
    assert!(data.visit(&schema, &mut |_| Ok(())).is_err());
}
