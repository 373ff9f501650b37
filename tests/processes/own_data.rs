//! Data of one's own: tables, images and sparse rows are learnt as well as by a plain program, and
//! data that do not fit into memory are refused with numbers.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pstrain_compute::rng::{Random, Stream};
use pstrain_tests::{Rows, accuracy_of_softmax};

use crate::cluster::{Server, path, real};
use crate::process::{Process, finish};

/// Returns the accuracy of a run on training and evaluation data.
fn trained(train: &str, test: &str, model: &str) -> f64 {
    let data = ["run", "--json", "--data", train, "--evaluation-data", test];
    let job =
        ["--model", model, "--epochs", "20", "--optimizer", "momentum", "--schedule", "cosine:800"];
    real(&finish(&[&data[..], &job].concat()).with_code(0).json()["accuracy"])
}

/// Checks that softmax regression is as accurate as the reference, within a point. The classes are
/// linear in the inputs, so that perceptrons cannot be better; they also fit noise of so few rows.
#[track_caller]
fn check(train: &str, test: &str, expected: f64) {
    for (model, less) in [("softmax", 0.01), ("mlp:32", 0.06), ("mlp:32,16", 0.06)] {
        let accuracy = trained(train, test, model);
        assert!(accuracy >= expected - less, "{model}: {accuracy}, and not {expected}");
    }
}

/// A number that is roughly normal, with deviation 1.
fn normal(rng: &mut Random) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

/// Draws rows of ten numbers of widely different scale and two texts; writes them as a table.
fn table(file: &Path, rows: u64, stream: Stream) -> Rows {
    let mut all = Rows::new();
    let mut text = String::from("place,");
    (0..10).for_each(|column| write!(text, "x{column},").unwrap());
    text += "kind,state\n";
    for row in 0..rows {
        let mut rng = stream.fork("row", row).rng();
        let numbers: Vec<f64> = (0..10).map(|_| normal(&mut rng)).collect();
        let (place, kind) = (rng.below(4) as usize, rng.below(3) as usize);
        let score = |class: usize| {
            let sum = numbers
                .iter()
                .enumerate()
                .map(|(at, value)| value * ((at * 7 + class * 5) % 9) as f64 / 4.0);
            sum.sum::<f64>()
                + [0.0, 2.0][usize::from(place == class)]
                + [0.0, 1.0][usize::from(kind == class)]
        };
        let scores = [0, 1, 2].map(|class| score(class) + 0.7 * normal(&mut rng));
        let class = (0..3).max_by(|&one, &other| scores[one].total_cmp(&scores[other])).unwrap();
        write!(text, "{},", ["north", "south", "east", "west"][place]).unwrap();
        for (at, value) in numbers.iter().enumerate() {
            write!(text, "{},", 50.0 + value * 10_f64.powi(at as i32 % 4)).unwrap();
        }
        writeln!(text, "{},s{class}", ["pump", "fan", "valve"][kind]).unwrap();
        let hot = |of: usize, set: usize| (0..of).map(move |at| f64::from(u8::from(at == set)));
        all.push((numbers.into_iter().chain(hot(4, place)).chain(hot(3, kind)).collect(), class));
    }
    fs::write(file, text).unwrap();
    all
}

#[test]
fn a_table_of_numbers_and_texts_is_learnt_as_well_as_by_a_plain_program() {
    let folder = tempfile::tempdir().unwrap();
    let [train, test] = ["train.csv", "test.csv"].map(|name| folder.path().join(name));
    let stream = Stream::new(3);
    let expected = accuracy_of_softmax(
        &table(&train, 3000, stream.fork("train", 0)),
        &table(&test, 1000, stream.fork("test", 0)),
        3,
    );
    check(&format!("csv:{}", path(&train)), &format!("csv:{}", path(&test)), expected);
}

/// Draws images of 8 x 8 pixels with a noisy pattern for each of 10 classes; writes two IDX files.
fn images(folder: &Path, name: &str, rows: u32, stream: Stream) -> (String, Rows) {
    let pattern =
        |class: u64, pixel: u64| Stream::new(1).fork("pattern", class * 64 + pixel).rng().unit();
    let (mut pixels, mut labels, mut all) = (Vec::new(), Vec::new(), Rows::new());
    for row in 0..rows {
        let mut rng = stream.fork("row", row.into()).rng();
        let class = rng.below(10);
        let begin = pixels.len();
        for pixel in 0..64 {
            let value = pattern(class, pixel) + 0.6 * normal(&mut rng);
            pixels.push((value.clamp(0.0, 1.0) * 255.0) as u8);
        }
        labels.push(class as u8);
        let seen = pixels[begin..].iter().map(|&pixel| f64::from(pixel) / 127.5 - 1.0);
        all.push((seen.collect(), class as usize));
    }
    let header = |sizes: &[u32]| {
        let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
        [0, 0, 8, sizes.clone().count() as u8 / 4].into_iter().chain(sizes).collect::<Vec<_>>()
    };
    let files = ["images", "labels"].map(|kind| folder.join(format!("{name}-{kind}")));
    fs::write(&files[0], [header(&[rows, 8, 8]), pixels].concat()).unwrap();
    fs::write(&files[1], [header(&[rows]), labels].concat()).unwrap();
    (format!("idx:{},{}", path(&files[0]), path(&files[1])), all)
}

#[test]
fn images_are_learnt_as_well_as_by_a_plain_program() {
    let folder = tempfile::tempdir().unwrap();
    let stream = Stream::new(4);
    let (train, rows) = images(folder.path(), "train", 3000, stream.fork("train", 0));
    let (test, test_rows) = images(folder.path(), "test", 1000, stream.fork("test", 0));
    check(&train, &test, accuracy_of_softmax(&rows, &test_rows, 10));
}

/// Draws sparse rows of 20 classes, in which words of the class are more frequent; writes them.
fn topics(file: &Path, rows: u64, stream: Stream) -> Rows {
    let (mut text, mut all) = (String::new(), Rows::new());
    for row in 0..rows {
        let mut rng = stream.fork("row", row).rng();
        let class = rng.below(20);
        let mut features: Vec<u64> = (0..8)
            .map(|_| if rng.unit() < 0.6 { class * 4 + rng.below(4) } else { rng.below(80) })
            .collect();
        features.sort_unstable();
        features.dedup();
        write!(text, "{}", class + 1).unwrap();
        features.iter().for_each(|feature| write!(text, " {}:1", feature + 1).unwrap());
        text.push('\n');
        let mut inputs = vec![0.0; 80];
        features.iter().for_each(|&feature| inputs[feature as usize] = 1.0);
        all.push((inputs, class as usize));
    }
    fs::write(file, text).unwrap();
    all
}

#[test]
fn sparse_rows_of_twenty_classes_are_learnt_as_well_as_by_a_plain_program() {
    let folder = tempfile::tempdir().unwrap();
    let [train, test] = ["train", "test"].map(|name| folder.path().join(name));
    let stream = Stream::new(5);
    let expected = accuracy_of_softmax(
        &topics(&train, 4000, stream.fork("train", 0)),
        &topics(&test, 1000, stream.fork("test", 0)),
        20,
    );
    check(&format!("libsvm:{}", path(&train)), &format!("libsvm:{}", path(&test)), expected);
}

#[test]
fn data_that_do_not_fit_into_memory_are_refused_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records");
    let mut bytes = b"{\"columns\": 7999, \"classes\": [\"no\", \"yes\"]}\n".to_vec();
    for row in 0..2000_u16 {
        bytes.extend([0; 4 * 7998]);
        bytes.extend([f32::from(row), f32::from(row % 2)].map(f32::to_le_bytes).concat());
    }
    fs::write(&file, bytes).unwrap();
    let data = format!("raw:{}", path(&file));
    // 61 MiB of rows, and 80 MB for the process.
    let small = ["sh", "-c", "ulimit -v 80000; exec \"$0\" \"$@\""];
    let refused = |args: &[&str], words: &[&str]| {
        let all = [&["records: ", " MiB of memory are left"], words].concat();
        Process::start_under(&small, &[args, &["--data", &data]].concat()).wait().refused(2, &all);
    };
    refused(
        &["run"],
        &["rows are read, and to hold twice as many, new buffers take ", "data-from = own"],
    );
    let own = ["server", "--listen", "127.0.0.1:0", "--data-from", "own"];
    let many = ["--evaluation-share", "0.9"];
    refused(
        &[&own[..], &many].concat(),
        &["1800 evaluation rows take 54.9 MiB", "evaluation-share"],
    );
    let server = Server::tcp(&[&["--data", &data, "--data-from", "own", "--workers", "1"]]);
    let worker = ["worker", "--server", &server.address];
    refused(&worker, &["1500 rows of this node take 45.8 MiB", "let more workers share the rows"]);
}
