//! Server and workers prepare identical data, whatever the source of the records.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs::{self, File};
use std::path::PathBuf;

use pstrain_compute::fingerprint::Fingerprint;
use pstrain_compute::id::PartId;
use std::sync::Arc;

use pstrain_data::{
    DataError, DataSpec, Dataset, Encoded, Features, Libsvm, NslKdd, Outline, Prepared, RecipeName,
    Settings, SyntheticNslKdd, write_csv,
};

const ROWS: u64 = 6000;

fn source() -> SyntheticNslKdd {
    SyntheticNslKdd { rows: ROWS, seed: 5 }
}

fn settings(recipe: RecipeName, partition: &str, workers: u32) -> Settings {
    let features = Features { recipe, ..Features::default() };
    let partition = partition.parse().unwrap();
    Settings { features, partition, workers, ..Settings::default() }
}

type Rows = Arc<dyn Dataset>;

/// Rows to evaluate on.
fn rows_of(dataset: impl Dataset + 'static) -> Option<Rows> {
    Some(Arc::new(dataset))
}

#[test]
fn a_worker_prepares_the_servers_partition_bit_for_bit() {
    for (recipe, partition, workers) in [
        (RecipeName::NslKdd93, "iid", 3),
        (RecipeName::NslKdd93, "paper-non-iid", 2),
        (RecipeName::NslKdd93, "mix:0.5", 4),
        (RecipeName::NslKdd122, "dirichlet:0.5", 3),
        (RecipeName::NslKdd122, "sizes:3,1", 2),
    ] {
        let server = Prepared::load(&source(), &settings(recipe, partition, workers)).unwrap();
        let json = serde_json::to_string(&server.spec).unwrap();
        let spec: DataSpec = serde_json::from_str(&json).unwrap();
        assert_eq!(spec, server.spec);
        let mut rows = 0;
        for part in (0..workers).map(PartId) {
            let (mine, fingerprint) = spec.prepare_parts(&source(), &[part]).unwrap();
            assert_eq!(mine, [server.partition(part)], "{partition}, part {part}");
            assert_eq!(fingerprint, server.fingerprint);
            rows += mine[0].len();
        }
        // Several partitions are returned in the requested order.
        let (both, _) = spec.prepare_parts(&source(), &[PartId(1), PartId(0)]).unwrap();
        assert_eq!(both, [1, 0].map(|part| server.partition(PartId(part))));
        assert_eq!(rows, server.train.len());
        assert_eq!(Fingerprint::of(&server.train), server.fingerprint);
    }
}

fn libsvm(path: PathBuf) -> Libsvm {
    Libsvm { files: vec![path], predict: None, dense: false, base: 1, columns: None }
}

#[test]
fn an_outline_equals_the_prepared_data_without_the_training_rows_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    fs::write(&path, "1 3:0.5 7:1\n-1 2:1\n".repeat(50)).unwrap();
    let sparse = libsvm(path);
    let same = |source: &dyn Dataset, settings: &Settings| {
        let (outline, whole) =
            (Outline::read(source, settings).unwrap(), Prepared::load(source, settings).unwrap());
        assert_eq!(outline.spec, whole.spec);
        assert_eq!(outline.evaluation, whole.evaluation);
        assert_eq!(outline.evaluation_rows, whole.evaluation_rows);
        assert_eq!(outline.fingerprint, whole.fingerprint);
        let given = whole.outline();
        assert_eq!((given.spec, given.evaluation), (outline.spec, outline.evaluation));
    };
    for recipe in RecipeName::ALL {
        same(&source(), &settings(recipe, "mix:0.5", 3));
    }
    same(&sparse, &settings(RecipeName::NslKdd93, "iid", 2));
    let everything = Settings { evaluation_share: 0.0, ..settings(RecipeName::NslKdd93, "iid", 2) };
    same(&source(), &everything);
    let evaluation_data = rows_of(SyntheticNslKdd { rows: 500, seed: 6 });
    same(&source(), &Settings { evaluation_data, ..everything });
    let others = Settings { evaluation_data: rows_of(sparse.clone()), ..Settings::default() };
    same(&sparse, &others);

    let too_many = settings(RecipeName::NslKdd93, "iid", 5000);
    let why = |error: DataError| error.to_string();
    assert_eq!(
        why(Outline::read(&source(), &too_many).unwrap_err()),
        why(Prepared::load(&source(), &too_many).unwrap_err())
    );
}

#[test]
fn separate_evaluation_rows_are_encoded_alike_and_leave_the_training_rows_unchanged() {
    let given = SyntheticNslKdd { rows: 300, seed: 9 };
    let held_out = Prepared::load(&source(), &Settings::default()).unwrap();
    let rows = &held_out.evaluation_rows;
    assert_eq!((rows.rows, rows.share), (ROWS / 4, Some(0.25)));
    let wish = Settings { evaluation_data: rows_of(given), ..Settings::default() };
    let other = Prepared::load(&source(), &wish).unwrap();
    assert_eq!((&other.spec, &other.train), (&held_out.spec, &held_out.train));
    assert_eq!(*other.evaluation, held_out.spec.encode_all(&given).unwrap());
    let rows = &other.evaluation_rows;
    assert_eq!((rows.rows, &rows.source, rows.share), (300, &given.describe(), None));
    let read = Encoded::read(&source(), &wish).unwrap();
    assert_eq!(Prepared::of(&read, &wish).unwrap().evaluation, other.evaluation);

    let all = Settings { evaluation_share: 0.0, ..wish };
    assert_eq!(Prepared::load(&source(), &all).unwrap().train.len() as u64, ROWS);
}

#[test]
fn unusable_evaluation_rows_are_refused_with_their_source_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let (files, predict, columns) = (vec![path], None, None);
        Arc::new(Libsvm { files, predict, dense: false, base: 1, columns })
    };
    let (sparse, wide) = (file("sparse", "1 1:1\n-1 2:1\n"), file("wide", "1 3:1\n"));
    let records = Arc::new(SyntheticNslKdd { rows: 10, seed: 1 });
    let none = Arc::new(SyntheticNslKdd { rows: 0, seed: 1 });
    let source: Rows = Arc::new(source());
    let cases: [(Rows, Rows, _); 4] = [
        (source.clone(), sparse.clone(), ["sparse cannot be evaluated on", "its rows are sparse"]),
        (sparse.clone(), records, ["synthetic NSL-KDD, 10 rows", "are NSL-KDD records"]),
        (source, none, ["synthetic NSL-KDD, 0 rows", "it has no rows"]),
        (sparse, wide, ["wide:1: the row has 3 columns", "libsvm:PATH,columns=3"]),
    ];
    for (train, given, words) in cases {
        let evaluation_data = Some(given);
        let wish =
            Settings { evaluation_share: 0.0, evaluation_data, workers: 1, ..Settings::default() };
        let (whole, outline) = (Prepared::load(&*train, &wish), Outline::read(&*train, &wish));
        for error in [whole.unwrap_err(), outline.unwrap_err()] {
            let told = error.to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
        }
    }
}

#[test]
fn uncompressed_files_are_recognised_by_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("KDDTrain+.txt");
    let folder_of = || NslKdd { path: folder.path().to_owned() };
    let is_plain = |dataset: &dyn Dataset| dataset.is_plain();
    assert!(!is_plain(&folder_of()) && !is_plain(&source()));
    fs::write(&path, "0,tcp\n").unwrap();
    assert!(is_plain(&folder_of()) && is_plain(&libsvm(path.clone())));
    fs::write(&path, [0x1f, 0x8b, 8, 0]).unwrap();
    assert!(!is_plain(&folder_of()));
}

#[test]
fn written_records_read_back_as_the_same_examples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("synth.csv");
    write_csv(ROWS, 5, &mut File::create(&path).unwrap()).unwrap();
    for recipe in RecipeName::ALL {
        let wish = settings(recipe, "iid", 2);
        let drawn = Prepared::load(&source(), &wish).unwrap();
        let read = Prepared::load(&NslKdd { path: folder.path().to_owned() }, &wish).unwrap();
        assert_eq!((&read.train, &read.evaluation), (&drawn.train, &drawn.evaluation));
        assert_eq!(read.fingerprint, drawn.fingerprint);
        assert_eq!((read.spec.source.as_str(), read.spec.generated), ("synth.csv", None));
        let (mine, _) =
            drawn.spec.prepare_parts(&NslKdd { path: path.clone() }, &[PartId(1)]).unwrap();
        assert_eq!(mine, [drawn.partition(PartId(1))]);
    }
}

#[test]
fn a_specification_names_no_path() {
    let folder = tempfile::tempdir().unwrap();
    write_csv(100, 5, &mut File::create(folder.path().join("synth.csv")).unwrap()).unwrap();
    let source = NslKdd { path: folder.path().to_owned() };
    let server = Prepared::load(&source, &Settings::default()).unwrap();
    let json = serde_json::to_string(&server.spec).unwrap();
    assert!(json.contains("synth.csv") && !json.contains('/'), "{json}");
}

#[test]
fn training_columns_are_standardised_and_all_rows_are_encoded() {
    let server = Prepared::load(&source(), &settings(RecipeName::NslKdd122, "iid", 1)).unwrap();
    let rows = server.train.len() as f64;
    for column in 0..38 {
        let values =
            || (0..server.train.len()).map(|row| f64::from(server.train.row(row).dense[column]));
        let mean = values().sum::<f64>() / rows;
        let square = values().map(|value| value * value).sum::<f64>() / rows;
        let constant = values().all(|value| value == 0.0);
        assert!(mean.abs() < 1e-4, "column {column}: mean {mean}");
        assert!(constant || (square - 1.0).abs() < 1e-3, "column {column}: {square}");
    }
    let all = server.spec.encode_all(&source()).unwrap();
    assert_eq!(all.len() as u64, ROWS);
    assert_eq!(all.class_counts().iter().sum::<u64>(), ROWS);
}

#[test]
fn a_fingerprint_distinguishes_other_data_from_the_jobs() {
    let server = Prepared::load(&source(), &Settings::default()).unwrap();
    let other = |rows, seed| {
        let source = SyntheticNslKdd { rows, seed };
        let (_, fingerprint) = server.spec.prepare_parts(&source, &[PartId(0)]).unwrap();
        fingerprint.difference(&server.fingerprint).unwrap()
    };
    assert_eq!(other(ROWS / 2, 5), "2250 training rows where the job has 4500");
    assert!(other(ROWS, 6).starts_with("training rows per class ["));
}

#[test]
fn wrong_settings_are_refused_with_the_allowed_values() {
    let refused = |source: &dyn Dataset, settings: &Settings| {
        Prepared::load(source, settings).unwrap_err().to_string()
    };
    for evaluation_share in [1.0, -0.1, f64::NAN] {
        let told = refused(&source(), &Settings { evaluation_share, ..Settings::default() });
        assert!(told.ends_with(": must be from 0 up to but not including 1"), "{told}");
    }
    let none = SyntheticNslKdd { rows: 0, seed: 1 };
    assert_eq!(
        refused(&none, &Settings::default()),
        "synthetic NSL-KDD, 0 rows, seed 1: 0 rows, but at least one is needed to train on"
    );
    let many = SyntheticNslKdd { rows: 1 << 32, seed: 1 };
    let told = refused(&many, &Settings::default());
    assert!(told.ends_with("4294967296 rows, but at most 4294967295 can be trained on"), "{told}");
    let server = Prepared::load(&source(), &Settings::default()).unwrap();
    let nobody = server.spec.prepare_parts(&source(), &[PartId(2)]).unwrap_err();
    assert_eq!(nobody.to_string(), "partition 3 is none of the job's 2 (1 to 2)");
    let mut broken = server.spec;
    broken.standardisation.0.pop();
    assert!(matches!(
        broken.prepare_parts(&source(), &[PartId(0)]),
        Err(DataError::Specification { .. })
    ));
    broken.standardisation.0.push(pstrain_data::Standard { mean: 0.0, scale: 0.0 });
    let told = broken.prepare_parts(&source(), &[PartId(0)]).unwrap_err().to_string();
    assert!(told.starts_with("column same_srv_rate: a value is too far"), "{told}");
}

#[test]
fn a_synthetic_row_depends_on_seed_and_row_number_only() {
    let first = Prepared::load(&source(), &Settings::default()).unwrap().spec;
    let few = first.encode_all(&SyntheticNslKdd { rows: 100, seed: 5 }).unwrap();
    let many = first.encode_all(&SyntheticNslKdd { rows: 200, seed: 5 }).unwrap();
    assert_eq!(few, many.select(&(0..100).collect::<Vec<_>>()));
    let other = first.encode_all(&SyntheticNslKdd { rows: 100, seed: 6 }).unwrap();
    assert_ne!(few, other);
}

#[test]
fn synthetic_data_resemble_the_training_file() {
    let facts = SyntheticNslKdd::default().info().unwrap();
    assert_eq!(facts.rows, 125_973);
    // Counts of the original file.
    for (class, count) in facts.classes.iter().zip([67_343.0, 45_927.0, 11_656.0, 995.0, 52.0_f64])
    {
        let spread = 4.0 * count.sqrt();
        assert!((class.count as f64 - count).abs() < spread, "{class:?}");
    }
    // Means and deviations, in the original, of the nine features that predict the class best.
    for (name, mean, deviation) in [
        ("count", 84.108, 114.508),
        ("logged_in", 0.3957, 0.4890),
        ("srv_serror_rate", 0.2825, 0.4470),
        ("serror_rate", 0.2845, 0.4465),
        ("dst_host_serror_rate", 0.2845, 0.4448),
        ("dst_host_same_srv_rate", 0.5212, 0.4489),
        ("dst_host_srv_serror_rate", 0.2785, 0.4457),
        ("dst_host_srv_count", 115.653, 110.702),
        ("same_srv_rate", 0.6609, 0.4396),
    ] {
        let column = facts.columns.iter().find(|column| column.name == name).unwrap();
        assert!(
            (column.mean - mean).abs() < 0.02 * deviation,
            "{column:?}, {mean} in the original"
        );
    }
    assert_eq!(facts.categories[0].values.len(), 3);
    let column = |name| facts.columns.iter().find(|column| column.name == name).unwrap();
    assert_eq!((column("land").max, column("same_srv_rate").max), (1.0, 1.0));
}

#[test]
fn synthetic_data_of_a_seed_keep_their_digest() {
    // The digest changes when the profile, the generator, the split or the encoding changes. Then
    // recorded runs on synthetic data cannot be repeated with this version, and the changelog must
    // say so.
    let server = Prepared::load(&source(), &Settings::default()).unwrap();
    assert_eq!(server.fingerprint.to_string(), "4500 rows, digest 57d08ff9c4fd");
}
