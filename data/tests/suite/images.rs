//! Images in IDX files and in the binary files of CIFAR-10.

#![expect(clippy::unwrap_used, reason = "a failing helper fails its test")]

use std::fs;
use std::path::Path;

use pstrain_compute::examples::Label;
use pstrain_compute::id::PartId;
use pstrain_data::{Cifar10, Dataset, Idx, Prepared, Settings, open};

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
    Idx { images, labels }
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
    let swapped = Idx { images: data.labels.clone(), labels: data.images.clone() };
    let whole = fs::read(&data.images).unwrap();
    let says = |data: &dyn Dataset, words: &str| {
        let told = refused(data);
        assert!(told.contains(words), "{told}");
    };
    says(&swapped, "images: no file of labels");
    fs::write(&data.images, &whole[..whole.len() - 1]).unwrap();
    says(&data, "images: it ends early");
    fs::write(&data.images, &whole[..whole.len() - 6]).unwrap();
    says(&data, "images: it ends after 59 of 60 images");
    fs::write(&data.images, idx(&[59, 2, 3], [0; 59 * 6])).unwrap();
    says(&data, "it has 59 images, but there are 60 labels");
    fs::write(&data.images, idx(&[0, 2, 3], [])).unwrap();
    let told = data.info().unwrap_err().to_string();
    assert!(told.contains("images: it has no images"), "{told}");
    fs::write(&data.images, [0, 0, 0x0d, 3, 0, 0]).unwrap();
    says(&data, "type 13, and not 8");
    fs::write(&data.images, "P5 3 2 255").unwrap();
    says(&data, "no IDX file");
    fs::write(&data.images, idx(&[u32::MAX, u32::MAX, 9], [])).unwrap();
    says(&data, "no usable size");
    fs::write(&data.images, &whole).unwrap();
    fs::write(&data.labels, idx(&[60], [0; 12])).unwrap();
    says(&data, "labels: it ends after 12 of 60 labels");
    fs::remove_file(&data.labels).unwrap();
    says(&data, "labels: cannot be read");
    assert!(open("idx:images", 1).unwrap_err().contains("idx:IMAGES,LABELS"));
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
    let data = Cifar10 { files: vec![path.clone()] };
    let refused = || Prepared::load(&data, &Settings::default()).unwrap_err().to_string();
    fs::write(&path, &records()[..4000]).unwrap();
    assert!(refused().contains("batch: it ends early"), "{}", refused());
    fs::write(&path, [10; 2 * 3073]).unwrap();
    assert!(refused().contains("record 0 has label 10"), "{}", refused());
}
