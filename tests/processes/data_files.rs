//! Missing, malformed or insufficient data are refused with a precise message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use flate2::write::GzEncoder;
use tempfile::TempDir;

use crate::cluster::path;
use crate::process::{Process, finish};

const ROWS: usize = 400;

/// A folder with a valid data file.
struct Files {
    folder: TempDir,
    good: String,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("good.txt");
        finish(&["data", "synth", "--rows", "400", "--out", path(&file)]).with_code(0);
        let good = fs::read_to_string(&file).unwrap();
        assert_eq!(good.lines().count(), ROWS);
        Self { folder, good }
    }

    /// Writes a file into the folder.
    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, bytes).unwrap();
        file
    }

    /// Writes the valid file with the fields of one line (counted from 1) changed.
    fn with_line(&self, number: usize, change: impl Fn(&mut Vec<&str>)) -> PathBuf {
        let mut lines: Vec<String> = self.good.lines().map(str::to_owned).collect();
        let mut fields: Vec<&str> = lines[number - 1].split(',').collect();
        change(&mut fields);
        lines[number - 1] = fields.join(",");
        self.file("changed.txt", lines.join("\n"))
    }
}

/// Checks that a run on `data` is refused with these words.
#[track_caller]
fn refused(data: &Path, words: &[&str]) {
    let data = path(data);
    let words = [&[data], words].concat();
    finish(&["run", "--data", data]).refused(2, &words);
}

#[test]
fn files_that_are_not_data_are_refused_by_name_with_the_expected_format() {
    let files = Files::new();
    refused(&files.folder.path().join("none.txt"), &["No such file"]);
    let sparse = ["run", "--model", "logistic", "--data", "libsvm:no/such/file"];
    finish(&sparse).refused(2, &["no/such/file: cannot be read", "No such file"]);
    refused(&files.file("empty.txt", ""), &["empty file", "41 features"]);
    refused(&files.file("blank.txt", "\n\n\n"), &["empty file"]);
    refused(&files.file("prose.txt", "once upon a time\n"), &["prose.txt:1", "1 column", "43"]);
    refused(&files.file("picture.txt", [0x89, b'P', 0, 0xff]), &["not text", "gzip, xz or zstd"]);
    let header = format!("duration,protocol_type,{}", &files.good);
    refused(&files.file("header.txt", header.replacen(",", ",x,", 1)), &["header.txt:1"]);
    let nothing = files.folder.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    refused(&nothing, &["no data file in this folder", "KDDTrain+.txt"]);
}

#[test]
fn malformed_records_are_named_by_line_and_column() {
    let files = Files::new();
    refused(
        &files.with_line(212, |fields| fields[4] = "12,5"),
        &["changed.txt:212: 44 columns, but the lines before have 43", "repair this line"],
    );
    refused(
        &files.with_line(399, |fields| fields.truncate(17)),
        &["changed.txt:399: 17 columns, but the lines before have 43"],
    );
    refused(
        &files.with_line(300, |fields| fields[4] = "many"),
        &["changed.txt:300: column 5 (src_bytes): \"many\" is not a number"],
    );
    for value in ["NaN", "inf", "1e999"] {
        refused(
            &files.with_line(2, |fields| fields[22] = value),
            &["changed.txt:2: column 23 (count)", value, "not a finite number", "repair or remove"],
        );
    }
    refused(
        &files.with_line(ROWS, |fields| fields[1] = "sctp"),
        &["changed.txt:400: column 2 (protocol_type)", "\"sctp\"", "allowed are icmp, tcp, udp"],
    );
    refused(
        &files.with_line(7, |fields| fields[41] = "neptune."),
        &["changed.txt:7: column 42", "\"neptune.\"", "KDD Cup 1999"],
    );
}

#[test]
fn truncated_and_misnamed_compressed_files_are_distinguished_from_bad_records() {
    let files = Files::new();
    let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, files.good.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let half = &packed[..packed.len() / 2];
    refused(&files.file("half.txt.gz", half), &["gzip-compressed file is damaged or ends early"]);
    // The format is detected by content, not by name.
    let misnamed = files.file("plain.txt.xz", &files.good);
    finish(&["run", "--epochs", "1", "--quiet", "--data", path(&misnamed)]).with_code(0);
}

#[test]
fn pipes_and_devices_are_refused_before_they_are_read() {
    let piped = ["run", "--data", "csv:/dev/stdin"];
    let words = ["/dev/stdin: cannot be read: a pipe cannot be read in passes; save it"];
    Process::start_reading(&piped, Stdio::piped()).wait().refused(2, &words);
    for data in ["csv:/dev/zero", "libsvm:/dev/zero", "raw:/dev/zero", "/dev/zero"] {
        let words = ["/dev/zero: cannot be read: it is a device; name a file"];
        finish(&["run", "--data", data]).refused(2, &words);
    }
}

#[test]
fn jobs_that_do_not_fit_their_data_are_refused_with_the_numbers() {
    let job = |args: &[&str], words: &[&str]| {
        finish(&[&["run", "--data", "synthetic:40"], args].concat()).refused(2, words);
    };
    job(&["--workers", "31"], &["31 workers", "30 training rows"]);
    job(&["--workers", "2", "--partition", "sizes:1,2,3"], &["3 sizes for 2 workers"]);
    job(&["--partition", "sizes:1,0"], &["--partition sizes:1,0", "above 0"]);
    job(&["--partition", "mix:1.5"], &["--partition mix:1.5", "0 to 1"]);
    let crowded = ["--workers", "20", "--partition", "dirichlet:0.01"];
    job(&crowded, &["dirichlet:0.01", "20 workers", "larger alpha, fewer workers"]);
    let classes = ["--workers", "12", "--partition", "by-class"];
    job(&classes, &["by-class", "without rows", "fewer workers or another partition"]);
    job(&["--evaluation-share", "1"], &["evaluation share 1", "not including 1"]);
    let data = |data: &str, words: &[&str]| finish(&["run", "--data", data]).refused(2, words);
    data("synthetic:0", &["synthetic", "0 rows", "at least one is needed"]);
    data("synthetic:many", &["--data synthetic:many", "no such number"]);
}

#[test]
fn files_that_are_not_models_are_refused() {
    let files = Files::new();
    let eval = |model: &Path, words: &[&str]| {
        let args = ["eval", "--model", path(model), "--data", "synthetic:100"];
        finish(&args).refused(2, &[&[path(model)], words].concat());
    };
    eval(&files.folder.path().join("none.safetensors"), &["cannot read", "No such file"]);
    eval(&files.file("noise.safetensors", "no model"), &["no safetensors file"]);
    let foreign = "\x02\0\0\0\0\0\0\0{}";
    eval(&files.file("foreign.safetensors", foreign), &["no model of pstrain", "--out"]);

    let out = files.folder.path().join("out");
    let args = ["run", "--quiet", "--data", "synthetic:400", "--epochs", "1", "--out"];
    finish(&[&args, &[path(&out)][..]].concat()).with_code(0);
    let model = out.join("model.safetensors");
    let whole = fs::read(&model).unwrap();
    eval(&files.file("half.safetensors", &whole[..whole.len() / 2]), &["is damaged"]);
    let args = ["eval", "--model", path(&model), "--data"];
    finish(&[&args, &["none.txt"][..]].concat()).refused(2, &["none.txt", "No such file"]);
}

#[test]
fn a_model_whose_predictions_are_not_finite_has_no_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, format!("x,y\n{text}")).unwrap();
        file
    };
    let (train, far) = (file("train.csv", &"1,0\n-1,1\n".repeat(40)), file("far.csv", "3e38,0\n"));
    let out = folder.path().join("out");
    let data = format!("{},standardise=no", path(&train));
    let job = ["run", "--data", &data, "--model", "softmax", "--learning-rate", "1"];
    finish(&[&job[..], &["--epochs", "20", "--out", path(&out)]].concat()).with_code(0);
    let eval = |data: &str| finish(&["eval", "--model", path(&out), "--data", data]);
    eval(path(&train)).with_code(0);
    let told = ["its predictions are not finite (1 evaluation row, all of far.csv): the loss is"];
    eval(path(&far)).refused(1, &told);
    // An option of the training data that the model contradicts is no option of these.
    eval(&format!("{},drop=x", path(&train))).refused(2, &["train.csv: drop=x, but a model"]);
}

#[test]
fn commands_and_words_with_a_mistake_are_refused_with_those_that_are_meant() {
    for (args, meant) in [
        (&["train"][..], "a similar subcommand exists: 'run'"),
        (&["trian", "--data", "synthetic"], "a similar subcommand exists: 'run'"),
        (&["evaluate"], "'eval'"),
        (&["run", "--consistency", "k-sync3"], "did you mean \"k-sync:3\"?"),
        (&["run", "--filters", "top-k=0.01 int-8"], "did you mean \"top-k:0.01 int8\"?"),
        (&["run", "--data", "cvs:rows"], "there is no format cvs; did you mean csv?"),
        (&["run", "--data", "csv:rows,lable=y"], "there is no option lable; did you mean label?"),
    ] {
        finish(args).refused(2, &[meant]);
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_without_a_writer_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for format in ["", "csv:", "libsvm:", "raw:", "cifar10:", "npz:"] {
        let data = format!("{format}{}", path(&pipe));
        let told = ["pipe", "cannot be read in passes; save it to a file first"];
        finish(&["data", "info", &data]).refused(2, &told);
    }
}
