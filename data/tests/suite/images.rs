//! Images in IDX files and in the binary files of CIFAR-10.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;

use pstrain_compute::examples::Label;
use pstrain_compute::examples::Picture;
use pstrain_compute::id::PartId;
use pstrain_data::{Cifar, CifarSet, Dataset, Idx, Predict, Prepared, Settings, open};

/// The bytes of an IDX file of unsigned bytes.
fn idx(sizes: &[u32], values: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// Writes `rows` images of 2 x 3 pixels, with classes 0, 1, 2, 0, ...
fn written(folder: &Path, rows: u32) -> Idx {
    let (images, labels) = (folder.join("images"), folder.join("labels"));
    fs::write(&images, idx(&[rows, 2, 3], (0..rows * 6).map(|pixel| pixel as u8))).unwrap();
    fs::write(&labels, idx(&[rows], (0..rows).map(|row| (row % 3) as u8))).unwrap();
    Idx { images, labels, predict: None }
}

#[test]
fn images_are_rows_of_numbers_from_minus_one_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = written(folder.path(), 60);
    assert_eq!(data.describe(), "images, labels");
    let settings = Settings { evaluation_share: 0.0, workers: 3, ..Settings::default() };
    let prepared = Prepared::load(&data, &settings).unwrap();
    assert_eq!(prepared.spec.classes(), ["0", "1", "2"]);
    let rows = &prepared.train;
    assert_eq!((rows.len(), rows.row(0).dense.len()), (60, 6));
    let expected: Vec<f32> = (6..12).map(|pixel| pixel as f32 / 127.5 - 1.0).collect();
    assert_eq!((rows.row(1).dense, rows.row(1).label), (&expected[..], Label::Class(1)));
    assert_eq!(rows.row(42).dense[3], 1.0);

    let json = serde_json::to_string(&prepared.spec).unwrap();
    assert!(json.len() < 500, "no statistics of single pixels: {json}");
    let (mine, fingerprint) = prepared.spec.prepare_parts(&data, &[PartId(2)]).unwrap();
    assert_eq!((mine, fingerprint), (vec![prepared.partition(PartId(2))], prepared.fingerprint));
}

#[test]
fn damaged_files_of_images_are_named_with_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let data = written(folder.path(), 60);
    let refused =
        |data: &dyn Dataset| Prepared::load(data, &Settings::default()).unwrap_err().to_string();
    let (images, labels) = (data.labels.clone(), data.images.clone());
    let swapped = Idx { images, labels, predict: None };
    let whole = fs::read(&data.images).unwrap();
    let says = |data: &dyn Dataset, words: &str| {
        let told = refused(data);
        assert!(told.contains(words), "{told}");
    };
    says(&swapped, "labels: shape (60,) has no rows of values");
    fs::write(&data.images, &whole[..whole.len() - 1]).unwrap();
    says(&data, "images: it ends early");
    fs::write(&data.images, &whole[..whole.len() - 6]).unwrap();
    says(&data, "images: it ends after 59 of 60 rows");
    fs::write(&data.images, idx(&[59, 2, 3], [0; 59 * 6])).unwrap();
    says(&data, "images: it has 59 rows, but the other file has 60 labels");
    fs::write(&data.images, idx(&[0, 2, 3], [])).unwrap();
    says(&data, "images: it has 0 rows, but the other file has 60 labels");
    fs::write(&data.images, [&whole[..], &[0; 7]].concat()).unwrap();
    says(&data, "images: it has more bytes than the 60 rows of its header");
    fs::write(&data.images, [0, 0, 0x0a, 3, 0, 0]).unwrap();
    says(&data, "type 10, and not 8, 9 or 11 to 14");
    // The header asks for 17 GB, and the file has two bytes.
    fs::write(&data.images, idx(&[1, u32::MAX, 1], [0, 0])).unwrap();
    says(&data, "images: shape (1, 4294967295, 1) has no rows of values");
    fs::write(&data.images, idx(&[1, 1 << 12, 1 << 12], [0, 0])).unwrap();
    says(&data, "images: it ends early");
    fs::write(&data.images, "P5 3 2 255").unwrap();
    says(&data, "no IDX file");
    fs::write(&data.images, idx(&[u32::MAX, u32::MAX, 9], [])).unwrap();
    says(&data, "images: shape (4294967295, 4294967295, 9) has no rows of values");
    fs::write(&data.images, &whole).unwrap();
    fs::write(&data.labels, idx(&[60], [0; 12])).unwrap();
    says(&data, "labels: it ends after 12 of 60 rows");
    fs::remove_file(&data.labels).unwrap();
    says(&data, "labels: cannot be read");
    assert!(open("idx:images", 1).unwrap_err().contains("idx:IMAGES,LABELS"));
}

#[test]
fn values_of_other_types_are_standardised_and_may_be_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let data = Idx { predict: Some(Predict::Numbers), ..written(folder.path(), 3) };
    let floats = |sizes: &[u32], values: &[f32]| {
        let bytes = values.iter().flat_map(|value| value.to_be_bytes());
        let mut all = idx(sizes, bytes);
        all[2] = 13;
        all
    };
    fs::write(&data.labels, floats(&[3], &[0.5, -1.0, 2.0])).unwrap();
    fs::write(&data.images, floats(&[3, 1, 1], &[0.25, 0.5, 0.75])).unwrap();
    let schema = data.schema(&Default::default()).unwrap();
    assert!(schema.standardised);
    let mut rows = Vec::new();
    let take = &mut |row: pstrain_compute::examples::Row<'_>| {
        rows.push((row.dense.to_vec(), row.label));
        Ok(())
    };
    data.visit(&schema, take).unwrap();
    let row = |value, label| (vec![value], Label::Value(label));
    assert_eq!(rows, [row(0.25, 0.5), row(0.5, -1.0), row(0.75, 2.0)]);
    let told = Idx { predict: None, ..data }.schema(&Default::default()).unwrap_err().to_string();
    assert!(told.contains("labels: its labels have fractions, such as 0.5"), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_is_refused_before_it_is_read() {
    for text in [
        "cifar10:/dev/zero",
        "raw:/dev/zero",
        "libsvm:/dev/zero",
        "npy:/dev/zero,/dev/zero",
        "idx:/dev/zero,/dev/zero",
        "csv:/dev/zero",
        "nsl-kdd:/dev/zero",
    ] {
        let error = Prepared::load(&*open(text, 1).unwrap(), &Settings::default()).unwrap_err();
        let mut told = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            told = format!("{told}: {error}");
            source = error.source();
        }
        assert!(told.contains("it is a device; name a file"), "{told}");
    }
}

/// The bytes of two records of CIFAR-10.
fn records() -> Vec<u8> {
    let record = |label: u8| [vec![label], vec![label; 3072]].concat();
    [record(3), record(9)].concat()
}

#[test]
fn the_batches_of_cifar_10_are_read_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!("cifar10:{}", folder.path().display());
    assert!(open(&words, 1).unwrap_err().contains("data_batch_1.bin"));
    for batch in 1..=5 {
        fs::write(folder.path().join(format!("data_batch_{batch}.bin")), records()).unwrap();
    }
    let data = open(&words, 1).unwrap();
    assert_eq!((data.files().len(), data.is_plain()), (5, true));
    let settings = Settings { evaluation_share: 0.0, ..Settings::default() };
    let prepared = Prepared::load(&*data, &settings).unwrap();
    assert_eq!(prepared.train.class_counts(), [0, 0, 0, 5, 0, 0, 0, 0, 0, 5]);
    assert_eq!(prepared.spec.classes()[3], "cat");
    let black = 9.0 / 127.5 - 1.0;
    assert_eq!(prepared.train.row(1).dense, [black; 3072]);
}

#[test]
fn damaged_files_of_cifar_10_are_named_with_the_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch");
    let data = Cifar { set: CifarSet::Ten, files: vec![path.clone()] };
    let refused = || Prepared::load(&data, &Settings::default()).unwrap_err().to_string();
    fs::write(&path, &records()[..4000]).unwrap();
    assert!(refused().contains("batch: it ends early"), "{}", refused());
    fs::write(&path, [10; 2 * 3073]).unwrap();
    assert!(refused().contains("record 0 has label 10"), "{}", refused());
}

#[test]
fn images_of_cifar_100_have_the_second_label_and_are_stored_pixel_by_pixel() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!("cifar100:{}", folder.path().display());
    assert!(open(&words, 1).unwrap_err().contains("there is no train.bin"));
    let pixels: Vec<u8> = (0..3072_u32).map(|value| (value / 1024 * 100) as u8).collect();
    let record = |superclass, class| [&[superclass, class][..], &pixels].concat();
    let records = [record(19, 0), record(3, 99)].concat();
    fs::write(folder.path().join("train.bin"), &records).unwrap();
    let settings = Settings { evaluation_share: 0.0, ..Settings::default() };
    let prepared = Prepared::load(&*open(&words, 1).unwrap(), &settings).unwrap();
    let spec = &prepared.spec;
    assert_eq!((spec.classes().len(), &*spec.classes()[99]), (100, "worm"));
    assert_eq!(spec.shape().picture, Some(Picture { height: 32, width: 32, channels: 3 }));
    assert_eq!(prepared.train.row(1).class(), 99);
    let colours = [0.0, 100.0, 200.0].map(|value: f32| value / 127.5 - 1.0);
    assert_eq!(prepared.train.row(0).dense[..3], colours);
    let path = folder.path().join("other");
    fs::write(&path, record(0, 100)).unwrap();
    let data = Cifar { set: CifarSet::Hundred, files: vec![path] };
    let refused = Prepared::load(&data, &settings).unwrap_err().to_string();
    assert!(refused.contains("record 0 has label 100, and not 0 to 99"), "{refused}");
}

#[test]
fn arrays_of_pictures_know_their_size_and_channels_come_last() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |sizes: &[u32], values: &[u8]| {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        let count = sizes.clone().count() as u8 / 4;
        [0, 0, 8, count].into_iter().chain(sizes).chain(values.iter().copied()).collect::<Vec<_>>()
    };
    let values: Vec<u8> = (0..100).collect();
    let (images, labels) = (folder.path().join("images"), folder.path().join("labels"));
    fs::write(&labels, bytes(&[2], &[0, 1])).unwrap();
    for (sizes, picture, first) in [
        (&[2, 5, 10][..], Some([5, 10, 1]), [0, 1, 2]),
        (&[2, 5, 5, 2], Some([5, 5, 2]), [0, 1, 2]),
        (&[2, 2, 5, 5], Some([5, 5, 2]), [0, 25, 1]),
        (&[2, 50], None, [0, 1, 2]),
    ] {
        fs::write(&images, bytes(sizes, &values)).unwrap();
        let data = Idx { images: images.clone(), labels: labels.clone(), predict: None };
        let schema = data.schema(&Default::default()).unwrap();
        let picture = picture.map(|[height, width, channels]| Picture { height, width, channels });
        assert_eq!(schema.shape.picture, picture, "{sizes:?}");
        let mut found = Vec::new();
        let take = &mut |row: pstrain_compute::examples::Row<'_>| {
            found.push(row.dense[..3].to_vec());
            Ok(())
        };
        data.visit(&schema, take).unwrap();
        assert_eq!(found[0], first.map(|value: u8| f32::from(value) / 127.5 - 1.0), "{sizes:?}");
    }
}
